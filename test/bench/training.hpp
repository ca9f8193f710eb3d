// Training steps of ours against a peer's: the same losses first, then the same steps, timed in
// turn.
//
//   class Trainer {
//     void reset();
//     double steps(int count, std::vector<float>* losses = nullptr);
//     …
//   };
//   compare_losses(trainer, torch, {.steps = 20, .tolerance = 1e-4}, c);
//   measure_steps(trainer, torch, {.repetitions = 15, .steps = 5, .warm_up = 1}, c);
//
// The peer answers `reset`, `steps <n>` with ns a step and, for a comparison, the n losses, `cores`
// with the processor time of one of these steps, and `memory` with bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/tensor/allocator.hpp>
#include <troupe/ops/graph/state.hpp>
#include <troupe/ops/graph/variable.hpp>
#include <troupe/test/bench/count_allocations.hpp>
#include <troupe/test/bench/peer.hpp>

namespace troupe::bench {

inline EngineOptions with_workers(int workers) {
  EngineOptions options;
  options.workers = workers;
  return options;
}

/// A variable that starts as `reset` sets it, so that the graph keeps no value of its own beside
/// it; of `like`'s shape.
inline Variable variable(Graph& graph, const std::string& name, const Tensor& like) {
  return graph.variable(name, like.dtype(), like.shape(), Initializer::constant(0));
}

struct LossCheck {
  int steps;
  double tolerance;  // bound for each loss; more ends the benchmark with an error
};

template <class Trainer>
void compare_losses(Trainer& trainer, Peer& peer, const LossCheck& check, Comparison& c) {
  std::vector<float> ours;
  trainer.reset();
  trainer.steps(check.steps, &ours);
  double worst = 0;
  if (peer.is_here()) {
    peer.ask("reset");
    const std::vector<double> theirs = peer.ask("steps " + std::to_string(check.steps));
    for (std::size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - theirs[i + 1]));
    c.also.push_back({"loss_difference", worst});
  }
  c.also.push_back({"first_loss", ours.front()});
  c.also.push_back({"last_loss", ours.back()});
  if (worst <= check.tolerance) return;
  std::fprintf(stderr, "after %d steps the losses differ by %.3g\n", check.steps, worst);
  std::exit(1);
}

struct StepTimes {
  int repetitions;
  int steps;    // steps of each repetition
  int warm_up;  // steps before: they wake the workers
  // lower bound of a step's processor time, for any implementation; 0: unknown
  double least_ns = 0;
};

/// The most memory of tensors at once: ours since the process began (the allocator's own counter;
/// so measure the smaller first), theirs of a step, with what stood before it.
inline void print_memory(Peer& peer, const Comparison& of) {
  Comparison c{.name = of.name + "_memory",
               .unit = "MiB",
               .peer = of.peer,
               .peer_version = of.peer_version,
               .budget = 1.0,
               .threads = of.threads,
               .blas = of.blas,
               .note = "tensors alone, without the libraries' scratch"};
  c.ours.push_back(static_cast<double>(host_allocator().counters().peak) / (1 << 20));
  if (peer.is_here()) c.theirs.push_back(peer.ask("memory")[0] / (1 << 20));
  c.print();
}

/// Times both, counts our allocations, prints. `core_ns` and `peer_core_ns` are the least processor
/// time of a step: on a busy machine they say more.
template <class Trainer>
void measure_steps(Trainer& trainer, Peer& peer, const StepTimes& times, Comparison& c) {
  std::vector<double> cores, their_cores;
  for (int i = 0; i < times.repetitions; ++i) {
    trainer.steps(times.warm_up);
    const double before = processor_ns();
    c.ours.push_back(trainer.steps(times.steps));
    cores.push_back((processor_ns() - before) / times.steps);
    if (!peer.is_here()) continue;
    peer.ask("steps " + std::to_string(times.warm_up));
    c.theirs.push_back(peer.ask("steps " + std::to_string(times.steps))[0]);
    their_cores.push_back(peer.ask("cores")[0]);
  }
  auto least = [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); };
  c.also.push_back({"core_ns", least(cores)});
  if (!their_cores.empty())
    c.also.insert(c.also.end(), {{"peer_core_ns", least(their_cores)},
                                 {"ratio_of_core_ns", least(cores) / least(their_cores)}});
  if (times.least_ns > 0) c.also.push_back({"least_core_ns", times.least_ns});
  if (times.least_ns > 0 && !their_cores.empty())
    c.also.push_back({"least_ratio", times.least_ns / least(their_cores)});
  const std::int64_t before = allocations();
  trainer.steps(times.steps);
  c.also.push_back(
      {"allocations_per_step", static_cast<double>(allocations() - before) / times.steps});
  c.print();
  print_memory(peer, c);
}

/// ns of each of `count` steps: `step(i)` makes the i-th and yields its loss, which goes to
/// `losses`.
template <class Step>
double timed_steps(int count, std::vector<float>* losses, Step step) {
  const double begin = now_ns();
  for (int i = 0; i < count; ++i) {
    const float loss = step(static_cast<std::size_t>(i));
    if (losses) losses->push_back(loss);
  }
  return (now_ns() - begin) / count;
}

/// `lstm_step_2_threads`.
inline std::string step_name(const std::string& subject, int threads) {
  return subject + "_step_" + std::to_string(threads) + (threads == 1 ? "_thread" : "_threads");
}

/// The `main` of training benchmarks: `profile... <workers> <steps>` runs our steps alone, for a
/// profiler; otherwise `measure` on one thread and on two.
template <class Trainer>
void run_training(int argc, char** argv, void (*measure)(int threads)) {
  if (argc > 3 && std::strncmp(argv[1], "profile", 7) == 0) {
    Trainer trainer(std::atoi(argv[2]));
    trainer.steps(2);
    std::vector<double> walls, cores;
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
      const double before = processor_ns();
      walls.push_back(trainer.steps(1));
      cores.push_back(processor_ns() - before);
    }
    std::printf("%s%.0f ns a step at best, %.0f of the cores; medians %.0f, %.0f\n",
                trainer.explain().c_str(), *std::min_element(walls.begin(), walls.end()),
                *std::min_element(cores.begin(), cores.end()), median(walls), median(cores));
    return;
  }
  for (const int threads : {1, 2}) measure(threads);
}

}  // namespace troupe::bench
