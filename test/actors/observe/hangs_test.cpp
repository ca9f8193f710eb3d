// Detects the runs that hang, by two looks at them: waiting actors are named, merely slow ones are
// not.
#include <boost/test/unit_test.hpp>

#include <set>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/stepped_run.hpp>
#include <troupe/test/support/text.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(hangs_test)

namespace {

using namespace std::chrono_literals;

/// One more partition of the run, which has answered.
PartitionSnapshot& answered(RunSnapshot& run, const char* device = "cpu:0") {
  PartitionSnapshot& p = run.partitions.emplace_back();
  p.device = device;
  p.has_answered = true;
  return p;
}

/// Time an actor has waited, its longest wait before, and whether the wait is too long.
struct Waited {
  std::chrono::nanoseconds now, longest;
  bool is_named;
};
constexpr Waited kWaited[] = {
    {500ms, 0ms, false}, {1500ms, 0ms, true}, {3000ms, 2000ms, false}, {5000ms, 2000ms, true}};

}  // namespace

BOOST_AUTO_TEST_CASE(a_hanging_run_is_distinguished_from_a_slow_one) {
  Graph g;
  Queue q = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr taken = g.named(q.dequeue()[0], "take");
  Expr y = taken * 2.0 + 1.0;
  SteppedRun of(g, {y});
  Engine& engine = of.engine;
  while (engine.take_step()) {}
  const EngineSnapshot before = engine.snapshot(), now = engine.snapshot();
  const std::vector<Diagnosis> said = find_hangs(before.runs, now.runs);
  BOOST_REQUIRE(said.size() == 1u);
  for (const char* part : {"Dequeue", "take", "hangs_test.cpp:", "queue 'empty'"})
    BOOST_TEST(has(said[0].text, part), said[0].text);
  BOOST_TEST(said[0].device == "cpu:0");
  BOOST_TEST(said[0].node >= 0);
  BOOST_TEST(find_hangs({}, now.runs).empty());  // begun since
}

// If each node is an actor, a Dequeue that was dispatched and has not begun waits for a worker,
// whatever is in its queue.
BOOST_AUTO_TEST_CASE(a_node_that_has_not_reached_its_queue_does_not_wait_there) {
  Graph g;
  Queue q = g.fifo_queue("filled", {{DType::f32, Shape{}}}, 2),
        empty = g.fifo_queue("empty", {{DType::f32, Shape{}}}, 2);
  Expr put = q.enqueue({g.constant(1.0f)});
  auto after = g.after({put});
  Expr taken = g.named(q.dequeue()[0], "take"), never = g.named(empty.dequeue()[0], "take_in_vain");
  SteppedRun of(g, {put, taken, never}, {},
                {.granularity = Granularity::op, .deterministic = true});
  Engine& engine = of.engine;
  bool was_handed_over = false, is_alone = false;
  do {
    const EngineSnapshot s = engine.snapshot();
    for (const PartitionSnapshot& p : s.runs.at(0).partitions)
      for (const RunPart& part : p.runs)
        for (const Wait& w : part.waits) {
          const bool is_in_vain = has(w.what, "take_in_vain");
          if (has(w.what, "Dequeue") && w.state.empty()) {
            was_handed_over = true;
            BOOST_TEST(has(joined(diagnose(s)), " waits for a worker"), joined(diagnose(s)));
          }
          BOOST_TEST((!w.is_alone || is_in_vain), w.what);
          is_alone = is_alone || (is_in_vain && w.is_alone);
        }
  } while (engine.take_step());
  BOOST_TEST(was_handed_over);
  BOOST_TEST(is_alone);
}

// The steps that a loop takes until it is in that iteration.
EngineSnapshot goes_to(Engine& engine, std::int64_t iteration) {
  EngineSnapshot s = engine.snapshot();
  while (s.runs.at(0).partitions.at(0).runs.empty() ||
         s.runs[0].partitions[0].runs[0].loops.empty() ||
         s.runs[0].partitions[0].runs[0].loops.back().last < iteration) {
    engine.take_step();
    s = engine.snapshot();
  }
  return s;
}

// Two looks at one run of a loop that makes progress, in those iterations, name no actor.
void nobody_hangs(Engine& engine, const Function& loops, std::int64_t earlier, std::int64_t later) {
  RunHandle run = loops.start({});
  const EngineSnapshot before = goes_to(engine, earlier), now = goes_to(engine, later);
  BOOST_TEST(find_hangs(before.runs, now.runs).empty());
  run.cancel();
  while (engine.take_step()) {}
}

BOOST_AUTO_TEST_CASE(a_loop_with_repeating_values_is_named) {
  Graph g;
  Expr last = while_loop([](Expr i) { return i >= 0; }, [](Expr i) { return maximum(i, 1); },
                         g.constant(0), {.name = "forever"});
  SteppedRun of(g, {last});
  const EngineSnapshot early = goes_to(of.engine, 1000), later = goes_to(of.engine, 3000);
  const std::vector<Diagnosis> said = find_hangs(early.runs, later.runs);
  BOOST_REQUIRE(said.size() == 1u);
  for (const char* part : {"loop 'forever/1'", "GreaterEqual", "hangs_test.cpp:"})
    BOOST_TEST(has(said[0].text, part), said[0].text);
}

BOOST_AUTO_TEST_CASE(a_loop_without_progress_of_its_predicate_is_named) {
  Graph g;
  Expr away = while_loop([](Expr x) { return x >= 0.0f; }, [](Expr x) { return x * 1.0001f; },
                         g.constant(1.0f), {.name = "away"});
  {
    SteppedRun of(g, {away});
    goes_to(of.engine, 1000);  // from then on a resident loop's comparison is observed
    const EngineSnapshot early = goes_to(of.engine, 5000), later = goes_to(of.engine, 9000);
    BOOST_TEST(find_hangs(early.runs, later.runs).size() == 1u);
  }

  Graph h;
  Expr near = while_loop([](Expr i) { return i < 100'000'000; }, [](Expr i) { return i + 1; },
                         h.constant(0), {.name = "near"});
  Engine engine({.deterministic = true});
  nobody_hangs(engine, engine.compile(h, {}, {near}), 3000, 120'000);
}

// Comparisons in one execution of a loop prove nothing about another's: two runs of one plan share
// the partition.
BOOST_AUTO_TEST_CASE(two_runs_of_one_plan_are_distinguished) {
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{}), d = g.input("d", DType::i64, Shape{});
  Expr last = while_loop([&](Expr i) { return i < n; }, [&](Expr i) { return i + d; },
                         g.constant(std::int64_t{0}), {.name = "count"});
  // All of the runs are in that iteration, at least.
  const auto go = [](Engine& engine, std::int64_t iteration) {
    for (;;) {
      EngineSnapshot s = engine.snapshot();
      const auto is_there = [&](const RunSnapshot& run) {
        const auto& parts = run.partitions.at(0).runs;
        return !parts.empty() && !parts[0].loops.empty() && parts[0].loops[0].last >= iteration;
      };
      if (std::all_of(s.runs.begin(), s.runs.end(), is_there)) return s;
      engine.take_step();
    }
  };
  const auto counts = [](std::int64_t to, std::int64_t by) {
    return std::vector<Tensor>{Tensor::scalar(to), Tensor::scalar(by)};
  };
  {  // both get on
    Engine engine({.deterministic = true});
    Function f = engine.compile(g, {n, d}, {last});
    RunHandle one = f.start(counts(1'000'000'000, 1)), two = f.start(counts(2'000'000'000, 1));
    const EngineSnapshot early = go(engine, 3000), late = go(engine, 120'000),
                         later = go(engine, 125'000);
    BOOST_TEST(early.runs.size() == 2u);
    BOOST_TEST(find_hangs(early.runs, late.runs).empty());
    BOOST_TEST(find_hangs(late.runs, later.runs).empty());
    one.cancel(), two.cancel();
    while (engine.take_step()) {}
  }
  {  // one does not; others begin and end before each look
    Engine engine({.deterministic = true});
    Function f = engine.compile(g, {n, d}, {last});
    RunHandle endless = f.start(counts(1, 0));
    const EngineSnapshot early = go(engine, 3000);
    go(engine, 12'000);
    for (int i = 0; i < 1000; ++i) engine.take_step();  // until nothing is observed any more
    RunHandle quick = f.start(counts(1, 1));
    while (!quick.is_done()) engine.take_step();
    const std::vector<Diagnosis> said = find_hangs(early.runs, engine.snapshot().runs);
    BOOST_REQUIRE(said.size() == 1u);
    BOOST_TEST(has(said[0].text, "loop 'count/1' on cpu:0 is in iteration "), said[0].text);
    endless.cancel();
    while (engine.take_step()) {}
  }
}

// Truths are no numbers that come nearer to each other, nor is what a predicate computes its result
// from.
BOOST_AUTO_TEST_CASE(a_predicate_that_compares_no_numbers_is_not_observed) {
  Graph g;
  const auto both = [](Expr i) { return logical_and(i < 100'000'000, i >= 0); };
  const auto negated = [](Expr i) { return -i > -100'000'000; };
  Engine engine({.deterministic = true});
  for (const bool is_negated : {false, true}) {
    Expr last = while_loop([&](Expr i) { return is_negated ? negated(i) : both(i); },
                           [](Expr i) { return i + 1; }, g.constant(0), {.name = "far"});
    for (const bool optimize : {false, true}) {
      nobody_hangs(engine, engine.compile(g, {}, {last}, {.optimize = optimize}), 3000, 12'000);
    }
  }
}

// The inner loop begins and ends in every iteration of the outer one, whose predicate compares
// numbers that go away from each other.
BOOST_AUTO_TEST_CASE(an_outer_loop_around_a_loop_that_ends_is_named) {
  RunSnapshot run;
  PartitionSnapshot& p = answered(run);
  const auto compares = [](Comparison::Relation relation, std::int64_t at, double left,
                           double right) {
    Comparison c;
    c.relation = relation, c.course = Comparison::Course::one_way, c.at = at, c.left = left,
    c.right = right, c.has_step = true, c.left_step = 0.5;
    return Decision{{{Decision::Term::Kind::compares, 0}}, {c}};
  };
  OpenLoop outer{"outer", "", "GreaterEqual 'g' (model.cpp:7)",
                 6,       1,  3000,
                 3000,    32, compares(Comparison::Relation::ge, 3000, 1, 0)};
  OpenLoop inner{
      "inner", "iteration 3000 of loop 'outer'",           "Less 'l' (model.cpp:8)", 7, 2, 1, 1,
      32,      compares(Comparison::Relation::lt, 1, 1, 2)};
  RunPart& part = p.runs.emplace_back();
  part.fired = 100'000, part.loops = {outer, inner};
  RunSnapshot later = run;
  RunPart& now = later.partitions[0].runs[0];
  now.fired = 400'000;
  now.loops[0].first = now.loops[0].last = now.loops[0].decision.comparisons[0].at = 12'000;
  now.loops[0].decision.comparisons[0].left = 2;
  now.loops[1].tag = "iteration 12000 of loop 'outer'", now.loops[1].execution = 1;
  const std::vector<Diagnosis> said = find_hangs({run}, {later});
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(has(said[0].text,
                 "loop 'outer' on cpu:0 is in iteration 12000 and goes on: GreaterEqual 'g' "
                 "(model.cpp:7) is still true, and comes no nearer to being false (2 >= 0)"),
             said[0].text);
  BOOST_TEST(said[0].tag == "iteration 12000 of loop 'outer'");
  now.loops[0].decision.comparisons[0].left = 0.5;  // it comes nearer
  BOOST_TEST(find_hangs({run}, {later}).empty());
  now.loops[0].decision.comparisons[0].left = 2;
  now.loops[0].execution = 2;  // another one
  BOOST_TEST(find_hangs({run}, {later}).empty());
}

// As an iteration window that is too small for its cycle leaves it: each keeps what the other waits
// for.
BOOST_AUTO_TEST_CASE(a_cycle_of_credits_names_its_edges) {
  RunSnapshot run;
  run.run = 1;
  for (const auto& [here, there] : {std::pair{"cpu:0", "cpu:1"}, std::pair{"cpu:1", "cpu:0"}}) {
    PartitionSnapshot& p = answered(run, here);
    Wait w;
    w.kind = Wait::Kind::grant;
    w.what = fmt::format("MatMul 'at_{}' (model.cpp:7)", here);
    w.tag = "iteration 4 of loop 'w'";
    w.from = there;
    p.runs.emplace_back().waits.push_back(w);
  }
  const std::vector<Diagnosis> said = find_hangs({run}, {run});
  BOOST_REQUIRE(said.size() == 2u);
  for (const char* part : {"cpu:0 keeps MatMul 'at_cpu:0' (model.cpp:7)",
                           "in iteration 4 of loop 'w'", "because cpu:1 has no room for it"})
    BOOST_TEST(has(said[0].text, part), said[0].text);
}

// A long kernel is no hang, and neither is an actor that waits for it.
BOOST_AUTO_TEST_CASE(a_computing_node_is_slow) {
  RunSnapshot run;
  PartitionSnapshot& p = answered(run);
  Wait w;
  w.what = "MatMul 'big' (model.cpp:7)";
  p.runs.emplace_back().waits.push_back(w);
  BOOST_TEST(find_hangs({run}, {run}).empty());
  p.runs[0].waits[0].state = "variable 'weights'";  // a state that the kernel reads or writes
  BOOST_TEST(find_hangs({run}, {run}).empty());
  p.runs[0].waits[0].state = {};
  p.runs[0].waits[0].kind = Wait::Kind::device;  // a kernel on a stream, whose result decides
  BOOST_TEST(find_hangs({run}, {run}).empty());
  p.runs[0].waits[0].kind = Wait::Kind::kernel;
  p.runs[0].waits[0].state = "actor 'simulator'";
  BOOST_TEST(find_hangs({run}, {run}).size() == 1u);
}

// A kernel's result may be put into the queue at which another part of its run waits.
BOOST_AUTO_TEST_CASE(a_wait_beside_a_kernel_of_the_same_run_is_slow) {
  RunSnapshot run;
  Wait takes, computes;
  takes.what = "Dequeue 'take' (model.cpp:9)", takes.state = "queue 'jobs'";
  computes.what = "MatMul 'big' (model.cpp:7)";
  PartitionSnapshot& p = answered(run);
  p.runs.emplace_back().waits = {takes, computes};
  BOOST_TEST(find_hangs({run}, {run}).empty());
  p.runs[0].waits = {takes};
  BOOST_TEST(find_hangs({run}, {run}).size() == 1u);
  // also one that cannot answer for its kernel
  PartitionSnapshot& busy = run.partitions.emplace_back();
  busy.device = "cpu:1";
  busy.busy_with = computes.what;
  BOOST_TEST(find_hangs({run}, {run}).empty());
  // A kernel of another run does not count.
  RunSnapshot other = run;
  other.run = 2;
  run.partitions.pop_back();
  const std::vector<Diagnosis> said = find_hangs({run, other}, {run, other});
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(said[0].run == run.run);
}

// An actor that waits for a token that no run can produce any more hangs, even if others of its run
// make progress or compute.
BOOST_AUTO_TEST_CASE(a_wait_at_a_queue_without_producer_hangs_beside_progress) {
  RunSnapshot before;
  before.run = 1;
  before.queues.filled = {"queue 'others'"};
  Wait takes;
  takes.what = "Dequeue 'take' (model.cpp:9)", takes.state = "queue 'jobs'", takes.node = 4,
  takes.tag = "iteration 2 of loop 'w'", takes.for_so_long = 3s, takes.is_alone = true;
  PartitionSnapshot& p = answered(before);
  p.runs.emplace_back().waits = {takes};
  RunSnapshot now = before;
  now.partitions[0].runs[0].fired = 1000;
  const auto said = find_hangs({before}, {now});
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(said[0].text ==
             "Dequeue 'take' (model.cpp:9) in iteration 2 of loop 'w' on cpu:0 has waited for 3.0 "
             "s at queue 'jobs', which nothing of this run will fill any more");
  const auto is_silent = [&](const RunSnapshot& then, const RunSnapshot& later,
                             std::vector<RunSnapshot> others, bool is_withheld) {
    std::set<RunId> withheld;
    std::vector<RunSnapshot> all{later};
    all.insert(all.end(), others.begin(), others.end());
    BOOST_TEST(find_hangs({then}, all, &withheld).empty());
    BOOST_TEST(withheld.contains(id_of(later)) == is_withheld);
  };
  // Another run that is under way may fill it; one that fills others, or empties this one, may not.
  RunSnapshot other;
  other.run = 2;
  other.queues.filled = {"queue 'jobs'", "queue 'others'"};
  is_silent(before, now, {other}, false);
  other.queues = {{"queue 'others'", "shuffling queue 'jobs'"}, {"queue 'jobs'"}};
  BOOST_TEST(find_hangs({before}, {now, other}).size() == 1u);
  // At the first look it waited elsewhere, or in another firing, or an actor could still fill the
  // queue.
  for (const auto change : {+[](Wait& w) { w.tag = "iteration 1 of loop 'w'"; },
                            +[](Wait& w) { w.node = 5; }, +[](Wait& w) { w.is_alone = false; }}) {
    RunSnapshot then = before;
    change(then.partitions[0].runs[0].waits[0]);
    is_silent(then, now, {}, false);
  }
  RunSnapshot may = now;
  may.partitions[0].runs[0].waits[0].is_alone = false;
  is_silent(before, may, {}, false);
  // A wait of a second is normal: later looks may decide.
  RunSnapshot young = now;
  young.partitions[0].runs[0].waits[0].for_so_long = 500ms;
  is_silent(before, young, {}, true);
  // Beside a kernel of its own run.
  Wait computes;
  computes.what = "MatMul 'big' (model.cpp:7)";
  RunSnapshot computing = before;
  computing.partitions[0].runs[0].waits.push_back(computes);
  BOOST_TEST(find_hangs({computing}, {computing}).size() == 1u);
  // An actor that waits for room waits for those that empty the queue.
  RunSnapshot full = before, later = now;
  for (RunSnapshot* run : {&full, &later}) {
    Wait& w = run->partitions[0].runs[0].waits[0];
    w.what = "Enqueue 'put' (model.cpp:9)", w.puts = true;
  }
  BOOST_TEST(
      has(find_hangs({full}, {later})[0].text, "which nothing of this run will empty any more"));
  is_silent(full, later, {other}, false);
}

// A partition's last report before it computes kernels of another run is as good as an answer, as
// long as no token can have arrived for it.
BOOST_AUTO_TEST_CASE(a_diagnosis_before_the_kernel_of_another_run_stays) {
  const auto named = [](const RunSnapshot& run, std::size_t count) {
    std::set<RunId> withheld;
    BOOST_TEST(find_hangs({run}, {run}, &withheld).size() == count);
    BOOST_TEST(withheld.contains(id_of(run)) == (count == 0));
  };
  RunSnapshot run;
  run.is_whole = true;
  PartitionSnapshot& p = run.partitions.emplace_back();
  p.device = "cpu:0";
  p.has_answered = p.is_busy_for_another = true;
  p.busy_with = "MatMul 'big' (model.cpp:7)";
  Wait takes;
  takes.what = "Dequeue 'take' (model.cpp:9)", takes.state = "queue 'jobs'", takes.for_so_long = 5s;
  p.runs.emplace_back().waits = {takes};
  named(run, 1);
  run.is_whole = false;
  named(run, 0);  // others may have sent something
  run.is_whole = true;
  PartitionSnapshot& other = answered(run, "cpu:1");
  Wait token;
  token.kind = Wait::Kind::token, token.what = "Add 'x' (model.cpp:8)", token.from = "cpu:0";
  other.runs.emplace_back().waits = {token};
  other.runs[0].sent = 1;
  named(run, 0);  // a message in flight, which may fill the queue
  run.partitions[0].runs[0].received = 1;
  named(run, 1);
  // All wait for each other.
  Wait back = token;
  back.from = "cpu:1";
  run.partitions[0].runs[0].waits = {back};
  named(run, 2);
  run.partitions[0].runs[0].received = 0;
  named(run, 0);
  run.partitions[0].runs[0].received = 1;
  run.partitions[0].runs[0].waits[0].kind = Wait::Kind::grant;
  named(run, 0);  // it may have come, which is not counted
}

// User code cannot be asked: twice as long as it ever took is a hang, and a second where it never
// answered.
BOOST_AUTO_TEST_CASE(a_user_s_actor_may_take_as_long_as_it_has) {
  RunSnapshot run;
  PartitionSnapshot& p = answered(run);
  Wait w;
  w.what = "Actor 'step' (model.cpp:7)";
  w.state = "actor 'simulator'";
  for (const auto& [for_so_long, longest, is_named] : kWaited) {
    w.for_so_long = for_so_long, w.longest = longest;
    p.runs.assign(1, {});
    p.runs[0].waits.push_back(w);
    BOOST_TEST(find_hangs({run}, {run}).empty() == !is_named);
  }
}

// An actor whose queue is filled slowly may wait as long as it has before and does not hang;
// neither does an actor that waits beside it, in its run.
BOOST_AUTO_TEST_CASE(a_wait_at_a_queue_may_last_as_long_as_earlier_ones) {
  RunSnapshot run;
  PartitionSnapshot& p = answered(run);
  for (const char* state : {"queue 'jobs'", "shuffling queue 'jobs'"})
    for (const auto& [for_so_long, longest, is_named] : kWaited) {
      Wait w, beside;
      w.what = "Dequeue 'take' (model.cpp:7)", beside.what = "Dequeue 'other' (model.cpp:8)";
      w.state = state, beside.state = "queue 'others'";
      w.for_so_long = for_so_long, w.longest = longest, beside.for_so_long = 1h;
      p.runs.assign(1, {});
      p.runs[0].waits = {w, beside};
      std::set<RunId> withheld;
      BOOST_TEST(find_hangs({run}, {run}, &withheld).size() == (is_named ? 2u : 0u));
      BOOST_TEST(withheld.contains(id_of(run)) == !is_named);
    }
}

// One question finds an actor that has just begun to wait: it looks again until the wait is longer
// than usual.
BOOST_AUTO_TEST_CASE(looks_go_on_while_a_wait_is_usual) {
  const auto look = [](std::chrono::nanoseconds at) {
    RunSnapshot run;
    PartitionSnapshot& p = answered(run);
    Wait w;
    w.what = "Dequeue 'take' (model.cpp:7)", w.state = "queue 'jobs'", w.for_so_long = at + 100ms;
    p.runs.emplace_back().waits = {w};
    return std::vector<RunSnapshot>{run};
  };
  HangDetector looks(400ms);
  std::chrono::nanoseconds at = 0ms;
  for (looks.add(look(at), at, at); looks.wants_more(); looks.add(look(at), at, at)) {
    BOOST_TEST(looks.verdicts().empty());
    at += looks.pause();
  }
  BOOST_TEST((at == 900ms));
  BOOST_REQUIRE(looks.verdicts().size() == 1u);
  BOOST_TEST(looks.verdicts()[0].actor == "Dequeue 'take' (model.cpp:7)");
}

// Bytes that arrive between two looks distinguish a slow link from a hang. They prove nothing about
// a queue that is never filled.
BOOST_AUTO_TEST_CASE(a_wait_for_a_large_token_is_slow_while_bytes_arrive) {
  RunSnapshot run;
  PartitionSnapshot& p = answered(run, "/node:a/cpu:0");
  Wait w;
  w.kind = Wait::Kind::token;
  w.what = "MatMul 'big' (model.cpp:7)";
  w.from = "/node:b/cpu:0";
  p.runs.emplace_back().waits.push_back(w);
  run.moved["b"] = 1 << 20;
  RunSnapshot later = run;
  BOOST_TEST(find_hangs({run}, {later}).size() == 1u);
  later.moved["b"] += (1 << 20) + 1;
  BOOST_TEST(find_hangs({run}, {later}).empty());
  // a link so slow that little came meanwhile, but much is to come
  later.moved["b"] = run.moved["b"] + 1;
  BOOST_TEST(find_hangs({run}, {later}).size() == 1u);
  later.to_move["b"] = 1 << 16;
  BOOST_TEST(find_hangs({run}, {later}).empty());
  later.moved["b"] = run.moved["b"];  // nothing came: it is cut off
  BOOST_TEST(find_hangs({run}, {later}).size() == 1u);
  later.to_move.clear();
  later.moved["b"] = run.moved["b"] + (1 << 20) + 1;
  // The run of these bytes is unknown; but all tokens that this one has sent have arrived.
  later.is_whole = true;
  run.partitions[0].runs[0].sent = later.partitions[0].runs[0].sent = 5;
  run.partitions[0].runs[0].received = later.partitions[0].runs[0].received = 4;
  BOOST_TEST(find_hangs({run}, {later}).empty());
  later.partitions[0].runs[0].received = 5;  // one has come meanwhile
  BOOST_TEST(find_hangs({run}, {later}).empty());
  run.partitions[0].runs[0].received = 5;
  BOOST_TEST(find_hangs({run}, {later}).size() == 1u);
  later.is_whole = false;  // its report on other runs is unknown
  BOOST_TEST(find_hangs({run}, {later}).empty());
  later.partitions[0].runs[0].waits[0].kind = Wait::Kind::kernel;
  later.partitions[0].runs[0].waits[0].state = "queue 'jobs'";
  later.partitions[0].runs[0].waits[0].from.clear();
  BOOST_TEST(find_hangs({run}, {later}).size() == 1u);
}

BOOST_AUTO_TEST_CASE(actor_that_blocks_a_worker_is_named_for_its_silent_partition) {
  RunSnapshot run;
  PartitionSnapshot& p = run.partitions.emplace_back();
  p.device = "cpu:0";
  Wait w;
  w.what = "Actor 'step' (model.cpp:7)";
  w.state = "actor 'simulator'";
  w.for_so_long = 3s;
  p.runs.emplace_back().waits.push_back(w);
  const std::vector<Diagnosis> said = find_hangs({run}, {run});
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(has(said[0].text,
                 "Actor 'step' (model.cpp:7) on cpu:0 has waited for 3.0 s for an answer of actor "
                 "'simulator'"),
             said[0].text);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
