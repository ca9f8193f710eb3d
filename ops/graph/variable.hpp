// Typed handles on state: variables, queues and consoles.
//
//   Variable w = g.variable("w", DType::f32, {784, 10}, Initializer::glorot(784, 10, 1));
//   Expr y = matmul(x, w);                // reads a snapshot
//   Expr u = w.assign_sub(0.1 * dw);      // the updated value; fetch it, or order others after it
#pragma once

#include <string>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

class Variable {
 public:
  using At = std::source_location;
  Variable() = default;
  Variable(detail::Reader* reader, int state) : reader_(reader), state_(state) {}

  detail::Reader& reader() const { return *reader_; }
  int state() const { return state_; }
  const std::string& name() const { return reader_->state_spec(state_).name; }
  DType dtype() const { return reader_->state_spec(state_).values[0].dtype; }
  const Shape& shape() const { return reader_->state_spec(state_).values[0].shape; }

  /// A snapshot: later updates do not change it.
  Expr read(detail::Site at = At::current()) const;
  /// Elements and slices of a snapshot, as of an expression.
  Expr operator[](const detail::Index& index) const { return read(index.operand.site())[index]; }
  Expr operator[](const detail::Interval& i) const { return read(i.line.site)[i]; }
  Expr operator[](std::initializer_list<detail::Interval> intervals) const {
    return intervals.size() ? read(intervals.begin()->line.site)[intervals] : read();
  }
  /// Each yields the value after the update.
  Expr assign(Operand value) const;
  Expr assign_add(Operand delta) const;
  Expr assign_sub(Operand delta) const;
  /// Rows (axis 0) at `indices` become, gain or lose `updates`; other rows stay. Duplicates in
  /// order.
  Expr scatter_update(Operand indices, Operand updates) const;
  Expr scatter_add(Operand indices, Operand updates) const;
  Expr scatter_sub(Operand indices, Operand updates) const;

 private:
  Expr update(const char* op, const Operand& value) const;
  Expr scatter(std::int64_t mode, const Operand& indices, const Operand& updates) const;
  detail::Reader* reader_ = nullptr;
  int state_ = -1;
};

class Queue {
 public:
  using At = std::source_location;
  Queue(detail::Reader* reader, int state) : reader_(reader), state_(state) {}
  /// Yields the queue's size after it, as i64: 0 if a waiting dequeue took the element. Waits while
  /// the queue is full, eagerly too. Enqueues and dequeues of one queue are not in program order:
  /// let one depend on the other's result if the order counts.
  Expr enqueue(std::initializer_list<Operand> components) const;
  /// One element's components. Waits while the queue is empty, eagerly too.
  Exprs dequeue(At at = At::current()) const;
  Expr size(At at = At::current()) const;
  /// Yields the size at closing. Elements in the queue can still be dequeued.
  Expr close(At at = At::current()) const;
  int state() const { return state_; }

 private:
  detail::Reader* reader_;
  int state_;
};

/// Prints lines, in program order: in a branch where it is taken, in a loop once an iteration.
/// `EngineOptions::print` receives them.
class Console {
 public:
  Console(detail::Reader* reader, int state) : reader_(reader), state_(state) {}
  /// `format` with a value for each `{}` in it (`{{` and `}}` are braces): a scalar as a number,
  /// else its elements in brackets, the first and last three of a long axis. Yields true. Throws
  /// invalid_argument if placeholders and values differ in number. At top level a print runs only
  /// if its result, or a node after it, is fetched.
  Expr print(const std::string& format, std::initializer_list<Operand> values = {},
             std::source_location at = std::source_location::current()) const;

 private:
  detail::Reader* reader_;
  int state_;
};

}  // namespace troupe
