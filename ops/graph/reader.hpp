// Readers: each gives `bind` a meaning. A graph appends a node, an eager scope computes, a tape
// records. Depth orders them: if operands of several readers meet, the innermost reader binds and
// adopts the values of the outer ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

namespace detail {

struct OpDef;

}  // namespace detail

class Graph;
class Variable;
class Console;
class Queue;

namespace detail {

class Reader {
 public:
  using At = std::source_location;

  virtual ~Reader() = default;
  /// Inputs belong to this reader (see `adopt`). Throws Error naming op and site.
  virtual Exprs bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                     int state = -1) = 0;
  /// An expression of this reader with the value of another reader's.
  virtual Expr adopt(const Expr& foreign, const Site& site) = 0;
  /// Throws invalid_argument, naming op and site, if nothing more may be bound here.
  virtual void require_open(std::string_view op, const Site& site) const {
    (void)op;
    (void)site;
  }
  virtual ValueSpec spec_of(const Expr& e) const = 0;
  /// Registers a state by its full name, for programs and libraries that share it: the same name
  /// and spec give the same index, other specs throw already_exists.
  virtual int declare(const StateSpec& spec, const Site& site) = 0;
  /// Registers a user's state: open scopes prefix its name, and a name that begins with '/' is a
  /// full one. Throws already_exists, naming both lines, if that name is taken; consoles and equal
  /// actors are shared.
  virtual int declare_new(StateSpec spec, const Site& site);
  /// The states, by number.
  virtual std::span<const StateSpec> declared_states() const { return {}; }
  virtual const StateSpec& state_spec(int state) const = 0;
  int depth() const { return depth_; }
  /// Returns the reader that binds for this one now: the innermost open sub-graph.
  virtual Reader& current() { return *this; }

  /// While it lives, nodes that the reader binds carry `site` instead of the line that bound them,
  /// in sub-graphs opened meanwhile too: the forward node's line for a gradient, the caller's for
  /// an optimizer or a layer. Nests.
  class AtSite {
   public:
    AtSite(Reader& reader, const Site& site)
        : reader_(reader.current()), outer_(reader_.borrowed_site_) {
      reader_.borrowed_site_ = site;
    }
    AtSite(AtSite&&) = delete;
    ~AtSite() { reader_.borrowed_site_ = outer_; }

   private:
    Reader& reader_;
    const std::optional<Site> outer_;
  };

  /// The node of another graph that a bind repeats (ops/eager/replay.hpp). A reader keys random
  /// draws by the node's origin; a graph also copies its name, scope and device.
  struct Replayed {
    const Graph& graph;
    std::int32_t id;
    std::span<const StateSpec> states;       // the specs behind state numbers in `graph`
    std::span<const std::int32_t> controls;  // the node's controls, as nodes of the reader
    std::uint64_t shift = 0;                 // added to origins that a graph copies
  };
  /// While it lives, the next bind repeats `node`, which must outlive it. Nests.
  class Replaying {
   public:
    Replaying(Reader& reader, const Replayed& node)
        : reader_(reader), outer_(std::exchange(reader.replayed_, &node)) {}
    Replaying(Replaying&&) = delete;
    ~Replaying() { reader_.replayed_ = outer_; }

   private:
    Reader& reader_;
    const Replayed* const outer_;
  };

  /// Returns the line to report for a node that was bound at `given`.
  const Site& site_for(const Site& given) const { return borrowed_site_ ? *borrowed_site_ : given; }

  // Source operations: values with no inputs.
  Expr constant(Tensor value, At at = At::current());
  template <class T>
  requires std::is_arithmetic_v<T> Expr constant(T value, At at = At::current()) {
    return constant(Tensor::scalar(value), at);
  }
  Expr constant(const std::string& element, At at = At::current()) {
    return constant(Tensor::string(element), at);
  }
  /// Extents may be expressions: `g.zeros(DType::f32, {n, 4})`, `g.ones(DType::f32, shape_of(x))`.
  Expr zeros(DType dtype, const detail::Extents& shape, At at = At::current());
  Expr ones(DType dtype, const detail::Extents& shape, At at = At::current());
  /// [0, 1) for floating dtypes, all bits for integers; a new draw every run (DESIGN: keyed by
  /// seed, op, step and iteration).
  Expr random_uniform(const Shape& shape, DType dtype = DType::f32, At at = At::current());
  Expr random_normal(const Shape& shape, DType dtype = DType::f32, At at = At::current());
  Expr truncated_normal(const Shape& shape, DType dtype = DType::f32, At at = At::current());
  /// A mutable tensor that outlives runs. On a graph its name is `SCOPES/name`, with the scopes
  /// that `Graph::scope` has opened; if it begins with '/', the rest is the whole name. Throws
  /// already_exists, naming both lines, if the graph has declared that name: share a variable by
  /// its handle or by `find_variable`. Graphs of one engine share variables by name; a second
  /// initial value is not used, and `compile` warns of it. An eager scope has no scopes, and there
  /// a declaration that its line repeats gives the same variable.
  Variable variable(const std::string& name, const Tensor& initial, At at = At::current());
  Variable variable(const std::string& name, DType dtype, const Shape& shape, Initializer init,
                    At at = At::current());
  /// Starts as the value that an expression has at the first call of the traced function that
  /// declares it, or as an eager scope's value. Throws failed_precondition for an expression of a
  /// graph that is built by hand, which has no value yet.
  Variable variable(const std::string& name, const Expr& initial, At at = At::current());
  /// Returns the variable with this full name (`a/w`, not prefixed by open scopes). Throws
  /// not_found, with similar names.
  Variable find_variable(const std::string& name, At at = At::current());
  /// A place to print lines. Scopes do not prefix its name; graphs of an engine that name the same
  /// console share it.
  Console console(const std::string& name = "console", At at = At::current());
  /// First in, first out; named as variables are. Enqueue waits while `capacity` elements are in,
  /// dequeue while none is.
  Queue fifo_queue(const std::string& name, std::vector<ValueSpec> components,
                   std::int64_t capacity, At at = At::current());
  /// Elements leave in random order, once more than `min_after_dequeue` are in; named as variables
  /// are.
  Queue shuffling_queue(const std::string& name, std::vector<ValueSpec> components,
                        std::int64_t capacity, std::int64_t min_after_dequeue,
                        std::uint64_t seed = 0, At at = At::current());

 protected:
  explicit Reader(int depth) : depth_(depth) {}
  /// One within another, whose lines it borrows.
  Reader(int depth, const Reader& outer) : depth_(depth), borrowed_site_(outer.borrowed_site_) {}
  Reader(const Reader& o) : depth_(o.depth_) {}
  Reader& operator=(const Reader&) { return *this; }
  /// Returns the node that the current bind repeats, or null, and ends the announcement.
  const Replayed* take_replayed() { return std::exchange(replayed_, nullptr); }

 private:
  int depth_;
  std::optional<Site> borrowed_site_;   // the innermost AtSite's
  const Replayed* replayed_ = nullptr;  // the innermost Replaying's, until a bind takes it
};

}  // namespace detail

}  // namespace troupe
