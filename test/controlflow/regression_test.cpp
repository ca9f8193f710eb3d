// Programs that once went wrong, found by random_programs_test and made small.
#include <boost/test/unit_test.hpp>

#include <troupe/test/controlflow/everywhere.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

using V = std::vector<double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(regression_test)

// A second read after a write did not wait for it: the first read stood in the write's place.
BOOST_AUTO_TEST_CASE(every_read_after_a_write_sees_it) {
  everywhere([](Graph& g) -> Scenario {
    Variable v = g.variable("v", Tensor::scalar(1.f));
    Expr i = while_loop([](Expr n) { return n < 3; },
                        [&](Expr n) {
                          v.read();
                          v.assign(v.read() * 0.5 + 1.0);
                          return n + 1;
                        },
                        g.constant(0));
    auto last = g.after({i});
    return {{}, {v.read()}};
  }, {V{1.875}}, 1);
  everywhere([](Graph& g) -> Scenario {
    Variable v = g.variable("v", Tensor::scalar(0.f));
    // What is assigned takes long to come: a read that does not wait is faster.
    Expr late = while_loop([](Expr n) { return n < 20.0; }, [](Expr n) { return n + 1.0; }, g.constant(0.f));
    Expr set = v.assign_add(late), first = v.read(), second = v.read();
    return {{}, {set, first, second}};
  }, {V{20}, V{20}, V{20}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
