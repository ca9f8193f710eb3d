// Training steps of ours against a peer's: the same losses first, then the same steps, timed in turn.
//
//   class Trainer { void reset(); double steps(int count, std::vector<float>* losses = nullptr); … };
//   compare_losses(trainer, torch, {.steps = 20, .tolerance = 1e-4}, c);
//   measure_steps(trainer, torch, {.repetitions = 15, .steps = 5, .warm_up = 1}, c);
//
// The peer answers `reset`, and `steps <n>` with ns a step and, for a comparison, the n losses.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <troupe/test/bench/count_allocations.hpp>
#include <troupe/test/bench/peer.hpp>

namespace troupe::bench {

struct LossCheck {
  int steps;
  double tolerance;  // of each loss; more ends the benchmark with an error
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
    for (std::size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - theirs[i + 1]));
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
  int steps;    // of each
  int warm_up;  // steps before: they wake the workers
};

/// Times both, counts our allocations, prints.
template <class Trainer>
void measure_steps(Trainer& trainer, Peer& peer, const StepTimes& times, Comparison& c) {
  for (int i = 0; i < times.repetitions; ++i) {
    trainer.steps(times.warm_up);
    c.ours.push_back(trainer.steps(times.steps));
    if (!peer.is_here()) continue;
    peer.ask("steps " + std::to_string(times.warm_up));
    c.theirs.push_back(peer.ask("steps " + std::to_string(times.steps))[0]);
  }
  const std::int64_t before = allocations();
  trainer.steps(times.steps);
  c.also.push_back({"allocations_per_step", static_cast<double>(allocations() - before) / times.steps});
  c.print();
}

}  // namespace troupe::bench
