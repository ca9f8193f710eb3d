// The run table: admission, the end of the engine, and runs whose time is up.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <memory>
#include <optional>

#include <troupe/actors/engine/run_table.hpp>
#include <troupe/test/support/fake_remote_plan.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(run_table_test)

namespace {

using std::chrono::nanoseconds;

struct Table {
  EngineClock clock{[](std::uint64_t) {}};
  RunTable runs;
  PlanActors troupe;
  explicit Table(int max_runs) : runs(max_runs, clock) {}
  Ref<Run> run() {
    Ref<Run> made(new Run(runs.next_id(), 0, 0, std::make_shared<const Plan>(), {}, 1));
    made->troupe = &troupe;
    return made;
  }
  Ref<Run> kept_run() {
    Ref<Run> made = run();
    runs.keep(made, runs.admit({}, {}));
    return made;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(slots_are_bounded_and_given_back) {
  Table t(2);
  std::optional<RunTable::Slot> first(t.runs.admit({}, {}));
  const RunTable::Slot second = t.runs.admit(nanoseconds(7), {});
  BOOST_TEST(second.left().count() == 7);
  BOOST_TEST(t.runs.in_flight() == 2u);
  BOOST_TEST(refusal([&] { t.runs.admit({}, {.is_worker = true}); }, Code::resource_exhausted) ==
             "2 runs are in flight, as many as EngineOptions::max_runs allows, and an actor cannot "
             "wait for one to end");
  refusal([&] { t.runs.admit(nanoseconds(1), {}); }, Code::deadline_exceeded);
  first.reset();
  BOOST_TEST(t.runs.in_flight() == 1u);
  const RunTable::Slot third = t.runs.admit({}, {.is_worker = true});
  BOOST_TEST(t.runs.in_flight() == 2u);
}

BOOST_AUTO_TEST_CASE(admission_takes_steps_until_there_is_room) {
  Table t(1);
  std::optional<RunTable::Slot> held(t.runs.admit({}, {}));
  int steps = 0;
  const RunTable::Slot slot = t.runs.admit({}, {.step = [&] {
                                             if (++steps == 3) held.reset();
                                           }});
  BOOST_TEST(steps == 3);
  BOOST_TEST(t.runs.in_flight() == 1u);
}

BOOST_AUTO_TEST_CASE(kept_run_holds_its_slot_until_it_is_forgotten) {
  Table t(1);
  const Ref<Run> run = t.kept_run();
  BOOST_TEST(t.runs.in_flight() == 1u);
  BOOST_TEST((t.runs.live().at(0).get() == run.get()));
  const Ref<Run> part = t.run();  // a part of another node's run is never refused
  t.runs.keep_part(part);
  BOOST_TEST(t.runs.in_flight() == 2u);
  BOOST_TEST((t.runs.live().at(1).get() == part.get()));
  t.runs.forget(*run);
  t.runs.forget(*part);
  BOOST_TEST(t.runs.in_flight() == 0u);
  BOOST_TEST(t.runs.is_empty());
}

BOOST_AUTO_TEST_CASE(closed_table_keeps_no_more_runs) {
  Table t(4);
  const Ref<Run> run = t.kept_run(), late = t.run();
  RunTable::Slot slot = t.runs.admit({}, {});
  BOOST_TEST(t.runs.close().size() == 1u);
  refusal([&] { t.runs.keep(late, std::move(slot)); }, Code::cancelled);
  refusal([&] { t.runs.keep_part(late); }, Code::cancelled);
  refusal([&] { t.runs.admit({}, {}); }, Code::cancelled);
  BOOST_TEST(t.runs.in_flight() == 1u);  // the slot of the run that was refused is back
  t.runs.forget(*run);
  t.runs.wait_until_empty();
}

BOOST_AUTO_TEST_CASE(expired_run_is_asked_once) {
  Table t(1);
  t.troupe.remote = std::make_shared<FakeRemotePlan>(1);
  const Ref<Run> run = t.kept_run();
  const std::uint64_t id = run->info().id;
  auto expired = t.runs.expire(id, [] {});
  BOOST_TEST(expired.has_value());
  BOOST_TEST(expired->is_new);
  BOOST_TEST(expired->nodes == 1u);
  BOOST_TEST(!t.runs.is_answered(id));
  RunSnapshot answer;
  answer.run = 5;
  BOOST_TEST(t.runs.add_answer(id, answer));
  BOOST_TEST(t.runs.is_answered(id));
  expired = t.runs.expire(id, [] {});
  BOOST_TEST(!expired->is_new);
  BOOST_TEST(expired->elsewhere.at(0).run == 5u);
  t.runs.forget(*run);
  BOOST_TEST(!t.runs.expire(id, [] {}).has_value());
  BOOST_TEST(!t.runs.add_answer(id, {}));
  BOOST_TEST(!t.runs.is_answered(id));
}

BOOST_AUTO_TEST_CASE(settled_run_does_not_expire) {
  Table t(1);
  const Ref<Run> run = t.kept_run();
  run->fail(Status(Code::aborted, "over"));
  BOOST_TEST(!t.runs.expire(run->info().id, [] {}).has_value());
  t.runs.forget(*run);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
