// Not under tsan: it computes on one thread; the executor runs elsewhere.
// Random programs as C++ code on an eager scope, at once and as traced functions: values against
// the oracle, bits against the interpreter of their graphs, gradients of tapes. Prints its seeds.
//
//   TROUPE_SEED=7 test_controlflow --run_test=random_eager_test               # one program
//
// A failing program is shrunk and printed. A build tries few; `scripts/check --long eager-20000`
// tries many.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/eager_runs.hpp>
#include <troupe/test/support/programs/random_programs.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(random_eager_test)

namespace {

// The share that builds try: a program runs in up to nine ways.
constexpr std::uint64_t kShareHere = 10 * kShare;

void compare_tapes(Seeds s, int order) {
  std::uint64_t compared = 0;
  int failed = 0;
  const Check check = [order](const Recipe& r, const Way& way) {
    return tape_difference(r, way, order);
  };
  for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
    Watch watch(seed);
    Tastes tastes = eager_tastes();
    tastes.is_smooth = true;
    const Recipe r = random_recipe(seed, tastes);
    bool is_fit = true;
    for (const Way& way : eager_ways()) {
      if (!is_due(eager_ways(), static_cast<std::size_t>(&way - eager_ways().data()), seed))
        continue;
      std::optional<std::string> wrong;
      try {
        wrong = check(r, way);
      } catch (const Unfit&) {
        is_fit = false;
        break;
      }
      if (!wrong) continue;
      ++failed;
      report(r, way, *wrong, check);
      break;
    }
    compared += is_fit;
  }
  // programs without a real input are rare
  if (s.count >= 50) BOOST_TEST(compared >= s.count * 4 / 5);
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_are_the_oracles_and_the_interpreters) {
  compare_values(eager_ways(), seeds(900, kShareHere), eager_tastes(), eager_difference);
}

BOOST_AUTO_TEST_CASE(errors_are_the_oracles) {
  Tastes tastes = eager_tastes();
  tastes.may_fail = true;
  compare_values(eager_ways(), seeds(300, kShareHere), tastes, eager_difference);
}

BOOST_AUTO_TEST_CASE(gradients_of_tapes_are_those_of_the_graph) {
  compare_tapes(seeds(300, kShareHere), 1);
}

BOOST_AUTO_TEST_CASE(second_derivatives_are_those_of_the_graph) {
  compare_tapes(seeds(90, kShareHere), 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
