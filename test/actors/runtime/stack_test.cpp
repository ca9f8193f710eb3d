// Ready nodes wait on a stack: the newest on top, wherever it grew. Removing one from the middle
// leaves the rest in order.
#include <boost/test/unit_test.hpp>

#include <vector>

#include <troupe/actors/runtime/stack.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(stack_test, TROUPE_ONE_THREAD)

BOOST_AUTO_TEST_CASE(stack_has_the_last_element_on_top_and_keeps_all_when_growing) {
  Stack<int> stack;
  BOOST_TEST(stack.empty());
  for (int i = 0; i < 1000; ++i) stack.push_back(i);
  BOOST_TEST(stack.size() == 1000u);
  BOOST_TEST(std::vector<int>(stack.begin(), stack.end())[517] == 517);
  for (int i = 999; i >= 0; --i) {
    BOOST_TEST_REQUIRE(stack.back() == i);
    stack.pop_back();
  }
  BOOST_TEST(stack.empty());
}

BOOST_AUTO_TEST_CASE(memory_that_was_reserved_or_cleared_is_used_again) {
  Stack<int> stack;
  stack.reserve(100);
  stack.push_back(1);
  const int* const place = stack.begin();
  for (int i = 0; i < 99; ++i) stack.push_back(i);
  stack.clear();
  BOOST_TEST(stack.empty());
  stack.reserve(50);
  stack.push_back(2);
  BOOST_TEST(stack.begin() == place);
}

BOOST_AUTO_TEST_CASE(stack_erase_keeps_the_order_of_the_others) {
  Stack<int> stack;
  for (int i = 0; i < 5; ++i) stack.push_back(i);
  stack.erase(stack.begin() + 1);
  stack.erase(stack.end() - 1);
  const std::vector<int> left(stack.begin(), stack.end()), expected = {0, 2, 3};
  BOOST_TEST(left == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
