// Not under tsan: it has one thread.
// The causes among a node's own events as they come, their alarms as a stream, and the true causes
// of a plan.
#include <troupe/actors/dependence/node_dependence.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include <troupe/actors/dependence/plan_truth.hpp>
#include <troupe/actors/dependence/simulate.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/test/actors/dependence/simulated.hpp>
#include <troupe/test/support/one_thread.hpp>

BOOST_AUTO_TEST_SUITE(node_dependence_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe;
using namespace troupe::dependence;
using namespace troupe::test;

constexpr double kEnd = 90;
constexpr events::Time kEpoch = 1'700'000'000'000'000'000;

events::Time ns(double seconds) { return kEpoch + std::llround(seconds * 1e9); }

/// `load` causes `page`; `other` runs beside them. The outputs stall from 60 s to 70 s.
std::vector<ChannelEvent> served(bool stalls) {
  Simulation sim(4, kEnd);
  std::mt19937_64 random(4);
  Arrivals all{{sim.poisson(20), sim.poisson(10)}, {}, kEnd};
  all.outputs = simulate_outputs(all, {0.1, {{0, 0.9, Delay::exponential(0.005)}}}, random);
  std::vector<ChannelEvent> out;
  for (const double t : all.inputs[0]) out.push_back({"load", ns(t)});
  for (const double t : all.inputs[1]) out.push_back({"other", ns(t)});
  for (const double t : all.outputs)
    if (!stalls || t < 60 || t > 70) out.push_back({"page", ns(t)});
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return out;
}

/// Gives the events as a recorder is read: a quarter of a second at a time.
template <class After>
void follow(NodeDependence& here, const std::vector<ChannelEvent>& all, After after) {
  std::size_t next = 0;
  for (double t = 0.25; t <= kEnd; t += 0.25) {
    std::vector<ChannelEvent> part;
    while (next < all.size() && all[next].at < ns(t)) part.push_back(all[next++]);
    here.add(part, ns(t));
    after(t);
  }
}
}  // namespace

BOOST_AUTO_TEST_CASE(causes_are_found_and_only_parameters_are_reported) {
  NodeDependence here({});
  follow(here, served(false), [](double) {});
  BOOST_TEST(here.channels().size() == 3u);
  const Edges truth{{"load", "page"}, {"page", "gone"}};
  const auto report = nlohmann::json::parse(here.json(truth));
  bool is_found = false;
  for (const auto& e : report["edges"]) is_found |= e["from"] == "load" && e["to"] == "page";
  BOOST_TEST(is_found);
  BOOST_TEST(report["truth"]["recall"] == 1.0);
  BOOST_TEST(report["true_edges"].size() == 1u);  // the other one's channel does not take part
  BOOST_TEST(report["fits"].size() == 3u);
  for (const auto& fit : report["fits"])
    if (fit["output"] == "page")
      for (const auto& cause : fit["causes"])
        if (cause["input"] == "load") {
          BOOST_TEST(std::abs(cause["strength"].get<double>() - 0.9) < 0.2);
          BOOST_TEST(std::abs(cause["delay"].get<double>() - 0.005) < 0.003);
        }
  // 20 s of 50 events a second are within, and none of their times
  BOOST_TEST(here.json(truth).size() < 4000u);
  BOOST_TEST(here.locked() < 0.5);
}

BOOST_AUTO_TEST_CASE(an_alarm_is_a_row_of_a_stream_that_is_taken_back) {
  events::Query query;
  query.output("out", query.source("alarms", alarm_schema()));
  query.set_consistency(events::Consistency::middle());
  int inserts = 0, retractions = 0;
  double raised = 0, ended = 0, now = 0;
  events::DirectRun run(query, [&](std::size_t, const events::Batch& batch) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const events::Row row = batch.row(i);
      if (std::get<std::string>(row[0]) != "page") continue;
      if (batch.is_insert(i)) {
        ++inserts;
        if (raised == 0) raised = now;
      } else {
        ++retractions;
        ended = now;
      }
    }
  });
  NodeDependence here({});
  events::Time guarantee = events::kNever;
  follow(here, served(true), [&](double t) {
    now = t;
    events::Batch batch = here.take_alarms();
    for (std::size_t i = 0; i < batch.size(); ++i) BOOST_TEST(batch.sync(i) > guarantee);
    BOOST_TEST(batch.guarantee >= guarantee);
    guarantee = batch.guarantee;
    run.feed("alarms", std::move(batch));
  });
  BOOST_TEST_MESSAGE("raised at " << raised << " s, ended at " << ended << " s");
  BOOST_TEST(raised > 60);
  BOOST_TEST(raised < 65);
  BOOST_TEST(inserts >= 1);
  BOOST_TEST(retractions == inserts);
  BOOST_TEST(ended > 70);
  for (const events::Counters& c : run.counters()) BOOST_TEST(c.refused == 0u, c.name);
}

BOOST_AUTO_TEST_CASE(fits_of_channels_that_are_gone_end_with_their_alarms) {
  NodeDependence here({.window = 10, .test_every = 2});
  std::vector<ChannelEvent> all = served(true);
  std::erase_if(all, [](const ChannelEvent& e) { return e.at > ns(68); });
  Simulation later(9, kEnd);
  for (const double t : later.poisson(30))
    if (t > 68) all.push_back({"next", ns(t)});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  std::size_t most = 0;
  follow(here, all, [&](double) { most = std::max(most, here.open_alarms()); });
  BOOST_TEST(most > 0u);
  BOOST_TEST(here.open_alarms() == 0u);
  BOOST_TEST((here.channels() == std::vector<std::string>{"next"}));
}

BOOST_AUTO_TEST_CASE(names_of_channels_that_are_gone_are_dropped) {
  const auto add = [](NodeDependence& here, double from, double until) {
    std::vector<ChannelEvent> part;
    for (double t = from; t < until; t += 0.01) {
      part.push_back({"plan " + std::to_string(std::lround(t * 100)), ns(t)});
      for (const char* const kept : {"load", "page"}) part.push_back({kept, ns(t + 0.002)});
    }
    here.add(part, ns(until));
  };
  NodeDependence bounded({.window = 5, .test_every = 1, .most_names = 50});
  NodeDependence whole({.window = 5, .test_every = 1, .most_names = 100'000});
  std::size_t most = 0;
  for (double t = 0; t < 30; t += 0.5) {
    add(bounded, t, t + 0.5);
    add(whole, t, t + 0.5);
    most = std::max(most, bounded.known_channels());
  }
  // a name each 10 ms; the window has 500, and a test comes each second
  BOOST_TEST(most < 700u);
  BOOST_TEST(whole.known_channels() == 3002u);
  BOOST_TEST(bounded.knows("load"));
  BOOST_TEST(!bounded.knows("plan 1"));
  // new numbers change no result
  BOOST_TEST(bounded.json({}) == whole.json({}));
}

BOOST_AUTO_TEST_CASE(steps_lock_the_channels_of_a_training) {
  NodeDependence here({});
  std::vector<ChannelEvent> all;
  for (int step = 1; step < 900; ++step)
    for (int k = 0; k < 4; ++k)
      all.push_back({std::string(1, static_cast<char>('a' + k)), ns(0.1 * step + 0.01 * k)});
  follow(here, all, [](double) {});
  BOOST_TEST(here.locked() == 1.0);
}

BOOST_AUTO_TEST_CASE(the_plan_has_the_true_causes) {
  // 0 ─► 1 ─► 2 on a; 2 ─cut─► 3 on b; 3 ─cut─► 4 on a; 1 is no channel
  detail::PlanDescription plan;
  for (const char* device :
       {"/node:a/cpu:0", "/node:a/cpu:0", "/node:a/cpu:0", "/node:b/cpu:0", "/node:a/cpu:0"})
    plan.actors.emplace_back().device = device;
  const auto edge = [&](int from, int to, bool is_cut) {
    detail::EdgeDescription& e = plan.edges.emplace_back();
    e.from = from, e.to = to, e.is_cut = is_cut;
  };
  edge(0, 1, false), edge(1, 2, false), edge(2, 3, true), edge(3, 4, true);
  const std::map<ChannelPlace, std::string> channels{{{0, 'k'}, "zero"},
                                                     {{2, 'k'}, "two"},
                                                     {{2, 's'}, "send two"},
                                                     {{3, 'r'}, "receive three"},
                                                     {{4, 'k'}, "four"}};
  BOOST_TEST((plan_truth(plan, "a", channels) ==
              Edges{{"zero", "two"}, {"two", "send two"}, {"receive three", "four"}}));
  BOOST_TEST((plan_truth(plan, "b", {{{2, 'r'}, "r"}, {{3, 'k'}, "k"}, {{3, 's'}, "s"}}) ==
              Edges{{"r", "k"}, {"k", "s"}}));
}

BOOST_AUTO_TEST_SUITE_END()
