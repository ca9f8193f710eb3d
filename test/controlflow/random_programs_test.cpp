// Random programs with nested control flow, run in every way and compared with the oracle. Prints
// its seeds.
//
//   TROUPE_SEED=7 test_controlflow --run_test=random_programs_test               # one program
//   TROUPE_SEED=7 TROUPE_PROGRAMS=5000 test_controlflow --run_test=random_programs_test
//
// A failing program is shrunk and printed.
#include <boost/test/unit_test.hpp>

#include <array>

#include <troupe/test/support/programs/gradient_check.hpp>
#include <troupe/test/support/programs/random_programs.hpp>
#include <troupe/test/support/programs/slope_check.hpp>

namespace troupe::test {

// These programs take half of ASan's time.
constexpr std::uint64_t kShareOfPrograms = kShare == 1 ? 3 : 20;

BOOST_AUTO_TEST_SUITE(random_programs_test)

BOOST_AUTO_TEST_CASE(values_are_the_oracles) {
  const Seeds s = seeds(2000, kShareOfPrograms);
  const int before = cut_functions();
  compare_values(ways(), s, {});
  BOOST_TEST_MESSAGE(cut_functions() - before
                     << " with a function over several devices, of one in ten");
  // with 150 programs, one run in fifty has none
  BOOST_TEST((s.count < 600 || cut_functions() > before));
}

BOOST_AUTO_TEST_CASE(errors_are_the_oracles) {
  compare_values(ways(), seeds(400, kShareOfPrograms), {.may_fail = true});
}

BOOST_AUTO_TEST_CASE(resident_loops_are_the_lowered_ones) {
  const Seeds s = seeds(1500, kShareOfPrograms);
  const int before = resident_loops();
  Tastes tastes{.may_fail = true, .variables = Use::none, .slopes = 0};
  for (const Way& way : ways()) {
    if (way.is_interpreter || way.lowers || !way.optimize || way.devices != Devices::none ||
        way.granularity == Granularity::op || way.device != "cpu:0")
      continue;
    int failed = 0;
    for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
      tastes.may_fail = seed % 3 == 0;
      tastes.variables = std::array{Use::none, Use::reads, Use::all}[seed / 3 % 3];
      Watch watch(seed);
      const Recipe r = random_recipe(seed, tastes);
      const auto wrong = difference_from_lowered(r, way);
      if (!wrong) continue;
      ++failed;
      report(r, way, *wrong,
             [](const Recipe& c, const Way& w) { return difference_from_lowered(c, w); });
    }
  }
  if (s.count >= 50) BOOST_TEST(resident_loops() > before);
  BOOST_TEST_MESSAGE(resident_loops() - before << " loops stayed whole");
}

BOOST_AUTO_TEST_CASE(a_run_that_is_cancelled_disturbs_no_other) {
  const Seeds s = seeds(200, kShareOfPrograms);
  const int before = cancelled_runs();
  compare_values(ways(), s, {.variables = Use::none}, difference_beside_cancelled);
  if (s.count >= 50) BOOST_TEST(cancelled_runs() > before);
}

BOOST_AUTO_TEST_CASE(gradients_are_the_oracles_differences) {
  const Seeds s = seeds(300, kShareOfPrograms);
  int compared = 0, with_variables = 0, failed = 0;
  for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
    Watch watch(seed);
    const Recipe r = random_recipe(seed, smooth_tastes());
    for (std::size_t w = 0; w < ways().size(); ++w) {
      if (ways()[w].is_interpreter || (seed + w) % 4 != 0) continue;
      std::optional<std::string> wrong;
      try {
        wrong = gradient_difference(r, ways()[w]);
      } catch (const Unfit&) { break; }
      ++compared;
      with_variables += !r.variables.empty();
      if (!wrong) continue;
      ++failed;
      report(r, ways()[w], *wrong, gradient_difference);
      break;
    }
  }
  if (s.count < 50) return;
  BOOST_TEST(compared > static_cast<int>(s.count));
  BOOST_TEST(with_variables > static_cast<int>(s.count) / 3);
}

BOOST_AUTO_TEST_CASE(inner_gradients_are_the_oracles_differences) {
  const Seeds s = seeds(600, kShareOfPrograms);
  Tastes tastes = smooth_tastes();
  tastes.slopes = 100;
  int compared = 0, failed = 0;
  for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
    Watch watch(seed);
    const Recipe r = random_recipe(seed, tastes);
    for (std::size_t w = 0; w < ways().size(); ++w) {
      if (ways()[w].is_interpreter || (seed + w) % 8 != 0) continue;
      std::optional<std::string> wrong;
      try {
        wrong = slope_difference(r, ways()[w]);
      } catch (const Unfit&) { break; }
      ++compared;
      if (!wrong) continue;
      ++failed;
      report(r, ways()[w], *wrong, slope_difference);
      break;
    }
  }
  BOOST_TEST_MESSAGE(compared << " compared");
  if (s.count >= 50) BOOST_TEST(compared > static_cast<int>(s.count) / 4);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
