// A FusedSlices node on tensors: which columns its program reads of each operand, and where its
// results go.
//
//   const SlicedRows rows(attrs);
//   const Shape shape = rows.shape_of(operands);
//   rows.run(primitives, stream, shape, operands, results);
//
// Threads: any, a value that never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/attr.hpp>
#include <troupe/devices/device/primitives.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>

namespace troupe::detail {

class SlicedRows {
 public:
  static constexpr std::size_t kMost = 16;  // operands, results

  explicit SlicedRows(const Attrs& attrs);

  const ScalarProgram& program() const { return *program_; }
  std::int64_t columns() const { return columns_; }
  const std::vector<std::int64_t>& starts() const { return starts_; }
  /// By result of the program: the output that it is in.
  const std::vector<std::int64_t>& outputs() const { return outputs_; }
  std::size_t output_count() const {
    return static_cast<std::size_t>(outputs_.empty() ? 0 : outputs_.back() + 1);
  }
  DType dtype_of(std::size_t output) const;
  /// The shape in which the program sees operand i.
  Shape seen(std::size_t i, Shape shape) const;
  /// Returns the shape of the program's results.
  Shape shape_of(std::span<const ConstView> in) const;
  /// Returns the shape of output o if the program's results have `shape`.
  Shape of_output(std::size_t o, Shape shape) const;
  /// Operands and results as `pointwise_rows` takes them, for operands of fixed shapes: data may
  /// change from call to call. Throws as `run`.
  struct Views {
    std::int64_t rows = 0;
    std::vector<ConstRowsView> in;
    std::vector<RowsView> out;  // by result of the program
  };
  Views views_of(std::span<const ConstView> in, std::span<const View> out) const;
  void run(const Primitives& primitives, Stream& stream, const Views& views) const {
    primitives.pointwise_rows(stream, *program_, views.rows, columns_, views.in, views.out);
  }
  /// Throws invalid_argument if an operand has neither one row for all nor as many as the results.
  void run(const Primitives& primitives, Stream& stream, const Shape& shape,
           std::span<const ConstView> in, std::span<const View> out) const;

 private:
  std::int64_t columns_;
  std::vector<std::int64_t> starts_, outputs_;
  std::shared_ptr<const ScalarProgram> program_;
};

}  // namespace troupe::detail
