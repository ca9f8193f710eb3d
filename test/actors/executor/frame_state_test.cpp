// Frame states: the free lists of instances and iterations, and the order of iterations.
#include <troupe/actors/executor/frame_state.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/executor/run_state.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(frame_state_test)

namespace {

/// The outside, loop 'a' with an iteration window of 3 in it, and loop 'b' in that.
PartitionPlan nested_loops() {
  PartitionPlan plan;
  plan.frames.resize(3);
  for (std::int32_t f = 1; f < 3; ++f) {
    FramePlan& frame = plan.frames[static_cast<std::size_t>(f)];
    frame.name = f == 1 ? "a" : "b";
    frame.key = static_cast<std::uint64_t>(f);
    frame.parent = f - 1;
    frame.depth = f;
    frame.window = 3;
    frame.invariants = 1;
    frame.slots = 2;
    plan.frames[static_cast<std::size_t>(f) - 1].children = 1;
  }
  return plan;
}

struct Fixture {
  PartitionPlan plan = nested_loops();
  FramePool frames{plan};
  RunState run;
  FrameState& root = frames.take_root(nullptr, run);
  IterationState& outside = frames.take_iteration(root);
};

}  // namespace

BOOST_AUTO_TEST_CASE(instance_has_a_ring_for_its_window) {
  Fixture f;
  FrameState& a = f.frames.take(f.outside, 1, 7);
  BOOST_TEST(a.ring.size() == 4u);  // a power of two
  BOOST_TEST(a.parent == &f.outside);
  BOOST_TEST(a.run_state == &f.run);
  BOOST_TEST(a.counted == 7u);
  IterationState& first = f.frames.take_iteration(a);
  IterationState& second = f.frames.take_iteration(a);
  BOOST_TEST(first.number == 0);
  BOOST_TEST(second.number == 1);
  BOOST_TEST(a.opened == 2);
  BOOST_TEST(a.at(1) == &second);
  BOOST_TEST(first.tag != second.tag);
}

BOOST_AUTO_TEST_CASE(states_are_used_again_and_forget_their_run) {
  Fixture f;
  FrameState& a = f.frames.take(f.outside, 1, 0);
  const std::uint64_t execution = a.execution;
  IterationState& first = f.frames.take_iteration(a);
  a.invariants[0] = Tensor::scalar(1.0f);
  a.exited.assign(a.exited.size(), 1);
  a.has_large = true;
  f.frames.give_back(first, a.number);
  f.frames.give_back(a);
  BOOST_TEST(!a.run_state);
  BOOST_TEST(!a.invariants[0].has_value());
  FrameState& again = f.frames.take(f.outside, 1, 0);
  BOOST_TEST(&again == &a);
  BOOST_TEST(again.execution != execution);
  BOOST_TEST(!again.has_large);
  BOOST_TEST(again.opened == 0);
  BOOST_TEST(&f.frames.take_iteration(again) == &first);
}

BOOST_AUTO_TEST_CASE(iterations_are_ordered_as_they_would_run) {
  Fixture f;
  FrameState& a = f.frames.take(f.outside, 1, 0);
  IterationState& a0 = f.frames.take_iteration(a);
  IterationState& a1 = f.frames.take_iteration(a);
  IterationState& in_a0 = f.frames.take_iteration(f.frames.take(a0, 2, 0));
  IterationState& in_a1 = f.frames.take_iteration(f.frames.take(a1, 2, 0));
  BOOST_TEST(compare_order(a0, a1) < 0);
  BOOST_TEST(compare_order(in_a1, in_a0) > 0);
  BOOST_TEST(compare_order(in_a0, a1) < 0);  // by the iteration around it
  BOOST_TEST(compare_order(in_a0, a0) > 0);  // the iteration around it comes first
  BOOST_TEST(compare_order(a0, a0) == 0);
  BOOST_TEST(is_oldest(in_a0));
  BOOST_TEST(!is_oldest(in_a1));
}

BOOST_AUTO_TEST_CASE(tag_and_path_name_the_iterations_around) {
  Fixture f;
  FrameState& a = f.frames.take(f.outside, 1, 0);
  f.frames.take_iteration(a);
  IterationState& a1 = f.frames.take_iteration(a);
  IterationState& b0 = f.frames.take_iteration(f.frames.take(a1, 2, 0));
  BOOST_TEST(tag_of(f.outside).empty());
  BOOST_TEST(tag_of(b0) == "iteration 1 of loop 'a', iteration 0 of loop 'b'");
  const Path path = path_to(b0);
  BOOST_TEST(path.depth == 2);
  BOOST_TEST(path.number[0] == 1);
  BOOST_TEST(path.number[1] == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
