// Stack: a stack of small values. A push is a comparison and a store. Growing is out of line, while
// `std::vector` inlines it, with its registers, into each caller. Elements keep their addresses
// until the stack grows.
//
// One thread at a time. Memory is kept until the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace troupe {

template <class T>
class Stack {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Stack() = default;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  bool empty() const { return top_ == memory_.get(); }
  std::size_t size() const { return static_cast<std::size_t>(top_ - memory_.get()); }
  /// Oldest first.
  T* begin() { return memory_.get(); }
  T* end() { return top_; }
  const T* begin() const { return memory_.get(); }
  const T* end() const { return top_; }

  void push_back(T value) {
    if (top_ == limit_) [[unlikely]]
      grow(std::max<std::size_t>(8, 2 * size()));
    *top_++ = value;
  }
  T& back() { return top_[-1]; }
  void pop_back() { --top_; }
  void erase(T* at) { top_ = std::move(at + 1, top_, at); }
  void clear() { top_ = memory_.get(); }
  void reserve(std::size_t many) {
    if (many > static_cast<std::size_t>(limit_ - memory_.get())) grow(many);
  }

 private:
  [[gnu::noinline]] void grow(std::size_t many) {
    auto memory = std::make_unique<T[]>(many);
    T* const top = std::copy(begin(), end(), memory.get());
    memory_ = std::move(memory);
    top_ = top;
    limit_ = memory_.get() + many;
  }

  std::unique_ptr<T[]> memory_;
  T* top_ = nullptr;
  T* limit_ = nullptr;
};

}  // namespace troupe
