// A GPU, in steps that scripts/gpu-check runs one by one: ceilings of the hardware, floors of the
// device, products, pointwise chains, loops, training steps and swapping, against torch on the same
// GPU, in turns; and whether equal runs have equal bits.
//
//   gpu [--device gpu:0] [--small] STEP...      # `gpu --help` lists the steps
//
// `--small` takes sizes that the fake runtime of the tests computes in seconds. A step that finds a
// wrong result ends with exit status 1.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/swap.hpp>
#include <troupe/test/bench/gpu_models.hpp>

namespace {

using namespace troupe;
using bench::Comparison;

struct Setup {
  std::string device = "gpu:0";
  bool is_small = false;

  /// Started by the first step that asks: it takes seconds to import torch.
  bench::Peer& torch() {
    if (!torch_)
      torch_ = std::make_unique<bench::Peer>("torch", "gpu_torch.py", std::vector<std::string>{}, 1,
                                             bench::Peer::Shown::gpu);
    return *torch_;
  }
  int repetitions() const { return is_small ? 2 : 5; }
  std::int64_t sized(std::int64_t full, std::int64_t small) const {
    return is_small ? small : full;
  }
  Comparison comparison(const std::string& name, const std::string& unit, const std::string& what) {
    Comparison c{.name = "gpu_" + name, .unit = unit, .peer = {}};
    torch().describe(c, what);
    return c;
  }

 private:
  std::unique_ptr<bench::Peer> torch_;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "gpu: %s\n", why.c_str());
  std::exit(1);
}

// The device by itself, without an engine.
struct Bare {
  explicit Bare(const Setup& setup)
      : device(make_device(setup.device, {})), stream(device->compute_stream()) {}
  /// ns of each of `count` calls, enqueued one behind the other, of which none waits.
  double enqueued(int count, const std::function<void()>& call) {
    call();
    stream->synchronize();
    const double begin = bench::now_ns();
    for (int i = 0; i < count; ++i) call();
    return (bench::now_ns() - begin) / count;
  }
  /// As `enqueued`, until the last one is done.
  double done(int count, const std::function<void()>& call) {
    call();
    stream->synchronize();
    const double begin = bench::now_ns();
    for (int i = 0; i < count; ++i) call();
    stream->synchronize();
    return (bench::now_ns() - begin) / count;
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

void print_one(Comparison c, double value) {
  c.ours = {value};
  c.print();
}

// ---- ceilings and floors

void ceilings(Setup& setup) {
  Bare bare(setup);
  const std::int64_t bytes = setup.sized(std::int64_t{256} << 20, 1 << 16);
  Tensor a = bare.device->empty(DType::u8, {bytes}), b = bare.device->empty(DType::u8, {bytes});
  const int count = setup.is_small ? 2 : 50;
  Comparison copy = setup.comparison("copy_gbps", "GB/s", "torch copy_");
  copy.speed_up = true;
  for (int i = 0; i < setup.repetitions(); ++i) {
    copy.ours.push_back(2.0 * static_cast<double>(bytes) / bare.done(count, [&] {
      bare.device->primitives().copy(*bare.stream, a, View(b));
    }));
    if (setup.torch().is_here())
      copy.theirs.push_back(2.0 * static_cast<double>(bytes) /
                            setup.torch().ask(fmt::format("copy {} {}", bytes, count))[0]);
  }
  copy.note = "bytes read and written";
  copy.print();

  Tensor pinned = bare.device->host_empty(DType::u8, {bytes});
  Tensor pageable = Tensor::zeros(DType::u8, {bytes});
  const auto rate = [&](const char* name, const std::function<void()>& call) {
    print_one({.name = fmt::format("gpu_{}_gbps", name), .unit = "GB/s", .peer = {}},
              static_cast<double>(bytes) / bare.done(setup.is_small ? 1 : 10, call));
  };
  rate("pinned_to_device", [&] { bare.device->copy_from_host(*bare.stream, pinned, View(a)); });
  rate("pinned_to_host", [&] { bare.device->copy_to_host(*bare.stream, a, View(pinned)); });
  rate("pageable_to_device", [&] { bare.device->copy_from_host(*bare.stream, pageable, View(a)); });
}

void floors(Setup& setup) {
  Bare bare(setup);
  const int count = setup.is_small ? 50 : 2000;
  Tensor t = bare.device->empty(DType::f32, {64});
  const Tensor one = Tensor::scalar(1.f);
  const auto one_launch = [&] { bare.device->primitives().fill(*bare.stream, one, View(t)); };
  const auto line = [&](const char* name, const char* note, double ns) {
    print_one({.name = fmt::format("gpu_{}", name), .unit = "ns", .peer = {}, .note = note}, ns);
  };
  line("launch_enqueued", "a worker's time for a kernel of 64 elements",
       bare.enqueued(count, one_launch));
  line("launch_done", "launches side by side, until the last is done",
       bare.done(count, one_launch));
  line("event", "record, its number written and seen", bare.enqueued(count, [&] {
    const auto event = bare.stream->record();
    while (!event->is_done()) bare.device->poll();
  }));
  const auto copies = bare.device->copy_stream();
  line("wait_for_stream", "a mark of one stream, and another that waits for it",
       bare.enqueued(count, [&] { copies->wait(bare.stream->mark()); }));
  copies->synchronize();
  line("allocation", "a block of 1 MiB taken and freed",
       bare.enqueued(count, [&] { bare.device->empty(DType::u8, {1 << 20}); }));
}

// ---- products and chains

void matmul_step(Setup& setup) {
  const std::vector<std::int64_t> sizes =
      setup.is_small ? std::vector<std::int64_t>{16}
                     : std::vector<std::int64_t>{256, 1024, 2048, 4096, 8192};
  for (const auto& [name, dtype] :
       {std::pair{"f32", DType::f32}, {"tf32", DType::f32}, {"bf16", DType::bf16}}) {
    DeviceSetup how;
    how.gpu.tf32 = std::strcmp(name, "tf32") == 0;
    Bare bare(setup);
    bare.stream.reset();
    bare.device = make_device(setup.device, how);
    bare.stream = bare.device->compute_stream();
    for (const std::int64_t n : sizes) {
      Tensor a = bare.device->empty(dtype, {n, n}), b = bare.device->empty(dtype, {n, n}),
             out = bare.device->empty(dtype, {n, n});
      for (Tensor* t : {&a, &b})
        bare.device->primitives().fill(*bare.stream, Tensor::scalar_as(dtype, 0.5), View(*t));
      const double flops =
          2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
      const int count = setup.is_small ? 2 : std::max(10, static_cast<int>(2e12 / flops));
      Comparison c = setup.comparison(fmt::format("matmul_{}_{}", name, n), "ns", "torch.matmul");
      c.budget = 1.02;
      for (int i = 0; i < setup.repetitions(); ++i) {
        c.ours.push_back(bare.done(std::min(count, 500), [&] {
          bare.device->primitives().matmul(*bare.stream, {a, b, View(out)});
        }));
        if (setup.torch().is_here())
          c.theirs.push_back(
              setup.torch().ask(fmt::format("matmul {} {} {}", name, n, std::min(count, 500)))[0]);
      }
      c.also.push_back({"tflops", flops / bench::median(c.ours) / 1e3});
      c.print();
    }
  }
}

void chain_step(Setup& setup) {
  const std::int64_t n = setup.sized(std::int64_t{64} << 20, 1 << 12);
  EngineOptions options;
  options.default_device = setup.device;
  Engine engine(options);
  Graph g;
  const Variable x = g.variable("x", bench::pattern({n}, 1, 7));
  Expr y = x.read();
  for (int i = 0; i < 4; ++i) y = tanh(y * 1.0001 + 0.5);
  // Written to a variable, so that nothing leaves the device.
  const Function f = engine.compile(g, {}, {x.assign(y)});
  Comparison c = setup.comparison("chain_8", "ns", "torch.compile");
  const int count = setup.is_small ? 2 : 20;
  for (int i = 0; i < setup.repetitions() + 1; ++i) {
    const double begin = bench::now_ns();
    for (int k = 0; k < count; ++k) f({});
    if (i > 0) c.ours.push_back((bench::now_ns() - begin) / count);
    if (i > 0 && setup.torch().is_here())
      c.theirs.push_back(setup.torch().ask(fmt::format("chain {} {}", n, count))[0]);
  }
  c.also.push_back({"gbps", 8.0 * static_cast<double>(n) / bench::median(c.ours)});
  c.print();
}

// ---- loops

void while_step(Setup& setup) {
  const int iterations = setup.is_small ? 50 : 10'000;
  for (const bool asks_data : {false, true})
    for (const int ops : {1, 8, 64}) {
      if (setup.is_small && ops > 8) continue;
      EngineOptions options;
      options.default_device = setup.device;
      Engine engine(options);
      Graph g;
      const Expr start = g.input("x", DType::f32, {64});
      // Fused to one kernel here; eager torch has one for each operation.
      const auto body = [&](Expr v) {
        for (int i = 0; i < ops; ++i) v = v + 1.0 / ops;
        return v;
      };
      const auto [count, last] = while_loop(
          [&](Expr i, Expr v) {
            return asks_data ? squeeze(slice(v, {0}, {1}), 0) < double(iterations)
                             : Expr(i < iterations);
          },
          [&](Expr i, Expr v) { return std::tuple(i + 1, body(v)); },
          std::tuple(g.constant(0), start));
      const Function f = engine.compile(g, {start}, {count, last}, {.resident_loops = false});
      const Tensor zeros = Tensor::zeros(DType::f32, {64});
      Comparison c =
          setup.comparison(fmt::format("while_{}_{}_ops", asks_data ? "data" : "counter", ops),
                           "ns an iteration", "torch eager loop");
      c.budget = 0.7;
      f({zeros});
      for (int i = 0; i < setup.repetitions(); ++i) {
        const double begin = bench::now_ns();
        const std::vector<Tensor> out = f({zeros});
        c.ours.push_back((bench::now_ns() - begin) / iterations);
        if (std::abs(out[1].at(63) - iterations) > 0.01 * iterations)
          fail(fmt::format("a loop of {} iterations gives {}", iterations, out[1].at(63)));
        if (setup.torch().is_here())
          c.theirs.push_back(
              setup.torch().ask(fmt::format("while {} {} {}", asks_data ? "data" : "counter", ops,
                                            std::min(iterations, 2000)))[0]);
      }
      c.print();
    }
}

// ---- training

using MakeModel = std::function<bench::ModelPtr()>;

std::vector<MakeModel> models(const Setup& setup) {
  using namespace troupe::bench;
  if (setup.is_small)
    return {[] { return mlp(4, 16); }, [] { return lstm_layer(3, 2, 8); },
            [] { return transformer_layer(1, 8, 16, 8); },
            [] {
              return resnet(1, 16, 4, {1, 1});
            }};
  return {[] { return mlp(128, 1024); }, [] { return lstm_layer(100, 64, 512); },
          [] { return lstm_layer(100, 64, 1024); },
          [] { return transformer_layer(8, 1024, 1024, 64); },
          [] {
            return resnet(64, 224, 64, {3, 4, 6, 3});
          }};
}

// How far the losses of the first steps are apart, in parts of the loss.
double difference(const std::vector<float>& ours, const std::vector<double>& theirs) {
  double worst = 0;
  for (std::size_t i = 0; i < ours.size() && i < theirs.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - theirs[i]) /
                                std::max(1e-3, std::abs(theirs[i])));
  return worst;
}

void train_one(Setup& setup, const MakeModel& make, const char* name, DType dtype) {
  constexpr int kCompared = 3;
  bench::Training ours(make(), setup.device, dtype);
  const bench::Model& model = ours.model();
  Comparison c =
      setup.comparison(fmt::format("{}_{}_step", model.name, name), "ns", "the fastest of torch's");
  c.budget = 0.9;
  const std::vector<float> losses = ours.steps(kCompared);
  if (setup.torch().is_here()) {
    const double apart = difference(
        losses, setup.torch().ask(fmt::format("losses {} {} {}", name, kCompared, model.request)));
    c.also.push_back({"loss_difference", apart});
    if (apart > (dtype == DType::f32 ? 1e-2 : 1e-1))
      fail(fmt::format("the losses of {} are {} apart from torch's", model.name, apart));
  }
  const int count = setup.is_small ? 1 : 10;
  std::vector<std::vector<double>> of_torch(3);
  for (int i = 0; i < setup.repetitions(); ++i) {
    const double begin = bench::now_ns();
    ours.steps(count);
    c.ours.push_back((bench::now_ns() - begin) / count);
    for (std::size_t how = 0; how < 3 && setup.torch().is_here(); ++how) {
      const char* hows[] = {"eager", "compiled", "graph"};
      const double ns = setup.torch().ask(
          fmt::format("train {} {} {} {}", name, hows[how], count, model.request))[0];
      if (ns > 0) of_torch[how].push_back(ns);
    }
  }
  for (std::size_t how = 0; how < 3; ++how) {
    if (of_torch[how].empty()) continue;
    const char* keys[] = {"eager_ns", "compiled_ns", "graph_ns"};
    c.also.push_back({keys[how], bench::median(of_torch[how])});
    if (c.theirs.empty() || bench::median(of_torch[how]) < bench::median(c.theirs))
      c.theirs = of_torch[how];
  }
  c.print();
}

void train_step(Setup& setup) {
  for (const MakeModel& make : models(setup))
    for (const auto& [name, dtype] : {std::pair{"f32", DType::f32}, {"bf16", DType::bf16}}) {
      if (setup.is_small && dtype != DType::f32) continue;
      train_one(setup, make, name, dtype);
    }
}

// ---- equal bits, cold and warm start

void determinism(Setup& setup) {
  constexpr int kSteps = 3;
  for (const MakeModel& make : models(setup)) {
    std::vector<Tensor> first;
    for (int turn = 0; turn < 2; ++turn) {
      bench::Training training(make(), setup.device, DType::f32);
      training.steps(kSteps);
      std::vector<Tensor> weights = training.weights();
      for (std::size_t i = 0; i < first.size(); ++i)
        if (std::memcmp(first[i].raw(), weights[i].raw(), weights[i].bytes()) != 0)
          fail(fmt::format("{}: two trainings end with other bits in weight {}",
                           training.model().name, i));
      if (turn == 1)
        print_one({.name = "gpu_equal_bits_" + training.model().name, .unit = "steps", .peer = {}},
                  kSteps);
      first = std::move(weights);
    }
  }
}

// From the start of the process to the first step's end: scripts/gpu-check empties the caches of
// compiled programs before one run and leaves them before the next.
void start_step(Setup& setup, double began) {
  bench::Training training(models(setup)[setup.is_small ? 2 : 3](), setup.device, DType::f32);
  training.steps(1);
  const char* const kind = std::getenv("TROUPE_GPU_START");
  print_one({.name = fmt::format("gpu_start_{}", kind ? kind : "warm"), .unit = "ms", .peer = {}},
            (bench::now_ns() - began) / 1e6);
}

// ---- swapping

// A loop twice as long as the memory that its gradient may take, against the length that fits.
void swap_step(Setup& setup) {
  const std::int64_t units = setup.sized(1024, 64), batch = setup.sized(512, 8),
                     fits = setup.sized(256, 24);
  struct Run {
    double ns = 0;
    std::uint64_t peak = 0, out = 0;
    Tensor slope;
  };
  const auto run = [&](std::int64_t length, std::uint64_t limit) {
    EngineOptions options;
    options.default_device = setup.device;
    options.gpu.memory_limit = limit;
    options.swap.threshold = static_cast<std::size_t>(setup.sized(16 << 10, 1));
    Engine engine(options);
    Graph g;
    const Expr x = g.input("x", DType::f32, {batch, units}),
               w = g.input("w", DType::f32, {units, units});
    const auto [n, h] =
        while_loop([&](Expr i, Expr) { return i < length; },
                   [&](Expr i, Expr v) { return std::tuple(i + 1, tanh(matmul(v, w) + x)); },
                   std::tuple(g.constant(std::int64_t{0}), x));
    const Function f = engine.compile(g, {x, w}, gradients(sum(h), {w}));
    const std::vector<Tensor> feeds{bench::pattern({batch, units}, 1, 3),
                                    bench::pattern({units, units}, 0.1, 5)};
    Run r;
    for (int i = 0; i < setup.repetitions(); ++i) {
      const double begin = bench::now_ns();
      r.slope = f(feeds)[0];
      const double ns = (bench::now_ns() - begin) / static_cast<double>(length);
      if (i == 1 || ns < r.ns) r.ns = ns;
    }
    Device& device = engine.device(setup.device);
    r.peak = device.allocator().counters().peak;
    if (device.swapper()) r.out = device.swapper()->counters().out;
    return r;
  };
  const Run all = run(fits, 0), half = run(2 * fits, all.peak), free = run(2 * fits, 0);
  if (half.out == 0) fail("half of the memory is enough: nothing was swapped");
  if (std::memcmp(free.slope.raw(), half.slope.raw(), free.slope.bytes()) != 0)
    fail("swapping changes the gradient");
  Comparison c{.name = "gpu_swap_2x",
               .unit = "ns an iteration",
               .peer = "half the length, unswapped",
               .budget = 1.05};
  c.ours = {half.ns};
  c.theirs = {all.ns};
  c.also = {{"swapped_out", static_cast<double>(half.out)},
            {"peak", static_cast<double>(all.peak)}};
  c.print();
}

}  // namespace

int main(int argc, char** argv) {
  const double began = bench::now_ns();
  const std::vector<std::pair<std::string, std::function<void(Setup&)>>> steps{
      {"ceilings", ceilings},
      {"floors", floors},
      {"matmul", matmul_step},
      {"chain", chain_step},
      {"train", train_step},
      {"while", while_step},
      {"swap", swap_step},
      {"determinism", determinism},
      {"start", [began](Setup& setup) { start_step(setup, began); }}};
  Setup setup;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--small") setup.is_small = true;
    else if (word == "--device" && i + 1 < argc) setup.device = argv[++i];
    else wanted.push_back(word);
  }
  for (const std::string& word : wanted) {
    if (std::any_of(steps.begin(), steps.end(), [&](const auto& s) { return s.first == word; }))
      continue;
    std::string names;
    for (const auto& [name, step] : steps) names += " " + name;
    std::fprintf(stderr, "gpu [--device gpu:0] [--small] STEP...; the steps are%s\n",
                 names.c_str());
    return 2;
  }
  if (const DeviceKind* const kind = find_device_kind("gpu"); !kind || !kind->has(0)) {
    std::fprintf(stderr, "gpu: there is no gpu:0 here; `troupe doctor` gives the reason\n");
    return 77;
  }
  try {
    for (const auto& [name, step] : steps)
      if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end())
        step(setup);
  } catch (const std::exception& e) { fail(e.what()); }
}
