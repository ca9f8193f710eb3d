// A recipe under the oracle and under every way to run it: what differs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/test/support/programs/oracle.hpp>
#include <troupe/test/support/programs/random_recipe.hpp>

namespace troupe::test {

/// The place where a program runs: an engine, and the other steppers where there are no threads.
class World {
 public:
  virtual ~World() = default;
  virtual Engine& engine() = 0;
  /// False if nothing is pending.
  virtual bool step() = 0;
};

class OneEngine final : public World {
 public:
  explicit OneEngine(const EngineOptions& options) : engine_(options) {}
  Engine& engine() override { return engine_; }
  bool step() override { return engine_.take_step(); }

 private:
  Engine engine_;
};

/// A way to run a program.
struct Way {
  std::string name;
  bool is_interpreter = false;
  int workers = 1;
  Granularity granularity = Granularity::partition;
  bool is_deterministic = false;
  bool optimize = true;
  Devices devices = Devices::none;
  bool in_flight = false;  // all runs at once, where there is no state
  std::string device = "cpu:0";
  std::uint64_t seed = 0;  // deterministic ways add the recipe's
  bool swaps = false;      // lists' elements to the host, wherever it can
  bool is_narrow = false;  // an edge in a loop carries one value at a time
  bool lowers = false;     // no loop stays whole
  bool is_alone = false;   // on a scope without an engine
  bool is_traced = false;  // on a scope, as a traced function
  std::function<std::unique_ptr<World>(const EngineOptions&)> world = {};  // empty: one engine
};

/// The quickest first.
const std::vector<Way>& ways();

/// The results of a program, by run; the run with the error is the last.
struct ProgramOutcome {
  std::vector<std::vector<Tensor>> fetched;
  std::vector<Tensor> variables;
  std::string error;
  bool hangs = false;
};

struct Expected {
  std::vector<std::vector<OracleValue>> fetched, rounded;  // rounded: to f32 after every operation
  std::vector<Array> variables, rounded_variables;
  std::string error;
};

/// Why a program is not compared; counted.
class Unfit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::vector<std::pair<Expr, OracleValue>> oracle_feeds(const Recipe& r, const Kitchen& k, int run);
/// Returns the oracle's results; throws Unfit where rounding may decide what the program does.
Expected expected_of(const Recipe& r);

/// Loops that stayed whole, in all programs that were run in engines.
int& resident_loops();
/// Returns the difference, to the bit, between a program whose loops stay whole where they can,
/// compiled and interpreted, and that program with all of them lowered: values, or the error.
std::optional<std::string> difference_from_lowered(const Recipe& r, const Way& way);

/// Counts the programs with a function over several devices, among the programs examined (one in
/// ten, in ways that spread them over CPUs).
int& cut_functions();
/// Runs that were cancelled before they had ended.
int& cancelled_runs();

EngineOptions options_of(const Way& way, std::uint64_t seed);
/// Runs `fetches` of a recipe's graph in an engine of its own.
void run_program(const Recipe& r, const Way& way, Graph& g, const Kitchen& k,
                 const std::vector<Expr>& fetches, int runs, ProgramOutcome& out,
                 const CompileOptions& compile = {});

/// Runs the recipe's graph without an engine and without passes.
ProgramOutcome interpret(const Recipe& r);
std::optional<std::string> difference(const Recipe& r, const Expected& e, const ProgramOutcome& o);
/// Compares two outcomes to the bit; `other` names the second.
std::optional<std::string> difference_of_outcomes(const ProgramOutcome& one,
                                                  const ProgramOutcome& two,
                                                  const std::string& other);
std::optional<std::string> difference(const Recipe& r, const Expected& e, const Way& way);
/// Like `difference`, for a run beside one that is cancelled anywhere, or that starts when that one
/// did; for programs without variables.
std::optional<std::string> difference_beside_cancelled(const Recipe& r, const Expected& e,
                                                       const Way& way);

}  // namespace troupe::test
