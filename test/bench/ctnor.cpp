// Fits of CT-NOR: ns a pair and iteration of general delays, ns an event and iteration of
// exponential ones, and a warm refit of a window. One output has three inputs, each of rate 1/s, as
// in scripts/peers/ctnor_numpy.py; `dense` has ten pairs an output and input.
#include <troupe/actors/dependence/channel_kernel.hpp>
#include <troupe/actors/dependence/online_fit.hpp>
#include <troupe/actors/dependence/simulate.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/peer.hpp>

#include <cmath>
#include <random>

#include <fmt/format.h>

namespace {

using namespace troupe;
using namespace troupe::dependence;
constexpr int kRepetitions = 5, kIterations = 10;
constexpr double kSupport = 1;

Arrivals arrivals_of(std::size_t events, double rate) {
  const double per_second = 3 * rate + 0.5 + 1.1 * rate;
  Arrivals all{{}, {}, static_cast<double>(events) / per_second};
  std::mt19937_64 random(1);
  for (int j = 0; j < 3; ++j)
    all.inputs.push_back(simulate_outputs({{}, {}, all.end}, {rate, {}}, random));
  all.outputs = simulate_outputs(
      all, {0.5, {{0, 0.8, Delay::exponential(0.05)}, {1, 0.3, Delay::gamma(4, 0.2)}}}, random);
  return all;
}

double pairs_of(const Arrivals& all) {
  std::size_t pairs = 0;
  for (const Times& input : all.inputs) pairs += Pairs(input, all.outputs, kSupport).delays.size();
  return static_cast<double>(pairs);
}

double time_of_fit(const Arrivals& all, const CausalModel& start, int iterations) {
  const double begin = bench::processor_ns();
  fit_by_em(all, start, {.support = kSupport, .most_iterations = iterations, .tolerance = -1});
  return bench::processor_ns() - begin;
}

/// Without what a fit does once.
double time_of_iteration(const Arrivals& all, const CausalModel& start) {
  return (time_of_fit(all, start, kIterations) - time_of_fit(all, start, 1)) / (kIterations - 1);
}

void compare(const char* name, double rate, const std::string& family, double budget,
             bench::Peer* peer) {
  const Arrivals all = arrivals_of(100'000, rate);
  CausalModel start = model_of(all, kSupport / 5);
  for (Cause& cause : start.channels) cause.delay = delay_of(family, kSupport / 5, kSupport);
  double events = 0;
  for (const Times& input : all.inputs)
    events += static_cast<double>(input.size() + all.outputs.size());
  const double pairs = pairs_of(all);
  const bool is_linear = family == "exponential";
  bench::Comparison c{.name = name,
                      .unit = is_linear ? "ns an event" : "ns a pair",
                      .peer = peer ? "NumPy" : "",
                      .budget_value = budget};
  for (int i = 0; i < kRepetitions; ++i) {
    c.ours.push_back(time_of_iteration(all, start) / (is_linear ? events : pairs));
    if (peer && peer->is_here()) c.theirs.push_back(peer->ask("iteration")[0]);
  }
  if (peer) c.peer_version = peer->version();
  c.also = {{"pairs_an_output", pairs / static_cast<double>(all.outputs.size())}};
  c.print();
}

/// A window of 60 s at 10,000 events a second, fitted from the model of the window before.
void refit() {
  const double rate = 10'000 / 4.1;
  const Arrivals all = arrivals_of(660'000, rate);
  CausalModel start = model_of(all, 0.002);
  FitOptions options{.support = 0.02, .most_iterations = 100, .tolerance = 1e-7};
  const double end = all.end - 1;
  const Fit before = fit_by_em(part_of(all, 0, end), start, options);
  bench::Comparison c{.name = "ctnor_warm_refit", .unit = "ms", .peer = "", .budget_value = 100};
  options.most_iterations = OnlineOptions().warm_iterations;
  int iterations = 0;
  const Arrivals now = part_of(all, 1, all.end);
  for (int i = 0; i < kRepetitions; ++i) {
    const double begin = bench::processor_ns();
    iterations = fit_by_em(now, before.model, options).iterations;
    c.ours.push_back((bench::processor_ns() - begin) * 1e-6);
  }
  c.also = {{"iterations", iterations}};
  c.print();
}

}  // namespace

int main() {
  bench::Peer numpy("NumPy", "ctnor_numpy.py", {"1", "100000"});
  compare("ctnor_gamma", 1, "gamma", 3, &numpy);
  compare("ctnor_gamma_dense", 10, "gamma", 3, nullptr);
  compare("ctnor_lognormal_dense", 10, "lognormal", 3, nullptr);
  compare("ctnor_histogram_dense", 10, "histogram", 3, nullptr);
  compare("ctnor_mixture_dense", 10, "mixture", 6, nullptr);
  compare("ctnor_exponential", 1, "exponential", 20, nullptr);
  refit();
}
