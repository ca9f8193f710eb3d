// The CPU device's primitives against what this machine can do: products against a measured
// multiply-add peak, pointwise and reductions against measured copy and read bandwidth, scalars in
// nanoseconds. One JSON object a line.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <dnnl.h>

#include <troupe/devices/device/device.hpp>
#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/peak.hpp>

using namespace troupe;
using bench::now_ns;

namespace {

/// Nanoseconds of one call, over at least a few milliseconds.
template <class F>
double time_of(F&& f) {
  for (std::int64_t n = 1;; n *= 2) {
    double start = now_ns();
    for (std::int64_t i = 0; i < n; ++i) f();
    double t = now_ns() - start;
    if (t > 5e6) return t / static_cast<double>(n);
  }
}

// Ours and the peer in turn; `work` converts a time in ns into the unit.
template <class Ours, class Theirs>
void compare(bench::Comparison c, double work, Ours&& ours, Theirs&& theirs) {
  for (int i = 0; i < 5; ++i) {
    double t = time_of(ours), p = time_of(theirs);
    c.ours.push_back(work > 0 ? work / t : t);
    c.theirs.push_back(work > 0 ? work / p : p);
  }
  c.print();
}

constexpr int kRounds = 4000;
volatile float sink;

// A loop as the compiler vectorises it: reads two arrays, writes one, through the cache as we do.
#if defined(__x86_64__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#endif
void plain_triad(float* out, const float* x, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i] * 0.5f;
}

struct Setting {
  int threads;
  std::unique_ptr<WorkerPool> pool = threads > 1 ? std::make_unique<WorkerPool>(threads) : nullptr;
  std::unique_ptr<Device> device = make_cpu_device({pool.get(), "cpu:0"});
  std::unique_ptr<Stream> stream = device->make_stream();
  const Primitives& p() const { return device->primitives(); }

  template <class F>
  void run_all_configurations(F&& f) {  // once on each thread
    if (pool) pool->parallel_for(threads, f);
    else f(0);
  }
};

Tensor filled(const Shape& shape, float value) {
  Tensor t = Tensor::empty(DType::f32, shape);
  std::fill_n(t.mutable_data<float>(), t.elements(), value);
  return t;
}

void products(Setting& s) {
  struct Case {
    const char* name;
    std::int64_t m, k, n;
    bool ta, tb;
    double budget;
  };
  for (Case c : {Case{"64", 64, 64, 64, false, false, 0},
                 {"128", 128, 128, 128, false, false, 0},
                 {"256", 256, 256, 256, false, false, 0.88},
                 {"512", 512, 512, 512, false, false, 0.88},
                 {"1024", 1024, 1024, 1024, false, false, 0.88},
                 {"2048", 2048, 2048, 2048, false, false, 0.88},
                 {"mlp_forward_64x784x512", 64, 784, 512, false, false, 0},
                 {"mlp_weights_784x64x512", 784, 64, 512, true, false, 0},
                 {"mlp_inputs_64x512x784", 64, 512, 784, false, true, 0}}) {
    Tensor a = filled(c.ta ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1),
           b = filled(c.tb ? Shape{c.n, c.k} : Shape{c.k, c.n}, 0.5f);
    Tensor out = Tensor::empty(DType::f32, Shape{c.m, c.n});
    MatmulArgs args{a, b, View(out), c.ta, c.tb};
    double flops = 2.0 * double(c.m) * double(c.n) * double(c.k);
    bench::Comparison r{.name = std::string("matmul_f32_") + c.name,
                        .unit = "GFLOP/s",
                        .peer = "multiply-add peak",
                        .peer_version = "",
                        .budget = c.budget,
                        .threads = s.threads,
                        .speed_up = false,
                        .ours = {},
                        .theirs = {}};
    for (int i = 0; i < 5; ++i) {
      r.ours.push_back(flops / time_of([&] { s.p().matmul(*s.stream, args); }));
      r.theirs.push_back(bench::multiply_add_flops(kRounds) * s.threads / time_of([&] {
                           s.run_all_configurations(
                               [](int) { sink = bench::multiply_adds(kRounds); });
                         }));
    }
    r.print();
  }
}

void pointwise(Setting& s) {
  Recorder r(3);
  r.finish(tanh(r.input(0) * r.input(1) + r.input(2)));
  DType types[] = {DType::f32, DType::f32, DType::f32};
  ScalarProgram chain = r.typed(types);
  Recorder q(2);
  q.finish(q.input(0) + q.input(1) * 0.5);
  ScalarProgram triad = q.typed(std::span(types, 2));
  for (std::int64_t n : {1'000, 100'000, 10'000'000}) {
    Tensor x = filled(Shape{n}, 0.5f), y = filled(Shape{n}, 1), z = filled(Shape{n}, 2),
           out = filled(Shape{n}, 0);
    ConstView in[] = {x, y, z};
    View to(out);
    auto plain = [&] {
      std::int64_t part = n / s.threads;
      s.run_all_configurations([&](int t) {
        plain_triad(static_cast<float*>(to.data) + t * part, x.data<float>() + t * part,
                    y.data<float>() + t * part, part);
      });
    };
    std::string size = std::to_string(n);
    double budget = n >= 10'000'000 ? 0.9 : 0;
    // Both in bytes a nanosecond.
    for (int which = 0; which < 2; ++which) {
      bench::Comparison c{.name = (which ? "pointwise_tanh_chain_" : "pointwise_triad_") + size,
                          .unit = "GB/s",
                          .peer = "plain triad loop, same threads",
                          .peer_version = "",
                          .budget = budget,
                          .threads = s.threads,
                          .speed_up = false,
                          .ours = {},
                          .theirs = {}};
      double bytes = (which ? 16.0 : 12.0) * double(n);
      for (int i = 0; i < 5; ++i) {
        c.ours.push_back(bytes / time_of([&] {
                           s.p().pointwise(*s.stream, which ? chain : triad,
                                           std::span(in, which ? 3 : 2), {&to, 1});
                         }));
        c.theirs.push_back(12.0 * double(n) / time_of(plain));
      }
      c.print();
    }
    Tensor sum = Tensor::empty(DType::f32, Shape());
    View total(sum);
    bench::Comparison c{.name = "reduce_sum_" + size,
                        .unit = "GB/s",
                        .peer = "plain triad loop, same threads",
                        .peer_version = "",
                        .budget = budget,
                        .threads = s.threads,
                        .speed_up = false,
                        .ours = {},
                        .theirs = {}};
    for (int i = 0; i < 5; ++i) {
      c.ours.push_back(4.0 * double(n) /
                       time_of([&] { s.p().reduce(*s.stream, Reduction::sum, x, total, 1); }));
      c.theirs.push_back(12.0 * double(n) / time_of(plain));
    }
    c.print();
  }
  Tensor logits = filled(Shape{64, 10'000}, 1), out = filled(Shape{64, 10'000}, 0);
  View to(out);
  compare(
      {.name = "softmax_64x10000",
       .unit = "ns",
       .peer = "copy",
       .peer_version = "",
       .budget = 0,
       .threads = s.threads,
       .speed_up = false,
       .ours = {},
       .theirs = {}},
      0, [&] { s.p().softmax(*s.stream, logits, to, false); },
      [&] { s.p().copy(*s.stream, logits, to); });
}

void scalars() {
  Value in[2] = {Tensor::scalar(0.5f), Tensor::scalar(0.25f)}, out;
  Recorder a(2), t(1);
  a.finish(a.input(0) + a.input(1));
  t.finish(tanh(t.input(0)));
  DType types[] = {DType::f32, DType::f32};
  ScalarProgram add = a.typed(types), hyperbolic = t.typed(std::span(types, 1));
  volatile float x = 0.5f;
  compare(
      {.name = "scalar_add",
       .unit = "ns",
       .peer = "bare float add",
       .peer_version = "",
       .budget = 0,
       .threads = 1,
       .speed_up = false,
       .ours = {},
       .theirs = {}},
      0, [&] { evaluate_scalars(add, in, out); }, [&] { sink = x + x; });
  compare(
      {.name = "scalar_tanh",
       .unit = "ns",
       .peer = "std::tanh(float)",
       .peer_version = "",
       .budget = 0,
       .threads = 1,
       .speed_up = false,
       .ours = {},
       .theirs = {}},
      0,
      [&] {
        evaluate_scalars(hyperbolic, {in, 1}, out);
      },
      [&] { sink = std::tanh(x); });
}

}  // namespace

int main() {
  scalars();
  for (int threads : {1, 2}) {
    Setting s{threads};
    products(s);
    pointwise(s);
  }
}
