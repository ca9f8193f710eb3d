// Rows of convolutions and pooling, with references that ask of each element of the result which
// elements it is made of.
#pragma once

#include <algorithm>

#include <troupe/ops/families/window.hpp>
#include <troupe/test/ops/tables/table.hpp>

namespace troupe::test {

struct PlainWindow {
  Index size, stride, dilation, before;
  Index in, out;  // the space, and the positions in it

  PlainWindow(Index space, Index window, const Attrs& a)
      : size(std::move(window)), in(std::move(space)) {
    for (std::size_t k = 0; k < in.size(); ++k) {
      auto number = [&](const char* name, std::int64_t none) {
        const auto& all = a.get_or<Index>(name, {});
        return all.empty() ? none : all[k];
      };
      stride.push_back(number("strides", 1));
      dilation.push_back(number("dilation", 1));
      const std::int64_t length = (size[k] - 1) * dilation[k] + 1;
      if (a.get_or<std::string>("padding", "valid") == "same") {
        out.push_back((in[k] + stride[k] - 1) / stride[k]);
        before.push_back(std::max<std::int64_t>(0, (out[k] - 1) * stride[k] + length - in[k]) / 2);
      } else {
        before.push_back(number("before", 0));
        out.push_back((in[k] + before[k] + number("after", 0) - length) / stride[k] + 1);
      }
    }
  }
  /// Calls f(element, position, tap) for all of which the three meet.
  void each(const Callable<void(const Index&, const Index&, const Index&)>& f) const {
    for_each_index(Shape(out), [&](const Index& o) {
      for_each_index(Shape(size), [&](const Index& t) {
        Index i;
        for (std::size_t k = 0; k < o.size(); ++k) {
          i.push_back(o[k] * stride[k] - before[k] + t[k] * dilation[k]);
          if (i[k] < 0 || i[k] >= in[k]) return;
        }
        f(i, o, t);
      });
    });
  }
};

inline Index middle(const Shape& s) { return Index(s.begin() + 1, s.end() - 1); }
inline Index whole(std::int64_t n, Index space, std::int64_t channel) {
  space.insert(space.begin(), n);
  space.push_back(channel);
  return space;
}
inline Index tap_of(Index window, std::int64_t channel, std::int64_t filter) {
  window.push_back(channel);
  window.push_back(filter);
  return window;
}

/// Calls f(x's index, w's index, y's index) for each product in a convolution.
inline void each_product(const Shape& x, const Shape& w, const Attrs& a,
                         const Callable<void(const Index&, const Index&, const Index&)>& f) {
  const std::int64_t groups = a.get_or<std::int64_t>("groups", 1), seen = w[w.rank() - 2],
                     filters = w[w.rank() - 1], part = filters / groups;
  PlainWindow window(middle(x), Index(w.begin(), w.end() - 2), a);
  window.each([&](const Index& i, const Index& o, const Index& t) {
    for (std::int64_t n = 0; n < x[0]; ++n)
      for (std::int64_t k = 0; k < filters; ++k)
        for (std::int64_t c = 0; c < seen; ++c)
          f(whole(n, i, k / part * seen + c), tap_of(t, c, k), whole(n, o, k));
  });
}

inline Shape convolved_shape(const Shape& x, const Shape& w, const Attrs& a) {
  return Shape(
      whole(x[0], PlainWindow(middle(x), Index(w.begin(), w.end() - 2), a).out, w[w.rank() - 1]));
}

inline Attrs conv_attrs(const WindowOptions& window, std::int64_t groups) {
  Attrs a = attrs_of(window);
  a.set("groups", groups);
  return a;
}

inline std::vector<Row> convolution_rows() {
  Draws draws(21);
  struct Setting {
    Shape x, w;
    WindowOptions window;
    std::int64_t groups = 1;
    bool is_small = true;
  };
  const std::vector<Setting> settings{
      {{1, 5, 2}, {3, 2, 2}, {}},
      {{2, 4, 1}, {2, 1, 1}, {.strides = {2}, .padding = Padding::same()}},
      {{1, 3, 3, 1}, {2, 2, 1, 2}, {}},
      {{1, 3, 3, 2}, {3, 3, 1, 2}, {.padding = Padding::same()}, 2},
      {{1, 4, 3, 1}, {2, 2, 1, 1}, {.strides = {2, 1}, .padding = Padding::of({1, 0}, {0, 1})}},
      {{1, 5, 3, 1}, {2, 2, 1, 1}, {.padding = Padding::of({0, 1}), .dilation = {2, 1}}},
      {{2, 2, 2, 2, 1}, {2, 1, 2, 1, 2}, {}},
      {{0, 3, 2}, {2, 2, 1}, {}},
      {{1, 2, 0, 1}, {1, 1, 1, 1}, {.padding = Padding::of({0, 1})}},
      // For the kernels' sake.
      {{3, 9, 8, 16}, {3, 3, 16, 32}, {.strides = {2, 1}, .padding = Padding::same()}, 1, false},
      {{5, 8, 8, 16}, {3, 3, 1, 16}, {.padding = Padding::same()}, 16, false},
      {{2, 7, 6, 8},
       {3, 2, 4, 6},
       {.strides = {1, 2}, .padding = Padding::of({2, 1}), .dilation = {2, 2}},
       2,
       false},
      {{2, 4, 5, 6, 4},
       {2, 3, 3, 4, 8},
       {.strides = {1, 2, 2}, .padding = Padding::same()},
       1,
       false},
      {{5, 12, 12, 1}, {5, 5, 1, 8}, {}, 1, false},
  };
  std::vector<Case> forward, input, filter, transposed;
  for (const Setting& s : settings) {
    const Attrs a = conv_attrs(s.window, s.groups);
    const Shape y = convolved_shape(s.x, s.w, a);
    const int order = s.is_small ? 2 : 0;
    forward.push_back({{draws.values(s.x), draws.values(s.w)}, a, order});
    input.push_back({{draws.values(y), draws.values(s.w), draws.values(s.x)}, a, order});
    filter.push_back({{draws.values(s.x), draws.values(y), draws.values(s.w)}, a, order});
  }
  const std::vector<Setting> back{
      {{1, 3, 2}, {2, 1, 2}, {.strides = {2}}},
      {{1, 2, 2, 2}, {3, 3, 1, 2}, {.strides = {2, 2}, .padding = Padding::same()}},
      {{2, 2, 2, 1}, {2, 2, 1, 1}, {.padding = Padding::of({1, 0}, {0, 1})}},
      {{1, 2, 2, 2}, {2, 2, 1, 2}, {.dilation = {1, 2}}, 2},
      {{1, 1, 2, 1, 1}, {2, 1, 2, 1, 1}, {}},
      {{3, 6, 7, 16}, {4, 4, 8, 16}, {.strides = {2, 2}, .padding = Padding::of({1, 1})}, 1, false},
  };
  for (const Setting& s : back)
    transposed.push_back({{draws.values(s.x), draws.values(s.w)},
                          conv_attrs(s.window, s.groups),
                          s.is_small ? 2 : 0});
  auto space_of_transposed = [](const Shape& x, const Shape& w, const Attrs& a) {
    Index space;
    for (int k = 0; k < x.rank() - 2; ++k) {
      auto number = [&](const char* name, std::int64_t none) {
        const auto& all = a.get<Index>(name);
        return all.empty() ? none : all[static_cast<std::size_t>(k)];
      };
      const std::int64_t stride = number("strides", 1);
      if (a.get<std::string>("padding") == "same") space.push_back(x[k + 1] * stride);
      else
        space.push_back((x[k + 1] - 1) * stride + (w[k] - 1) * number("dilation", 1) + 1 -
                        number("before", 0) - number("after", 0));
    }
    return Shape(whole(x[0], space, w[w.rank() - 2] * a.get<std::int64_t>("groups")));
  };
  return {
      {"Conv", kReals, forward,
       [](const Arrays& x, const Attrs& a) {
         Array y = Array::filled(convolved_shape(x[0].shape, x[1].shape, a), 0);
         each_product(
             x[0].shape, x[1].shape, a,
             [&](const Index& i, const Index& w, const Index& o) { y[o] += x[0][i] * x[1][w]; });
         return Arrays{y};
       },
       2, 16},
      {"ConvInputGradient", kReals, input,
       [](const Arrays& x, const Attrs& a) {
         Array dx = Array::filled(x[2].shape, 0);
         each_product(
             x[2].shape, x[1].shape, a,
             [&](const Index& i, const Index& w, const Index& o) { dx[i] += x[0][o] * x[1][w]; });
         return Arrays{dx};
       },
       2, 16},
      {"ConvFilterGradient", kReals, filter,
       [](const Arrays& x, const Attrs& a) {
         Array dw = Array::filled(x[2].shape, 0);
         each_product(
             x[0].shape, x[2].shape, a,
             [&](const Index& i, const Index& w, const Index& o) { dw[w] += x[0][i] * x[1][o]; });
         return Arrays{dw};
       },
       2, 64},
      {"ConvTranspose", kReals, transposed,
       [=](const Arrays& x, const Attrs& a) {
         Array y = Array::filled(space_of_transposed(x[0].shape, x[1].shape, a), 0);
         each_product(y.shape, x[1].shape, a, [&](const Index& i, const Index& w, const Index& o) {
           y[i] += x[0][o] * x[1][w];
         });
         return Arrays{y};
       },
       2, 16},
  };
}

inline Attrs pool_attrs(Index size, const WindowOptions& window) {
  Attrs a = attrs_of(window);
  a.set("size", size);
  return a;
}

/// For each element of the result the elements of x that its window holds, as flat positions.
inline std::vector<std::vector<std::size_t>> held(const Array& x, const Attrs& a, Shape& pooled) {
  PlainWindow window(middle(x.shape), a.get<Index>("size"), a);
  const std::int64_t channels = x.shape[x.shape.rank() - 1];
  pooled = Shape(whole(x.shape[0], window.out, channels));
  Array where{pooled, {}};
  std::vector<std::vector<std::size_t>> out(static_cast<std::size_t>(pooled.elements()));
  window.each([&](const Index& i, const Index& o, const Index&) {
    for (std::int64_t n = 0; n < x.shape[0]; ++n)
      for (std::int64_t c = 0; c < channels; ++c)
        out[where.position(whole(n, o, c))].push_back(x.position(whole(n, i, c)));
  });
  return out;
}
inline std::size_t largest(const Array& x, const std::vector<std::size_t>& of) {
  std::size_t best = of[0];
  for (std::size_t i : of)
    if (x.v[i] > x.v[best]) best = i;
  return best;
}

inline std::vector<Row> pooling_rows() {
  Draws draws(22);
  struct Setting {
    Shape x;
    Index size;
    WindowOptions window;
    bool is_small = true;
  };
  const std::vector<Setting> settings{
      {{1, 6, 2}, {2}, {.strides = {2}}},
      {{2, 5, 1}, {3}, {.strides = {2}, .padding = Padding::same()}},
      {{1, 4, 3, 2}, {2, 2}, {}},
      {{1, 5, 4, 1}, {3, 2}, {.strides = {2, 2}, .padding = Padding::of({1, 1}, {2, 0})}},
      {{1, 5, 5, 1}, {2, 2}, {.strides = {1, 2}, .dilation = {2, 2}}},
      {{1, 2, 3, 2, 2}, {2, 2, 1}, {}},
      {{0, 3, 2}, {2}, {}},
      {{4, 24, 24, 16}, {3, 3}, {.strides = {2, 2}, .padding = Padding::same()}, false},
  };
  std::vector<Case> max, max_gradient, max_at, mean, mean_gradient;
  for (const Setting& s : settings) {
    const Attrs a = pool_attrs(s.size, s.window);
    const int order = s.is_small ? 2 : 0;
    // Whole numbers far apart: cut for integer dtypes they stay different, and a difference
    // quotient changes no order.
    Sample x = draws.values(s.x);
    for (std::size_t i = 0; i < x.array.v.size(); ++i)
      x.array.v[i] = static_cast<double>((i * 37) % 101);
    Shape y;
    held(x.array, a, y);
    max.push_back({{x}, a, order});
    max_gradient.push_back({{x, draws.values(y)}, a, order});
    max_at.push_back({{x, draws.values(s.x)}, a, order});
    mean.push_back({{draws.values(s.x)}, a, order});
    mean_gradient.push_back({{draws.values(y), draws.values(s.x)}, a, order});
  }
  max.push_back({{{{Shape{1, 4, 1}, {1, 3, 3, 1}}}}, pool_attrs({4}, {}), 0});  // equals
  max_gradient.push_back(
      {{{{Shape{1, 4, 1}, {1, 3, 3, 1}}}, draws.values({1, 1, 1})}, pool_attrs({4}, {}), 0});
  return {
      {"MaxPool", kReals, max,
       [](const Arrays& x, const Attrs& a) {
         Array y;
         for (const auto& of : held(x[0], a, y.shape)) y.v.push_back(x[0].v[largest(x[0], of)]);
         return Arrays{y};
       }},
      {"MaxPoolGradient", kReals, max_gradient,
       [](const Arrays& x, const Attrs& a) {
         Array dx = Array::filled(x[0].shape, 0);
         Shape y;
         std::size_t at = 0;
         for (const auto& of : held(x[0], a, y)) dx.v[largest(x[0], of)] += x[1].v[at++];
         return Arrays{dx};
       },
       2, 4},
      {"MaxPoolAt", kReals, max_at,
       [](const Arrays& x, const Attrs& a) {
         Array y;
         for (const auto& of : held(x[0], a, y.shape)) y.v.push_back(x[1].v[largest(x[0], of)]);
         return Arrays{y};
       }},
      {"AvgPool", kFloats, mean,
       [](const Arrays& x, const Attrs& a) {
         Array y;
         for (const auto& of : held(x[0], a, y.shape)) {
           double sum = 0;
           for (std::size_t i : of) sum += x[0].v[i];
           y.v.push_back(sum / static_cast<double>(of.size()));
         }
         return Arrays{y};
       },
       2, 4},
      {"AvgPoolGradient", kFloats, mean_gradient,
       [](const Arrays& x, const Attrs& a) {
         Array dx = Array::filled(x[1].shape, 0);
         Shape y;
         std::size_t at = 0;
         for (const auto& of : held(x[1], a, y)) {
           for (std::size_t i : of) dx.v[i] += x[0].v[at] / static_cast<double>(of.size());
           ++at;
         }
         return Arrays{dx};
       },
       2, 8},
  };
}

inline std::vector<Row> window_rows() {
  std::vector<Row> out = convolution_rows();
  for (Row& r : pooling_rows()) out.push_back(std::move(r));
  return out;
}

}  // namespace troupe::test
