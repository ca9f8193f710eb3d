// Not under asan and tsan: the arithmetic is causal_fit_test's, on one thread.
// Delay families: each is a density, and EM finds its simulated truth; the figures of tick's tests.
#include <troupe/actors/dependence/channel_kernel.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <troupe/actors/dependence/exponentials.hpp>
#include <troupe/test/actors/dependence/simulated.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>

BOOST_AUTO_TEST_SUITE(delay_families_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe;
using namespace troupe::dependence;
using namespace troupe::test;

/// Outputs of an input of rate 2 with the weight 0.6 and this delay, and of a leak of 0.4.
Arrivals arrivals_of(const Delay& delay, double end, std::uint64_t seed = 3) {
  Simulation sim(seed, end);
  Arrivals arrivals{{sim.poisson(2)}, {}, end};
  arrivals.outputs =
      Simulation::merged({sim.poisson(0.4), sim.caused(arrivals.inputs[0], 0.6,
                                                       [&](auto& r) { return delay.draw(r); })});
  return arrivals;
}

Fit fit_of(const Arrivals& arrivals, const Delay& start, double support) {
  CausalModel model = model_of(arrivals, start.mean());
  model.channels[0].delay = start;
  const Fit fit = fit_by_em(arrivals, model, {.support = support, .most_iterations = 300});
  for (std::size_t i = 1; i < fit.course.size(); ++i)
    BOOST_TEST(fit.course[i] >= fit.course[i - 1] - 1e-4, "step " << i);
  return fit;
}

constexpr double kEnd = kShare == 1 ? 3000 : 600;
constexpr double kSlack = kShare == 1 ? 1 : 3;
}  // namespace

BOOST_AUTO_TEST_CASE(blocks_of_exponentials_equal_the_library) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> any(-690, 690);
  for (int round = 0; round < 50; ++round) {
    double x[kExpBlock], y[kExpBlock];
    for (double& v : x) v = round % 2 ? any(random) : any(random) / 300;
    exponentials(x, y);
    for (std::size_t i = 0; i < kExpBlock; ++i)
      BOOST_REQUIRE(std::abs(y[i] / std::exp(x[i]) - 1) < 1e-14);
  }
  std::vector<double> values;
  double sum = 0;
  for (int i = 0; i < 1234; ++i) {
    values.push_back(std::exp(any(random)));
    sum += std::log(std::max(values.back(), 1e-300));
  }
  BOOST_TEST(sum_of_logs(values) == sum, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(sum_of_logs({}) == 0);
}

BOOST_AUTO_TEST_CASE(sums_over_pairs_equal_those_of_the_library) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> any(0.1, 3);
  std::vector<double> x(2 * kExpBlock), t(x.size()), y(x.size());
  std::vector<std::uint32_t> of(x.size());
  const std::vector<double> factors{0.5, 2, 0.25};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = any(random);
    t[i] = any(random);
    of[i] = static_cast<std::uint32_t>(random() % factors.size());
  }
  exponentials_of(0.5, 2, x.data(), -3, t.data(), y.data(), y.size());
  double weights = 0, xs = 0, ts = 0;
  const std::size_t n = y.size() - 3;  // no multiple of the lanes
  for (std::size_t i = 0; i < y.size(); ++i) {
    BOOST_REQUIRE(std::abs(y[i] / std::exp(0.5 + 2 * x[i] - 3 * t[i]) - 1) < 1e-13);
    if (i >= n) continue;
    weights += y[i] * factors[of[i]];
    xs += y[i] * factors[of[i]] * x[i];
    ts += y[i] * factors[of[i]] * t[i];
  }
  const WeightedSums sums =
      weighted_sums(y.data(), of.data(), factors.data(), x.data(), t.data(), n);
  const auto near = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(sums.weights == weights, near);
  BOOST_TEST(sums.xs == xs, near);
  BOOST_TEST(sums.ts == ts, near);
  BOOST_TEST(
      sum_of_products(x.data(), t.data(), n) ==
          std::inner_product(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n), t.begin(), 0.0),
      near);
}

BOOST_AUTO_TEST_CASE(families_are_densities) {
  const std::vector<Delay> all{
      Delay::exponential(0.2),
      Delay::gamma(3, 0.2),
      Delay::lognormal(0.2, 0.5),
      Delay::uniform(0.1, 0.3),
      Delay::box(0.5),
      Delay::histogram(1, {1, 3, 0, 4}),
      Delay::mixture({1, 3}, {Delay::gamma(2, 0.1), Delay::uniform(0.2, 0.6)})};
  for (const Delay& delay : all) {
    check_delay(delay);
    constexpr double kStep = 1e-4;
    double mass = 0, mean = 0;
    for (double d = -1 + kStep / 2; d < 6; d += kStep) {
      mass += delay.density(d) * kStep;
      mean += delay.density(d) * kStep * d;
      if (std::abs(std::fmod(d, 0.25)) < kStep)
        BOOST_TEST(std::abs(mass - delay.cumulative(d + kStep / 2)) < 1e-3, delay.text());
    }
    BOOST_TEST(std::abs(mass - 1) < 1e-3, delay.text());
    BOOST_TEST(std::abs(mean - delay.mean()) < 1e-3, delay.text());
    std::mt19937_64 random(7);
    double drawn = 0, below = 0;
    for (int i = 0; i < 4000; ++i) {
      const double d = delay.draw(random);
      drawn += d / 4000;
      below += d < 0.2 ? 1.0 / 4000 : 0;
    }
    BOOST_TEST(std::abs(drawn - delay.mean()) < 0.02, delay.text());
    BOOST_TEST(std::abs(below - delay.cumulative(0.2)) < 0.03, delay.text());
  }
  BOOST_TEST(all[2].moved_to(0.4).mean() == 0.4, boost::test_tools::tolerance(1e-12));
  const Delay mixed = Delay::mixture({1, 3}, {Delay::gamma(2, 0.1), Delay::lognormal(0.3, 1)});
  BOOST_TEST(mixed.moved_to(0.1).mean() == 0.1, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(families_have_texts) {
  BOOST_TEST(Delay::lognormal(0.2, 0.5).text() == "lognormal of spread 0.5, mean 0.2 s");
  BOOST_TEST(Delay::uniform(0.1, 0.3).text() == "uniform from 0.1 s to 0.3 s");
  BOOST_TEST(Delay::histogram(2, {1, 1}).text() == "histogram of 2 bins up to 2 s, mean 1 s");
  BOOST_TEST(Delay::mixture({1, 3}, {Delay::exponential(0.1), Delay::gamma(2, 0.5)}).text() ==
             "mixture of 0.25 (exponential, mean 0.1 s), 0.75 (gamma of shape 2, mean 0.5 s)");
  BOOST_TEST(refusal([] { delay_of("weibull", 1, 1); }, Code::not_found) ==
             "there is no delay family 'weibull'; name one of exponential, gamma, lognormal, "
             "uniform, histogram, mixture");
  const auto refused = [](const Delay& delay) {
    return refusal([&] { check_delay(delay); }, Code::invalid_argument);
  };
  BOOST_TEST(refused(Delay::uniform(0.3, 0.1)).ends_with("give 0 <= from < to"));
  BOOST_TEST(refused(Delay::exponential(-1)).ends_with("its rate is -1; give a positive mean"));
  BOOST_TEST(
      refused(Delay::histogram(1, {-1, 2})).ends_with("a share is -1; give shares from 0 up"));
  BOOST_TEST(refused(Delay::mixture({1}, {Delay::box(1)})).find("a part is a box") !=
             std::string::npos);
  for (const char* family :
       {"exponential", "gamma", "lognormal", "uniform", "histogram", "mixture"})
    check_delay(delay_of(family, 0.1, 1));
}

BOOST_AUTO_TEST_CASE(em_finds_a_lognormal_delay) {
  const Fit fit =
      fit_of(arrivals_of(Delay::lognormal(0.1, 0.5), kEnd), Delay::lognormal(0.05, 1), 1);
  const Cause& cause = fit.model.channels[0];
  BOOST_TEST(std::abs(cause.weight - 0.6) < 0.03 * kSlack);
  BOOST_TEST(std::abs(cause.delay.mean() - 0.1) < 0.005 * kSlack);
  BOOST_TEST(std::abs(cause.delay.spread - 0.5) < 0.04 * kSlack);
}

BOOST_AUTO_TEST_CASE(em_finds_a_histogram_of_delays) {
  const Delay truth = Delay::histogram(0.8, {0.1, 0.5, 0, 0.4});
  const Fit fit = fit_of(arrivals_of(truth, kEnd), Delay::histogram(0.8, {1, 1, 1, 1}), 1);
  BOOST_TEST(std::abs(fit.model.channels[0].weight - 0.6) < 0.05 * kSlack);
  for (std::size_t b = 0; b < 4; ++b)
    BOOST_TEST(std::abs(fit.model.channels[0].delay.masses[b] - truth.masses[b]) < 0.04 * kSlack);
  // exact at the edge too, where exposures differ
  const Arrivals brief = arrivals_of(truth, 6);
  const Fit edge = fit_by_em(brief, {0.2, {{0, 0.5, Delay::histogram(0.8, {1, 1, 1, 1})}}},
                             {.support = 1, .most_iterations = 50, .tolerance = 0});
  for (std::size_t i = 1; i < edge.course.size(); ++i)
    BOOST_TEST(edge.course[i] >= edge.course[i - 1] - 1e-10);
}

BOOST_AUTO_TEST_CASE(em_finds_a_mixture_of_delays) {
  const Delay truth = Delay::mixture({0.4, 0.6}, {Delay::exponential(0.01), Delay::gamma(20, 0.2)});
  const Delay start = Delay::mixture({1, 1}, {Delay::exponential(0.03), Delay::gamma(5, 0.15)});
  const Fit fit = fit_of(arrivals_of(truth, kEnd), start, 1);
  const Delay& found = fit.model.channels[0].delay;
  BOOST_TEST_MESSAGE(found.text());
  BOOST_TEST(std::abs(fit.model.channels[0].weight - 0.6) < 0.03 * kSlack);
  BOOST_TEST(std::abs(found.shares[0] - 0.4) < 0.05 * kSlack);
  BOOST_TEST(std::abs(found.parts[0].mean() - 0.01) < 0.002 * kSlack);
  BOOST_TEST(std::abs(found.parts[1].mean() - 0.2) < 0.01 * kSlack);
  BOOST_TEST(std::abs(found.parts[1].shape / 20 - 1) < 0.25 * kSlack);
}

BOOST_AUTO_TEST_CASE(profile_finds_a_uniform_support) {
  const Arrivals arrivals = arrivals_of(Delay::uniform(0.1, 0.3), kEnd / 3);
  const FitOptions options{.support = 1, .most_iterations = 30, .tolerance = 1e-6};
  const Fit fit =
      fit_over_delays(arrivals, model_of(arrivals, 0.2), 0, uniform_delays(0, 0.5, 10), options);
  BOOST_TEST(fit.model.channels[0].delay.text() == "uniform from 0.1 s to 0.3 s");
  BOOST_TEST(std::abs(fit.model.channels[0].weight - 0.6) < 0.06 * kSlack);
  BOOST_TEST(uniform_delays(0, 1, 10).size() == 55u);
}

BOOST_AUTO_TEST_CASE(pairs_within_a_long_support_are_bounded) {
  Times many(20000);
  std::iota(many.begin(), many.end(), 1.0);
  BOOST_TEST(refusal([&] { Pairs(many, many, 1e6); }, Code::resource_exhausted)
                 .ends_with("use a shorter support, or exponential delays"));
}

// The data, the start and the figures are of tick's hawkes_em_test (BSD-3); tick leaves the edge
// out, so this test has its own step of the weights. Two realisations lie far apart in one.
BOOST_AUTO_TEST_CASE(histograms_reproduce_the_em_of_tick) {
  std::mt19937 random(123269);
  const auto draw = [&] {  // as numpy draws
    const double high = static_cast<double>(random() >> 5),
                 low = static_cast<double>(random() >> 6);
    return (high * 67108864 + low) / 9007199254740992;
  };
  std::vector<Times> all(3);
  double length = 0;
  for (const double begin : {0.0, 100.0}) {
    double last = 0;
    for (std::size_t node = 0; node < 3; ++node) {
      double at = 0;
      for (std::size_t i = 0; i < 4 + node; ++i) all[node].push_back(begin + (at += draw()));
      last = std::max(last, at);
    }
    length += last;
  }
  std::vector<double> leaks;
  std::vector<std::vector<Cause>> causes;
  for (std::size_t to = 0; to < 3; ++to) {
    const Arrivals arrivals{all, all[to], 1000};
    double leak = 0.2;
    std::vector<Cause> channels;
    std::vector<std::unique_ptr<ChannelKernel>> kernels;
    std::vector<std::vector<double>> sums(3, std::vector<double>(all[to].size()));
    for (std::size_t j = 0; j < 3; ++j) {
      channels.push_back({j, 1.2, Delay::histogram(3, {1, 1, 1})});
      kernels.push_back(make_kernel(channels[j], arrivals, 3));
    }
    for (int step = 0; step < 11; ++step) {
      std::vector<double> intensity(all[to].size(), leak), odds(all[to].size());
      for (std::size_t j = 0; j < 3; ++j) {
        kernels[j]->density(channels[j].delay, sums[j]);
        for (std::size_t l = 0; l < odds.size(); ++l)
          intensity[l] += channels[j].weight * sums[j][l];
      }
      double of_leak = 0;
      for (const double at : intensity) of_leak += leak / at;
      leak = of_leak / length;
      for (std::size_t j = 0; j < 3; ++j) {
        for (std::size_t l = 0; l < odds.size(); ++l) odds[l] = channels[j].weight / intensity[l];
        kernels[j]->update(channels[j], sums[j], odds);
      }
    }
    leaks.push_back(leak);
    causes.push_back(channels);
  }
  const double expected[] = {1.2264, 0.2164, 1.6782};
  for (std::size_t to = 0; to < 3; ++to) BOOST_TEST(std::abs(leaks[to] - expected[to]) < 1e-4);
  const double norms[3][3] = {
      {0.0246, 0.0181, 0.0027}, {0.8234, 0.0275, 0.1499}, {0.1327, 0.054, 0.0011}};
  for (std::size_t to = 0; to < 3; ++to)
    for (std::size_t from = 0; from < 3; ++from)
      BOOST_TEST(std::abs(causes[to][from].weight - norms[to][from]) < 1e-3);
  const double kernel[] = {8.0077e-01, 2.2624e-02, 6.7577e-10};
  for (std::size_t b = 0; b < 3; ++b)
    BOOST_TEST(std::abs(causes[1][0].weight * causes[1][0].delay.masses[b] - kernel[b]) < 1e-4);
}

// The times, coefficients and losses are of tick's hawkes_models_gtest (BSD-3); its loss is -(log
// likelihood + nodes * end) / events.
BOOST_AUTO_TEST_CASE(likelihood_equals_the_loss_of_tick) {
  const auto loss = [](const std::vector<Times>& times) {
    const double leaks[] = {1, 3}, weights[2][2] = {{2, 3}, {4, 1}};
    constexpr double kTickEnd = 4.25;
    double all = 0, events = 0;
    for (std::size_t to = 0; to < 2; ++to) {
      CausalModel model{leaks[to], {}};
      for (std::size_t j = 0; j < 2; ++j)
        model.channels.push_back({j, weights[to][j], Delay::exponential(0.5)});
      all += log_likelihood({times, times[to], kTickEnd}, model, 10) + kTickEnd;
      events += static_cast<double>(times[to].size());
    }
    return -all / events;
  };
  const Times first{0.31, 0.93, 1.29, 2.32, 4.25}, second{0.12, 1.19, 2.12, 2.41, 3.35, 4.21};
  BOOST_TEST(loss({first, second}) == 2.9434509731246283, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(loss({first, {}}) == 5.9243119662517856, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_SUITE_END()
