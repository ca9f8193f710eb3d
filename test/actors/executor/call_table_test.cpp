// Slots and numbers of calls to functions that lie in several partitions.
#include <troupe/actors/executor/call_table.hpp>

#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(call_table_test)

namespace {

constexpr std::int32_t kFunction = 1, kDepth = 3;

}  // namespace

BOOST_AUTO_TEST_CASE(free_slot_ends_after_as_many_calls_as_a_depth_has) {
  CallTable calls;
  calls.start(2, kDepth, 0);
  FrameState instance;
  std::set<std::int64_t> numbers;
  for (std::int32_t k = 0; k < Plan::kCalls; ++k) {
    std::int64_t call = -1;
    CallSlot* slot = calls.free_slot(kFunction, 2, call);
    BOOST_REQUIRE(slot);
    BOOST_TEST(CallTable::depth_of(call) == 2);
    BOOST_TEST(CallTable::calls_before(call) == 0);
    BOOST_TEST(calls.slot_of(kFunction, call) == slot);
    slot->open = &instance;
    numbers.insert(call);
  }
  BOOST_TEST(numbers.size() == static_cast<std::size_t>(Plan::kCalls));
  std::int64_t call = -1;
  BOOST_TEST(!calls.free_slot(kFunction, 2, call));
  BOOST_TEST(calls.free_slot(kFunction, 1, call));  // a call at another depth
}

BOOST_AUTO_TEST_CASE(number_of_a_call_is_never_used_again) {
  CallTable calls;
  calls.start(2, kDepth, 0);
  FrameState instance;
  std::int64_t first = -1, second = -1;
  CallSlot* slot = calls.free_slot(kFunction, 1, first);
  slot->open = &instance;
  slot->end();
  BOOST_TEST(!slot->open);
  BOOST_TEST(calls.free_slot(kFunction, 1, second) == slot);
  BOOST_TEST(first != second);
  BOOST_TEST(CallTable::calls_before(second) == 1);
  calls.clear();  // the run has ended: the next one begins with the same numbers
  BOOST_TEST(calls.free_slot(kFunction, 1, second) == slot);
  BOOST_TEST(first == second);
}

BOOST_AUTO_TEST_CASE(slot_of_a_call_that_is_too_deep_is_null) {
  CallTable calls;
  calls.start(2, kDepth, 0);
  BOOST_TEST(calls.slot_of(kFunction, kDepth * std::int64_t{Plan::kCalls} - 1));
  BOOST_TEST(!calls.slot_of(kFunction, kDepth * std::int64_t{Plan::kCalls}));
}

BOOST_AUTO_TEST_CASE(unblock_passes_the_first_that_fits_or_all) {
  CallTable calls;
  calls.start(2, kDepth, 0);
  PlanNode nodes[4];
  for (std::int32_t i = 0; i < 4; ++i) {
    nodes[i].number = i;
    calls.block({nullptr, &nodes[i]});
  }
  std::vector<std::int32_t> enabled;
  const auto is_odd = [](const ReadyNode& call) { return call.node->number % 2 == 1; };
  const auto enable = [&](const ReadyNode& call) { enabled.push_back(call.node->number); };
  calls.unblock(false, is_odd, enable);
  BOOST_TEST((enabled == std::vector<std::int32_t>{1}));
  BOOST_TEST(calls.blocked().size() == 3u);
  calls.unblock(true, is_odd, enable);
  BOOST_TEST((enabled == std::vector<std::int32_t>{1, 0, 2, 3}));
  BOOST_TEST(calls.blocked().empty());
}

BOOST_AUTO_TEST_CASE(peers_are_over_when_each_has_sent_over_once) {
  CallTable calls;
  calls.start(2, kDepth, 2);
  BOOST_TEST(!calls.are_all_over());
  BOOST_TEST(calls.note_over(0));
  BOOST_TEST(!calls.note_over(0));  // a faulty peer sends it twice
  BOOST_TEST(calls.is_over(0));
  BOOST_TEST(!calls.is_over(1));
  BOOST_TEST(calls.note_over(1));
  BOOST_TEST(calls.are_all_over());
  calls.start(2, kDepth, 2);
  BOOST_TEST(!calls.are_all_over());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
