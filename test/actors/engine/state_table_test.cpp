// The state table: stores by owner, and homes of variables by name.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include <troupe/actors/engine/state_table.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(state_table_test, TROUPE_ONE_THREAD)

namespace {

StateSpec variable_on(const std::string& name, const std::string& device = {}) {
  StateSpec spec;
  spec.name = name;
  spec.values = {{DType::f32, {}}};
  spec.initial = Initializer::constant(3);
  spec.device = device;
  return spec;
}

const StateOwner kFirst{{}, 1}, kSecond{{}, 2};

}  // namespace

BOOST_AUTO_TEST_CASE(owner_has_one_store_until_it_is_dropped) {
  StateTable states(nullptr);
  BOOST_TEST(!states.has_others());
  const StateTable::Others first = states.of(kFirst);
  BOOST_TEST(first.number == 1u);
  BOOST_TEST(states.of(kFirst).store == first.store);
  BOOST_TEST(states.of(kSecond).number == 2u);
  first.store->get(variable_on("v"));
  BOOST_TEST(states.drop([](const StateOwner& o) { return o == kFirst; }) == 1u);
  BOOST_TEST(!states.has(kFirst));
  BOOST_TEST(states.has(kSecond));
  BOOST_TEST(states.of(kFirst).number == 3u);  // another store
  BOOST_TEST(variable_value(*first.store, "v").at(0) == 3);
}

// A run that is still to end may wait in a store that was dropped.
BOOST_AUTO_TEST_CASE(dropped_store_is_listed_while_a_plan_keeps_it) {
  StateTable states(nullptr);
  std::shared_ptr<StateStore> kept = states.of(kFirst).store;
  states.of(kSecond);
  states.drop([](const StateOwner&) { return true; });
  const auto lists = [&](const StateStore* store) {
    const auto all = states.all();
    return std::any_of(all.begin(), all.end(), [&](const auto& s) { return s.get() == store; });
  };
  BOOST_TEST(states.all().size() == 2u);
  BOOST_TEST(lists(&states.own()));
  BOOST_TEST(lists(kept.get()));
  kept.reset();
  BOOST_TEST(states.all().size() == 1u);
}

BOOST_AUTO_TEST_CASE(variable_is_found_on_the_node_that_has_it) {
  StateTable states(nullptr);
  const std::vector<NodeLabels> there{{"a", {}}, {"b", {}}, {"c", {}}};
  StateSpec home;
  BOOST_TEST(!states.find_elsewhere("v", "a", there, home));
  states.settle(variable_on("v", "/node:b/cpu:0"));
  BOOST_TEST(states.find_elsewhere("v", "a", there, home));
  BOOST_TEST(home.device == "/node:b/cpu:0");
  BOOST_TEST(!states.find_elsewhere("v", "b", there, home));
  BOOST_TEST(states.homes().at("v") == "/node:b/cpu:0");

  states.settle(variable_on("v", "/node:c/cpu:0"));
  const std::string why =
      refusal([&] { states.find_elsewhere("v", "a", there, home); }, Code::failed_precondition);
  BOOST_TEST(why.find("a variable 'v' on each of the nodes b, c") != std::string::npos, why);
  // b has left
  BOOST_TEST(states.find_elsewhere("v", "a", {{"a", {}}, {"c", {}}}, home));
  BOOST_TEST(home.device == "/node:c/cpu:0");
}

BOOST_AUTO_TEST_CASE(variables_are_listed_once_and_in_order) {
  StateTable states(nullptr);
  states.own().get(variable_on("b"));
  states.settle(variable_on("b", "/node:x/cpu:0"));
  states.settle(variable_on("a", "/node:y/cpu:0"));
  const std::vector<std::string> names{"a", "b"};
  BOOST_TEST(states.variables() == names, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_of_variables_are_read_and_replaced) {
  StateTable states(nullptr);
  states.own().get(variable_on("v"));
  replace_variable(states.own(), "v", Tensor::scalar(5.f));
  BOOST_TEST(variable_value(states.own(), "v").at(0) == 5);
  BOOST_TEST(refusal([&] { variable_value(states.own(), "w"); }, Code::not_found) ==
             "the engine has no variable 'w'");
  const std::string why = refusal([&] { replace_variable(states.own(), "v", Tensor::scalar(5.0)); },
                                  Code::invalid_argument);
  BOOST_TEST(why.starts_with("variable 'v': "), why);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
