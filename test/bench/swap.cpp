// Swapping: the gradient of an LSTM of length n on a simulated device whose memory ends at one
// length. A run of that length with swapping off is the peer; ours are twice and four times as
// long, which without swapping run out of memory (seen here, or the benchmark ends with an error),
// with swapping on (budget: 3% more an iteration).
//
// Each step takes the same input, so that nothing but the saved values grows with the length. Three
// clocks:
//   swap_Nx           wall time. The device computes on a thread of this machine, and its two copy
//                     streams copy on two more, beside the engine's: with fewer free cores than
//                     that, copies take the compute stream's time. `waited_for_a_core` is how long
//                     it was ready and had none, `blocked` how long it had nothing to do.
//   swap_Nx_core      the time for which the compute stream's thread had a core.
//   swap_Nx_modelled  the device's virtual clock, with the speeds below: the time that the streams
//                     of such a device would take, each waiting for the others' events only. It
//                     does not depend on this machine.
// In the model a step saves for 70 µs of copies and computes for 90 µs forwards: the regime of the
// EuroSys 2018 measurement (LSTM of 512 units, batch 512), where copies are hidden, though not by
// far.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/device/swap.hpp>
#include <troupe/devices/sim/sim_device.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 7;
constexpr std::int64_t kBatch = 64, kUnits = 256, kLength = 32;
constexpr SimSpeed kModel{
    .launch_ns = 1000, .bytes_per_ns = 200, .flops_per_ns = 1000, .copy_bytes_per_ns = 10};

struct Lstm {
  explicit Lstm(std::int64_t length) {
    x = g.input("x", DType::f32, {kBatch, kUnits});
    w = g.input("w", DType::f32, {2 * kUnits, 4 * kUnits});
    Expr zero = g.zeros(DType::f32, {kBatch, kUnits});
    auto [n, h_end, c_end] = while_loop(
        [length](Expr i, Expr, Expr) { return i < length; },
        [&](Expr i, Expr h, Expr c) {
          Exprs z = split(matmul(concat({x, h}, 1), w), {kUnits, kUnits, kUnits, kUnits}, 1);
          Expr next = sigmoid(z[0]) * c + sigmoid(z[1]) * tanh(z[2]);
          return std::tuple{i + 1, sigmoid(z[3]) * tanh(next), next};
        },
        std::tuple{g.constant(std::int64_t{0}), zero, zero});
    fetches = gradients(sum(h_end), {w});
  }
  Graph g;
  Expr x, w;
  std::vector<Expr> fetches;
};

Tensor wave(const Shape& shape, double size) {
  Tensor t = Tensor::zeros(DType::f32, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<float>()[i] = static_cast<float>(size * std::sin(0.7 * static_cast<double>(i)));
  return t;
}

EngineOptions options(std::uint64_t limit, bool swaps) {
  EngineOptions o;
  o.workers = 1;
  o.default_device = "sim:0";
  o.sim.memory_limit = limit;
  o.sim.max_delay_us = 0;
  o.sim.speed = kModel;
  o.sim.poisons = false;  // no device's memory does
  o.swap.is_on = swaps;
  return o;
}

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::exit(1);
}

// For how many ns each thread of this process has had a core, and waited for one, by the kernel's
// account.
struct OnCores {
  double had = 0, waited = 0;
};
std::map<std::string, OnCores> on_cores() {
  std::map<std::string, OnCores> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    OnCores& t = threads[task.path().filename()];
    std::ifstream(task.path() / "schedstat") >> t.had >> t.waited;
  }
  return threads;
}

class Side {
 public:
  Side(std::int64_t length, std::uint64_t limit, bool swaps)
      : length_(length), lstm_(length), engine_(options(limit, swaps)),
        f_(engine_.compile(lstm_.g, {lstm_.x, lstm_.w}, lstm_.fetches)) {}

  Tensor run() {
    std::map<std::string, OnCores> before = on_cores();
    const double modelled = virtual_time(device()), start = bench::now_ns();
    Tensor d = f_({x_, w_})[0];
    const double an_iteration = 1e-3 / static_cast<double>(length_);
    took = (bench::now_ns() - start) * an_iteration;
    modelled_took = (virtual_time(device()) - modelled) * an_iteration;
    compute = {};  // the compute stream's thread has a core for longest of all threads
    for (const auto& [thread, now] : on_cores()) {
      const OnCores turn{(now.had - before[thread].had) * an_iteration,
                         (now.waited - before[thread].waited) * an_iteration};
      if (turn.had > compute.had) compute = turn;
    }
    return d;
  }
  Device& device() { return engine_.device("sim:0"); }

  // µs an iteration
  double took = 0, modelled_took = 0;
  OnCores compute;

 private:
  const std::int64_t length_;
  const Tensor x_ = wave({kBatch, kUnits}, 1), w_ = wave({2 * kUnits, 4 * kUnits}, 0.05);
  Lstm lstm_;
  Engine engine_;
  Function f_;
};

}  // namespace

int main() {
  std::uint64_t cap;
  {
    Side free(kLength, 0, false);
    free.run();
    cap = free.device().allocator().counters().peak * 51 / 50;
  }
  Side fits(kLength, cap, false);
  fits.run();
  for (std::int64_t times : {2, 4}) {
    const std::int64_t length = times * kLength;
    try {
      Side(length, cap, false).run();
      give_up("the longer sequence fits without swapping: nothing is measured");
    } catch (const Error& e) {
      if (e.code() != Code::resource_exhausted) give_up(e.what());
    }
    Side swaps(length, cap, true);
    if (!identical(swaps.run(), Side(length, 0, false).run()))
      give_up("swapping changes the gradient");
    Swapper& swapper = *swaps.device().swapper();
    const SwapCounters before = swapper.counters();
    bench::Comparison c{.name = "swap_" + std::to_string(times) + "x",
                        .unit = "us an iteration",
                        .peer = "the length that fits, swapping off",
                        .peer_version = "same build",
                        .budget = 1.03};
    struct Clocks {
      std::vector<double> modelled, core, waited, blocked;
      void add(const Side& side) {
        modelled.push_back(side.modelled_took);
        core.push_back(side.compute.had);
        waited.push_back(side.compute.waited);
        blocked.push_back(std::max(0.0, side.took - side.compute.had - side.compute.waited));
      }
    } ours, theirs;
    for (int i = 0; i < kRepetitions; ++i) {
      swaps.run();
      fits.run();
      c.ours.push_back(swaps.took);
      c.theirs.push_back(fits.took);
      ours.add(swaps);
      theirs.add(fits);
    }
    const SwapCounters after = swapper.counters();
    auto a_run = [](std::uint64_t total) { return static_cast<double>(total) / kRepetitions; };
    c.also = {{"length", static_cast<double>(length)},
              {"length_that_fits", static_cast<double>(kLength)},
              {"cap_bytes", static_cast<double>(cap)},
              {"swapped_out_bytes", a_run(after.out_bytes - before.out_bytes)},
              {"swapped_in_bytes", a_run(after.in_bytes - before.in_bytes)},
              {"fetched_ahead", static_cast<double>(after.ahead - before.ahead) /
                                    static_cast<double>(after.in - before.in)},
              {"waited_for_a_core", bench::median(ours.waited)},
              {"peer_waited_for_a_core", bench::median(theirs.waited)},
              {"blocked", bench::median(ours.blocked)},
              {"peer_blocked", bench::median(theirs.blocked)}};
    c.note =
        "wall time of a simulated device, whose copies take this machine's cores; without swapping "
        "this length was out of memory";
    c.print();
    const std::string name = c.name;
    auto print = [&](const char* clock, const std::vector<double>& mine,
                     const std::vector<double>& peers, const char* note) {
      c.name = name + clock;
      c.ours = mine;
      c.theirs = peers;
      c.note = note;
      c.print();
    };
    print("_core", ours.core, theirs.core, "for how long the compute stream's thread had a core");
    print("_modelled", ours.modelled, theirs.modelled, "the device's virtual clock");
  }
}
