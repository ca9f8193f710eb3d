// Convolutions whose space is split: each device gets the rows beside its own, the halo, from its
// neighbours. The stride is 1, and padding keeps the extents (`same`).
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh::detail {

using Integers = std::vector<std::int64_t>;

namespace {

std::int64_t number_at(const Attrs& attrs, const char* name, std::size_t i) {
  const auto& all = attrs.get<Integers>(name);
  return all.empty() ? 1 : all[i];
}

}  // namespace

// x with `before` rows of the device before and `after` of the one behind; zeros at the ends.
Lowering::Edge Lowering::with_halo(Edge x, std::size_t axis, int mesh_axis, std::int64_t before,
                                   std::int64_t after) {
  const std::int64_t local = graph().spec(x).shape[static_cast<int>(axis)];
  std::vector<Edge> parts;
  if (before > 0)
    parts.push_back(from_neighbour(rows_of(x, axis, local - before, before), mesh_axis, 1, false));
  parts.push_back(x);
  if (after > 0) parts.push_back(from_neighbour(rows_of(x, axis, 0, after), mesh_axis, -1, false));
  if (parts.size() == 1) return x;
  return bind("Concat", parts, Attrs{{"axis", static_cast<std::int64_t>(axis)}}, false);
}

// Conv(x, w), ConvInputGradient(dy, w, x) and ConvFilterGradient(x, dy, w). False: no spatial axis
// is split, or not so simply; then the axes are whole.
bool Lowering::convolve_with_halo() {
  const std::string& op = node().op->name;
  const bool is_filter_gradient = op == "ConvFilterGradient";
  const std::size_t filter = is_filter_gradient ? 2 : 1;
  const Laid &a = input(0), &w = input(filter);
  const auto space = a.axes.size() - 2;
  const Attrs& attrs = node().attrs;
  if (attrs.get<std::string>("padding") != "same" || attrs.get<std::int64_t>("groups") != 1)
    return false;
  Splits of_a = rules(a.axes);
  const Splits of_w = [&] {
    Splits s = rules(w.axes);
    for (std::size_t i = 0; i < space; ++i) s[i].assign(s[i].size(), -1);
    return s;
  }();
  Integers before(space), after(space);
  bool is_split = false;
  for (std::size_t i = 0; i < space; ++i) {
    const int m = split_of(a.axes[i + 1]);
    of_a[i + 1].assign(a.axes[i + 1].size(), -1);
    if (number_at(attrs, "strides", i) != 1) return false;
    const std::int64_t reach = (dims().extent(w.axes[i]) - 1) * number_at(attrs, "dilation", i);
    before[i] = reach / 2;
    after[i] = reach - before[i];
    if (m < 0) continue;
    // A halo that reaches past the neighbour is no exchange with it.
    if (dims().extent(a.axes[i + 1]) / members(m) < reach) return false;
    of_a[i + 1][0] = m;
    is_split = true;
  }
  if (!is_split) return false;

  // The other tensor has the batch and the space of the first, and the channels of the filter.
  const bool is_forward = op == "Conv";
  const std::size_t in = space, out = space + 1;
  Splits of_b = of_a;
  of_a.back() = of_w[op == "ConvInputGradient" ? out : in];
  of_b.back() = of_w[op == "ConvInputGradient" ? in : out];
  Axes of_a_axes = a.axes, of_b_axes = a.axes;
  of_a_axes.back() = w.axes[op == "ConvInputGradient" ? out : in];
  of_b_axes.back() = w.axes[op == "ConvInputGradient" ? in : out];
  require_legal(of_a_axes, of_a);
  require_legal(of_b_axes, of_b);
  require_legal(w.axes, of_w);
  const std::string why = "a convolution splits it so";
  const Edge first = settled(a, of_a_axes, of_a, why, may_scatter(0)).edge;

  Attrs given = attrs;
  given.set("padding", std::string("given"));
  Integers pad_before = before, pad_after = after;
  for (std::size_t i = 0; i < space; ++i)
    if (of_a[i + 1].size() == 1 && of_a[i + 1][0] >= 0) pad_before[i] = pad_after[i] = 0;
  given.set("before", pad_before);
  given.set("after", pad_after);
  const auto extended = [&](Edge e, const Integers& lower, const Integers& upper) {
    for (std::size_t i = 0; i < space; ++i)
      if (pad_before[i] + pad_after[i] == 0 && of_a[i + 1].size() == 1 && of_a[i + 1][0] >= 0)
        e = with_halo(e, i + 1, of_a[i + 1][0], lower[i], upper[i]);
    return e;
  };

  Laid y;
  y.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
  const auto add_partial = [&](const std::vector<int>& splits) {
    for (int m : splits)
      if (m >= 0) y.is_partial[static_cast<std::size_t>(m)] = 1;
  };
  if (is_filter_gradient) {
    const Edge dy = settled(input(1), of_b_axes, of_b, why, may_scatter(1)).edge;
    const Edge like = moved(w, w.axes, of_w, why).edge;
    y.edge = bind("ConvFilterGradient", {extended(first, before, after), dy, like}, given, false);
    y.axes = w.axes;
    y.splits = of_w;
    for (std::size_t i = 0; i <= space; ++i) add_partial(of_a[i]);
    set(0, std::move(y));
    return true;
  }
  const Edge kernel = settled(w, w.axes, of_w, why, may_scatter(1)).edge;
  y.axes = of_b_axes;
  y.splits = of_b;
  if (is_forward) {
    y.edge = bind("Conv", {extended(first, before, after), kernel}, given, false);
    add_partial(of_w[in]);
  } else {
    // The gradient of all rows that dy, with its halo, touches; those in the middle are here.
    const Edge dy = extended(first, after, before);
    Shape touched = local_shape(of_b_axes, of_b);
    const Shape mine = touched;
    Integers starts(static_cast<std::size_t>(touched.rank()), 0);
    for (std::size_t i = 0; i < space; ++i)
      if (of_a[i + 1].size() == 1 && of_a[i + 1][0] >= 0) {
        const std::int64_t reach = before[i] + after[i];
        touched.set(static_cast<int>(i) + 1, touched[static_cast<int>(i) + 1] + 2 * reach);
        starts[i + 1] = reach;
      }
    const DType dtype = node().outputs[0].dtype;
    const Edge like =
        bind("Fill", {}, Attrs{{"value", Tensor::zeros(dtype, {})}, {"shape", touched}}, false);
    const Edge all = bind("ConvInputGradient", {dy, kernel, like}, given, false);
    y.edge =
        bind("Slice", {all},
             Attrs{{"starts", starts}, {"extents", Integers(mine.begin(), mine.end())}}, false);
    add_partial(of_w[out]);
  }
  set(0, std::move(y));
  return true;
}

}  // namespace troupe::mesh::detail
