// Not under tsan: it has one thread.
// A model that follows its window, and alarms that are taken back.
#include <troupe/actors/dependence/online_fit.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/actors/dependence/simulate.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/test/actors/dependence/simulated.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

BOOST_AUTO_TEST_SUITE(online_fit_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe;
using namespace troupe::dependence;
using namespace troupe::test;

constexpr double kStallFrom = 120, kStallTo = 150, kOnlineEnd = 200;

/// Outputs of the input, but for a stall.
Arrivals with_stall() {
  Simulation sim(4, kOnlineEnd);
  std::mt19937_64 random(4);
  Arrivals all{{sim.poisson(5), sim.poisson(2)}, {}, kOnlineEnd};
  all.outputs = simulate_outputs(all, {0.2, {{0, 0.9, Delay::exponential(0.05)}}}, random);
  std::erase_if(all.outputs, [](double t) { return t > kStallFrom && t < kStallTo; });
  return all;
}

/// Feeds the events up to `end`, and calls `after(time)` after each.
template <class F>
void feed(OnlineFit& fit, const Arrivals& all, double end, F after) {
  std::vector<std::pair<double, int>> events;
  for (int j = 0; j < 2; ++j)
    for (const double t : all.inputs[static_cast<std::size_t>(j)]) events.emplace_back(t, j);
  for (const double t : all.outputs) events.emplace_back(t, 2);
  std::sort(events.begin(), events.end());
  for (const auto& [t, channel] : events) {
    if (t > end) break;
    if (channel == 2) fit.add_output(t);
    else fit.add_input(static_cast<std::size_t>(channel), t);
    after(t);
  }
}
}  // namespace

BOOST_AUTO_TEST_CASE(window_is_followed_with_warm_starts) {
  OnlineFit fit("page", {"load", "other"}, {.window = 40, .support = 0.5});
  int first = 0, fits = 0;
  double last = 0;
  feed(fit, with_stall(), 110, [&](double) {
    if (!fit.fit() || fit.fit()->log_likelihood == last) return;
    if (fits++ == 0) first = fit.fit()->iterations;
    last = fit.fit()->log_likelihood;
  });
  BOOST_TEST(fits >= 9);
  BOOST_TEST_MESSAGE("iterations cold " << first << ", warm " << fit.fit()->iterations);
  const CausalModel& model = fit.fit()->model;
  BOOST_TEST(std::abs(model.channels[0].weight - 0.9) < 0.2);
  BOOST_TEST(model.channels[1].weight < 0.2);
  BOOST_TEST(std::abs(model.channels[0].delay.mean() - 0.05) < 0.015);
  BOOST_TEST(!fit.has_alarm());
}

BOOST_AUTO_TEST_CASE(alarm_is_raised_and_taken_back) {
  OnlineFit fit("page", {"load", "other"}, {.support = 0.5});
  events::Query query;
  query.output("out", query.source("alarms", alarm_schema()));
  query.set_consistency(events::Consistency::strong());
  std::vector<events::Batch> out;
  events::DirectRun run(query, [&](std::size_t, const events::Batch& b) { out.push_back(b); });
  double raised = 0, ended = 0;
  events::Time guarantee = events::kNever;
  std::string change;
  feed(fit, with_stall(), kOnlineEnd, [&](double t) {
    events::Batch batch = fit.take_alarms();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      BOOST_TEST(batch.sync(i) > guarantee);
      if (batch.is_insert(i)) raised = t, change = std::get<std::string>(batch.row(i)[1]);
      else ended = t;
    }
    BOOST_TEST(batch.guarantee >= guarantee);
    guarantee = batch.guarantee;
    run.feed("alarms", std::move(batch));
  });
  run.finish();
  BOOST_TEST(raised > kStallFrom);
  BOOST_TEST(raised < kStallFrom + 8);
  BOOST_TEST(ended > kStallTo);
  BOOST_TEST(ended < kStallTo + 8);
  BOOST_TEST(change.starts_with("load: strength falls from 0."), change);
  // strong: one row, never revised, from near the stall's begin to near its end
  std::size_t rows = 0;
  for (const events::Batch& batch : out)
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!batch.is_insert(i)) continue;
      ++rows;
      BOOST_TEST(std::abs(static_cast<double>(batch.begin[i]) * 1e-9 - kStallFrom) < 3);
    }
  BOOST_TEST(rows == 1u);
  BOOST_TEST(!fit.has_alarm());
}

BOOST_AUTO_TEST_CASE(bad_input_is_refused) {
  BOOST_TEST(
      refusal([] { OnlineFit("a", {}, {.window = 1, .support = 2}); }, Code::invalid_argument) ==
      "a window of 1 s is not longer than the support of 2 s; use a longer window");
  OnlineFit fit("page", {"load"}, {});
  BOOST_TEST(refusal([&] { fit.add_input(1, 1); }, Code::not_found) ==
             "there is no input 1 of 'page'; it has 1");
  fit.add_input(0, 5);
  BOOST_TEST(refusal([&] { fit.add_output(4); }, Code::invalid_argument) ==
             "time goes back from 5 s to 4 s; give events in order");
  BOOST_TEST(!fit.fit().has_value());
  BOOST_TEST(fit.take_alarms().empty());
}

BOOST_AUTO_TEST_SUITE_END()
