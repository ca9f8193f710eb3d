// Recipes: programs as data, so that they can be drawn at random, printed and made smaller. A
// recipe is a tree of statements; `Kitchen` builds the graph from it with the functions that users
// write with.
//
// Every recipe is a program: a statement names its operands by number, and an operand that is not
// there (it was removed, or belongs to another scope) is a constant of its type. So any part can be
// taken away.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::test {

/// f, v, m, d: real numbers, of shapes [], [3], [2, 3] and [?]; F, V: lists of f and v; FF: of F.
enum class Type : std::uint8_t { f, v, m, d, i, l, b, F, V, FF };
inline constexpr int kTypes = 10;
inline const char* name_of(Type t) {
  static const char* const names[] = {"f", "v", "m", "d", "i", "l", "b", "F", "V", "FF"};
  return names[static_cast<int>(t)];
}
inline bool is_list(Type t) { return t == Type::F || t == Type::V || t == Type::FF; }
inline bool is_real(Type t) { return t == Type::f || t == Type::v || t == Type::m || t == Type::d; }

/// A value of the program by its number; operands that name none are -1.
struct Named {
  int id = -1;
  Type type = Type::f;
};

struct Statement;

/// A branch, a condition, a body, or the whole program.
struct Block {
  std::vector<Named> arguments;
  std::vector<Statement> statements;
  std::vector<Named> results;
};

/// An operation by the name of its rule, or control flow:
///   constant  numbers: its elements
///   same      out 0 is in 0
///   cond      in 0 the predicate; blocks: false, true
///   switch    in 0 the index; a block a branch
///   while     in: initial values; out and the blocks' arguments: a counter, then the variables;
///             blocks: condition (its result, if it has one, and counter < numbers[0]) and body.
///             numbers[1]: the counter's limit is given by maximum_iterations; else
///             numbers[2]: the condition is made by 0 an operation, 1 a branch, 2 a loop within,
///             3 the body, as one more variable
///   call      of function numbers[0]; in: its arguments but for the counter, which is
///             numbers[1], or one less than the counter of the calling function
///   slope     in: real numbers; block: from these to one number; out: its slope in each input.
///             In a third of them one input is a value of the outermost graph instead, but not in
///             functions that call functions
///   map, scan, fold  in: numbers[0] elements, then states; block: (states, elements) to
///             (states or results)
struct Statement {
  std::string op;
  std::vector<Named> in;
  std::vector<Named> out;
  std::vector<double> numbers = {};
  std::vector<Block> blocks = {};
  int parallel = 32;
  bool reverse = false;
  std::vector<int> after = {};
  std::string device = {};
};

struct Recipe {
  std::uint64_t seed = 0;
  DType real = DType::f64;
  struct Input {
    Named name;
    std::vector<std::vector<double>> values;  // by run
  };
  struct Var {
    Type type;  // f or v
    std::vector<double> initial;
    std::string device = {};
  };
  /// Its first argument is a counter: while that is above 0, what `step` yields, which may call
  /// functions; else `last`.
  struct Function {
    std::vector<Named> arguments;
    Block last, step;  // with the same arguments and results of the same types
  };
  int runs = 1;
  std::vector<Input> inputs;
  std::vector<Var> variables;
  std::vector<Function> functions;
  Block body;  // its results are fetched
};

// ---- what operations there are

class Kitchen;

struct Rule {
  const char* name;
  std::vector<Type> in;
  std::vector<Type> out;
  int weight;
  std::function<Exprs(Kitchen&, const Exprs&, const std::vector<double>&)> make;
  int variable = -1;  // for a rule on variables: their type
  bool is_effect = false;
  bool may_fail = false;  // for some operands it is an error
};

const std::vector<Rule>& rules();
/// Returns null if there is no rule of that name.
const Rule* find_rule(const std::string& name);

// ---- building

/// A recipe's devices: left out, all of them CPUs, or as it names them.
enum class Devices { none, cpus, all };

/// How slopes are built: by `gradients`, or as central differences without `gradients`.
struct Slopes {
  double step = 0;  // step of the differences; 0: gradients
};

Tensor tensor_of(const Recipe& recipe, Type t, const std::vector<double>& numbers);

/// Builds the graph of a recipe, or runs its C++ code on an eager scope.
class Kitchen {
 public:
  Kitchen(const Recipe& recipe, Graph& graph, Devices devices, Slopes slopes = {});
  /// Computes at once; while a function is traced, builds its graph. Variables are of the scope.
  Kitchen(const Recipe& recipe, Eager& scope, Exprs inputs, std::vector<Variable> variables,
          Devices devices);

  const Exprs& inputs() const { return inputs_; }
  const Exprs& fetches() const { return fetches_; }
  const std::vector<Variable>& variables() const { return variables_; }

  // For rules.
  DType real() const { return recipe_.real; }
  Expr constant(Type t, const std::vector<double>& numbers = {});
  /// A variable of that type by a number drawn for it; -1: there is none.
  int variable(Type t, double number) const;
  using Scope = std::shared_ptr<void>;
  Scope on(const std::string& device);
  /// Sets the device of its operations, whatever scope they stand in: an access elsewhere is
  /// refused.
  static std::string home_of(const Recipe::Var& v) { return v.device.empty() ? "cpu:0" : v.device; }
  Scope at_home(int variable) {
    return on(home_of(recipe_.variables[static_cast<std::size_t>(variable)]));
  }
  Tensor tensor(Type t, const std::vector<double>& numbers) const {
    return tensor_of(recipe_, t, numbers);
  }
  DType dtype_of_type(Type t) const;
  static Shape shape_of_type(Type t);
  ValueSpec spec_of_type(Type t) const;

 private:
  using Callable = GraphFunction<Exprs(Exprs)>;

  void make_all();
  void make_functions();
  Exprs put_function(const Recipe::Function& f, const Exprs& v);
  Exprs make_call(const Statement& s, const Exprs& in);
  Expr use(const Named& n);
  Exprs use_all(const std::vector<Named>& all);
  void define(const Named& n, const Expr& e) { known_[n.id] = e; }
  Exprs put(const Block& block, const Exprs& arguments);
  void put(const Statement& s);
  Exprs make(const Statement& s);
  void make_outer_values(const Block& block);
  Exprs make_slopes(const Statement& s, const Exprs& in);
  Exprs make_while(const Statement& s, const Exprs& in);
  Expr condition_of(const Statement& s, const Exprs& v, int made_by);
  Exprs make_scan(const Statement& s, const Exprs& in);

  const Recipe& recipe_;

 public:
  detail::Reader& g;

 private:
  Graph* const graph_;  // null: on the scope
  Eager* const scope_;
  const Devices devices_;
  const Slopes slopes_;
  std::map<int, Expr> known_;
  std::map<const Statement*, Expr> outer_;  // values of the outermost graph for slopes
  std::vector<Callable> functions_;
  std::map<int, Expr> outside_;  // known to functions besides their arguments
  bool is_in_function_ = false;
  std::optional<Expr> counter_;  // counter of the function whose step is being put
  Exprs inputs_, fetches_;
  std::vector<Variable> variables_;
};

// ---- what is known of them

std::string text_of(const Recipe& r);
/// Has it operations that are errors for some operands?
bool may_fail(const Recipe& r);
int statements_in(const Recipe& r);
bool has_slopes(const Recipe& r);
/// Do the fetches need all effects? Code that runs at once has them in any case.
bool does_all(const Recipe& r);

}  // namespace troupe::test
