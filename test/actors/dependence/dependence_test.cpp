// Tests of dependence: their size without one, their power with one, and the graph.
#include <troupe/actors/dependence/dependence.hpp>
#include <troupe/actors/dependence/evaluation.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/test/actors/dependence/simulated.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>

BOOST_AUTO_TEST_SUITE(dependence_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe;
using namespace troupe::dependence;
using namespace troupe::test;
}  // namespace

BOOST_AUTO_TEST_CASE(statistic_has_its_distribution_without_dependence) {  // N3
  const int runs = kShare == 1 ? 1000 : 50;
  int zero = 0, above = 0;
  for (int r = 0; r < runs; ++r) {
    Simulation sim(static_cast<std::uint64_t>(r), 100);
    const Arrivals arrivals{{sim.poisson(1)}, sim.poisson(1), 100};
    CausalModel model = model_of(arrivals, 0.1);
    const double statistic = likelihood_ratio(arrivals, model, 0, {.support = 1});
    zero += statistic < 1e-6;
    above += statistic > 2.706;
  }
  BOOST_TEST_MESSAGE("zero " << zero << " above " << above << " of " << runs);
  const double slack = kShare == 1 ? 1 : 5;
  BOOST_TEST(std::abs(static_cast<double>(zero) / runs - 0.5) < 0.04 * slack);
  BOOST_TEST(std::abs(static_cast<double>(above) / runs - 0.05) < 0.02 * slack);
}

BOOST_AUTO_TEST_CASE(joint_test_explains_echoes_away) {  // N4
  const int runs = kShare == 1 ? 24 : 1;
  std::vector<double> causes, others;
  std::vector<double> simple[3][2];  // by baseline: of causes, of the others
  for (int r = 0; r < runs; ++r) {
    Simulation sim(100 + static_cast<std::uint64_t>(r), 300);
    Arrivals arrivals{{}, {}, 300};
    std::vector<Times> outputs{sim.poisson(0.5)};
    for (const double weight : {0.15, 0.3, 0.6}) {
      arrivals.inputs.push_back(sim.poisson(1));
      outputs.push_back(sim.caused(arrivals.inputs.back(), weight, exponential_delay(0.05)));
    }
    for (int j = 0; j < 3; ++j)  // an echo follows its cause, and causes nothing
      arrivals.inputs.push_back(
          sim.caused(arrivals.inputs[static_cast<std::size_t>(j)], 0.8, exponential_delay(0.03)));
    for (int j = 0; j < 4; ++j) arrivals.inputs.push_back(sim.poisson(1));
    arrivals.outputs = Simulation::merged(outputs);
    const Fit full = fit_from_scales(arrivals, model_of(arrivals, 0.05),
                                     {.support = 1, .most_iterations = 100, .tolerance = 1e-7});
    for (std::size_t j = 0; j < 10; ++j) {
      CausalModel null = full.model;
      null.channels[j].is_absent = true;
      const Fit without =
          fit_by_em(arrivals, null, {.support = 1, .most_iterations = 60, .tolerance = 1e-7});
      (j < 3 ? causes : others).push_back(2 * (full.log_likelihood - without.log_likelihood));
      const Times &in = arrivals.inputs[j], &out = arrivals.outputs;
      simple[0][j >= 3].push_back(co_occurrence(in, out, 300, 0.25));
      simple[1][j >= 3].push_back(pairwise_ratio(in, out, 300, 1));
      simple[2][j >= 3].push_back(delay_spike(in, out, 300, 1));
    }
  }
  const double area = area_under_curve(causes, others);
  BOOST_TEST_MESSAGE("AUC " << area);
  BOOST_TEST(area >= 0.98);
  for (const auto& [of_causes, of_others] : simple) {
    const double other = area_under_curve(of_causes, of_others);
    BOOST_TEST_MESSAGE("of a baseline " << other);
    BOOST_TEST(other < area);
    BOOST_TEST(other > 0.6);
  }
}

BOOST_AUTO_TEST_CASE(shared_load_is_no_dependence) {  // N5
  const int runs = kShare == 1 ? 100 : 10;
  int with = 0, without = 0, found = 0;
  const auto load = [](double t) { return 0.5 + 0.45 * std::sin(t * 0.3); };
  for (int r = 0; r < runs; ++r) {
    Simulation sim(700 + static_cast<std::uint64_t>(r), 200);
    Arrivals arrivals{{sim.thinned(sim.poisson(8), load)}, sim.thinned(sim.poisson(8), load), 200};
    DependenceOptions options{.support = 1};
    with += test_inputs(arrivals, options)[0].p < 0.05;
    options.has_acausal = false;
    without += test_inputs(arrivals, options)[0].p < 0.05;
    options.has_acausal = true;
    arrivals.outputs = Simulation::merged(
        {arrivals.outputs, sim.caused(arrivals.inputs[0], 0.3, exponential_delay(0.05))});
    found += test_inputs(arrivals, options)[0].p < 0.05;
  }
  BOOST_TEST_MESSAGE("false with the acausal channel " << with << ", without " << without
                                                       << ", found " << found << " of " << runs);
  const double slack = kShare == 1 ? 1 : 4;
  BOOST_TEST(static_cast<double>(with) / runs <= 0.08 * slack);
  BOOST_TEST(without > with);
  BOOST_TEST(static_cast<double>(found) / runs >= 0.9);
}

BOOST_AUTO_TEST_CASE(graph_has_the_true_edges) {
  Simulation sim(42, 400);
  const Times a = sim.poisson(2), c = sim.poisson(2);
  const Times b =
      Simulation::merged({sim.poisson(0.2), sim.caused(a, 0.7, exponential_delay(0.02))});
  const Times d = sim.caused(b, 0.9, exponential_delay(0.05));
  const DependenceGraph graph = find_dependences(
      {{"a", a}, {"b", b}, {"c \"x\"", c}, {"d", d}, {"few", {1, 2}}}, 401, {.support = 0.5});
  std::string edges;
  for (const Dependence& e : graph.edges)
    edges += graph.channels[e.from].name + ">" + graph.channels[e.to].name + " ";
  BOOST_TEST((edges == "a>b b>d " || edges == "b>d a>b "), edges);
  BOOST_TEST(graph.tested.size() == 12u);
  BOOST_TEST(graph.left_out.at(0) ==
             "channel 'few' has 2 events and takes no part; record 20 or more");
  for (const Dependence& e : graph.edges) {
    const bool is_first = graph.channels[e.from].name == "a";
    BOOST_TEST(std::abs(e.weight - (is_first ? 0.7 : 0.9)) < 0.15);
    BOOST_TEST(std::abs(e.delay.mean() / (is_first ? 0.02 : 0.05) - 1) < 0.2);
  }
  BOOST_TEST(dot_of(graph).find("  \"c \\\"x\\\"\";\n") != std::string::npos);
  BOOST_TEST(dot_of(graph).find("\"a\" -> \"b\" [label=\"0.") != std::string::npos);
  BOOST_TEST(json_of(graph).find("\"from\":\"a\"") != std::string::npos);
  BOOST_TEST(text_of(graph).find("a -> b: strength 0.") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(families_give_the_graph_too) {
  Simulation sim(43, 300);
  const Times a = sim.poisson(2), c = sim.poisson(2);
  const Times b = Simulation::merged({sim.poisson(0.2), sim.caused(a, 0.7, gamma_delay(9, 0.1))});
  for (const char* family : {"gamma", "lognormal", "uniform", "histogram", "mixture"}) {
    const DependenceGraph graph =
        find_dependences({{"a", a}, {"b", b}, {"c", c}}, 300, {.support = 0.5, .family = family});
    BOOST_TEST(retrieval_of(edges_of(graph), {{"a", "b"}}).text() ==
                   "precision 1.00, recall 1.00: 1 right, 0 wrong, 0 missed",
               family);
    if (graph.edges.empty()) continue;
    BOOST_TEST(graph.edges[0].delay.text().starts_with(family));
    BOOST_TEST(std::abs(graph.edges[0].delay.mean() - 0.1) < 0.03, graph.edges[0].delay.text());
    BOOST_TEST(graph.edges[0].shifted_p.value() == 0.01);
  }
  BOOST_TEST(refusal(
                 [&] {
                   find_dependences({{"a", a}, {"b", b}}, 300, {.family = "cauchy"});
                 },
                 Code::not_found)
                 .starts_with("there is no delay family 'cauchy'"));
}

BOOST_AUTO_TEST_CASE(score_test_has_its_size) {
  const int runs = kShare == 1 ? 600 : 50;
  int above = 0;
  for (int r = 0; r < runs; ++r) {
    Simulation sim(static_cast<std::uint64_t>(r) + 5000, 100);
    const Arrivals arrivals{{sim.poisson(1)}, sim.poisson(1), 100};
    CausalModel model = model_of(arrivals, 0.1);
    model.leak = static_cast<double>(arrivals.outputs.size()) / arrivals.end;
    model.channels[0].weight = 0;
    const Score score = score_of(arrivals, model, 0, 1);
    above += score.slope / score.error > 1.645;
  }
  BOOST_TEST_MESSAGE("z > 1.645 in " << above << " of " << runs);
  BOOST_TEST(std::abs(static_cast<double>(above) / runs - 0.051) < (kShare == 1 ? 0.025 : 0.1));
}

BOOST_AUTO_TEST_CASE(circular_shifts_audit_a_dependence) {
  int small = 0;
  const int runs = kShare == 1 ? 60 : 10;
  for (int r = 0; r < runs; ++r) {
    Simulation sim(static_cast<std::uint64_t>(r) + 900, 100);
    const Arrivals arrivals{{sim.poisson(1)}, sim.poisson(1), 100};
    small += circular_shift_p(arrivals, model_of(arrivals, 0.1), 0, {.support = 1}, 19) <= 0.05;
  }
  BOOST_TEST(small <= 0.15 * runs);
  Simulation sim(5, 100);
  Arrivals arrivals{{sim.poisson(1)}, {}, 100};
  arrivals.outputs = Simulation::merged(
      {sim.poisson(1), sim.caused(arrivals.inputs[0], 0.5, exponential_delay(0.1))});
  BOOST_TEST(circular_shift_p(arrivals, model_of(arrivals, 0.1), 0, {.support = 1}, 99) == 0.01);
}

BOOST_AUTO_TEST_CASE(scores_are_evaluated) {
  BOOST_TEST(area_under_curve({2, 1}, {0, 1}) == 0.875);
  BOOST_TEST(area_under_curve({}, {1}) == 0.5);
  const Retrieval r = retrieval_of({{"a", "b"}, {"b", "a"}}, {{"a", "b"}, {"b", "c"}, {"c", "d"}});
  BOOST_TEST(r.text() == "precision 0.50, recall 0.33: 1 right, 1 wrong, 2 missed");
  BOOST_TEST(retrieval_of({}, {}).precision == 1);
  // half of the time lies behind an input, and all four outputs do
  BOOST_TEST(co_occurrence({1, 3, 5, 7}, {1.5, 3.5, 5.5, 7.5}, 8, 1) == 2);
  BOOST_TEST(co_occurrence({}, {1}, 8, 1) == 0);
  BOOST_TEST(delay_spike({1, 3, 5, 7}, {1.5, 3.5, 5.5, 7.5}, 8, 1, 4) ==
             (4 - 0.5) / std::sqrt(0.5));
  Simulation sim(42, 400);
  const Times a = sim.poisson(2), b = sim.caused(a, 0.7, exponential_delay(0.02));
  const std::vector<Channel> channels{{"a", a}, {"b", b}, {"c", sim.poisson(2)}};
  for (const Baseline baseline :
       {Baseline::co_occurrence, Baseline::pairwise_ratio, Baseline::delay_spike})
    BOOST_TEST(edges_by(baseline, channels, 400, 0.5).contains({"a", "b"}), name_of(baseline));
}

BOOST_AUTO_TEST_CASE(too_few_events_are_refused) {  // N7
  const Arrivals arrivals{{{1, 2, 3}}, {1.1, 2.1, 3.1}, 4};
  BOOST_TEST(refusal([&] { test_inputs(arrivals, {.support = 1}); }, Code::failed_precondition) ==
             "an output of 3 events is too short to test; record 20 or more");
  const DependenceGraph none = find_dependences({}, 1, {});
  BOOST_TEST(text_of(none).starts_with("no dependence was found\n0 of 0 pairs"));
  const DependenceGraph odd = find_dependences({{"now", Times(30, 2.5)}, {"never", {}}}, 4, {});
  BOOST_TEST(odd.left_out.at(0) ==
             "channel 'now' has all of its 30 events at 2.5 s and takes no "
             "part; record times of a finer clock");
  BOOST_TEST(odd.left_out.at(1) ==
             "channel 'never' has 0 events and takes no part; record 20 or more");
  const auto unknown = [&](const CausalModel& model) {
    return refusal([&] { fit_by_em(arrivals, model, {}); }, Code::not_found);
  };
  BOOST_TEST(unknown({1, {{0, 1, {}}, {7, 1, {}}}}) ==
             "channel 1 is of input 7, and there are 1 inputs; name one from 0 up");
  BOOST_TEST(refusal([&] { score_of(arrivals, {}, 3, 1); }, Code::not_found) ==
             "there is no channel 3; the model has 0");
}

BOOST_AUTO_TEST_CASE(q_corrects_for_the_number_of_pairs) {
  std::vector<Dependence> all(4);
  all[0].p = 0.04;
  all[1].p = 0.01;
  all[2].p = 0.5;
  all[3].p = 0.02;
  set_q(all);
  BOOST_TEST(all[1].q == 0.04);
  BOOST_TEST(all[3].q == 0.04);
  BOOST_TEST(all[0].q == 0.04 * 4 / 3);
  BOOST_TEST(all[2].q == 0.5);
}

BOOST_AUTO_TEST_SUITE_END()
