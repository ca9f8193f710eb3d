#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

namespace {

// Returns the number of rows of one product of [rows, m] and [rows, n]. It is small enough that the
// rows of two products fit into memory beside the result and the sum, and large enough that adding
// the result to the sum costs little. It depends on the shapes alone, so that devices with little
// memory compute the same bits as others.
std::int64_t rows_of_piece(std::int64_t m, std::int64_t n, DType dtype) {
  constexpr std::int64_t kLeast = 64 << 10, kMost = 8 << 20;  // bytes of both operands
  const std::int64_t row =
      std::max<std::int64_t>(1, (m + n) * static_cast<std::int64_t>(size_of(dtype)));
  const std::int64_t of_result = 8 * m * n / std::max<std::int64_t>(1, m + n);
  return std::max<std::int64_t>(
      1, std::clamp(of_result, kLeast / row, std::max(kLeast / row, kMost / row)));
}

std::int64_t columns(const List& list) {
  std::int64_t n = list.element_shape().has_rank() ? list.element_shape()[1] : -1;
  for (std::int64_t i = 0; n < 0 && i < list.length(); ++i)
    if (const Value v = list.peek(i); v.has_value()) n = v.tensor().shape()[1];
  if (n < 0)
    throw Error(Code::failed_precondition,
                fmt::format("the width of the elements of the {} is unknown", list.text()));
  return n;
}

std::int64_t rows_in(const List& list) {
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < list.length(); ++i)
    if (const Value v = list.peek(i); v.has_value()) rows += v.tensor().shape()[0];
  return rows;
}

Tensor product(KernelContext& c, const Tensor& a, const Tensor& b) {
  MatmulArgs args{a, b, {}, true, false, nullptr, b.content()};
  Tensor out = c.allocate(a.dtype(), Shape{a.shape()[1], b.shape()[1]});
  args.out = View(out);
  c.primitives().matmul(c.stream(), args);
  return out;
}

// Multiplies from the end, because the elements pushed last are not swapped out yet. As sole holder
// of a list it frees memory. The next piece is swapped in while this one is multiplied.
Value in_pieces(KernelContext& c, List as, List bs, std::int64_t rows_of_piece) {
  const Shape result{columns(as), columns(bs)};
  const DType dtype = as.dtype();
  const auto rows_at = [&](std::int64_t i) -> std::int64_t {
    const Value a = as.peek(i), b = bs.peek(i);
    if (!a.has_value() || !b.has_value()) return 0;  // zeros
    const std::int64_t rows = a.tensor().shape()[0];
    if (rows != b.tensor().shape()[0])
      throw Error(Code::invalid_argument,
                  fmt::format("elements {} have {} and {} rows", i, rows, b.tensor().shape()[0]));
    return rows;
  };
  struct Piece {
    std::int64_t first, rows;
  };
  const auto last_piece = [&] {
    Piece p{as.length(), 0};
    while (p.first > 0 && (p.rows == 0 || p.rows + rows_at(p.first - 1) <= rows_of_piece))
      p.rows += rows_at(--p.first);
    return p;
  };
  Value sum;
  for (Piece piece = last_piece(); as.length() > 0;) {
    Rows left(c, dtype, Shape{piece.rows, result[0]}),
        right(c, dtype, Shape{piece.rows, result[1]});
    while (as.length() > piece.first) {
      const bool has_rows = rows_at(as.length() - 1) > 0;
      const Value a = as.pop(), b = bs.pop();
      if (!has_rows) continue;
      left.add(a.tensor());
      right.add(b.tensor());
    }
    piece = last_piece();
    as.expect(piece.first);
    bs.expect(piece.first);
    sum = sum_of_values(c, std::move(sum), product(c, left.finish(), right.finish()));
  }
  return sum.has_value() ? sum : zeros(c, {dtype, result});
}

}  // namespace

TROUPE_OP(ListProduct) {
  op.doc(
      "The sum over i of the matrix products transpose(a_i) b_i of the elements of two lists of "
      "equal length, [rows_i, m] and [rows_i, n]; "
      "an element that was not written is zero.");
  op.inputs(2);
  op.takes_lists();
  op.infer([](Inference& c) {
    Shape out;
    for (int i : {0, 1}) {
      require_tensor_list(c, i);
      c.require(!c.shape(i).has_rank() || c.shape(i).rank() == 2, "the elements must be matrices");
      out.push_back(c.shape(i).has_rank() ? c.shape(i)[1] : kAny);
    }
    c.require_same_dtype(0, 1);
    c.output(c.dtype(0), out);
  });
  op.gradient([](Gradient& g) {
    const Expr as = g.x(0), bs = g.x(1), dy = g.dy();
    if (g.needs(0))
      g.set(0, split_as(as, matmul(list_concat(bs), dy, false, true), list_extents(as)));
    if (g.needs(1)) g.set(1, split_as(bs, matmul(list_concat(as), dy), list_extents(bs)));
  });
  op.run([](KernelContext& c) {
    List as = take_list(c, 0), bs = take_list(c, 1);
    if (as.length() != bs.length())
      throw Error(Code::invalid_argument,
                  fmt::format("the lists have {} and {} elements", as.length(), bs.length()));
    const std::int64_t m = columns(as), n = columns(bs), most = rows_of_piece(m, n, as.dtype()),
                       rows = rows_in(as);
    if (rows > most) return c.set(0, in_pieces(c, std::move(as), std::move(bs), most));
    const Tensor a = concatenated(c, as), b = concatenated(c, bs);
    c.set(0, product(c, a, b));
  });
}

}  // namespace troupe
