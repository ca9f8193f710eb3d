#include <troupe/cluster/protocol/archive.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

#include <msgpack.hpp>

namespace troupe {
namespace {

// The output of msgpack's packer.
class Head {
 public:
  explicit Head(std::vector<std::byte>& head) : head_(head) {}
  void write(const char* data, std::size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    head_.insert(head_.end(), bytes, bytes + size);
  }

 private:
  std::vector<std::byte>& head_;
};

template <class T>
void pack(Message& message, const T& x) {
  Head head(message.head);
  msgpack::packer<Head>(head).pack(x);
}

constexpr int kMostNested = 1000;  // lists in lists

void write(MessageWriter& w, const Value& value, int depth);
void read(MessageReader& r, Value& value, int depth);

enum class Form : std::uint8_t { none, scalar, tensor, list, strings };

}  // namespace

template <>
inline constexpr std::uint64_t kValues<Form> = 5;

// ---- writing

void MessageWriter::spill() {
  message_.head.insert(message_.head.end(), next_.begin(),
                       next_.begin() + static_cast<std::ptrdiff_t>(used_));
  used_ = 0;
}

void MessageWriter::raw(std::span<const std::byte> bytes) {
  if (bytes.size() <= kGathered - used_) {
    std::copy(bytes.begin(), bytes.end(), next_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += bytes.size();
    return;
  }
  spill();
  message_.head.insert(message_.head.end(), bytes.begin(), bytes.end());
}

// As the library's packer does, in the fewest bytes, the highest first.
void MessageWriter::long_number(std::uint64_t n) {
  const int log = n < 1 << 8 ? 0 : n < 1 << 16 ? 1 : n < std::uint64_t{1} << 32 ? 2 : 3;
  const std::uint64_t highest_first = __builtin_bswap64(n << (64 - (8 << log)));
  next_[used_] = static_cast<std::byte>(0xcc + log);
  std::memcpy(&next_[used_ + 1], &highest_first, std::size_t{1} << log);
  used_ += 1 + (std::size_t{1} << log);
}

void MessageWriter::negative_number(std::int64_t n) {
  spill();
  pack(message_, n);
}

// By its bits: the library would write 2.0, and -0.0, as integers.
void MessageWriter::real(double x) { unsigned_number(std::bit_cast<std::uint64_t>(x)); }

void MessageWriter::text(const std::string& s) {
  spill();
  pack(message_, s);
}

void MessageWriter::bytes(const void* data, std::size_t size) {
  if (size <= kShort) {
    make_room(2 + size);
    next_[used_] = std::byte{0xc4};
    next_[used_ + 1] = static_cast<std::byte>(size);
    std::memcpy(&next_[used_ + 2], data, size);
    used_ += 2 + size;
    return;
  }
  spill();
  Head head(message_.head);
  msgpack::packer<Head> packer(head);
  packer.pack_bin(static_cast<std::uint32_t>(size));
  packer.pack_bin_body(static_cast<const char*>(data), static_cast<std::uint32_t>(size));
}

// ---- reading

void MessageReader::malformed(const std::string& what) {
  throw Error(Code::data_loss, "a malformed message: " + what);
}

PackScan::Element MessageReader::next() {
  const PackScan::Element e = scan_.next();
  if (e.kind == PackScan::Kind::malformed)
    malformed("it ends early, or is no sequence of numbers and strings");
  return e;
}

std::int64_t MessageReader::other_number() {
  const PackScan::Element e = next();
  if (e.kind == PackScan::Kind::negative) return e.negative;
  if (e.kind != PackScan::Kind::number || e.number > static_cast<std::uint64_t>(INT64_MAX))
    malformed("no number where one was expected");
  return static_cast<std::int64_t>(e.number);
}

std::uint64_t MessageReader::other_unsigned_number() {
  const PackScan::Element e = next();
  if (e.kind != PackScan::Kind::number) malformed("no positive number where one was expected");
  return e.number;
}

double MessageReader::real() { return std::bit_cast<double>(unsigned_number()); }

bool MessageReader::flag() {
  if (bool b; scan_.next_flag(b)) return b;
  const PackScan::Element e = next();
  if (e.kind != PackScan::Kind::flag) malformed("no truth value where one was expected");
  return e.number != 0;
}

std::string MessageReader::text() {
  const PackScan::Element e = next();
  if (e.kind != PackScan::Kind::text) malformed("no text where some was expected");
  return std::string(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size());
}

std::span<const std::byte> MessageReader::bytes() {
  const PackScan::Element e = next();
  if (e.kind != PackScan::Kind::bytes) malformed("no bytes where some were expected");
  return e.bytes;
}

Tensor MessageReader::attached() {
  if (tensor_ == tensors_.size()) malformed("a tensor is missing");
  return std::move(tensors_[tensor_++]);
}

void MessageReader::count(std::size_t& n) {
  n = unsigned_number();
  if (n > scan_.left()) malformed("a count larger than the message");
}

void MessageReader::end() const {
  if (scan_.left() != 0 || tensor_ != tensors_.size()) malformed("it goes on after its end");
}

// ---- values

void write(MessageWriter& w, const Shape& shape) {
  w(static_cast<std::int64_t>(shape.has_rank() ? shape.rank() : -1));
  for (std::int64_t extent : shape.dims()) w.number(extent);
}

void read(MessageReader& r, Shape& shape) {
  const std::int64_t rank = r.number();
  if (rank < -1 || rank > Shape::kMaxRank)
    MessageReader::malformed("a shape of too many dimensions");
  shape = rank < 0 ? Shape::unknown() : Shape();
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::int64_t extent = r.number();
    if (extent < kAny) MessageReader::malformed("a negative extent");
    shape.push_back(extent);
  }
}

namespace {

// Strings go as one tensor of bytes: their lengths, eight bytes each as they are in memory (all
// nodes are little-endian), then what they hold.
Tensor packed(const Tensor& strings) {
  const std::span elements(strings.data<StringRef>(), static_cast<std::size_t>(strings.elements()));
  std::size_t bytes = elements.size() * sizeof(std::uint64_t);
  for (const StringRef& t : elements) bytes += t.size;
  Tensor out = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
  auto* lengths = static_cast<unsigned char*>(out.raw_mutable());
  auto* text = lengths + elements.size() * sizeof(std::uint64_t);
  for (const StringRef& t : elements) {
    std::memcpy(lengths, &t.size, sizeof t.size);
    lengths += sizeof t.size;
    text = std::copy_n(t.data, t.size, text);
  }
  return out;
}

Tensor unpacked(const Tensor& bytes, const Shape& shape) {
  if (!shape.is_known() || bytes.dtype() != DType::u8)
    MessageReader::malformed("strings of no shape");
  const auto all = static_cast<std::uint64_t>(bytes.elements());
  std::uint64_t n = 1;
  for (const std::int64_t extent : shape.dims())
    if (__builtin_mul_overflow(n, static_cast<std::uint64_t>(extent), &n))
      MessageReader::malformed("more strings than 64 bits count");
  if (n > all / sizeof(std::uint64_t)) MessageReader::malformed("strings that are not there");
  const auto* lengths = bytes.data<std::uint8_t>();
  std::uint64_t left = all - n * sizeof(std::uint64_t);
  const auto* text = reinterpret_cast<const char*>(lengths + n * sizeof(std::uint64_t));
  std::vector<StringRef> elements(n);
  for (StringRef& t : elements) {
    std::memcpy(&t.size, lengths, sizeof t.size);
    lengths += sizeof t.size;
    if (t.size > left) MessageReader::malformed("a string longer than the message");
    t.data = text;
    text += t.size;
    left -= t.size;
  }
  if (left != 0) MessageReader::malformed("more than the strings hold");
  return Tensor::of(elements, shape).with_own_text();
}

void write(MessageWriter& w, const Value& value, int depth) {
  switch (value.kind()) {
    case Value::Kind::none: w(Form::none); return;
    case Value::Kind::scalar:
      w(Form::scalar)(value.dtype());
      w.bytes(value.scalar_bits(), size_of(value.dtype()));
      return;
    case Value::Kind::tensor:
      if (value.dtype() == DType::string) {
        w(Form::strings)(value.tensor().shape());
        w.attach(packed(value.tensor()));
        return;
      }
      w(Form::tensor);
      w.attach(value.tensor());
      return;
    case Value::Kind::list: break;
    case Value::Kind::saved:
      throw Error(Code::internal, "a value that was swapped out cannot leave its node");
  }
  if (depth == kMostNested)
    throw Error(Code::unimplemented, "a list for another node holds lists a thousand deep");
  const List& list = value.list();
  w(Form::list)(list.dtype())(list.element_shape())(list.depth())(list.is_saved())(
      static_cast<std::uint64_t>(list.length()));
  for (std::int64_t i = 0; i < list.length(); ++i) write(w, list.peek(i), depth + 1);
}

void read(MessageReader& r, Value& value, int depth) {
  Form form{};
  r(form);
  switch (form) {
    case Form::none: value.reset(); return;
    case Form::scalar: {
      DType dtype{};
      r(dtype);
      auto bits = r.bytes();
      if (dtype == DType::string) MessageReader::malformed("a scalar of strings");
      if (bits.size() != size_of(dtype)) MessageReader::malformed("a scalar of the wrong size");
      if (dtype == DType::boolean && static_cast<unsigned>(bits[0]) > 1)
        MessageReader::malformed("a bool that is neither");
      value.set_scalar(dtype, bits.data(), bits.size());
      return;
    }
    case Form::tensor: value = r.attached(); return;
    case Form::strings: {
      Shape shape;
      r(shape);
      value = unpacked(r.attached(), shape);
      return;
    }
    case Form::list: break;
  }
  if (depth == kMostNested) MessageReader::malformed("lists nested too deep");
  DType dtype{};
  Shape element;
  std::uint8_t nested = 0;
  bool is_saved = false;
  std::size_t length = 0;
  r(dtype)(element)(nested)(is_saved).count(length);
  if (nested == 0) MessageReader::malformed("a list of nothing");
  List list(dtype, element, nested);
  if (is_saved) list.mark_saved(nullptr);
  list.grow(static_cast<std::int64_t>(length));
  for (std::size_t i = 0; i < length; ++i) {
    Value e;
    read(r, e, depth + 1);
    if (e.has_value()) list.put(static_cast<std::int64_t>(i), std::move(e));
  }
  value = std::move(list);
}

}  // namespace

void write(MessageWriter& w, const Value& value) { write(w, value, 0); }
void read(MessageReader& r, Value& value) { read(r, value, 0); }

void write(MessageWriter& w, const Status& status) { w(status.code())(status.message()); }

void read(MessageReader& r, Status& status) {
  Code code{};
  std::string message;
  r(code)(message);
  status = code == Code::ok ? Status() : Status(code, std::move(message));
}

void write(MessageWriter& w, const Message& message) {
  w.bytes(message.head.data(), message.head.size());
  w.unsigned_number(message.tensors.size());
  for (const Tensor& t : message.tensors) w.attach(t);
}

void read(MessageReader& r, Message& message) {
  const std::span<const std::byte> head = r.bytes();
  message.head.assign(head.begin(), head.end());
  message.tensors.clear();
  // each of them has come, or it is malformed
  for (std::uint64_t n = r.unsigned_number(); n > 0; --n) message.tensors.push_back(r.attached());
}

}  // namespace troupe
