#include <troupe/devices/device/swap.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/block_pool.hpp>

namespace troupe::detail {

// A buffer that lists hold, on the device or on the host.
struct Swapper::Parcel {
  std::size_t bytes;
  int holders = 0;           // `Saved` handles
  Parcels* where = nullptr;  // the swapper's list that holds it, and its position there
  Parcels::iterator place = {};
  Ref<Buffer> device = {};              // null: away
  Ref<Buffer> host = {};                // null: never went out
  std::shared_ptr<Event> written = {};  // a copy out starts behind it; null once there was one
  // the last copy from or to `device`, unless the compute stream has waited for it
  std::shared_ptr<Event> pending = {};
  std::shared_ptr<Event> copied = {};  // the copy to `host`

  void move_to(Parcels& to) {
    to.splice(to.end(), *where, place);
    where = &to;
  }
};

class Saved::Body final : public Counted {
 public:
  static Body* make(Swapper& swapper, Swapper::Parcel& parcel, const Shape& shape,
                    std::size_t offset) {
    return new (BlockPool<sizeof(Body)>::take()) Body(swapper, parcel, shape, offset);
  }

  Swapper& swapper;
  Swapper::Parcel& parcel;
  const Shape shape;
  const std::size_t offset;

 private:
  Body(Swapper& s, Swapper::Parcel& p, const Shape& sh, std::size_t o)
      : swapper(s), parcel(p), shape(sh), offset(o) {}
  void destroy() noexcept override {
    swapper.release(parcel);
    this->~Body();
    BlockPool<sizeof(Body)>::give(this);
  }
};

// ---- handles

Saved::Body& Saved::body() const { return *static_cast<Body*>(object()); }

Tensor Saved::tensor() const {
  const Body& b = body();
  std::lock_guard lock(b.swapper.mutex_);
  if (b.parcel.device) b.swapper.become_newest(b.parcel);
  b.swapper.trim(&b.parcel);
  b.swapper.fetch(b.parcel);
  return Tensor::on_buffer(b.parcel.device, b.offset, &b.swapper.device_, dtype(), b.shape);
}

Tensor Saved::peek() const {
  const Body& b = body();
  {
    std::lock_guard lock(b.swapper.mutex_);
    if (!b.parcel.device)
      return Tensor::on_buffer(b.parcel.host, b.offset, nullptr, dtype(), b.shape);
  }
  return tensor();
}

void Saved::approach() const {
  const Body& b = body();
  std::lock_guard lock(b.swapper.mutex_);
  b.swapper.approach(b.parcel);
}

std::size_t Saved::bytes() const {
  return static_cast<std::size_t>(body().shape.elements()) * size_of(dtype());
}

// ---- parcels come and go

Swapper::Swapper(Device& device, const SwapOptions& options)
    : device_(device), options_(options), compute_(device.compute_stream()),
      out_(device.copy_stream()), in_(device.copy_stream()) {}

Swapper::~Swapper() = default;

Value Swapper::admit(Tensor tensor) {
  Ref<Buffer> buffer = tensor.buffer();
  if (!buffer || tensor.device() != &device_ || buffer->bytes() < options_.threshold) return tensor;
  const DType dtype = tensor.dtype();
  const Shape shape = tensor.shape();
  const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(tensor.raw()) -
                                               static_cast<const unsigned char*>(buffer->data()));
  tensor.reset();  // otherwise it would count as another holder of the buffer
  std::lock_guard lock(mutex_);
  Parcel& parcel = parcel_of(std::move(buffer));
  ++parcel.holders;
  Saved saved;
  saved.adopt(Saved::Body::make(*this, parcel, shape, offset), Value::Kind::saved, dtype);
  trim(&parcel);
  return saved;
}

// Trims to the levels of the options; one parcel is exempt.
void Swapper::trim(const Parcel* newest) {
  while (is_above(options_.fill_level, leaving_bytes_) && start_oldest_out(newest)) {}
  while (!leaving_.empty() && is_above(options_.keep_level, 0)) give_back(leaving_.front());
}

Swapper::Parcel& Swapper::parcel_of(Ref<Buffer> buffer) {
  if (auto it = by_buffer_.find(buffer.get()); it != by_buffer_.end()) {
    become_newest(*it->second);
    return *it->second;
  }
  Parcel& made = resident_.emplace_back(Parcel{buffer->bytes()});
  made.where = &resident_;
  made.place = std::prev(resident_.end());
  made.written = compute_->mark();
  made.device = std::move(buffer);
  by_buffer_[made.device.get()] = &made;
  return made;
}

void Swapper::release(Parcel& parcel) noexcept {
  std::lock_guard lock(mutex_);
  if (--parcel.holders > 0) return;
  if (parcel.device) {
    settle(parcel);
    by_buffer_.erase(parcel.device.get());
  }
  if (parcel.where == &leaving_) leaving_bytes_ -= parcel.bytes;
  if (parcel.host) counters_.on_host -= parcel.bytes;
  if (parcel.host && !parcel.copied->is_done())
    parcel.copied->then([keep = parcel.host](const Status&) {});
  parcel.where->erase(parcel.place);
}

// Work enqueued on the compute stream from now on runs behind the parcel's copies.
void Swapper::settle(Parcel& parcel) {
  if (parcel.pending) compute_->wait(parcel.pending);
  parcel.pending.reset();
}

void Swapper::become_newest(Parcel& parcel) {
  if (parcel.where == &leaving_) leaving_bytes_ -= parcel.bytes;
  parcel.move_to(resident_);
}

// ---- out

// Returns true if the bytes in use, without `but_for`, exceed that share of the limit.
bool Swapper::is_above(double level, std::uint64_t but_for) const {
  const AllocatorCounters memory = device_.allocator().counters();
  return static_cast<double>(memory.in_use - std::min(memory.in_use, but_for)) >
         level * static_cast<double>(memory.limit);
}

// Starts out the oldest parcel; never `newest`, if that is given. A buffer with other holders gets
// a second chance at the end of the queue: otherwise a loop that saves values it also keeps would
// look at all of them again at every push.
bool Swapper::start_oldest_out(const Parcel* newest) {
  constexpr int kLooks = 16;
  auto next = resident_.begin();
  for (int look = 0; next != resident_.end() && &*next != newest && (!newest || look < kLooks);
       ++look) {
    Parcel& oldest = *next++;
    if (start_out(oldest)) return true;
    if (newest) oldest.move_to(resident_);
  }
  return false;
}

bool Swapper::start_out(Parcel& parcel) {
  if (!parcel.device->is_sole()) return false;
  if (parcel.host) {
    ++counters_.again;
  } else {
    parcel.host = host_buffer(parcel.bytes);
    if (!parcel.host) return false;
    const Shape all{static_cast<std::int64_t>(parcel.bytes)};
    out_->wait(parcel.written);
    parcel.written.reset();
    device_.copy_to_host(*out_, ConstView(parcel.device->data(), DType::u8, all),
                         View(parcel.host->data(), DType::u8, all));
    parcel.pending = parcel.copied = out_->mark();
    ++counters_.out;
    counters_.out_bytes += parcel.bytes;
    counters_.on_host += parcel.bytes;
    counters_.peak_on_host = std::max(counters_.peak_on_host, counters_.on_host);
  }
  parcel.move_to(leaving_);
  leaving_bytes_ += parcel.bytes;
  return true;
}

Ref<Buffer> Swapper::host_buffer(std::size_t bytes) {
  host_is_full_ = options_.host_limit && counters_.on_host + bytes > options_.host_limit;
  if (!host_is_full_) try {
      return Buffer::allocate(device_.host_memory(), bytes);
    } catch (const Error&) { host_is_full_ = true; }
  return {};
}

bool Swapper::give_back_one() {
  if (leaving_.empty() && !start_oldest_out(nullptr)) return false;
  give_back(leaving_.front());
  return true;
}

void Swapper::give_back(Parcel& parcel) {
  settle(parcel);
  by_buffer_.erase(parcel.device.get());
  parcel.device = {};
  leaving_bytes_ -= parcel.bytes;
  parcel.move_to(away_);
}

bool Swapper::make_room(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!give_back_one()) return false;
  while (!device_.allocator().has_room(bytes) && give_back_one()) {}
  ++counters_.made_room;
  return true;
}

// ---- in

void Swapper::fetch(Parcel& parcel) {
  if (parcel.where == &leaving_) become_newest(parcel);
  while (!parcel.device) {
    while (!device_.allocator().has_room(parcel.bytes) && give_back_one()) {}
    try {
      start_in(parcel, Buffer::allocate(device_.allocator(), parcel.bytes));
    } catch (const Error& e) {
      if (e.code() != Code::resource_exhausted) throw;
      if (!give_back_one())
        throw Error(e.code(), fmt::format("{} on {} to bring a saved value back; {}", e.what(),
                                          device_.name(), what_helps()));
    }
  }
  settle(parcel);
}

// Parcels that are not needed yet push nothing else out.
void Swapper::approach(Parcel& parcel) {
  if (parcel.where == &leaving_) become_newest(parcel);
  if (parcel.device) return;
  while (!device_.allocator().has_room(parcel.bytes)) {
    if (leaving_.empty()) return;
    give_back(leaving_.front());
  }
  try {
    start_in(parcel, Buffer::allocate(device_.allocator(), parcel.bytes));
    ++counters_.ahead;
  } catch (const Error&) {
    // It is fetched when it is needed.
  }
}

void Swapper::start_in(Parcel& parcel, Ref<Buffer> buffer) {
  const Shape all{static_cast<std::int64_t>(parcel.bytes)};
  in_->wait(compute_->mark());
  device_.copy_from_host(*in_, Tensor::on_buffer(parcel.host, 0, nullptr, DType::u8, all),
                         View(buffer->data(), DType::u8, all));
  parcel.pending = in_->mark();
  parcel.device = std::move(buffer);
  by_buffer_[parcel.device.get()] = &parcel;
  parcel.move_to(resident_);
  ++counters_.in;
  counters_.in_bytes += parcel.bytes;
}

// ---- for people

SwapCounters Swapper::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

std::string Swapper::advice() const {
  std::lock_guard lock(mutex_);
  return what_helps();
}

std::string Swapper::what_helps() const {
  std::string text = fmt::format("{} bytes of saved values are on the host, ", counters_.on_host);
  if (host_is_full_)
    return text + fmt::format(
                      "which takes no more (its limit is {}): raise swap.host_limit, or the "
                      "device's memory limit",
                      options_.host_limit ? std::to_string(options_.host_limit) : "its memory");
  return text + fmt::format(
                    "and no other of at least {} bytes can go there: raise the device's memory "
                    "limit, lower swap.threshold or the loop's "
                    "parallel_iterations",
                    options_.threshold);
}

}  // namespace troupe::detail
