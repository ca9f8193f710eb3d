#include <troupe/ops/families/slices.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe::detail {

namespace {

// One row of its own is for all rows. The pass lets no other broadcasting through; a program of
// another node might.
ConstRowsView rows_of_operand(const ConstView& in, std::int64_t start, std::int64_t rows) {
  const Shape& s = in.shape;
  const std::int64_t row = s.rank() ? s[s.rank() - 1] : 1;
  const bool is_for_all = in.elements() == row;
  if (!is_for_all && in.elements() != rows * row)
    throw Error(Code::invalid_argument,
                fmt::format("an input of shape {} has neither one row for all {} nor as many",
                            s.text(), rows));
  return {in, std::max<std::int64_t>(start, 0), is_for_all ? 0 : row};
}

}  // namespace

SlicedRows::SlicedRows(const Attrs& attrs)
    : columns_(attrs.get<std::int64_t>("columns")),
      starts_(attrs.get<std::vector<std::int64_t>>("starts")),
      outputs_(attrs.get<std::vector<std::int64_t>>("outputs")),
      program_(
          static_cast<const ProgramAttr&>(*attrs.get<std::shared_ptr<const AttrObject>>("program"))
              .program) {}

DType SlicedRows::dtype_of(std::size_t output) const {
  std::size_t k = 0;
  while (outputs_[k] != static_cast<std::int64_t>(output)) ++k;
  return program_->result_type(static_cast<int>(k));
}

Shape SlicedRows::seen(std::size_t i, Shape shape) const {
  if (starts_[i] >= 0) shape.set(shape.rank() - 1, columns_);
  return shape;
}

Shape SlicedRows::shape_of(std::span<const ConstView> in) const {
  Shape shape = seen(0, in[0].shape);
  for (std::size_t i = 1; i < in.size(); ++i) shape = broadcast(shape, seen(i, in[i].shape));
  return shape;
}

Shape SlicedRows::of_output(std::size_t o, Shape shape) const {
  std::int64_t pieces = 0;
  for (std::int64_t where : outputs_) pieces += where == static_cast<std::int64_t>(o);
  shape.set(shape.rank() - 1, pieces * columns_);
  return shape;
}

SlicedRows::Views SlicedRows::views_of(std::span<const ConstView> in,
                                       std::span<const View> out) const {
  const Shape shape = shape_of(in);
  Views views{shape.elements() / columns_, {}, {}};
  for (std::size_t i = 0; i < in.size(); ++i)
    views.in.push_back(rows_of_operand(in[i], starts_[i], views.rows));
  std::vector<std::int64_t> used(output_count(), 0);
  for (const std::int64_t o : outputs_) {
    const View& to = out[static_cast<std::size_t>(o)];
    std::int64_t& column = used[static_cast<std::size_t>(o)];
    views.out.push_back({to, column, to.shape[shape.rank() - 1]});
    column += columns_;
  }
  return views;
}

void SlicedRows::run(const Primitives& primitives, Stream& stream, const Shape& shape,
                     std::span<const ConstView> in, std::span<const View> out) const {
  const std::int64_t rows = shape.elements() / columns_;
  ConstRowsView from[kMost];
  for (std::size_t i = 0; i < in.size(); ++i) from[i] = rows_of_operand(in[i], starts_[i], rows);
  RowsView to[kMost];
  std::int64_t used[kMost] = {};
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    const auto o = static_cast<std::size_t>(outputs_[k]);
    to[k] = {out[o], used[o], out[o].shape[shape.rank() - 1]};
    used[o] += columns_;
  }
  primitives.pointwise_rows(stream, *program_, rows, columns_, {from, in.size()},
                            {to, outputs_.size()});
}

}  // namespace troupe::detail
