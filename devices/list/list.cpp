#include <troupe/devices/list/list.hpp>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/block_pool.hpp>
#include <troupe/devices/device/swap.hpp>
#include <troupe/devices/list/packed_list.hpp>

namespace troupe::detail {

class List::Log final : public PackedLog {
 public:
  static Log* make(DType dtype, const Shape& shape, std::uint8_t depth) {
    return new (BlockPool<sizeof(Log)>::take()) Log(dtype, shape, depth);
  }

  /// Null if nothing near it was written. The log is not packed.
  [[gnu::always_inline]] const Value* find(std::int64_t i) const {
    Place at = place(i);
    const auto* chunk =
        static_cast<const Value*>(chunks_[at.chunk].load(std::memory_order_acquire));
    return chunk ? chunk + at.slot : nullptr;
  }
  /// A copy of slot i.
  Value get(std::int64_t i) const {
    Value copy;
    if (!is_packed()) {
      if (const Value* v = find(i)) copy = *v;
      return copy;
    }
    const Place at = place(i);
    const auto* chunk =
        static_cast<const std::byte*>(chunks_[at.chunk].load(std::memory_order_acquire));
    return unpacked(chunk + static_cast<std::size_t>(at.slot) * packed_, packed_);
  }
  /// For the slot's owner, or a sole holder: slot i holds that from now on.
  [[gnu::always_inline]] void set(std::int64_t i, Value&& element) {
    Place at = place(i);
    void* made = chunks_[at.chunk].load(std::memory_order_relaxed);
    if (!made) chunks_[at.chunk].store(made = taken(i, at.chunk), std::memory_order_release);
    if (is_packed()) {
      std::memcpy(static_cast<std::byte*>(made) + static_cast<std::size_t>(at.slot) * packed_,
                  element.is_inline() ? element.scalar_bits() : element.tensor().raw(), packed_);
      return;
    }
    Value& slot = static_cast<Value*>(made)[at.slot];
    count(weight(element), weight(slot));
    slot = std::move(element);
  }
  /// For a sole holder: returns the value of slot i and empties the slot.
  [[gnu::always_inline]] Value out_of(std::int64_t i) {
    if (is_packed()) return get(i);
    const Value* slot = find(i);
    if (!slot) return {};
    count(0, weight(*slot));
    return std::move(const_cast<Value&>(*slot));
  }
  /// Bytes of the first `length` slots: see `List::bytes`.
  std::size_t bytes_of(std::int64_t length) const {
    if (is_packed()) return static_cast<std::size_t>(length) * packed_;
    const std::int64_t last = end.load(std::memory_order_relaxed);
    const std::size_t all = bytes_.load(std::memory_order_relaxed);
    return length >= last
               ? all
               : static_cast<std::size_t>(static_cast<double>(all) * (static_cast<double>(length) /
                                                                      static_cast<double>(last)));
  }
  /// For a sole holder: slots from n on are given back.
  void trim(std::int64_t n) {
    forget_joined();
    if (is_packed()) return end.store(n, std::memory_order_relaxed);
    std::size_t gone = 0;
    for (std::int64_t last = end.load(std::memory_order_relaxed); last > n;) {
      Place at = place(last - 1);
      std::int64_t begin = std::max(n, last - 1 - at.slot);
      if (auto* chunk = static_cast<Value*>(chunks_[at.chunk].load(std::memory_order_relaxed)))
        for (std::int64_t i = begin; i < last; ++i) {
          Value& slot = chunk[at.slot - (last - 1 - i)];
          gone += weight(slot);
          slot.reset();
        }
      last = begin;
    }
    count(0, n == 0 ? bytes_.load(std::memory_order_relaxed) : gone);
    end.store(n, std::memory_order_relaxed);
  }

  /// The elements of handles `length` long, in one tensor.
  struct Joined {
    std::int64_t length;
    Tensor rows;
  };
  const Joined* joined() const { return joined_.load(std::memory_order_acquire); }
  void keep(std::unique_ptr<Joined> joined) {
    Joined* none = nullptr;
    if (joined_.compare_exchange_strong(none, joined.get(), std::memory_order_acq_rel))
      joined.release();
  }
  /// For a sole holder: elements are to change.
  void forget_joined() {
    if (joined_.load(std::memory_order_relaxed))
      delete joined_.exchange(nullptr, std::memory_order_relaxed);
  }

  /// Returns the value that a slot stores for `element`.
  Value kept(Value element) const {
    return swapper && element.kind() == Value::Kind::tensor
               ? swapper->admit(std::move(element.tensor()))
               : element;
  }

  /// Only a sole holder in no other log calls this: the log may hold anything that exists now.
  void be_born_again() { born = births.fetch_add(1, std::memory_order_relaxed); }

  /// True if one handle holds the log, and is as long.
  bool is_all_of_one(std::int64_t length) const {
    return end.load(std::memory_order_relaxed) == length && is_sole();
  }

  // ---- packed: every slot before `end` has an element of the dtype, and no handle

  // Bytes of the largest tensor that is packed. A copy of more costs more than a handle does.
  static constexpr std::size_t kMostPacked = 256;

  bool is_packed() const { return packed_ > 0; }
  /// True if a packed log has room for such an element, which fits.
  bool takes_packed(const Value& element) const {
    return element.is_inline() || (!shape.is_scalar() && element.kind() == Value::Kind::tensor &&
                                   element.tensor().is_on_host());
  }
  std::size_t element_bytes() const override { return packed_; }
  /// For the sole holder of an empty log.
  void pack() {
    const bool has_chunks = std::any_of(std::begin(chunks_), std::end(chunks_), [](const auto& c) {
      return c.load(std::memory_order_relaxed) != nullptr;
    });
    if (depth != 1 || dtype == DType::string || !shape.is_known() || has_chunks) return;
    const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
    if (shape.is_scalar() || (!swapper && bytes <= kMostPacked)) packed_ = bytes;
  }
  /// For a sole holder: slots hold handles from now on.
  void unpack() {
    if (!is_packed()) return;
    void* was[kChunks];
    for (int c = 0; c < kChunks; ++c) was[c] = chunks_[c].exchange(nullptr);
    const std::size_t bytes = std::exchange(packed_, 0);
    const std::int64_t last = end.load(std::memory_order_relaxed);
    for (std::int64_t i = 0; i < last; ++i) {
      const Place at = place_of<kFirstPacked>(i);
      if (!was[at.chunk]) break;  // a push that found no memory has moved `end` alone
      const auto* chunk = static_cast<const std::byte*>(was[at.chunk]);
      set(i, unpacked(chunk + static_cast<std::size_t>(at.slot) * bytes, bytes));
    }
    for (int c = 0; c < kChunks; ++c)
      if (was[c]) PackedChunks::give(was[c], packed_bytes(c, bytes));
  }
  bool open(std::int64_t length, ElementCursor& cursor) override {
    if (!is_packed() || length == 0 || !is_all_of_one(length)) return false;
    forget_joined();
    const Place at = place(length - 1);
    cursor.begin = static_cast<std::byte*>(chunks_[at.chunk].load(std::memory_order_relaxed));
    cursor.end = cursor.begin + packed_bytes(at.chunk, packed_);
    cursor.next = cursor.begin + static_cast<std::size_t>(at.slot + 1) * packed_;
    cursor.first = length - 1 - at.slot;
    return true;
  }
  void end_at(std::int64_t length) override { end.store(length, std::memory_order_relaxed); }

  const Shape shape;
  const DType dtype;
  const std::uint8_t depth;
  const bool takes_scalars;
  // set if the log may hold logs of its own kind: greater than `born` of any such log in it
  std::uint64_t born = 0;
  bool is_saved = false;  // set while the log is empty and has one holder, as the next
  Swapper* swapper = nullptr;
  std::atomic<std::int64_t> end{0};  // publishes nothing: see the protocol
  // the element read last: a guess at where reads go; publishes nothing
  std::atomic<std::int64_t> seen{-1};

 private:
  // slots of the first chunk, which takes as much memory either way
  static constexpr std::int64_t kFirst = 4, kFirstPacked = 16;
  static constexpr int kChunks = 32;

  struct Place {
    int chunk;
    std::int64_t slot;
  };
  template <std::int64_t kOfFirst>
  [[gnu::always_inline]] static Place place_of(std::int64_t i) {
    int chunk = std::bit_width(static_cast<std::uint64_t>(i / kOfFirst + 1)) - 1;
    return {chunk, i - kOfFirst * ((std::int64_t{1} << chunk) - 1)};
  }
  [[gnu::always_inline]] Place place(std::int64_t i) const {
    return is_packed() ? place_of<kFirstPacked>(i) : place_of<kFirst>(i);
  }

  Value unpacked(const std::byte* from, std::size_t bytes) const {
    if (shape.is_scalar()) {
      Value scalar;
      scalar.set_scalar(dtype, from, bytes);
      return scalar;
    }
    Tensor made = Tensor::empty(dtype, shape);
    std::memcpy(made.raw_mutable(), from, bytes);
    return made;
  }

  Log(DType t, const Shape& s, std::uint8_t d)
      : shape(s), dtype(t), depth(d), takes_scalars(d == 1 && s.is_compatible(Shape{})) {
    if (d == kAnyDepth) be_born_again();
  }
  ~Log() override {
    forget_joined();
    for (int c = 0; c < kChunks; ++c) {
      void* const chunk = chunks_[c].load(std::memory_order_relaxed);
      if (!chunk) continue;
      if (is_packed()) PackedChunks::give(chunk, packed_bytes(c, packed_));
      else give_back(static_cast<Value*>(chunk), c);
    }
  }
  // A recursion saves a list in a list in a list, as deep as its calls. Logs that die with an outer
  // log wait in a queue for their destruction, so that the stack does not grow with them.
  void destroy() noexcept override {
    thread_local Log* first = nullptr;
    thread_local bool is_at_it = false;
    next_gone_ = std::exchange(first, this);
    if (std::exchange(is_at_it, true)) return;
    while (first) {
      Log* gone = std::exchange(first, first->next_gone_);
      gone->~Log();
      BlockPool<sizeof(Log)>::give(gone);
    }
    is_at_it = false;
  }

  // A gradient's list grows to the same length in every run. The thread that frees its chunks keeps
  // one of each size, because the system takes longer to map their pages than a loop to fill them.
  // Slots of a spare chunk are empty.
  struct Spares {
    static constexpr int kFirstKept = 5, kLastKept = 13;  // 4 KiB to 1 MiB
    ~Spares() {
      is_open = false;
      for (Value* chunk : chunks) delete[] chunk;
    }
    static bool keeps(int chunk) {
#if defined(__SANITIZE_ADDRESS__)
      return chunk < 0;  // so that ASan sees stale uses
#else
      return is_open && chunk >= kFirstKept && chunk <= kLastKept;
#endif
    }
    static Value*& of(int chunk) {
      thread_local Spares mine;
      return mine.chunks[chunk - kFirstKept];
    }
    static inline thread_local bool is_open = true;  // the thread has not ended
    Value* chunks[kLastKept - kFirstKept + 1] = {};
  };
  void* taken(std::int64_t i, int chunk) const {
    if (is_packed()) {
      check_room(i, packed_bytes(chunk, packed_));
      return PackedChunks::take(packed_bytes(chunk, packed_));
    }
    if (Spares::keeps(chunk))
      if (Value* spare = std::exchange(Spares::of(chunk), nullptr)) return spare;
    return made(i, slots_of(chunk));
  }
  static void give_back(Value* chunk, int index) {
    if (!Spares::keeps(index) || Spares::of(index)) {
      delete[] chunk;
      return;
    }
    for (std::size_t i = 0; i < slots_of(index); ++i) chunk[i].reset();
    // resetting may have destroyed other lists
    if (Value*& spare = Spares::of(index); spare) delete[] chunk;
    else spare = chunk;
  }
  static std::size_t slots_of(int chunk) { return static_cast<std::size_t>(kFirst) << chunk; }

  static Value* made(std::int64_t i, std::size_t slots) {
    check_room(i, slots * sizeof(Value));
    return new Value[slots];
  }
  static void check_room(std::int64_t i, std::size_t bytes) {
    // bytes; more than this is worth a question first
    constexpr std::size_t kLooked = std::size_t{1} << 30;
    static const std::size_t all = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                                   static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (bytes > kLooked && bytes > all)
      throw Error(
          Code::resource_exhausted,
          fmt::format("element {} of a list asks for a table of {} GiB, and this machine has {}", i,
                      bytes >> 30, all >> 30));
  }

  static std::size_t packed_bytes(int chunk, std::size_t element) {
    return (static_cast<std::size_t>(kFirstPacked) << chunk) * element;
  }
  [[gnu::always_inline]] static std::size_t weight(const Value& slot) {
    return slot.is_inline() ? size_of(slot.dtype()) : weight_of_object(slot);
  }
  static std::size_t weight_of_object(const Value& slot) {
    if (slot.is_list()) return slot.list().bytes();
    if (slot.kind() == Value::Kind::saved) return Saved::of(slot).bytes();
    return slot.has_value() ? slot.tensor().bytes() : 0;
  }
  [[gnu::always_inline]] void count(std::size_t more, std::size_t less) {
    const std::size_t sum = bytes_.load(std::memory_order_relaxed) + more;
    bytes_.store(sum - std::min(sum, less), std::memory_order_relaxed);
  }

  static inline std::atomic<std::uint64_t> births{1};  // numbers, no more: publishes nothing
  // bytes of all slots; the owners write one after another, as the handles pass from one to the
  // next
  std::atomic<std::size_t> bytes_{0};
  std::atomic<Joined*> joined_{nullptr};  // publishes what it points to
  Log* next_gone_ = nullptr;              // while it waits to be given back
  // Each publishes that its slots are empty. Handles, or, of a packed log, elements.
  std::atomic<void*> chunks_[kChunks] = {};
  std::size_t packed_ = 0;  // bytes of an element; 0: not packed. A sole holder changes it.
};

List::List(DType dtype, const Shape& element, std::uint8_t depth) {
  adopt(Log::make(dtype, element, depth), Kind::list, dtype);
  set_length(0);
}

List::Log* List::log() const { return static_cast<Log*>(object()); }
const Shape& List::element_shape() const { return log()->shape; }
std::uint8_t List::depth() const { return log()->depth; }
bool List::is_sole_holder() const { return log()->is_sole(); }
bool List::is_saved() const { return log()->is_saved; }

void List::mark_saved(Swapper* swapper) {
  log()->is_saved = true;
  log()->swapper = swapper;
  log()->pack();
}

void List::check_index(std::int64_t i) const {
  if (i < 0 || i >= length())
    throw Error(Code::out_of_range, fmt::format("index {} is outside a list of {}", i, length()));
}

void List::check_fits(const Value& element) const {
  const Log& mine = *log();
  if (mine.depth == kAnyDepth && element.has_value()) return;
  bool fits = element.has_value() && element.dtype() == dtype();
  if (fits && element.is_list())
    fits = element.list().depth() == mine.depth - 1 &&
           mine.shape.is_compatible(element.list().element_shape());
  else if (fits) fits = mine.depth == 1 && mine.shape.is_compatible(element.tensor().shape());
  if (!fits)
    throw Error(Code::invalid_argument,
                fmt::format("{} is no element of a {}", text_of(element), text()));
}

void List::copy_log() {
  List copy(dtype(), element_shape(), depth());
  if (is_saved()) copy.mark_saved(log()->swapper);
  if (!log()->is_packed()) copy.log()->unpack();
  for (std::int64_t i = 0; i < length(); ++i)
    if (Value v = log()->get(i); v.has_value()) copy.log()->set(i, std::move(v));
  copy.log()->end.store(length(), std::memory_order_relaxed);
  copy.set_length(length());
  *this = std::move(copy);
}

// Afterwards slots [length, n) are this handle's, and the log ends there.
void List::claim(std::int64_t n) {
  if (log()->is_sole()) {
    log()->trim(length());
    log()->end.store(n, std::memory_order_relaxed);
    return;
  }
  std::int64_t expected = length();
  if (log()->end.compare_exchange_strong(expected, n, std::memory_order_relaxed)) return;
  copy_log();
  log()->end.store(n, std::memory_order_relaxed);
}

// Any slot may change afterwards.
void List::make_sole() {
  if (!log()->is_sole()) copy_log();
  else log()->forget_joined();
  log()->unpack();
}

Tensor List::joined() const {
  const Log::Joined* j = log()->joined();
  return j && j->length == length() ? j->rows : Tensor();
}

void List::keep_joined(const Tensor& rows) const {
  if (!log()->swapper && !log()->joined())
    log()->keep(std::make_unique<Log::Joined>(Log::Joined{length(), rows}));
}

// Returns the log's own value, which may be a `Saved`.
const Value& List::slot(std::int64_t i) const {
  static constinit const Value nothing;
  if (log()->is_packed()) {
    thread_local Value copy;
    copy = i < 0 || i >= length() ? Value() : log()->get(i);
    return copy;
  }
  const Value* v = i < 0 || i >= length() ? nullptr : log()->find(i);
  return v ? *v : nothing;
}

namespace {
Value opened(const Value& slot) {
  return slot.kind() == Value::Kind::saved ? Value(Saved::of(slot).tensor()) : slot;
}
}  // namespace

Value List::find(std::int64_t i) const {
  if (!log()->swapper || log()->is_packed())
    return i < 0 || i >= length() ? Value() : log()->get(i);
  Value element = opened(slot(i));
  // A reader that goes from neighbour to neighbour will read the next one.
  const std::int64_t before = log()->seen.exchange(i, std::memory_order_relaxed);
  if (before == i + 1 || before == i - 1) approach(i, i - before);
  return element;
}

Value List::read(std::int64_t i) const {
  check_index(i);
  return find(i);
}

Value List::peek(std::int64_t i) const {
  check_index(i);
  if (log()->is_packed()) return log()->get(i);
  const Value& v = slot(i);
  return v.kind() == Value::Kind::saved ? Value(Saved::of(v).peek()) : v;
}

// Fetches the elements after element i in that direction. Lists are popped, so the end of an inner
// list comes first. If the ends are lists themselves, the walk stops after a few: a recursion's
// lists are as deep as its calls.
void List::approach(std::int64_t i, std::int64_t direction) const {
  constexpr int kDeep = 8;
  const List* list = this;
  int ahead = log()->swapper->options().prefetch;
  for (int deep = 0; ahead > 0;) {
    if (list->log()->is_packed()) return;
    const Value& v = list->slot(i += direction);
    if (v.is_list() && v.list().log()->swapper) {
      if (++deep > kDeep) return;
      list = &v.list();
      i = list->length();
      direction = -1;
      ahead = list->log()->swapper->options().prefetch;
      continue;
    }
    if (v.kind() == Value::Kind::saved) Saved::of(v).approach();
    --ahead;
  }
}

void List::expect(std::int64_t first) const {
  if (!log()->swapper || log()->is_packed()) return;
  for (std::int64_t i = length() - 1; i >= first; --i)
    if (const Value& v = slot(i); v.kind() == Value::Kind::saved) Saved::of(v).approach();
}

// A log that held itself, through whatever lists, would never be given back: it holds only logs
// that were born before it. A list with a sole holder is in no log, so it may as well have been
// born now.
void List::make_younger_than(const Value& element) {
  if (depth() != kAnyDepth || !element.is_list() || element.list().depth() != kAnyDepth ||
      element.list().log()->born < log()->born)
    return;
  if (log()->is_sole()) log()->be_born_again();
  else copy_log();
}

void List::push(Value element) {
  // a loop saves scalars one by one, in a list that it alone holds
  if (element.is_inline() && element.dtype() == dtype() && log()->takes_scalars &&
      log()->is_all_of_one(length()) && length() < kMost) {
    log()->forget_joined();
    log()->set(length(), std::move(element));
    set_length(length() + 1);
    log()->end.store(length(), std::memory_order_relaxed);
    return;
  }
  check_fits(element);
  if (length() == kMost)
    throw Error(Code::out_of_range,
                fmt::format("a list may have {} elements, and this one has", kMost));
  make_younger_than(element);
  if (log()->is_packed() && !log()->takes_packed(element)) make_sole();
  claim(length() + 1);
  log()->set(length(), log()->kept(std::move(element)));
  set_length(length() + 1);
}

Value List::pop() {
  if (length() == 0) throw Error(Code::out_of_range, "an empty list has no last element");
  Value last;
  if ((!log()->swapper || log()->is_packed()) && log()->is_all_of_one(length())) {
    last = log()->out_of(length() - 1);
    set_length(length() - 1);
    log()->forget_joined();
    log()->end.store(length(), std::memory_order_relaxed);
    return last;
  }
  if (!log()->is_sole()) last = log()->get(length() - 1);
  else last = log()->out_of(length() - 1);
  set_length(length() - 1);
  if (log()->is_sole()) log()->trim(length());
  if (!log()->swapper || log()->is_packed()) return last;
  if (last.kind() == Value::Kind::saved) last = Saved::of(last).tensor();
  else if (last.is_list() && last.list().log()->swapper)
    last.list().approach(last.list().length(), -1);
  approach(length(), -1);
  return last;
}

void List::write(std::int64_t i, Value element) {
  check_index(i);
  if (slot(i).has_value())
    throw Error(Code::failed_precondition,
                fmt::format("element {} was written before; an element is written once", i));
  check_fits(element);
  make_sole();
  make_younger_than(element);
  log()->set(i, log()->kept(std::move(element)));
}

void List::grow(std::int64_t n) {
  if (n < 0) throw Error(Code::invalid_argument, fmt::format("a list cannot have {} elements", n));
  if (n > kMost)
    throw Error(Code::out_of_range,
                fmt::format("a list cannot have {} elements, but {} at most", n, kMost));
  if (n <= length()) return;
  if (log()->is_packed()) make_sole();
  claim(n);
  set_length(n);
}

void List::reach(std::int64_t i) {
  if (i < 0) check_index(i);
  if (i >= kMost)
    throw Error(Code::out_of_range,
                fmt::format("index {} is beyond the {} elements that a list may have", i, kMost));
  grow(i + 1);
}

Value List::take(std::int64_t i) {
  check_index(i);
  if (!slot(i).has_value()) return {};
  make_sole();
  Value taken = log()->out_of(i);
  return taken.kind() == Value::Kind::saved ? Value(Saved::of(taken).tensor()) : taken;
}

void List::put(std::int64_t i, Value element) {
  check_fits(element);
  reach(i);
  make_sole();
  make_younger_than(element);
  log()->set(i, log()->kept(std::move(element)));
}

std::size_t List::bytes() const { return log()->bytes_of(length()); }

std::string List::text() const {
  std::string type =
      depth() == kAnyDepth ? "any" : std::string(name_of(dtype())) + element_shape().text();
  for (int i = 1; i < depth() && depth() != kAnyDepth; ++i) type = "list(" + type + ")";
  return fmt::format("list({}) of {}", type, length());
}

std::string text_of(const Value& value) {
  if (!value.has_value()) return "nothing";
  if (value.is_list()) return value.list().text();
  return std::string(name_of(value.dtype())) + value.tensor().shape().text();
}

}  // namespace troupe::detail
