#include <troupe/ops/families/window.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/device/window.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {
namespace {

using Integers = std::vector<std::int64_t>;

const Integers& numbers(const Attrs& attrs, const char* name) { return attrs.get<Integers>(name); }

std::int64_t number(const Attrs& attrs, const char* name, int axis, std::int64_t none) {
  const Integers& all = numbers(attrs, name);
  return all.empty() ? none : all[static_cast<std::size_t>(axis)];
}

// largest stride, step or padding: its product with an extent does not overflow
constexpr std::int64_t kMost = std::int64_t{1} << 30;

void check_numbers(const Attrs& attrs, const char* name, int axes, std::int64_t least) {
  const Integers& all = numbers(attrs, name);
  if (!all.empty() && static_cast<int>(all.size()) != axes)
    throw Error(Code::invalid_argument,
                fmt::format("{} has {} numbers for {} spatial axes", name, all.size(), axes));
  for (std::int64_t n : all)
    if (n < least || n > kMost)
      throw Error(Code::invalid_argument,
                  n < least ? fmt::format("{} must be at least {}, not {}", name, least, n)
                            : fmt::format("{} must be at most {}, not {}", name, kMost, n));
}

void check_attrs(const Attrs& attrs, int axes) {
  check_numbers(attrs, "strides", axes, 1);
  check_numbers(attrs, "dilation", axes, 1);
  check_numbers(attrs, "before", axes, 0);
  check_numbers(attrs, "after", axes, 0);
  const std::string& kind = attrs.get<std::string>("padding");
  if (kind != "valid" && kind != "same" && kind != "given" && kind != "ceil")
    throw Error(Code::invalid_argument,
                fmt::format("padding is valid, same, given or ceil, not '{}'", kind));
}

WindowAxis place(std::int64_t in, std::int64_t size, int axis, const Attrs& attrs) {
  WindowAxis a{.in = in,
               .out = kAny,
               .size = size,
               .stride = number(attrs, "strides", axis, 1),
               .dilation = number(attrs, "dilation", axis, 1)};
  if (in < 0) return a;
  const bool is_same = attrs.get<std::string>("padding") == "same";
  if (is_same) a.out = (in + a.stride - 1) / a.stride;
  if (size < 0) return a;
  const std::int64_t length = (size - 1) * a.dilation + 1;
  if (is_same) {
    a.before = std::max<std::int64_t>(0, (a.out - 1) * a.stride + length - in) / 2;
    return a;
  }
  a.before = number(attrs, "before", axis, 0);
  const bool is_ceil = attrs.get<std::string>("padding") == "ceil";
  const std::int64_t whole = in + a.before + number(attrs, "after", axis, 0) - length,
                     room = whole + (is_ceil ? a.stride - 1 : 0);
  if (room < 0)
    throw Error(
        Code::out_of_range,
        fmt::format("a window of {}{} does not fit into spatial axis {} of {} with its padding",
                    size, a.dilation > 1 ? fmt::format(" by steps of {}", a.dilation) : "", axis,
                    in));
  a.out = room / a.stride + 1;
  const std::int64_t fit = whole < 0 ? 0 : whole / a.stride + 1;
  // the one more would begin behind the elements
  if (a.out > fit && a.start(a.out - 1) >= in) --a.out;
  return a;
}

void check_sizes(const Shape& size) {
  for (std::int64_t s : size)
    if (s == 0)
      throw Error(Code::invalid_argument, fmt::format("a window {} has no elements", size.text()));
}

}  // namespace

Attrs attrs_of(const WindowOptions& w) {
  return Attrs{{"strides", w.strides},
               {"dilation", w.dilation},
               {"padding", w.padding.kind},
               {"before", w.padding.before},
               {"after", w.padding.after}};
}

void window_attrs(OpBuilder& op) {
  op.attr<Integers>("strides", {});
  op.attr<Integers>("dilation", {});
  op.attr<std::string>("padding", "valid");
  op.attr<Integers>("before", {});
  op.attr<Integers>("after", {});
}

Shape positions(const Shape& space, const Shape& size, const Attrs& attrs) {
  check_attrs(attrs, space.rank());
  check_sizes(size);
  Shape out;
  for (int i = 0; i < space.rank(); ++i) out.push_back(place(space[i], size[i], i, attrs).out);
  return out;
}

Shape covered(const Shape& space, const Shape& size, const Attrs& attrs) {
  check_attrs(attrs, space.rank());
  check_sizes(size);
  if (attrs.get<std::string>("padding") == "ceil")
    throw Error(Code::invalid_argument,
                "padding that rounds up has no transpose; give what is before and after");
  Shape out;
  for (int i = 0; i < space.rank(); ++i) {
    const std::int64_t stride = number(attrs, "strides", i, 1);
    std::int64_t extent = kAny;
    if (attrs.get<std::string>("padding") == "same") {
      if (space[i] >= 0) extent = space[i] * stride;
    } else if (space[i] >= 0 && size[i] >= 0) {
      extent = space[i] == 0
                   ? 0
                   : (space[i] - 1) * stride + (size[i] - 1) * number(attrs, "dilation", i, 1) + 1 -
                         number(attrs, "before", i, 0) - number(attrs, "after", i, 0);
      if (extent < 0)
        throw Error(Code::out_of_range,
                    fmt::format("the padding takes more than spatial axis {} would have", i));
    }
    out.push_back(extent);
  }
  return out;
}

Windows windows_of(const Shape& space, const Shape& size, const Attrs& attrs) {
  if (space.rank() < 1 || space.rank() > 3 || size.rank() != space.rank())
    throw Error(Code::invalid_argument,
                fmt::format("needs one to three spatial axes, not {} and a window {}", space.text(),
                            size.text()));
  check_attrs(attrs, space.rank());
  check_sizes(size);
  Windows w;
  for (int i = 0; i < space.rank(); ++i)
    w.axis[static_cast<std::size_t>(3 - space.rank() + i)] = place(space[i], size[i], i, attrs);
  return w;
}

Shape space_of(const Shape& shape) {
  if (shape.rank() < 3)
    throw Error(Code::invalid_argument,
                fmt::format("needs [batch, space..., channels], not {}", shape.text()));
  return Shape(shape.dims().subspan(1, static_cast<std::size_t>(shape.rank() - 2)));
}

Shape with_space(std::int64_t batch, const Shape& space, std::int64_t channels) {
  Shape out{batch};
  for (std::int64_t e : space) out.push_back(e);
  out.push_back(channels);
  return out;
}

void require_space(const Inference& c, int input, const char* what) {
  const Shape& s = c.shape(input);
  c.require(
      !s.has_rank() || (s.rank() >= 3 && s.rank() <= 5),
      fmt::format("{} must be [batch, space..., channels] with one to three spatial axes, not {}",
                  what, s.text()));
}

}  // namespace troupe::detail
