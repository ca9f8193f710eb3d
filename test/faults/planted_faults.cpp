// Would random programs notice a mistake in lowering or in the executor? Every fault of
// devices/base/fault_injection.hpp is switched on in turn; it must be caught within a fixed number
// of programs, and made small; without one nothing may differ. An exception in a turn, which is no
// mistake, must end the run in a sentence. Usage: planted_faults [FAULT]...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/fault_injection.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/programs/compare.hpp>
#include <troupe/test/support/programs/random_recipe.hpp>
#include <troupe/test/support/programs/shrink.hpp>

namespace troupe {
Planted planted_fault = Planted::none;
}

namespace troupe::test {
namespace {

struct Fault {
  Planted which;
  const char* name;
};
constexpr Fault kFaults[] = {{Planted::none, "none"},
                             {Planted::dropped_dead_token, "dropped_dead_token"},
                             {Planted::wrong_iteration, "wrong_iteration"},
                             {Planted::early_exit, "early_exit"},
                             {Planted::merge_of_the_dead, "merge_of_the_dead"},
                             {Planted::enter_not_replayed, "enter_not_replayed"},
                             {Planted::window_off_by_one, "window_off_by_one"},
                             {Planted::child_forgotten, "child_forgotten"},
                             {Planted::order_not_threaded, "order_not_threaded"},
                             {Planted::exit_not_withheld, "exit_not_withheld"},
                             {Planted::nested_switch_turned, "nested_switch_turned"},
                             {Planted::pivot_forgotten, "pivot_forgotten"},
                             {Planted::read_hides_write, "read_hides_write"},
                             {Planted::path_turned, "path_turned"},
                             {Planted::call_not_waited_for, "call_not_waited_for"},
                             {Planted::exception_in_turn, "exception_in_turn"}};
constexpr std::uint64_t kPrograms = 400;  // within which each must be caught
constexpr std::uint64_t kWithout = 100;   // programs that must not differ without a fault
constexpr int kSmall = 12;                // statements of what is left of the program, at most

// In a process of its own, for the fault may crash or hang it.
std::optional<std::string> wrong_with(const Recipe& r, const Way& way) {
  return apart(
      [&]() -> std::optional<std::string> {
        try {
          return difference(r, expected_of(r), way);
        } catch (const std::exception&) {
          return std::nullopt;  // no program to compare
        }
      },
      20, std::chrono::milliseconds(250));
}

// In any of the ways. One process for them all, and one answer of the oracle, which has no faults.
bool differs(const Recipe& r) {
  try {
    const Expected expected = expected_of(r);
    return apart(
               [&]() -> std::optional<std::string> {
                 for (const Way& way : ways())
                   if (auto wrong =
                           way.is_deterministic ? difference(r, expected, way) : std::nullopt)
                     return wrong;
                 return std::nullopt;
               },
               60, std::chrono::seconds(planted_fault == Planted::none ? 30 : 2))
        .has_value();
  } catch (const std::exception&) {
    return false;  // no program to compare
  }
}

// An exception in a partition's turn fails the run, in a sentence, whatever other partitions wait
// for; the engine goes on.
bool ends_in_a_sentence() {
  return !apart(
              []() -> std::optional<std::string> {
                for (bool is_deterministic : {true, false}) {
                  Graph g;
                  Expr x = g.input("x", DType::f32, Shape{});
                  auto [i_end, end] = while_loop([](Expr i, Expr) { return i < 5; },
                                                 [&](Expr i, Expr v) {
                                                   Expr here = v * x;
                                                   auto there = g.on_device("cpu:1");
                                                   return std::tuple{i + 1, here + 1.0};
                                                 },
                                                 std::tuple{g.constant(0), x});
                  Engine engine({.workers = 2, .deterministic = is_deterministic});
                  for (int run = 0; run < 3; ++run) {
                    std::string why;
                    try {
                      engine.run(g, {{x, Tensor::scalar(2.f)}}, {end});
                    } catch (const Error& e) { why = e.what(); }
                    if (why.find("the run was cancelled: out of memory") == std::string::npos)
                      return "it says '" + why + "'";
                    if (engine.run(g, {{x, Tensor::scalar(2.f)}}, {x + 1.0})[0].at(0) != 3)
                      return "what has no loop does not run";
                  }
                }
                return std::nullopt;
              },
              60, std::chrono::seconds(20))
              .has_value();
}

bool is_caught(const Fault& fault) {
  planted_fault = fault.which;
  if (fault.which == Planted::exception_in_turn) return ends_in_a_sentence();
  if (fault.which == Planted::none) {
    std::uint64_t seed = 1;
    while (seed <= kWithout && !differs(random_recipe(seed))) ++seed;
    if (seed <= kWithout)
      std::printf("program %llu differs though no fault is planted\n",
                  static_cast<unsigned long long>(seed));
    return seed > kWithout;
  }
  for (std::uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const Recipe r = random_recipe(seed);
    if (!differs(r)) continue;
    for (const Way& way : ways()) {
      if (!way.is_deterministic || !wrong_with(r, way)) continue;
      Recipe small = shrunk(
          r, [&](const Recipe& c) { return wrong_with(c, way).has_value(); }, 700);
      const int n = statements_in(small);
      std::printf("%s: caught by program %llu (%d statements), %s; %d are left:\n%s%s\n\n",
                  fault.name, static_cast<unsigned long long>(seed), statements_in(r),
                  way.name.c_str(), n, text_of(small).c_str(),
                  wrong_with(small, way).value_or("?").c_str());
      std::fflush(stdout);
      return n <= kSmall;
    }
  }
  std::printf("%s: not caught by %llu programs\n", fault.name,
              static_cast<unsigned long long>(kPrograms));
  return false;
}

}  // namespace
}  // namespace troupe::test

int main(int argc, char** argv) {
  using namespace troupe::test;
  for (int i = 1; i < argc; ++i)
    if (std::none_of(std::begin(kFaults), std::end(kFaults),
                     [&](const Fault& f) { return std::strcmp(f.name, argv[i]) == 0; })) {
      std::fprintf(stderr, "there is no fault '%s'\n", argv[i]);
      return 2;
    }
  int missed = 0;
  for (const Fault& fault : kFaults) {
    auto is_wanted = [&](const char* name) { return std::strcmp(name, fault.name) == 0; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, is_wanted)) continue;
    if (!is_caught(fault)) ++missed;
  }
  if (missed > 0) std::printf("%d missed, or not made small\n", missed);
  return missed > 0;
}
