#include <troupe/ops/families/coordinates.hpp>

#include <fmt/format.h>

namespace troupe::detail {

Coordinates coordinates_of(const Shape& params, const Shape& indices, std::int64_t batch_axes) {
  auto fail = [&](const std::string& why) {
    throw Error(Code::invalid_argument, fmt::format("{}: params {}, indices {}, {} batch axes", why,
                                                    params.text(), indices.text(), batch_axes));
  };
  Coordinates c;
  if (batch_axes < 0 || batch_axes > Shape::kMaxRank) fail("there are from 0 to 8 batch axes");
  if (indices.has_rank() && indices.rank() < 1 + batch_axes)
    fail("indices need an axis of coordinates behind their batch axes");
  if (params.has_rank() && params.rank() < 1 + batch_axes)
    fail("params need an axis behind their batch axes");
  c.depth = indices.has_rank() ? indices[indices.rank() - 1] : kAny;
  if (c.depth == 0) fail("coordinates need at least one number");
  if (params.has_rank() && c.depth > params.rank() - batch_axes)
    fail(fmt::format("there are {} coordinates, but params have {} axes for them", c.depth,
                     params.rank() - batch_axes));
  if (!params.has_rank() || c.depth < 0) {
    c.taken = Shape::unknown();
    return c;
  }
  const int batch = static_cast<int>(batch_axes), first_rest = batch + static_cast<int>(c.depth);
  for (int i = 0; i < batch; ++i) {
    if (params[i] >= 0 && indices[i] >= 0 && params[i] != indices[i]) fail("the batches differ");
    c.taken.push_back(params[i] >= 0 ? params[i] : indices[i]);
    c.outer *= c.taken[i];
  }
  if (indices.rank() - 1 + params.rank() - first_rest > Shape::kMaxRank)
    fail(fmt::format("the result would have more than {} axes", Shape::kMaxRank));
  for (int i = batch; i + 1 < indices.rank(); ++i) {
    c.taken.push_back(indices[i]);
    c.n *= indices[i];
  }
  for (int i = batch; i < first_rest; ++i) c.extents.push_back(params[i]);
  for (int i = first_rest; i < params.rank(); ++i) {
    c.taken.push_back(params[i]);
    c.inner *= params[i];
  }
  return c;
}

AlongArgs Coordinates::args(Along what, ConstView x, ConstView indices, View out, Put how) const {
  AlongArgs a{
      what, x, indices, out, outer, extents.elements(), n, inner, how, static_cast<int>(depth), {}};
  for (int i = 0; i < extents.rank(); ++i) a.extents[static_cast<std::size_t>(i)] = extents[i];
  return a;
}

}  // namespace troupe::detail
