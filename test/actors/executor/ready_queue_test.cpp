// The order in which a run's ready nodes fire.
#include <troupe/actors/executor/ready_queue.hpp>

#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/executor/frame_state.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(ready_queue_test)

namespace {

/// Iterations 0 to 2 of one execution of a loop, and nodes to fire in them.
struct Loop {
  Loop() {
    frame.depth = 1;
    instance.frame = &frame;
    instance.oldest = 0;
    for (std::int64_t n = 0; n < 3; ++n) {
      iterations[n].instance = &instance;
      iterations[n].number = n;
    }
    for (PlanNode& node : last) node.rank = PlanNode::Rank::last;
    first.rank = PlanNode::Rank::first;
  }
  FramePlan frame;
  FrameState instance;
  IterationState iterations[3];
  PlanNode usual[3], last[3], first, heavy;
};

std::vector<const PlanNode*> pop_all(ReadyQueue& queue) {
  std::vector<const PlanNode*> order;
  while (queue.has_next()) order.push_back(queue.pop().node);
  return order;
}

}  // namespace

BOOST_AUTO_TEST_CASE(pop_takes_the_newest_after_rank_first) {
  Loop loop;
  ReadyQueue queue;
  BOOST_TEST(queue.is_empty());
  queue.push({&loop.iterations[0], &loop.usual[0]});
  queue.push_apart({&loop.iterations[0], &loop.first});
  queue.push({&loop.iterations[0], &loop.usual[1]});
  BOOST_TEST(queue.size() == 3u);
  BOOST_TEST((pop_all(queue) ==
              std::vector<const PlanNode*>{&loop.first, &loop.usual[1], &loop.usual[0]}));
  BOOST_TEST(queue.is_empty());
}

BOOST_AUTO_TEST_CASE(deferred_nodes_are_ready_but_not_next) {
  Loop loop;
  ReadyQueue queue;
  queue.push_apart({&loop.iterations[0], &loop.heavy});
  queue.push_apart({&loop.iterations[0], &loop.last[0]});
  BOOST_TEST(!queue.has_next());
  BOOST_TEST(!queue.is_empty());
  BOOST_TEST(queue.heavy() == 1u);
  BOOST_TEST(queue.pop_heavy().node == &loop.heavy);
  queue.admit_last();
  BOOST_TEST((pop_all(queue) == std::vector<const PlanNode*>{&loop.last[0]}));
}

BOOST_AUTO_TEST_CASE(admit_last_takes_the_earliest_iteration) {
  Loop loop;
  ReadyQueue queue;
  for (const int n : {2, 0, 1}) queue.push_apart({&loop.iterations[n], &loop.last[n]});
  queue.admit_last();
  queue.admit_last();  // a usual node is ready: nothing more is admitted
  BOOST_TEST((pop_all(queue) == std::vector<const PlanNode*>{&loop.last[0]}));
  queue.admit_last();
  BOOST_TEST((pop_all(queue) == std::vector<const PlanNode*>{&loop.last[1]}));
}

BOOST_AUTO_TEST_CASE(rotate_brings_each_waiting_node_forward) {
  Loop loop;
  ReadyQueue queue;
  BOOST_TEST(!queue.rotate());
  for (const PlanNode& node : loop.usual) queue.push({&loop.iterations[0], &node});
  for (const PlanNode& node : loop.usual) {
    BOOST_TEST(queue.rotate());
    BOOST_TEST(queue.pop().node == &node);  // the oldest first, where `pop` alone takes the newest
  }
}

BOOST_AUTO_TEST_CASE(rotate_admits_rank_last_in_the_oldest_iteration_only) {
  Loop loop;
  ReadyQueue queue;
  queue.push({&loop.iterations[1], &loop.usual[0]});
  queue.push_apart({&loop.iterations[1], &loop.last[1]});
  BOOST_TEST(queue.rotate());
  BOOST_TEST(queue.pop().node == &loop.usual[0]);
  queue.push({&loop.iterations[1], &loop.usual[0]});
  loop.instance.oldest = 1;
  BOOST_TEST(queue.rotate());
  BOOST_TEST(queue.pop().node == &loop.last[1]);
}

BOOST_AUTO_TEST_CASE(each_and_clear_cover_all_ranks) {
  Loop loop;
  ReadyQueue queue;
  queue.push({&loop.iterations[0], &loop.usual[0]});
  queue.push_apart({&loop.iterations[0], &loop.first});
  queue.push_apart({&loop.iterations[0], &loop.last[0]});
  queue.push_apart({&loop.iterations[0], &loop.heavy});
  int count = 0;
  queue.each([&](const ReadyNode&) { ++count; });
  BOOST_TEST(count == 4);
  queue.clear();
  BOOST_TEST(queue.is_empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
