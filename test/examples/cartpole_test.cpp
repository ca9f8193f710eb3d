// Not under asan and tsan: trainings take minutes there, on parts that other suites run.
// The cart-pole's physics against its equations of motion, and the example as a shell starts it.
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <troupe/apps/examples/cartpole/physics.hpp>
#include <troupe/test/support/process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(cartpole_test)

namespace {

using cartpole::Cart;

// Accelerations by the equations of motion themselves, two linear ones in two unknowns (a uniform
// rod on a hinge; F: the push):  (M + m) x'' + m l cos a a'' = F + m l a'^2 sin a;  cos a x'' + 4/3
// l a'' = g sin a.
Cart by_equations(const Cart& c, double force) {
  const double M = 1.0, m = 0.1, l = 0.5, g = 9.8, tick = 0.02;
  const double a11 = M + m, a12 = m * l * std::cos(c.angle),
               b1 = force + m * l * c.spin * c.spin * std::sin(c.angle);
  const double a21 = std::cos(c.angle), a22 = 4.0 / 3.0 * l, b2 = g * std::sin(c.angle);
  const double determinant = a11 * a22 - a12 * a21;
  return {c.position + tick * c.velocity, c.velocity + tick * (b1 * a22 - b2 * a12) / determinant,
          c.angle + tick * c.spin, c.spin + tick * (a11 * b2 - a21 * b1) / determinant};
}

void same(const Cart& a, const Cart& b) {
  for (auto part : {&Cart::position, &Cart::velocity, &Cart::angle, &Cart::spin})
    BOOST_TEST(std::abs(a.*part - b.*part) < 1e-12);
}

/// Returns the output without the speed, which varies from run to run.
std::string without_speed(const std::string& out) {
  std::string kept;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const bool has_speed = line.ends_with(" steps/s");
    kept += (has_speed ? line.substr(0, line.find("steps/s") - 10) : line) + "\n";
  }
  return kept;
}

Outcome cartpole_with(std::vector<std::string> arguments) {
  Folder folder;
  arguments.insert(arguments.begin(), example("cartpole"));
  return run(folder.path(), arguments);
}

void refuses(std::vector<std::string> arguments, const char* part) {
  Outcome o = cartpole_with(std::move(arguments));
  BOOST_TEST(o.code == 2, o.out << o.error);
  BOOST_TEST(
      (o.error.find(part) != std::string::npos && o.error.find("--help") != std::string::npos),
      o.error);
  BOOST_TEST(o.out.empty());
}

}  // namespace

using boost::unit_test::precondition;

BOOST_AUTO_TEST_CASE(a_tick_follows_the_equations_of_motion) {
  // From rest: x'' = 10 / 1.1 + 0.5 * 0.1 * 14.634... / 1.1 and a'' = -600 / 41, by hand.
  Cart pushed = Cart().pushed(true);
  same(pushed, {0, 0.02 * 400.0 / 41, 0, -0.02 * 600.0 / 41});
  same(Cart().pushed(false), {0, -0.02 * 400.0 / 41, 0, 0.02 * 600.0 / 41});
  for (const Cart& c :
       {Cart{0.3, -1.2, 0.15, 0.9}, Cart{-2.1, 0.4, -0.2, -2.5}, Cart{0.01, 3.0, 0.05, 1.0}})
    for (bool right : {false, true}) same(c.pushed(right), by_equations(c, right ? 10 : -10));
}

BOOST_AUTO_TEST_CASE(it_has_fallen_beyond_the_limits_only) {
  BOOST_TEST(!Cart().has_fallen());
  BOOST_TEST(!(Cart{2.4, 0, 0.2094, 0}).has_fallen());
  for (const Cart& c :
       {Cart{2.401, 0, 0, 0}, Cart{-2.401, 0, 0, 0}, Cart{0, 0, 0.2095, 0}, Cart{0, 0, -0.2095, 0}})
    BOOST_TEST(c.has_fallen());
}

BOOST_AUTO_TEST_CASE(it_learns_and_workers_change_nothing, *precondition(Built{"cartpole"})) {
  Outcome one =
      cartpole_with({"--seed", "3", "--goal", "60", "--episodes", "400", "--workers", "1"});
  BOOST_REQUIRE_MESSAGE(one.code == 0, one.out << one.error);
  BOOST_TEST((one.out.find("learnt to exceed 60") != std::string::npos), one.out);
  BOOST_TEST((one.out.find(" steps/s\n") != std::string::npos), one.out);
  for (const char* workers : {"2", "3"}) {
    Outcome other =
        cartpole_with({"--seed", "3", "--goal", "60", "--episodes", "400", "--workers", workers});
    BOOST_TEST(without_speed(other.out) == without_speed(one.out),
               workers << " workers differ from one");
  }
  Outcome another =
      cartpole_with({"--seed", "4", "--goal", "60", "--episodes", "400", "--workers", "1"});
  BOOST_TEST(without_speed(another.out) != without_speed(one.out), "the seed changes nothing");
}

BOOST_AUTO_TEST_CASE(a_goal_out_of_reach_is_reported, *precondition(Built{"cartpole"})) {
  Outcome o = cartpole_with({"--goal", "200", "--episodes", "10"});
  BOOST_TEST(o.code == 1, o.out << o.error);
  BOOST_TEST((o.out.find("did not exceed 200 after 10 episodes") != std::string::npos), o.out);
  o = cartpole_with({"--goal", "200", "--seconds", "0.001"});
  BOOST_TEST(o.code == 1, o.out << o.error);
  BOOST_TEST((o.out.find("did not exceed 200 after 50 episodes") != std::string::npos), o.out);
}

BOOST_AUTO_TEST_CASE(help_and_wrong_command_lines, *precondition(Built{"cartpole"})) {
  Outcome o = cartpole_with({"--help"});
  BOOST_TEST(o.code == 0);
  for (const char* option : {"--goal", "--episodes", "--seconds", "--seed", "--workers"})
    BOOST_TEST((o.out.find(option) != std::string::npos), option);
  refuses({"--learn-faster"}, "--learn-faster");
  refuses({"--episodes", "many"}, "many");
  refuses({"--episodes", "0"}, "--episodes");
  refuses({"--goal", "201"}, "--goal");
  refuses({"--seconds", "-1"}, "--seconds");
  refuses({"--workers"}, "--workers");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
