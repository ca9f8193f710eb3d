// Machine code against the interpreter of the same scalar code: every operation over special
// values, jumps, budgets, calls and errors.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/scalar/element_cursor.hpp>
#include <troupe/devices/scalar/machine_code.hpp>
#include <troupe/devices/scalar/scalar_translator.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(machine_code_test)

namespace {

// Cases without machine code are shown as skipped.
boost::test_tools::assertion_result is_available(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(MachineCode::why_not().empty());
  result.message() << MachineCode::why_not();
  return result;
}

struct None final : ScalarCalls {
  int call(std::int32_t) override { return 1; }
};

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> values{T(0), T(1), T(2), T(3), T(-1), T(-2), L::max(), L::lowest()};
  if constexpr (std::is_floating_point_v<T>)
    for (const T x : {-T(0), L::infinity(), -L::infinity(), L::quiet_NaN(), L::denorm_min(),
                      -L::denorm_min(), L::min(), L::epsilon(), T(0.1), T(-1e10), T(16777217)})
      values.push_back(x);
  return values;
}

// Equal in bits, but for the sign and payload of a NaN made of two.
template <class T>
bool is_same(T x, T y) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(x) && std::isnan(y)) return true;
  return std::memcmp(&x, &y, sizeof x) == 0;
}

template <class T>
T value_of(const ScalarFrame& frame, ScalarCode::Register r) {
  T value;
  std::memcpy(&value, frame.at(r), sizeof value);
  return value;
}

// Runs both forms until they halt, with pauses after `budget` jumps back. Returns the frames.
std::pair<ScalarFrame, ScalarFrame> both(const ScalarCode& code, std::int64_t budget = 1 << 20) {
  None none;
  std::pair<ScalarFrame, ScalarFrame> frames{ScalarFrame(code), ScalarFrame(code)};
  const auto machine = MachineCode::of(code);
  BOOST_REQUIRE(machine);
  for (;;) {
    const int interpreted = code.run(frames.first, budget, none);
    const int compiled = machine->run(frames.second, budget, none);
    BOOST_REQUIRE_EQUAL(interpreted, compiled);
    BOOST_REQUIRE_EQUAL(frames.first.place(), frames.second.place());
    if (interpreted != ScalarCode::kPaused) return frames;
  }
}

// One operation on all pairs of values. In a loop of two iterations operands and result have
// machine registers, outside of one they are in memory; the result lies in a register of its own,
// or in that of an operand.
template <class R, class T>
void compare_operation(ScalarOp op, DType result, DType operand) {
  const std::vector<T> values = special_values<T>();
  for (const bool in_loop : {false, true})
    for (int to = 0; to < 3; ++to) {
      ScalarCode code;
      const auto counter = code.add_register();
      const auto n = code.add_constant(Tensor::scalar(std::int64_t{1}));
      const auto one = code.add_constant(Tensor::scalar(std::int64_t{1}));
      std::vector<ScalarCode::Register> results;
      std::vector<std::pair<ScalarCode::Register, ScalarCode::Register>> operands;
      for (const T x : values)
        for (const T y : values) {
          const auto a = code.add_register(), b = code.add_register(), c = code.add_register();
          const auto k = code.add_register(), more = code.add_register();
          code.copy(a, code.add_constant(Tensor::scalar(x)));
          code.copy(b, code.add_constant(Tensor::scalar(y)));
          const auto target = to == 0 ? c : to == 1 ? a : b;
          code.set_zero(k);
          code.set_zero(counter);
          const auto top = code.here();
          code.add(op, result, operand, target, a, b);
          if (in_loop) {
            code.add(ScalarOp::add, DType::i64, DType::i64, k, k, one);
            code.add(ScalarOp::le, DType::boolean, DType::i64, more, k, n);
            code.again_if(more, top, counter);
          }
          results.push_back(target);
        }
      code.halt();
      if (to != 0 && in_loop && sizeof(R) != sizeof(T)) continue;  // a bool is no operand
      const auto [interpreted, compiled] = both(code);
      for (std::size_t i = 0; i < results.size(); ++i) {
        const R x = value_of<R>(interpreted, results[i]), y = value_of<R>(compiled, results[i]);
        BOOST_TEST(is_same(x, y), name_of(op) << " of " << troupe::name_of(operand) << ", pair "
                                              << i << ", target " << to << ", loop " << in_loop
                                              << ": " << +x << ", compiled " << +y);
      }
    }
}

template <class T>
void compare_arithmetic(DType type) {
  for (const ScalarOp op : {ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::neg,
                            ScalarOp::square, ScalarOp::min, ScalarOp::max, ScalarOp::sign})
    compare_operation<T, T>(op, type, type);
  for (const ScalarOp op :
       {ScalarOp::lt, ScalarOp::le, ScalarOp::gt, ScalarOp::ge, ScalarOp::eq, ScalarOp::ne})
    compare_operation<std::uint8_t, T>(op, DType::boolean, type);
}

template <class From, class To>
void compare_cast(DType from, DType to) {
  compare_operation<To, From>(ScalarOp::cast, to, from);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_build_with_the_translator_has_machine_code) {
  const bool is_built_in = ScalarTranslator::is_built_in();
#ifdef TROUPE_HAS_XBYAK
  BOOST_TEST(is_built_in);
#endif
  if (is_built_in) BOOST_TEST(MachineCode::why_not() == "");
}

BOOST_AUTO_TEST_CASE(integers_are_the_interpreters, *boost::unit_test::precondition(is_available)) {
  compare_arithmetic<std::int32_t>(DType::i32);
  compare_arithmetic<std::int64_t>(DType::i64);
}

BOOST_AUTO_TEST_CASE(floats_are_the_interpreters, *boost::unit_test::precondition(is_available)) {
  compare_arithmetic<float>(DType::f32);
  compare_arithmetic<double>(DType::f64);
  for (const ScalarOp op : {ScalarOp::div, ScalarOp::abs, ScalarOp::sqrt, ScalarOp::exp,
                            ScalarOp::tanh, ScalarOp::floor, ScalarOp::reciprocal}) {
    compare_operation<float, float>(op, DType::f32, DType::f32);
    compare_operation<double, double>(op, DType::f64, DType::f64);
  }
}

BOOST_AUTO_TEST_CASE(casts_are_the_interpreters, *boost::unit_test::precondition(is_available)) {
  compare_cast<std::int32_t, std::int64_t>(DType::i32, DType::i64);
  compare_cast<std::int32_t, float>(DType::i32, DType::f32);
  compare_cast<std::int32_t, double>(DType::i32, DType::f64);
  compare_cast<std::int64_t, float>(DType::i64, DType::f32);
  compare_cast<std::int64_t, double>(DType::i64, DType::f64);
  compare_cast<float, double>(DType::f32, DType::f64);
  compare_cast<double, float>(DType::f64, DType::f32);
  compare_cast<float, std::int32_t>(DType::f32, DType::i32);  // by a function
}

BOOST_AUTO_TEST_CASE(logic_and_selection_are_the_interpreters,
                     *boost::unit_test::precondition(is_available)) {
  const auto compare = [&]<class T>(T yes, T no, DType type) {
    for (const bool p : {false, true})
      for (const bool q : {false, true})
        for (const bool in_loop : {false, true}) {
          ScalarCode code;
          const auto a = code.add_constant(Tensor::scalar(p));
          const auto b = code.add_constant(Tensor::scalar(q));
          const auto x = code.add_constant(Tensor::scalar(yes));
          const auto y = code.add_constant(Tensor::scalar(no));
          const auto both_hold = code.add_register(), one_holds = code.add_register();
          const auto none_holds = code.add_register(), chosen = code.add_register();
          const auto counter = code.add_register(), more = code.add_register();
          const auto once = code.add_constant(Tensor::scalar(std::int64_t{1}));
          code.set_zero(counter);
          const auto top = code.here();
          code.add(ScalarOp::logical_and, DType::boolean, DType::boolean, both_hold, a, b);
          code.add(ScalarOp::logical_or, DType::boolean, DType::boolean, one_holds, a, b);
          code.add(ScalarOp::logical_not, DType::boolean, DType::boolean, none_holds, one_holds);
          code.add(ScalarOp::select, type, type, chosen, both_hold, x, y);
          if (type == DType::f32)  // which shows that it is a float
            code.add(ScalarOp::add, type, type, chosen, chosen, chosen);
          if (in_loop) {
            code.add(ScalarOp::lt, DType::boolean, DType::i64, more, counter, once);
            code.again_if(more, top, counter);
          }
          code.halt();
          const auto [interpreted, compiled] = both(code);
          for (const auto r : {both_hold, one_holds, none_holds})
            BOOST_TEST(value_of<std::uint8_t>(interpreted, r) ==
                       value_of<std::uint8_t>(compiled, r));
          BOOST_TEST(is_same(value_of<T>(interpreted, chosen), value_of<T>(compiled, chosen)));
        }
  };
  compare(1.5f, std::numeric_limits<float>::quiet_NaN(), DType::f32);
  compare(1.5, -0.0, DType::f64);
  compare(std::int32_t{7}, std::int32_t{-7}, DType::i32);
  compare(std::int64_t{7} << 40, std::int64_t{-7}, DType::i64);
  compare(true, false, DType::boolean);
}

BOOST_AUTO_TEST_CASE(choices_take_the_last_branch_beyond_the_others,
                     *boost::unit_test::precondition(is_available)) {
  const auto compare = [&]<class T>(T index, DType type) {
    ScalarCode code;
    const auto i = code.add_constant(Tensor::scalar(index)), taken = code.add_register();
    const auto choose = code.choose(i, type, 3);
    std::vector<ScalarCode::Label> ends;
    for (int b = 0; b < 3; ++b) {
      code.bind_branch(choose, b);
      code.copy(taken, code.add_constant(Tensor::scalar(std::int64_t{b})));
      ends.push_back(code.jump());
    }
    for (const auto end : ends) code.bind(end);
    code.halt();
    const auto [interpreted, compiled] = both(code);
    BOOST_TEST(value_of<std::int64_t>(interpreted, taken) ==
               value_of<std::int64_t>(compiled, taken));
  };
  for (const int index : {0, 1, 2, 3, -1, 1 << 30}) {
    compare(index, DType::i32);
    compare(std::int64_t{index}, DType::i64);
  }
  compare(std::int64_t{1} << 32, DType::i64);
  compare(false, DType::boolean);
  compare(true, DType::boolean);
}

BOOST_AUTO_TEST_CASE(a_run_stops_after_its_budget_and_goes_on_in_either_form,
                     *boost::unit_test::precondition(is_available)) {
  ScalarCode code;
  const auto x = code.add_register(), counter = code.add_register(), more = code.add_register();
  const auto one = code.add_constant(Tensor::scalar(1.0)),
             n = code.add_constant(Tensor::scalar(1000.0));
  code.set_zero(x);
  code.set_zero(counter);
  const auto top = code.here();
  code.add(ScalarOp::add, DType::f64, DType::f64, x, x, one);
  code.add(ScalarOp::lt, DType::boolean, DType::f64, more, x, n);
  code.again_if(more, top, counter);
  code.halt();
  const auto machine = MachineCode::of(code);
  BOOST_REQUIRE(machine);
  None none;
  for (std::int64_t budget : {1, 2, 7, 999, 1000}) {
    ScalarFrame frame(code);
    std::int64_t before = 0, pauses = 0;
    for (bool compiled = true;; compiled = !compiled) {
      const int how = compiled ? machine->run(frame, budget, none) : code.run(frame, budget, none);
      const auto now = value_of<std::int64_t>(frame, counter);
      BOOST_TEST_REQUIRE(now - before <= budget);
      before = now;
      if (how == ScalarCode::kHalted) break;
      BOOST_TEST_REQUIRE(how == ScalarCode::kPaused);
      ++pauses;
    }
    BOOST_TEST(pauses == 999 / budget);
    BOOST_TEST(value_of<double>(frame, x) == 1000.0);
    BOOST_TEST(machine->run(frame, budget, none) == ScalarCode::kHalted);
  }
}

BOOST_AUTO_TEST_CASE(calls_see_and_change_registers_and_their_errors_pass,
                     *boost::unit_test::precondition(is_available)) {
  ScalarCode code;
  const auto x = code.add_register(), counter = code.add_register(), more = code.add_register();
  const auto one = code.add_constant(Tensor::scalar(1.f)),
             n = code.add_constant(Tensor::scalar(std::int64_t{4}));
  code.set_zero(x);
  code.set_zero(counter);
  const auto top = code.here();
  code.add(ScalarOp::add, DType::f32, DType::f32, x, x, one);
  code.call(3);
  code.add(ScalarOp::add, DType::f32, DType::f32, x, x, one);
  code.add(ScalarOp::lt, DType::boolean, DType::i64, more, counter, n);
  code.again_if(more, top, counter);
  code.halt();
  struct Doubling final : ScalarCalls {
    int call(std::int32_t number) override {
      BOOST_TEST(number == 3);
      float v = value_of<float>(*frame, x);
      seen.push_back(v);
      if (seen.size() == throws_at) throw std::runtime_error("the third call fails");
      v *= 2;
      std::memcpy(frame->at(x), &v, sizeof v);
      return seen.size() == stops_at ? 9 : 0;
    }
    ScalarFrame* frame = nullptr;
    ScalarCode::Register x = 0;
    std::size_t throws_at = 0, stops_at = 0;
    std::vector<float> seen;
  };
  const auto machine = MachineCode::of(code);
  BOOST_REQUIRE(machine);
  const auto told = [&](bool compiled, std::size_t throws_at, std::size_t stops_at) {
    ScalarFrame frame(code);
    Doubling calls;
    calls.frame = &frame;
    calls.x = x;
    calls.throws_at = throws_at;
    calls.stops_at = stops_at;
    const auto run = [&] {
      return compiled ? machine->run(frame, 100, calls) : code.run(frame, 100, calls);
    };
    std::string text;
    try {
      int how = run();
      text += std::to_string(how);
      if (how == 9) text += ", then " + std::to_string(run());
    } catch (const std::runtime_error& e) {
      text += e.what();
      text += ", then " + std::to_string(run());
    }
    for (const float v : calls.seen) text += " " + std::to_string(v);
    return text + " at " + std::to_string(frame.place()) + ": " +
           std::to_string(value_of<float>(frame, x));
  };
  for (const auto& [throws_at, stops_at] :
       {std::pair<std::size_t, std::size_t>{0, 0}, {3, 0}, {0, 2}, {1, 0}, {0, 5}})
    BOOST_TEST(told(true, throws_at, stops_at) == told(false, throws_at, stops_at));
  BOOST_TEST(told(true, 3, 0).find("the third call fails") == 0u);
}

namespace {

// Straight steps, branches and loops in loops on a few registers of every dtype, more than the
// processor has.
class RandomCode {
 public:
  explicit RandomCode(std::uint64_t seed) : random_(seed) {
    for (int i = 0; i < 20; ++i) {
      floats_.push_back(filled(static_cast<float>(pick(9)) - 4));
      doubles_.push_back(filled(pick(9) * 0.25));
      ints_.push_back(filled(static_cast<std::int32_t>(pick(9)) - 4));
      longs_.push_back(filled(std::int64_t{pick(9)} << pick(40)));
      flags_.push_back(filled(pick(2) == 0));
    }
    sequence(0);
    code_.halt();
  }
  const ScalarCode& code() const { return code_; }
  // Calls f(register, a value of its type).
  template <class F>
  void each_register(F f) const {
    for (const auto r : floats_) f(r, 0.f);
    for (const auto r : doubles_) f(r, 0.0);
    for (const auto r : ints_) f(r, std::int32_t{0});
    for (const auto r : longs_) f(r, std::int64_t{0});
    for (const auto r : flags_) f(r, std::uint8_t{0});
  }

 private:
  using Register = ScalarCode::Register;
  int pick(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  Register of(const std::vector<Register>& some) {
    return some[static_cast<std::size_t>(pick(static_cast<int>(some.size())))];
  }
  template <class T>
  Register filled(T value) {
    const Register r = code_.add_register();
    code_.copy(r, code_.add_constant(Tensor::scalar(value)));
    return r;
  }
  void step() {
    constexpr ScalarOp arithmetic[] = {ScalarOp::add, ScalarOp::sub,    ScalarOp::mul,
                                       ScalarOp::neg, ScalarOp::square, ScalarOp::max};
    constexpr ScalarOp comparisons[] = {ScalarOp::lt, ScalarOp::le, ScalarOp::gt,
                                        ScalarOp::ge, ScalarOp::eq, ScalarOp::ne};
    const std::pair<DType, const std::vector<Register>*> kinds[] = {{DType::f32, &floats_},
                                                                    {DType::f64, &doubles_},
                                                                    {DType::i32, &ints_},
                                                                    {DType::i64, &longs_}};
    const auto& [type, some] = kinds[pick(4)];
    switch (pick(7)) {
      case 0: return code_.copy(of(*some), of(*some));
      case 1:
        return code_.add(comparisons[pick(6)], DType::boolean, type, of(flags_), of(*some),
                         of(*some));
      case 2:
        return code_.add(ScalarOp::select, type, type, of(*some), of(flags_), of(*some), of(*some));
      case 3:
        return code_.add(ScalarOp::logical_and, DType::boolean, DType::boolean, of(flags_),
                         of(flags_), of(flags_));
      case 4:
        if (pick(4) == 0) return code_.set_zero(of(*some));
        if (pick(2))
          return code_.add(ScalarOp::cast, DType::f64, DType::f32, of(doubles_), of(floats_));
        return code_.add(ScalarOp::cast, DType::f32, DType::i32, of(floats_), of(ints_));
      default: return code_.add(arithmetic[pick(6)], type, type, of(*some), of(*some), of(*some));
    }
  }
  void sequence(int depth) {
    const int steps = 2 + pick(12);
    for (int i = 0; i < steps; ++i) {
      const int what = depth < 3 ? pick(8) : 7;
      if (what == 0) loop(depth);
      else if (what == 1) branch(depth);
      else step();
    }
  }
  void loop(int depth) {
    const Register counter = code_.add_register(), more = code_.add_register();
    const Register n = code_.add_constant(Tensor::scalar(std::int64_t{pick(5)}));
    code_.set_zero(counter);
    code_.add(ScalarOp::lt, DType::boolean, DType::i64, more, counter, n);
    const auto end = code_.jump_unless(more);
    const auto top = code_.here();
    sequence(depth + 1);
    code_.add(ScalarOp::lt, DType::boolean, DType::i64, more, counter, n);
    code_.again_if(more, top, counter);
    if (pick(2)) code_.again_if(of(flags_), code_.here() + 1, counter);
    code_.bind(end);
  }
  void branch(int depth) {
    const bool by_flag = pick(2);
    const auto choose = by_flag ? code_.choose(of(flags_), DType::boolean, 2)
                                : code_.choose(of(ints_), DType::i32, 3);
    const int branches = by_flag ? 2 : 3;
    std::vector<ScalarCode::Label> ends;
    for (int b = 0; b < branches; ++b) {
      code_.bind_branch(choose, b);
      sequence(depth + 1);
      if (b + 1 < branches) ends.push_back(code_.jump());
    }
    for (const auto end : ends) code_.bind(end);
  }

  std::mt19937_64 random_;
  ScalarCode code_;
  std::vector<Register> floats_, doubles_, ints_, longs_, flags_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(random_code_agrees_at_every_pause,
                     *boost::unit_test::precondition(is_available)) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomCode random(seed);
    const ScalarCode& code = random.code();
    const auto machine = MachineCode::of(code);
    BOOST_REQUIRE(machine);
    None none;
    ScalarFrame interpreted(code), compiled(code);
    for (;;) {
      const int how = code.run(interpreted, 3, none);
      BOOST_TEST_REQUIRE(machine->run(compiled, 3, none) == how, "seed " << seed);
      BOOST_TEST_REQUIRE(interpreted.place() == compiled.place(), "seed " << seed);
      random.each_register([&]<class T>(ScalarCode::Register r, T) {
        const T x = value_of<T>(interpreted, r), y = value_of<T>(compiled, r);
        BOOST_TEST_REQUIRE(is_same(x, y), "seed " << seed << ", register " << r << ": " << +x
                                                  << ", compiled " << +y);
      });
      if (how != ScalarCode::kPaused) break;
    }
  }
}

template <class T>
void compare_multiply_add(DType type) {
  const std::vector<T> values = special_values<T>();
  for (const bool in_loop : {false, true}) {
    ScalarCode code;
    const auto counter = code.add_register(), k = code.add_register(), more = code.add_register();
    const auto one = code.add_constant(Tensor::scalar(std::int64_t{1}));
    std::vector<std::pair<ScalarCode::Register, T>> results;
    for (const T x : values)
      for (const T y : values)
        for (const T z : {T(0), T(-0.0), T(1), T(-1.5), std::numeric_limits<T>::max()}) {
          const auto to = code.add_register(), a = code.add_constant(Tensor::scalar(x)),
                     b = code.add_constant(Tensor::scalar(y));
          const auto c = code.add_constant(Tensor::scalar(z));
          code.set_zero(k);
          const auto top = code.here();
          code.multiply_add(type, to, a, b, c);
          if (in_loop) {
            code.add(ScalarOp::add, DType::i64, DType::i64, k, k, one);
            code.add(ScalarOp::le, DType::boolean, DType::i64, more, k, one);
            code.again_if(more, top, counter);
          }
          results.emplace_back(to, std::fma(x, y, z));
        }
    code.halt();
    const auto [interpreted, compiled] = both(code);
    for (const auto& [to, wanted] : results) {
      BOOST_TEST_REQUIRE(is_same(value_of<T>(interpreted, to), wanted));
      BOOST_TEST_REQUIRE(is_same(value_of<T>(compiled, to), wanted));
    }
  }
}

// Only processors that have the instruction get such steps.
boost::test_tools::assertion_result has_multiply_add(boost::unit_test::test_unit_id id) {
  if (cpu_level() < CpuLevel::v3) return false;
  return is_available(id);
}

BOOST_AUTO_TEST_CASE(multiply_adds_round_once, *boost::unit_test::precondition(has_multiply_add)) {
  compare_multiply_add<float>(DType::f32);
  compare_multiply_add<double>(DType::f64);
}

// Elements of several values, of which some are in machine registers; the chunk has room for seven.
BOOST_AUTO_TEST_CASE(wide_elements_are_the_interpreters,
                     *boost::unit_test::precondition(is_available)) {
  struct Counting final : ScalarCalls {
    int call(std::int32_t number) override {
      calls[number] += 1;
      return 0;
    }
    int calls[2] = {0, 0};
  };
  for (const int width : {2, 3, 40}) {
    ScalarCode code;
    const auto counter = code.add_register(), more = code.add_register(), k = code.add_register(),
               cursor = code.add_register();
    const auto n = code.add_constant(Tensor::scalar(9.f)),
               one = code.add_constant(Tensor::scalar(1.f));
    std::vector<ScalarCode::Register> values, popped;
    for (int i = 0; i < width; ++i) {
      values.push_back(code.add_register());
      popped.push_back(code.add_register());
    }
    code.set_zero(counter);
    code.set_zero(k);
    const auto top = code.here();
    for (int i = 0; i < width; ++i)
      code.add(ScalarOp::add, DType::f32, DType::f32, values[static_cast<std::size_t>(i)],
               i == 0 ? k : values[static_cast<std::size_t>(i - 1)], one);
    code.call(0);
    code.move_by(ScalarCode::Move::push, top, 0, cursor, values, 4);
    code.add(ScalarOp::add, DType::f32, DType::f32, k, k, one);
    code.add(ScalarOp::lt, DType::boolean, DType::f32, more, k, n);
    code.again_if(more, top, counter);
    code.set_zero(k);
    const auto back = code.here();
    code.call(1);
    code.move_by(ScalarCode::Move::pop, back, 1, cursor, popped, 4);
    code.add(ScalarOp::add, DType::f32, DType::f32, values[0], values[0], popped[1]);
    code.add(ScalarOp::add, DType::f32, DType::f32, k, k, one);
    code.add(ScalarOp::lt, DType::boolean, DType::f32, more, k, n);
    code.again_if(more, back, counter);
    code.halt();
    const auto machine = MachineCode::of(code);
    BOOST_REQUIRE(machine);
    std::vector<std::byte> chunks[2];
    Counting counts[2];
    ScalarFrame frames[2] = {ScalarFrame(code), ScalarFrame(code)};
    for (int form = 0; form < 2; ++form) {
      chunks[form].resize(static_cast<std::size_t>(7 * width) * 4);
      const ElementCursor whole{.next = chunks[form].data(),
                                .begin = chunks[form].data(),
                                .end = chunks[form].data() + chunks[form].size()};
      std::memcpy(frames[form].at(cursor), &whole, sizeof whole);
      for (int how = 0; how != ScalarCode::kHalted;)
        how = form ? machine->run(frames[form], 3, counts[form])
                   : code.run(frames[form], 3, counts[form]);
      ElementCursor after;
      std::memcpy(&after, frames[form].at(cursor), sizeof after);
      BOOST_TEST((after.next == whole.begin && after.begin == whole.begin));
      BOOST_TEST((counts[form].calls[0] == 2 && counts[form].calls[1] == 2));
    }
    BOOST_TEST((chunks[0] == chunks[1]));
    float last;  // the seventh element's
    std::memcpy(&last, chunks[1].data() + chunks[1].size() - 4, sizeof last);
    BOOST_TEST(last == static_cast<float>(6 + width));
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_TEST(value_of<float>(frames[0], values[i]) == value_of<float>(frames[1], values[i]));
      BOOST_TEST(value_of<float>(frames[0], popped[i]) == value_of<float>(frames[1], popped[i]));
      BOOST_TEST(value_of<float>(frames[1], popped[i]) == static_cast<float>(i + 1));
    }
  }
}

namespace {

// Stacks of elements in chunks of three, each at a cursor of a frame. Call k is stack k's; a pop of
// an empty stack yields an element of zeros.
struct Stacks final : ScalarCalls {
  struct Stack {
    ScalarCode::Register cursor, element;
    std::size_t bytes;
    bool pushes;
    int of;  // the stack whose elements it has
  };
  int call(std::int32_t number) override {
    ++calls;
    const Stack& stack = stacks[static_cast<std::size_t>(number)];
    auto& chunks = held[static_cast<std::size_t>(stack.of)];
    std::byte* const at_cursor = frame->at(stack.cursor);
    ElementCursor cursor;
    std::memcpy(&cursor, at_cursor, sizeof cursor);
    if (stack.pushes) {
      if (cursor.begin) at[static_cast<std::size_t>(stack.of)] += 1;
      if (chunks.size() <= at[static_cast<std::size_t>(stack.of)])
        chunks.emplace_back(3 * stack.bytes);
      cursor = whole(chunks[at[static_cast<std::size_t>(stack.of)]]);
      std::memcpy(cursor.begin, frame->at(stack.element), stack.bytes);
      cursor.next = cursor.begin + stack.bytes;
    } else if (cursor.begin && at[static_cast<std::size_t>(stack.of)] > 0) {
      cursor = whole(chunks[--at[static_cast<std::size_t>(stack.of)]]);
      cursor.next = cursor.end - stack.bytes;
      std::memcpy(frame->at(stack.element), cursor.next, stack.bytes);
    } else {
      std::memset(frame->at(stack.element), 0, stack.bytes);
    }
    std::memcpy(at_cursor, &cursor, sizeof cursor);
    return 0;
  }
  static ElementCursor whole(std::vector<std::byte>& chunk) {
    return {.begin = chunk.data(), .end = chunk.data() + chunk.size()};
  }
  ScalarFrame* frame = nullptr;
  std::vector<Stack> stacks;
  std::vector<std::vector<std::vector<std::byte>>> held{3};
  std::vector<std::size_t> at = std::vector<std::size_t>(3);
  int calls = 0;
};

}  // namespace

// Elements of each size, some in machine registers and some not, which a function loses meanwhile.
BOOST_AUTO_TEST_CASE(pushes_and_pops_are_the_interpreters,
                     *boost::unit_test::precondition(is_available)) {
  for (const bool calls_function : {false, true}) {
    ScalarCode code;
    Stacks made;
    const auto x = code.add_register(), k = code.add_register(), flag = code.add_register();
    const auto counter = code.add_register(), more = code.add_register(), sum = code.add_register(),
               count = code.add_register();
    const auto n = code.add_constant(Tensor::scalar(std::int64_t{40})),
               many = code.add_constant(Tensor::scalar(std::int64_t{90})),
               one = code.add_constant(Tensor::scalar(std::int64_t{1})),
               growth = code.add_constant(Tensor::scalar(1.25f)),
               constant = code.add_constant(Tensor::scalar(3.5f));
    ScalarCode::Label from = 0;
    const auto stack = [&](int of, ScalarCode::Register cursor, ScalarCode::Register element,
                           std::size_t bytes, bool pushes) {
      const auto number = static_cast<std::int32_t>(made.stacks.size());
      made.stacks.push_back({cursor, element, bytes, pushes, of});
      code.call(number);
      code.move_by(pushes ? ScalarCode::Move::push : ScalarCode::Move::pop, from, number, cursor,
                   {&element, 1}, bytes);
    };
    const auto of_x = code.add_register(), of_k = code.add_register(),
               of_flag = code.add_register();
    code.copy(x, constant);
    for (const auto r : {k, flag, counter, sum, count}) code.set_zero(r);
    const auto top = code.here();
    from = top;
    stack(0, of_x, x, 4, true);
    code.add(ScalarOp::mul, DType::f32, DType::f32, x, x, growth);
    if (calls_function) code.add(ScalarOp::tanh, DType::f32, DType::f32, x, x);
    stack(1, of_k, k, 8, true);
    code.add(ScalarOp::add, DType::i64, DType::i64, k, k, one);
    code.add(ScalarOp::gt, DType::boolean, DType::f32, flag, x, constant);
    stack(2, of_flag, flag, 1, true);
    stack(0, of_x, constant, 4, true);
    code.add(ScalarOp::lt, DType::boolean, DType::i64, more, k, n);
    code.again_if(more, top, counter);
    const auto back = code.here();  // more pops than pushes
    from = back;
    stack(0, of_x, x, 4, false);
    code.add(ScalarOp::add, DType::f32, DType::f32, sum, sum, x);
    if (calls_function) code.add(ScalarOp::tanh, DType::f32, DType::f32, sum, sum);
    stack(1, of_k, k, 8, false);
    code.add(ScalarOp::add, DType::i64, DType::i64, count, count, one);
    stack(2, of_flag, flag, 1, false);
    code.add(ScalarOp::lt, DType::boolean, DType::i64, more, count, many);
    code.again_if(more, back, counter);
    code.halt();
    const auto machine = MachineCode::of(code);
    BOOST_REQUIRE(machine);
    for (const std::int64_t budget : {1, 3, 1000}) {
      ScalarFrame frames[2] = {ScalarFrame(code), ScalarFrame(code)};
      Stacks stacks[2] = {made, made};
      for (int i = 0; i < 2; ++i) stacks[i].frame = &frames[i];
      for (;;) {
        const int how = code.run(frames[0], budget, stacks[0]);
        BOOST_TEST_REQUIRE(machine->run(frames[1], budget, stacks[1]) == how);
        BOOST_TEST_REQUIRE(frames[0].place() == frames[1].place());
        for (const auto r : {x, sum})
          BOOST_TEST_REQUIRE(value_of<float>(frames[0], r) == value_of<float>(frames[1], r));
        for (const auto r : {k, count})
          BOOST_TEST_REQUIRE(value_of<std::int64_t>(frames[0], r) ==
                             value_of<std::int64_t>(frames[1], r));
        BOOST_TEST_REQUIRE(value_of<std::uint8_t>(frames[0], flag) ==
                           value_of<std::uint8_t>(frames[1], flag));
        if (how != ScalarCode::kPaused) break;
      }
      BOOST_TEST(value_of<std::int64_t>(frames[1], count) == 90);
      BOOST_TEST(stacks[0].calls == stacks[1].calls);
      BOOST_TEST(stacks[1].calls < 240);  // 430 pushes and pops, 140 beyond the last element
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
