// What a partition said before it went to a kernel of another run, while it is there.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <thread>

#include <troupe/ops/op.hpp>
#include <troupe/ops/reader.hpp>
#include <troupe/test/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe {

TROUPE_OP(TestStays) {
  op.doc("In its kernel until its run is cancelled, where it is told to stay.");
  op.inputs(1);
  op.side_effect();
  op.infer([](Inference& c) { c.output(DType::f32, Shape{}); });
  op.run([](KernelContext& c) {
    while (c.input(0).at(0) != 0 && !c.run().cancelled.load(std::memory_order_acquire)) std::this_thread::yield();
    c.set(0, Tensor::scalar(0.f));
  });
}

}  // namespace troupe

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(standing_test)

using namespace std::chrono_literals;

// On the real clock, and in one partition: whenever somebody looks it is in a kernel of the other run, and what it said before stands.
// But not once the queue was filled, which that partition cannot say either.
BOOST_AUTO_TEST_CASE(a_queue_that_nobody_fills_beside_a_kernel_of_a_run_of_the_same_plan) {
  EngineOptions two;
  two.workers = 2;
  Nodes nodes(1, two);
  Graph g;
  Queue jobs = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8);
  Expr stays = g.input("stays", DType::boolean, Shape{}), x = g.input("x", DType::f32, Shape{});
  Expr put = jobs.enqueue({x});
  Expr gate = stays.reader().bind(find_op("TestStays"), std::vector<Expr>{stays}, {}, std::source_location::current())[0];
  Function f = nodes.engine().compile(g, {stays}, {gate, g.named(jobs.dequeue()[0], "take")});
  // Some partition of some run is at that, as far as is known.
  const auto is_seen = [&](const auto& what) {
    const EngineSnapshot s = nodes.engine().snapshot();
    return std::any_of(s.runs.begin(), s.runs.end(), [&](const RunSnapshot& run) { return std::any_of(run.partitions.begin(), run.partitions.end(), what); });
  };
  RunHandle hanging = f.start({Tensor::scalar(false)});
  while (!is_seen([](const PartitionSnapshot& p) { return !p.runs.empty() && !p.runs[0].waits.empty() && p.runs[0].waits[0].state == "queue 'jobs'"; })) {}
  RunHandle computes = f.start({Tensor::scalar(true)});
  while (!is_seen([](const PartitionSnapshot& p) { return p.busy_with.starts_with("TestStays"); })) {}
  const auto began = std::chrono::steady_clock::now();
  std::vector<Verdict> all;
  while (all.empty() && std::chrono::steady_clock::now() - began < 20s) all = nodes[0].diagnose();
  BOOST_REQUIRE(all.size() == 1u);
  BOOST_TEST((all[0].kind == Verdict::Kind::waiting), all[0].text);
  BOOST_TEST(all[0].actor.starts_with("Dequeue 'take' (standing_test.cpp:"), all[0].actor);
  for (const char* part : {"on /node:a/cpu:0 has waited for ", "at queue 'jobs'"}) BOOST_TEST(all[0].text.find(part) != std::string::npos, all[0].text);
  nodes.engine().run(g, {{x, Tensor::scalar(3.0f)}}, {put});
  BOOST_TEST(nodes[0].diagnose().empty());
  computes.cancel();
  BOOST_TEST(hanging.get()[1].at(0) == 3.0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
