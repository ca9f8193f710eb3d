// The end of a list of saved scalars, for code that pushes and pops elements by itself.
//
//   ElementCursor cursor;
//   PackedList& list = PackedList::of(value);
//   if (list.open(cursor)) { *cursor.next = ...; cursor.next += 4; }   // while it is not `end`
//   list.close(cursor);                                               // the list has it from here
//
// A list that is marked as saved, of scalars, stores their bits one behind the other. An operation
// that leaves an element unwritten, or pushes one that is not in its handle, makes it store
// handles, as every other list.
//
// Threads: as `List`. While a cursor is open, the list's handle has the length of before, and no
// operation but `close` may follow.
#pragma once

#include <cstddef>
#include <cstdint>

#include <troupe/devices/list/list.hpp>
#include <troupe/devices/scalar/element_cursor.hpp>

namespace troupe::detail {

/// Memory of packed elements. The thread that frees a chunk of up to 1 MiB keeps it for its next
/// list, because the system takes longer to map its pages than a loop to fill them.
class PackedChunks {
 public:
  static void* take(std::size_t bytes);
  static void give(void* chunk, std::size_t bytes);
};

/// A log as `PackedList` sees it.
class PackedLog : public Counted {
 public:
  /// 0: elements are handles.
  virtual std::size_t element_bytes() const = 0;
  virtual bool open(std::int64_t length, ElementCursor& cursor) = 0;
  virtual void end_at(std::int64_t length) = 0;
};

class PackedList : public List {
 public:
  static PackedList& of(Value& list) { return static_cast<PackedList&>(list.list()); }
  static const PackedList& of(const Value& list) {
    return static_cast<const PackedList&>(list.list());
  }
  bool is_packed() const { return packed().element_bytes() > 0; }
  /// Places the cursor behind the last element. False, with nothing done, if the list is empty or
  /// is not packed, or has another holder.
  bool open(ElementCursor& cursor) { return packed().open(length(), cursor); }
  /// `cursor` is open no more.
  void close(ElementCursor& cursor);

 private:
  PackedLog& packed() const { return static_cast<PackedLog&>(*object()); }
};

static_assert(sizeof(PackedList) == sizeof(Value));

}  // namespace troupe::detail
