// The GPU device's primitives over the fake runtime, on extents at which their kernels cut rows,
// merge runs and carry sums, against the CPU device's.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/device/attention.hpp>
#include <troupe/devices/device/axis_indexing.hpp>
#include <troupe/devices/device/channel_sums.hpp>
#include <troupe/devices/device/ctc.hpp>
#include <troupe/devices/device/recurrent.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/row_norm.hpp>
#include <troupe/devices/device/window.hpp>
#include <troupe/test/support/cpu.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/on_device.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

double roundings_of(DType type) {
  switch (type) {
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    case DType::f32: return 4e-6;
    default: return 1e-11;
  }
}

bool are_near(double x, double y, double tolerance) {
  return x == y || (std::isnan(x) && std::isnan(y)) ||
         std::fabs(x - y) <= tolerance * std::max(1.0, std::fabs(y));
}

// A call of one primitive on a device: inputs, and outputs that it fills.
struct Both : Cpu {
  Both() {
    fake_cuda::reset({.seed = 5, .max_delay_us = 5});
    GpuOptions options;
    options.poisons = true;
    gpu = make_device("gpu:0", {.seed = 1, .gpu = options});
    queue = gpu->make_stream();
  }
  ~Both() {
    queue.reset();
    gpu.reset();
    for (const std::string& v : fake_cuda::report().violations) BOOST_ERROR("violation: " << v);
    fake_cuda::reset();
  }

  using Call = std::function<void(const Primitives&, Stream&, const std::vector<Tensor>& in,
                                  std::vector<Tensor>& out)>;
  struct Spec {
    DType dtype;
    Shape shape;
  };
  // Runs the call on both and compares all outputs. `starts`: the contents of outputs that are
  // read, by their position.
  void compare(const std::string& what, const std::vector<Tensor>& in,
               const std::vector<Spec>& outs, double tolerance, const Call& call,
               const std::vector<Tensor>& starts = {}) {
    if (!is_due_today(compared++, kUnderTsan ? 40 : 10)) return;
    std::vector<Tensor> expected, there, from;
    for (std::size_t i = 0; i < outs.size(); ++i) {
      expected.push_back(Tensor::zeros(outs[i].dtype, outs[i].shape));
      there.push_back(gpu->empty(outs[i].dtype, outs[i].shape));
      if (i >= starts.size()) continue;
      std::memcpy(expected.back().raw_mutable(), starts[i].raw(), starts[i].bytes());
      gpu->copy_from_host(*queue, starts[i], View(there.back()));
    }
    for (const Tensor& t : in) {
      from.push_back(gpu->empty(t.dtype(), t.shape()));
      gpu->copy_from_host(*queue, t, View(from.back()));
    }
    call(p(), *stream, in, expected);
    call(gpu->primitives(), *queue, from, there);
    for (std::size_t k = 0; k < outs.size(); ++k) {
      const Tensor found = fetch(*gpu, *queue, there[k]);
      std::int64_t wrong = -1;
      for (std::int64_t i = 0; i < found.elements() && wrong < 0; ++i)
        if (!are_near(found.at(i), expected[k].at(i), tolerance)) wrong = i;
      BOOST_TEST(wrong == -1, what << ": output " << k << "[" << wrong << "] is "
                                   << (wrong < 0 ? 0 : found.at(wrong)) << ", not "
                                   << (wrong < 0 ? 0 : expected[k].at(wrong)));
    }
  }
  Tensor draw(DType type, const Shape& shape, double low = -2, double high = 2) {
    return random_tensor(random, type, shape, low, high);
  }
  Tensor draw_indices(const Shape& shape, std::int64_t extent) {
    Tensor t = Tensor::zeros(DType::i64, shape);
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<std::int64_t>()[i] = below(extent);
    return t;
  }

  std::uint64_t compared = 0;
  std::unique_ptr<Device> gpu;
  std::unique_ptr<Stream> queue;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_primitives, Both)

BOOST_AUTO_TEST_CASE(softmax_of_short_and_long_rows) {
  for (const DType type : kFloats)
    for (const auto& [rows, n] : {std::pair{7, 1}, {5, 3}, {40, 33}, {3, 300}})
      for (const bool log : {false, true})
        compare(fmt::format("softmax {} [{}, {}]", name_of(type), rows, n),
                {draw(type, {rows, n}, -8, 8)}, {{type, {rows, n}}}, roundings_of(type),
                [log](const Primitives& p, Stream& s, const auto& in, auto& out) {
                  p.softmax(s, in[0], View(out[0]), log);
                });
}

BOOST_AUTO_TEST_CASE(cross_entropy_and_its_gradient) {
  for (const DType type : kFloats)
    for (const auto& [rows, n] : {std::pair{9, 1}, {40, 10}, {3, 200}}) {
      const Tensor labels = draw_indices({rows}, n);
      compare(fmt::format("cross entropy {} [{}, {}]", name_of(type), rows, n),
              {draw(type, {rows, n}, -8, 8), labels, draw(type, {rows})},
              {{type, {rows}}, {type, {rows, n}}}, roundings_of(type),
              [](const Primitives& p, Stream& s, const auto& in, auto& out) {
                p.cross_entropy(s, in[0], in[1], View(out[0]));
                p.cross_entropy_gradient(s, in[0], in[1], in[2], View(out[1]));
              });
    }
}

BOOST_AUTO_TEST_CASE(a_label_outside_is_the_streams_status) {
  std::vector<Tensor> in{Tensor::zeros(DType::f32, {2, 3}), Tensor::of<std::int64_t>({1, 3})};
  for (Tensor& t : in) {
    Tensor there = gpu->empty(t.dtype(), t.shape());
    gpu->copy_from_host(*queue, t, View(there));
    t = there;
  }
  Tensor loss = gpu->empty(DType::f32, {2});
  gpu->primitives().cross_entropy(*queue, in[0], in[1], View(loss));
  BOOST_CHECK_EXCEPTION(queue->synchronize(), Error, [](const Error& e) {
    return e.code() == Code::out_of_range &&
           std::string(e.what()).find("index 3 at position 1 is outside [0, 3)") !=
               std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(normalisation_of_rows_and_its_gradient) {
  for (const DType type : kFloats)
    for (const bool centered : {true, false})
      for (const auto& [rows, n] : {std::pair{5, 3}, {30, 40}, {3, 300}, {70, 5}}) {
        const DType wide = type == DType::f64 ? DType::f64 : DType::f32;
        const Tensor x = draw(type, {rows, n}), scale = draw(type, {n}), bias = draw(type, {n}),
                     dy = draw(type, {rows, n});
        compare(fmt::format("row_norm {} [{}, {}]", name_of(type), rows, n), {x, scale, bias, dy},
                {{type, {rows, n}},
                 {wide, {rows}},
                 {wide, {rows}},
                 {type, {rows, n}},
                 {type, {n}},
                 {type, {n}}},
                4 * roundings_of(type),
                [=, rows = rows, n = n](const Primitives& p, Stream& s, const auto& in, auto& out) {
                  RowNormArgs a{in[0],        in[1], {}, View(out[0]), {},
                                View(out[2]), rows,  n,  1e-5,         centered};
                  if (centered) a.bias = in[2], a.mean = View(out[1]);
                  p.row_norm(s, a);
                  RowNormGradientArgs g{in[0],        in[1], {},   out[2], in[3],   View(out[3]),
                                        View(out[4]), {},    rows, n,      centered};
                  if (centered) g.mean = out[1], g.dbias = View(out[5]);
                  p.row_norm_gradient(s, g);
                  if (!centered) {
                    p.fill(s, Tensor::scalar_as(out[1].dtype(), 0), View(out[1]));
                    p.fill(s, Tensor::scalar_as(out[5].dtype(), 0), View(out[5]));
                  }
                });
      }
}

BOOST_AUTO_TEST_CASE(sums_by_channel) {
  for (const DType type : {DType::f32, DType::f64})
    for (const auto& [outer, rows, n] :
         {std::array<std::int64_t, 3>{1, 100, 3}, {2, 40, 5}, {1, 9, 300}, {1, 1, 4}}) {
      const Tensor x = draw(type, {outer, rows, n}, 90, 110), dy = draw(type, {outer, rows, n}),
                   mean = draw(type, {outer, n}, 90, 110);
      const Both::Spec of{DType::f64, {outer, n}};
      compare(
          fmt::format("channel_sums {} [{}, {}, {}]", name_of(type), outer, rows, n), {x, dy, mean},
          {of, of, of, of}, 1e-6,
          [=, outer = outer, rows = rows, n = n](const Primitives& p, Stream& s, const auto& in,
                                                 auto& out) {
            p.channel_sums(s, {in[0], {}, {}, View(out[0]), View(out[1]), outer, rows, n});
            p.channel_sums(s, {in[0], in[1], in[2], View(out[2]), View(out[3]), outer, rows, n});
          });
    }
}

BOOST_AUTO_TEST_CASE(scans_of_columns_and_of_long_rows) {
  for (const DType type : {DType::bf16, DType::f32, DType::f64, DType::i32, DType::c64})
    for (const Scan what : {Scan::sum, Scan::product, Scan::linear})
      for (const auto& [outer, extent, inner] :
           {std::array<std::int64_t, 3>{3, 5, 4}, {2, 1030, 1}, {1, 2500, 1}, {1, 1, 1}})
        for (int flags = 0; flags < 4; ++flags) {
          const bool exclusive = flags & 1 && what != Scan::linear, reverse = flags & 2;
          const bool is_product = what != Scan::sum;
          const Shape shape{outer, extent, inner};
          const DType part = type == DType::c64 ? DType::f32 : type;
          // Factors near one, so that products stay numbers.
          const auto values = [&](double low, double high) {
            if (type != DType::c64) return draw(part, shape, low, high);
            Tensor t = Tensor::zeros(type, shape);
            const Tensor parts = draw(part, Shape{shape.elements(), 2}, low, high);
            std::memcpy(t.raw_mutable(), parts.raw(), t.bytes());
            return t;
          };
          compare(fmt::format("scan {} {} [{}, {}, {}] {}", name_of(type), int(what), outer, extent,
                              inner, flags),
                  {type == DType::c64 && is_product ? values(0.4, 0.6)
                                                    : values(is_product ? 0.9 : -1, 1.05),
                   values(0.2, 0.6)},
                  {{type, shape}}, type == DType::bf16 ? 0.1 : 100 * roundings_of(part),
                  [=, outer = outer, extent = extent, inner = inner](const Primitives& p, Stream& s,
                                                                     const auto& in, auto& out) {
                    p.scan(s, {what, in[0], what == Scan::linear ? ConstView(in[1]) : ConstView(),
                               View(out[0]), outer, extent, inner, exclusive, reverse});
                  });
        }
}

BOOST_AUTO_TEST_CASE(sorting_is_stable_and_merges_runs) {
  for (const DType type : {DType::f16, DType::f32, DType::f64, DType::i8, DType::u64})
    for (const auto& [rows, extent, count] :
         {std::array<std::int64_t, 3>{3, 1, 1}, {2, 31, 31}, {2, 65, 65}, {1, 500, 7}})
      for (const bool descending : {false, true}) {
        Tensor x = draw(type, {rows, extent}, 0, 6);  // with equals
        if (type == DType::f32 && extent > 10) x.mutable_data<float>()[extent / 2] = NAN;
        compare(fmt::format("sort {} [{}, {}] {}", name_of(type), rows, extent, count), {x},
                {{type, {rows, count}}, {DType::i64, {rows, count}}}, 0,
                [=, rows = rows, extent = extent, count = count](const Primitives& p, Stream& s,
                                                                 const auto& in, auto& out) {
                  p.sort(s, {in[0], View(out[0]), View(out[1]), rows, extent, count, descending});
                });
      }
}

BOOST_AUTO_TEST_CASE(search_counts_what_is_below) {
  for (const DType type : {DType::bf16, DType::f32, DType::i16, DType::u8})
    for (const bool right : {false, true}) {
      Tensor sorted = Tensor::zeros(type, {2, 40}), values = draw(type, {2, 60}, 0, 12);
      visit_dtype(type, [&]<class T>(type_tag<T>) {
        if constexpr (!is_complex(dtype_of<T>))
          for (std::int64_t i = 0; i < 80; ++i)
            sorted.mutable_data<T>()[i] = T(static_cast<float>(i % 40 / 4));
      });
      compare(fmt::format("search {}", name_of(type)), {sorted, values}, {{DType::i64, {2, 60}}}, 0,
              [=](const Primitives& p, Stream& s, const auto& in, auto& out) {
                p.search(s, {in[0], in[1], View(out[0]), 2, 40, 60, right});
              });
    }
}

BOOST_AUTO_TEST_CASE(elements_are_taken_and_added_along_an_axis) {
  for (const DType type : {DType::f16, DType::f32, DType::i32})
    for (const auto& [outer, extent, n, inner] :
         {std::array<std::int64_t, 4>{2, 5, 7, 3}, {1, 9, 40, 1}, {3, 1, 2, 2}, {2, 4, 0, 3}}) {
      const Tensor index = draw_indices({outer, n, inner}, extent);
      compare(fmt::format("along {} [{}, {}, {}] n {}", name_of(type), outer, extent, inner, n),
              {draw(type, {outer, extent, inner}), draw(type, {outer, n, inner}), index},
              {{type, {outer, n, inner}}, {type, {outer, extent, inner}}}, 4 * roundings_of(type),
              [=, outer = outer, extent = extent, n = n, inner = inner](
                  const Primitives& p, Stream& s, const auto& in, auto& out) {
                p.along(s, {.what = Along::take,
                            .x = in[0],
                            .indices = in[2],
                            .out = View(out[0]),
                            .outer = outer,
                            .extent = extent,
                            .n = n,
                            .inner = inner});
                p.along(s, {.what = Along::add,
                            .x = in[1],
                            .indices = in[2],
                            .out = View(out[1]),
                            .outer = outer,
                            .extent = extent,
                            .n = n,
                            .inner = inner});
              });
    }
}

BOOST_AUTO_TEST_CASE(elements_are_taken_and_put_at_coordinates) {
  for (const DType type : {DType::f64, DType::i8})
    for (const Put how : {Put::update, Put::add, Put::sub, Put::min, Put::max, Put::mul}) {
      Tensor at = Tensor::zeros(DType::i64, {2, 9, 2});
      for (std::int64_t i = 0; i < 36; ++i)
        at.mutable_data<std::int64_t>()[i] = below(i % 2 ? 4 : 3);
      compare(fmt::format("put {} {}", name_of(type), int(how)),
              {draw(type, {2, 9, 5}), at, draw(type, {2, 3, 4, 5})},
              {{type, {2, 3, 4, 5}}, {type, {2, 9, 5}}}, 1e-12,
              [=](const Primitives& p, Stream& s, const auto& in, auto& out) {
                AlongArgs a{.what = Along::put_at,
                            .x = in[0],
                            .indices = in[1],
                            .out = View(out[0]),
                            .outer = 2,
                            .extent = 12,
                            .n = 9,
                            .inner = 5,
                            .how = how,
                            .depth = 2,
                            .extents = {3, 4}};
                p.along(s, a);
                a.what = Along::take_at, a.x = in[2], a.out = View(out[1]);
                p.along(s, a);
              },
              {draw(type, {2, 3, 4, 5})});
    }
}

BOOST_AUTO_TEST_CASE(random_numbers_are_those_of_the_cpu) {
  for (const DType type :
       {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::u64, DType::boolean})
    for (const Random how : {Random::uniform, Random::normal, Random::truncated_normal}) {
      if (how != Random::uniform && !is_floating(type)) continue;
      const RandomKey key{7, 11, 13, 17};
      compare(fmt::format("random {} {}", name_of(type), int(how)), {}, {{type, {1001}}},
              how == Random::uniform ? 0 : roundings_of(type) / 4,
              [=](const Primitives& p, Stream& s, const auto&, auto& out) {
                p.random(s, how, key, View(out[0]));
              });
    }
}

namespace {

Windows windows_of(std::array<std::int64_t, 2> in, std::array<std::int64_t, 2> size,
                   std::int64_t stride, std::int64_t dilation, std::int64_t before) {
  Windows w;
  for (std::size_t d = 0; d < 2; ++d) {
    WindowAxis& a = w.axis[d + 1];
    a = {in[d], 0, size[d], stride, dilation, before};
    a.out = (in[d] + 2 * before - (size[d] - 1) * dilation - 1) / stride + 1;
  }
  return w;
}

}  // namespace

BOOST_AUTO_TEST_CASE(pooling_and_its_gradients) {
  for (const DType type : kFloats)
    for (const Windows& w :
         {windows_of({7, 6}, {3, 2}, 2, 1, 1), windows_of({5, 5}, {2, 2}, 1, 2, 0),
          windows_of({4, 9}, {1, 3}, 1, 1, 0)}) {
      const Shape x{2, 1, w.axis[1].in, w.axis[2].in, 3}, y{2, 1, w.axis[1].out, w.axis[2].out, 3};
      const Tensor from = draw(type, x), dy = draw(type, y), other = draw(type, x);
      compare(fmt::format("pool {}", name_of(type)), {from, dy, other},
              {{type, y}, {type, x}, {type, y}, {type, y}, {type, x}}, 2 * roundings_of(type),
              [=](const Primitives& p, Stream& s, const auto& in, auto& out) {
                p.pool(s, {Pool::max, in[0], {}, View(out[0]), w, 2, 3});
                p.pool(s, {Pool::max_gradient, in[0], in[1], View(out[1]), w, 2, 3});
                p.pool(s, {Pool::max_at, in[0], in[2], View(out[2]), w, 2, 3});
                p.pool(s, {Pool::mean, in[0], {}, View(out[3]), w, 2, 3});
                p.pool(s, {Pool::mean_gradient, in[1], {}, View(out[4]), w, 2, 3});
              });
    }
}

BOOST_AUTO_TEST_CASE(convolutions_and_their_gradients) {
  struct Case {
    Windows w;
    std::int64_t channels, filters, groups;
  };
  const Case cases[] = {{windows_of({6, 5}, {3, 3}, 1, 1, 1), 3, 4, 1},
                        {windows_of({7, 7}, {3, 2}, 2, 1, 1), 2, 3, 1},
                        {windows_of({5, 6}, {1, 1}, 1, 1, 0), 4, 5, 1},
                        {windows_of({6, 6}, {2, 2}, 1, 2, 1), 4, 6, 2}};
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i16})
    for (const Case& c : cases) {
      const Shape x{2, 1, c.w.axis[1].in, c.w.axis[2].in, c.channels},
          y{2, 1, c.w.axis[1].out, c.w.axis[2].out, c.filters},
          w{1, c.w.axis[1].size, c.w.axis[2].size, c.channels / c.groups, c.filters};
      compare(fmt::format("convolve {} groups {}", name_of(type), c.groups),
              {draw(type, x), draw(type, w), draw(type, y)}, {{type, y}, {type, x}, {type, w}},
              4 * roundings_of(type),
              [&](const Primitives& p, Stream& s, const auto& in, auto& out) {
                const auto run = [&](Convolve what, const Tensor& a, const Tensor& b, Tensor& to) {
                  p.convolve(s, {what, a, b, View(to), c.w, 2, c.channels, c.filters, c.groups});
                };
                run(Convolve::output, in[0], in[1], out[0]);
                run(Convolve::input, in[2], in[1], out[1]);
                run(Convolve::filter, in[0], in[2], out[2]);
              });
    }
}

BOOST_AUTO_TEST_CASE(attention_and_its_gradients) {
  constexpr std::int64_t kBatch = 2, kHeads = 4, kGroups = 2, kQueries = 5, kDepth = 3, kWidth = 4;
  for (const DType type : kFloats)
    for (const std::int64_t keys : {std::int64_t{6}, std::int64_t{50}})
      for (int mask = 0; mask < 4; ++mask) {
        const DType wide = type == DType::f64 ? DType::f64 : DType::f32;
        const Shape q{kBatch, kHeads, kQueries, kDepth}, k{kBatch, kGroups, keys, kDepth},
            v{kBatch, kGroups, keys, kWidth}, y{kBatch, kHeads, kQueries, kWidth};
        const Shape masks[] = {
            {}, {kQueries, keys}, {kBatch, 1, 1, keys}, {1, kHeads, kQueries, 1}};
        const bool is_boolean = mask == 1;
        const Tensor of_mask = mask == 0 ? Tensor::zeros(type, {1})
                                         : draw(is_boolean ? DType::boolean : type, masks[mask]);
        const Shape dmask = mask == 0 || is_boolean ? Shape{1} : masks[mask];
        compare(fmt::format("attention {} keys {} mask {}", name_of(type), keys, mask),
                {draw(type, q), draw(type, k), draw(type, v), draw(type, y), of_mask},
                {{type, y},
                 {wide, {kBatch, kHeads, kQueries}},
                 {type, q},
                 {type, k},
                 {type, v},
                 {type, dmask}},
                type == DType::f16 ? 0.02 : 8 * roundings_of(type),
                [=](const Primitives& p, Stream& s, const auto& in, auto& out) {
                  AttentionArgs a{
                      in[0],        in[1],        in[2],    mask ? ConstView(in[4]) : ConstView(),
                      View(out[0]), View(out[1]), kBatch,   kHeads,
                      kGroups,      kQueries,     keys,     kDepth,
                      kWidth,       0.6,          mask == 0};
                  p.attention(s, a);
                  AttentionGradientArgs g{
                      a, out[0], out[1], in[3], View(out[2]), View(out[3]), View(out[4]), {}};
                  if (mask && !is_boolean) g.dmask = View(out[5]);
                  else p.fill(s, Tensor::scalar_as(type, 0), View(out[5]));
                  p.attention_gradient(s, g);
                });
      }
}

BOOST_AUTO_TEST_CASE(recurrent_layers_and_their_gradients) {
  constexpr std::int64_t kTime = 4, kBatch = 3, kUnits = 5;
  for (const DType type : kFloats)
    for (const RecurrentCell cell :
         {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
      for (int way = 0; way < 4; ++way) {
        const bool reverse = way & 1, has_lengths = way & 2, is_lstm = cell == RecurrentCell::lstm,
                   has_kept = is_lstm || cell == RecurrentCell::gru;
        const DType wide = type == DType::f64 ? DType::f64 : DType::f32;
        const std::int64_t n = gates_of(cell) * kUnits;
        const Shape projected{kTime, kBatch, n}, y{kTime, kBatch, kUnits}, state{kBatch, kUnits};
        const Tensor lengths = Tensor::of<std::int32_t>({2, 9, -1});
        compare(
            fmt::format("recurrent {} cell {} way {}", name_of(type), int(cell), way),
            {draw(type, projected), draw(type, {kUnits, n}, -0.5, 0.5), draw(type, {n}),
             draw(type, state), draw(type, state), lengths, draw(type, y), draw(type, state),
             draw(type, state)},
            {{type, y},
             {type, state},
             {type, state},
             {type, projected},
             {wide, y},
             {type, projected},
             {type, {kUnits, n}},
             {type, {n}},
             {type, state},
             {type, state}},
            8 * roundings_of(type), [=](const Primitives& p, Stream& s, const auto& in, auto& out) {
              const auto zero = [&](std::size_t i) {
                p.fill(s, Tensor::scalar_as(out[i].dtype(), 0), View(out[i]));
              };
              const ConstView of_lengths = has_lengths ? ConstView(in[5]) : ConstView();
              const ConstView c0 = is_lstm ? ConstView(in[4]) : ConstView();
              RecurrentArgs a{cell,         reverse, kTime,        kBatch, kUnits,     in[0],
                              in[1],        in[2],   in[3],        c0,     of_lengths, View(out[0]),
                              View(out[1]), {},      View(out[3]), {}};
              if (is_lstm) a.c = View(out[2]);
              else zero(2);
              if (has_kept) a.kept = View(out[4]);
              else zero(4);
              p.recurrent(s, a);
              RecurrentGradientArgs g{cell,
                                      reverse,
                                      kTime,
                                      kBatch,
                                      kUnits,
                                      in[1],
                                      in[3],
                                      c0,
                                      of_lengths,
                                      out[0],
                                      out[3],
                                      has_kept ? ConstView(out[4]) : ConstView(),
                                      in[6],
                                      in[7],
                                      is_lstm ? ConstView(in[8]) : ConstView(),
                                      View(out[5]),
                                      View(out[6]),
                                      View(out[7]),
                                      View(out[8]),
                                      {}};
              if (is_lstm) g.dc0 = View(out[9]);
              else zero(9);
              p.recurrent_gradient(s, g);
            });
      }
}

BOOST_AUTO_TEST_CASE(products_of_integers_wrap) {
  for (const auto& [a, b, out] : {std::array{DType::i8, DType::i8, DType::i32},
                                  {DType::u8, DType::i8, DType::i32},
                                  {DType::i16, DType::i16, DType::i16},
                                  {DType::u64, DType::u64, DType::u64}})
    compare(fmt::format("matmul {} {}", name_of(a), name_of(b)),
            {draw(a, {30, 70}, 0, 100), draw(b, {70, 9}, 0, 100)}, {{out, {30, 9}}}, 0,
            [](const Primitives& p, Stream& s, const auto& in, auto& made) {
              p.matmul(s, {in[0], in[1], View(made[0])});
            });
}

// Items: the longest, one with equal labels in a row, one whose labels do not fit, one without
// time, one without labels.
BOOST_AUTO_TEST_CASE(ctc_losses_and_their_derivatives) {
  constexpr std::int64_t kBatch = 5, kTime = 9, kClasses = 6, kMost = 4;
  const Tensor labels = Tensor::of<std::int64_t>(
                   {1, 2, 3, 5, 2, 2, 2, 9, 1, 1, 1, 1, 4, 1, 1, 1, 0, 0, 0, 0}, {kBatch, kMost}),
               times = Tensor::of<std::int32_t>({9, 7, 4, 0, 6}),
               lengths = Tensor::of<std::int64_t>({4, 3, 4, 1, 0});
  for (const DType type : {DType::f32, DType::f64}) {
    const Shape shape{kBatch, kTime, kClasses};
    const auto args = [&](const std::vector<Tensor>& in, View loss, View gradient) {
      return CtcArgs{in[0],  in[1], in[2],    in[3], loss, gradient,
                     kBatch, kTime, kClasses, kMost, {}};
    };
    compare(fmt::format("ctc {}", name_of(type)),
            {draw(type, shape, -4, 0), labels, times, lengths, draw(type, shape)},
            {{type, {kBatch}}, {type, shape}, {type, shape}}, 4 * roundings_of(type),
            [&](const Primitives& p, Stream& s, const auto& in, auto& out) {
              p.ctc(s, args(in, View(out[0]), View(out[1])));
              CtcArgs second = args(in, {}, View(out[2]));
              second.direction = in[4];
              p.ctc(s, second);
            });
  }
}

BOOST_AUTO_TEST_CASE(ctc_names_labels_and_lengths_that_are_outside) {
  const auto message = [&](std::vector<std::int64_t> labels, std::int64_t time,
                           std::int64_t length) {
    std::vector<Tensor> there;
    for (const Tensor& t : {draw(DType::f32, {1, 3, 4}), Tensor::of<std::int64_t>(labels, {1, 2}),
                            Tensor::of<std::int64_t>({time}), Tensor::of<std::int64_t>({length})}) {
      there.push_back(gpu->empty(t.dtype(), t.shape()));
      gpu->copy_from_host(*queue, t, View(there.back()));
    }
    Tensor loss = gpu->empty(DType::f32, {1}), gradient = gpu->empty(DType::f32, {1, 3, 4});
    gpu->primitives().ctc(
        *queue,
        {there[0], there[1], there[2], there[3], View(loss), View(gradient), 1, 3, 4, 2, {}});
    try {
      queue->synchronize();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  BOOST_TEST(message({1, 3}, 3, 2).empty());
  BOOST_TEST(message({1, 4}, 3, 2) == "index 4 at position 1 is outside [1, 4)");
  BOOST_TEST(message({0, 1}, 3, 2) == "index 0 at position 0 is outside [1, 4)");
  BOOST_TEST(message({1, 4}, 3, 1).empty());  // beyond its length
  BOOST_TEST(message({1, 3}, 4, 2) == "index 4 at position 0 is outside [0, 4)");
  BOOST_TEST(message({1, 3}, 3, -1) == "index -1 at position 0 is outside [0, 3)");
}

BOOST_AUTO_TEST_SUITE_END()
