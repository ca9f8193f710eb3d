// Lists: values in order, immutable for every holder of a handle. A handle is (shared append-only
// log, length); elements are tensors, or lists, or not written yet.
//
//   List a(DType::f32, Shape{2});     // of elements f32[2]
//   a.push(x);
//   List b = a;                       // shares the log
//   b.push(y);                        // in place: b holds the log's end
//   a.push(z);                        // a does not any more: it goes on in a log of its own
//   a.read(1);  b.read(1);            // z and y
//
// Push, pop and read take O(1). A write takes O(1) if this handle is its log's sole holder.
// Otherwise it copies the handles, never the elements' contents. A push copies if it lost the end,
// or if it puts a list of any kind into an older shared list of any kind. Elements saved by a
// gradient may be on the host meanwhile (swap.hpp): a slot then holds a `Saved`, which never leaves
// the list.
//
// Threads: a handle belongs to one thread at a time, the log is shared by all of its holders. The
// protocol and its memory order are in Note [Shared logs] in devices/NOTES.md.
//
// Invariants: 1. storage never moves: chunks of doubling size; 2. slots from `end` on are empty; 3.
// no handle is longer than `end`; 4. a slot, once written, changes only under a sole holder; 5. no
// log holds itself, through whatever lists: it holds none that was begun after it.
#pragma once

#include <cstdint>
#include <string>

#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::detail {

class Swapper;

class List : public Value {
 public:
  static constexpr std::uint8_t kAnyDepth = 255;                // elements of any kind
  static constexpr std::int64_t kMost = std::int64_t{1} << 31;  // elements of one list

  /// No list.
  List() = default;
  /// An empty list of elements that fit `dtype` and `element` (extents may be unknown), which lie
  /// `depth` lists deep: 1 for tensors.
  List(DType dtype, const Shape& element, std::uint8_t depth = 1);

  /// Marks the elements as saved for a gradient: `swapper`, if the list's device has one, may move
  /// elements pushed from now on to the host until they are read. For the sole holder of an empty
  /// list.
  void mark_saved(Swapper* swapper);
  bool is_saved() const;

  std::int64_t length() const {
    std::int64_t n;
    std::memcpy(&n, bits_ + 8, sizeof n);
    return n;
  }
  /// The shape that every (innermost) element fits.
  const Shape& element_shape() const;
  std::uint8_t depth() const;
  bool is_sole_holder() const;

  /// Element i, empty if it was never written. Throws out_of_range, and resource_exhausted if it
  /// was swapped out and there is no room for it.
  Value read(std::int64_t i) const;
  /// As `read`, but empty outside the list too.
  Value find(std::int64_t i) const;
  /// As `read`, but where it is now: a swapped-out tensor is returned on the host. Its
  /// elements are valid once the device's compute stream has passed the work enqueued now.
  Value peek(std::int64_t i) const;
  /// The log's own value there, which may be a `Saved`; valid until this handle changes. For tests.
  const Value& slot(std::int64_t i) const;
  /// Throws invalid_argument if the element does not fit.
  void push(Value element);
  /// The last element, empty if it was never written. Throws out_of_range on an empty list.
  Value pop();
  /// Element i, which must not have been written: throws failed_precondition (single assignment),
  /// and as `push` and `read` do.
  void write(std::int64_t i, Value element);
  /// Becomes at least n long; the new elements are not written. Throws invalid_argument for n < 0,
  /// out_of_range for more than kMost.
  void grow(std::int64_t n);
  /// Becomes long enough to have an element i. Throws out_of_range, naming i, for i < 0 and from
  /// kMost on.
  void reach(std::int64_t i);

  // For gradients, which see an element twice.
  /// Moves element i out; its slot is unwritten again. Throws out_of_range.
  Value take(std::int64_t i);
  /// Sets element i, written or not; grows to hold it. Throws as `push` and `reach`.
  void put(std::int64_t i, Value element);

  // For stacking or concatenating a list that is joined repeatedly: a gradient joins it for each
  // product it goes into.
  /// The elements one after the other in one tensor of any shape, if a holder of as long a handle
  /// kept it; else empty.
  Tensor joined() const;
  /// Keeps `rows` for as long as the elements stay the same. Do not call it under a memory limit:
  /// it keeps the memory in use.
  void keep_joined(const Tensor& rows) const;

  /// Bytes of all tensors in the list; a tensor shared by two elements counts twice. Takes O(1),
  /// whatever the list holds, because it is called with every timed firing: the log keeps the sum.
  /// The result is an estimate, in proportion to the lengths, if another handle has gone on from
  /// here, and for a list that holds such lists.
  std::size_t bytes() const;
  /// Announces that the elements from `first` to the end are popped soon: swapped-out elements
  /// start to come back, as far as there is room.
  void expect(std::int64_t first) const;
  /// `list(f32[2]) of 3`.
  std::string text() const;

 private:
  class Log;
  Log* log() const;
  void set_length(std::int64_t n) { std::memcpy(bits_ + 8, &n, sizeof n); }
  void approach(std::int64_t i, std::int64_t direction) const;
  void check_index(std::int64_t i) const;
  void check_fits(const Value& element) const;
  void claim(std::int64_t n);
  void make_sole();
  void copy_log();
  void make_younger_than(const Value& element);
};

static_assert(sizeof(List) == sizeof(Value));

inline const List& Value::list() const { return *static_cast<const List*>(this); }
inline List& Value::list() { return *static_cast<List*>(this); }

/// The text of errors for a value: `f32[2]`, `list(f32[2]) of 3`, `nothing`.
std::string text_of(const Value& value);

}  // namespace troupe::detail
