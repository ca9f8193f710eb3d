// CT-NOR's likelihood and EM: rows N1, N2, N7, and the linear form against the pairs.
#include <troupe/actors/dependence/fit.hpp>
#include <troupe/actors/dependence/special.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/test/actors/dependence/simulated.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>

BOOST_AUTO_TEST_SUITE(causal_fit_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe;
using namespace troupe::dependence;
using namespace troupe::test;

CausalModel one_cause(double leak, double weight, Delay delay) {
  return {leak, {{0, weight, delay}}};
}
}  // namespace

BOOST_AUTO_TEST_CASE(special_functions_have_known_values) {
  BOOST_TEST(digamma(1) == -0.5772156649015329, boost::test_tools::tolerance(1e-10));
  BOOST_TEST(digamma(7.5) == 1.9467574842460636, boost::test_tools::tolerance(1e-8));
  BOOST_TEST(trigamma(1) == 1.6449340668482264, boost::test_tools::tolerance(1e-8));
  BOOST_TEST(gamma_cumulative(1, 2) == 1 - std::exp(-2.0), boost::test_tools::tolerance(1e-12));
  BOOST_TEST(gamma_cumulative(4, 9) == 0.9787735, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(gamma_cumulative(0.5, 0.5) == std::erf(std::sqrt(0.5)),
             boost::test_tools::tolerance(1e-12));
  BOOST_TEST(chi_square_1_tail(2.705543454) == 0.1, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(likelihood_has_the_reference_value) {  // N1
  const Arrivals arrivals{{{1, 2, 3}}, {1.1, 2.1, 3.1}, 4};
  BOOST_TEST(log_likelihood(arrivals, one_cause(0.01, 1, Delay::exponential(0.1)), 1) == 0.876035,
             boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(linear_form_equals_the_pairs) {
  Simulation sim(5, 50);
  Arrivals arrivals{{sim.poisson(3), sim.poisson(1)}, {}, 50};
  arrivals.outputs = Simulation::merged(
      {sim.poisson(0.5), sim.caused(arrivals.inputs[0], 0.6, exponential_delay(0.2))});
  CausalModel model = model_of(arrivals, 0.15);
  double direct = 0;
  for (const double o : arrivals.outputs) {
    double at = model.leak;
    for (const Cause& cause : model.channels)
      for (const double i : arrivals.inputs[cause.input])
        at += cause.weight * cause.delay.density(o - i);
    direct += std::log(at);
  }
  direct -= model.leak * arrivals.end;
  for (const Cause& cause : model.channels)
    for (const double i : arrivals.inputs[cause.input])
      direct -= cause.weight * cause.delay.cumulative(arrivals.end - i);
  BOOST_TEST(log_likelihood(arrivals, model, 10) == direct, boost::test_tools::tolerance(1e-10));
  // a gamma of shape 1 goes by pairs, a fixed delay by stored sums
  for (Cause& cause : model.channels) cause.delay.kind = Delay::Kind::gamma;
  BOOST_TEST(log_likelihood(arrivals, model, 20) == direct, boost::test_tools::tolerance(1e-8));
  for (Cause& cause : model.channels)
    cause.delay.kind = Delay::Kind::exponential, cause.is_delay_fixed = true;
  BOOST_TEST(log_likelihood(arrivals, model, 10) == direct, boost::test_tools::tolerance(1e-10));
}

BOOST_AUTO_TEST_CASE(em_finds_the_simulated_truth) {  // N2
  const double end = kShare == 1 ? 10000 : 2000;
  Simulation sim(1, end);
  Arrivals arrivals{{sim.poisson(1), sim.poisson(1), sim.poisson(1)}, {}, end};
  arrivals.outputs = Simulation::merged(
      {sim.poisson(0.5), sim.caused(arrivals.inputs[0], 0.8, exponential_delay(0.05)),
       sim.caused(arrivals.inputs[1], 0.3, gamma_delay(4, 0.2))});
  CausalModel start = model_of(arrivals, 1.0 / 16);
  start.channels[1].delay = Delay::gamma(1.5, 0.2);
  const Fit fit = fit_from_scales(arrivals, start, {.support = 1, .most_iterations = 200});
  const auto& c = fit.model.channels;
  BOOST_TEST_MESSAGE("leak " << fit.model.leak << " w " << c[0].weight << " " << c[1].weight << " "
                             << c[2].weight << " " << c[0].delay.text() << " " << c[1].delay.text()
                             << " iterations " << fit.iterations);
  const double slack = kShare == 1 ? 1 : 3;
  BOOST_TEST(std::abs(fit.model.leak - 0.5) < 0.02 * slack);
  BOOST_TEST(std::abs(c[0].weight - 0.8) < 0.02 * slack);
  BOOST_TEST(std::abs(c[1].weight - 0.3) < 0.02 * slack);
  BOOST_TEST(c[2].weight < 0.02 * slack);
  BOOST_TEST(std::abs(c[0].delay.mean() / 0.05 - 1) < 0.05 * slack);
  BOOST_TEST(std::abs(c[1].delay.mean() / 0.2 - 1) < 0.05 * slack);
  BOOST_TEST(std::abs(c[1].delay.shape / 4 - 1) < 0.15 * slack);
  for (std::size_t i = 1; i < fit.course.size(); ++i)
    BOOST_TEST(fit.course[i] >= fit.course[i - 1] - 1e-6);
}

BOOST_AUTO_TEST_CASE(exponential_em_never_falls) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {  // short: the edges weigh much
    Simulation sim(seed, 3);
    Arrivals arrivals{{sim.poisson(4), sim.poisson(9)}, sim.poisson(6), 3};
    const Fit fit = fit_by_em(arrivals, model_of(arrivals, 0.3), {.support = 4, .tolerance = 0});
    for (std::size_t i = 1; i < fit.course.size(); ++i)
      BOOST_TEST(fit.course[i] >= fit.course[i - 1] - 1e-10, "seed " << seed << " step " << i);
  }
}

BOOST_AUTO_TEST_CASE(empty_and_odd_recordings_have_clear_answers) {  // N7
  const FitOptions options{.support = 1};
  const auto fit = [&](const Arrivals& arrivals) {
    const Fit f = fit_by_em(arrivals, model_of(arrivals, 0.1), options);
    BOOST_TEST(std::isfinite(f.log_likelihood));
    BOOST_TEST(std::isfinite(f.model.leak));
    for (const Cause& cause : f.model.channels) {
      BOOST_TEST(std::isfinite(cause.weight));
      BOOST_TEST(std::isfinite(cause.delay.rate));
    }
    return f.model;
  };
  BOOST_TEST(fit({{{1, 2}}, {}, 4}).leak == 0);  // no outputs
  BOOST_TEST(fit({{{1, 2}}, {}, 4}).channels[0].weight == 0);
  BOOST_TEST(fit({{{}}, {1, 2}, 4}).leak == 0.5, boost::test_tools::tolerance(1e-6));  // leak only
  BOOST_TEST(fit({{}, {1, 2}, 4}).leak == 0.5, boost::test_tools::tolerance(1e-6));
  fit({{{2}}, {2.1}, 4});            // one input
  fit({{{2, 2, 2}}, {2, 2, 2}, 4});  // all times equal
  fit({{{2, 3}}, {0.5, 1}, 4});      // outputs before every input
  fit({{{4}}, {4}, 4});              // at the end
  const auto refused = [&](const Arrivals& a) {
    return refusal([&] { check_arrivals(a); }, Code::invalid_argument);
  };
  BOOST_TEST(refused({{{1}}, {2}, 0}) == "a recording of 0 s has no length; give its end");
  BOOST_TEST(refused({{{1}}, {5}, 4}) ==
             "the output has an event at 5 s, outside of (0, 4]; give the span of all events");
  BOOST_TEST(refused({{{1}, {3, 2}}, {}, 4}) ==
             "input 1 goes back from 3 s to 2 s; sort its events");
  BOOST_TEST(refused({{{std::nan("")}}, {}, 4}).starts_with("input 0 has an event at nan s"));
}

BOOST_AUTO_TEST_SUITE_END()
