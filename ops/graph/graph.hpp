// Graphs: the program as data, and the reader that appends to it.
//
//   Graph g;
//   Expr x = g.input("x", DType::f32, {kAny, 3});
//   Expr y = relu(x * 2.0);                    // appends two nodes
//   std::puts(g.text().c_str());
//
// Sub-graphs: the body of a loop, a branch, a function is a graph inside a node (subgraph.hpp).
// While it is being built, all binds on the outer graph go into it, so that a user's expressions in
// a body become nodes of the body; outer values that it uses become its captures automatically.
// Ownership: a graph owns its nodes; expressions refer to it by address, so it is neither moved nor
// destroyed while they live (copies, which passes make, have no expressions). Threads: one at a
// time while it is built; a finished graph may be read by all threads. Invariants: 1. nodes are
// only appended: a node's id never changes, and every input and control predecessor has a smaller
// id, so ids are both a topological and the program's order; 2. every output's dtype is known, its
// shape as far as inference goes; 3. effects on one state happen in program order (DESIGN §5): the
// order is in the ids, lowering makes it explicit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

namespace detail {

class FunctionDef;
struct SubGraph;

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Edge> inputs;
  std::vector<std::int32_t> controls;  // nodes that must have finished before this one fires
  std::vector<ValueSpec> outputs;
  std::string name;  // given by the user; empty: `scope/Op_id`, composed on demand
  std::shared_ptr<const std::string> scope;  // the open scopes' names, ending in '/'; null: none
  // constraint, such as `cpu:0` (actors/placement/constraint.hpp); empty: anywhere
  std::string device;
  Site site;
  std::int32_t state = -1;   // index into the graph's states
  std::uint64_t origin = 0;  // build-time id, preserved by passes
};

}  // namespace detail

class Graph final : public detail::Reader {
 public:
  Graph() : detail::Reader(1) {}
  Graph(const Graph&) = default;
  Graph& operator=(const Graph&) = default;
  /// A sub-graph, open until `seal`: until then `outer` binds here. Errors name it by `what`: "the
  /// body of while_loop 'train'".
  Graph(Graph& outer, std::string what);
  /// A sub-graph of the outermost graph `root` that binds by itself: `root` does not bind into it.
  static Graph detached(Graph& root, std::string what);
  /// A copy of the first `nodes` nodes of a finished sub-graph, open again, as one of `outer`: what
  /// differentiation appends to. Nodes keep their ids and origins; `captures` begins anew. An
  /// expression of the finished graph, as a user's gradient function may hold one, means the
  /// copy's.
  Graph(std::shared_ptr<const Graph> finished, Graph& outer, std::int32_t nodes);
  /// For passes, whose graphs no expression refers to: copying each program took a third of all
  /// allocations.
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  /// A value given at every run. Throws already_exists if the name is taken.
  Expr input(const std::string& name, DType dtype, const Shape& shape, At at = At::current());

  // ---- building

  Exprs bind(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
             const detail::Site& site, int state = -1) override;
  Expr adopt(const Expr& foreign, const detail::Site& site) override;
  void require_open(std::string_view op, const detail::Site& site) const override;
  ValueSpec spec_of(const Expr& e) const override;
  int declare(const detail::StateSpec& spec, const detail::Site& site) override;
  int declare_new(detail::StateSpec spec, const detail::Site& site) override;
  std::span<const detail::StateSpec> declared_states() const override { return states(); }
  const detail::StateSpec& state_spec(int state) const override {
    return states()[static_cast<std::size_t>(state)];
  }

  /// Values of the outer graph that this sub-graph uses, and the Input nodes that stand for them
  /// here.
  struct Capture {
    Expr outer;
    detail::Edge inner;
  };
  const std::vector<Capture>& captures() const { return captures_; }
  /// Nodes of the outer graph that must finish before some node here starts.
  const std::vector<std::int32_t>& outer_controls() const { return outer_controls_; }
  /// Makes this a function's body: values of the outer graph come in not as Input nodes but out of
  /// `environment`, by `take_in`.
  using TakeIn = std::function<Expr(Graph& here, const Expr& outer, const detail::Site& site)>;
  void take_in_from(detail::Edge environment, TakeIn take_in) {
    environment_edge_ = environment;
    take_in_ = std::move(take_in);
  }
  detail::Edge environment() const { return environment_edge_; }
  /// Checks a node that is being bound and holds this sub-graph, or calls the function whose body
  /// this is: `node` is about to go into `here`. Throws to refuse it. Runs once for each key.
  using BoundCheck =
      std::function<void(Graph& here, const detail::Node& node, const detail::SubGraph& sub)>;
  void check_when_bound(const std::string& key, BoundCheck check) const;
  bool has_bound_checks() const { return !bound_checks_.empty(); }
  /// The index of a value of the outermost graph in its functions' environments.
  std::int64_t environment_slot(detail::Edge outer);
  /// The values of the outermost graph that have such an index.
  const std::map<detail::Edge, std::int64_t>& environment_slots() const {
    return root_ ? root_->environment_ : environment_;
  }
  /// True for the graph that a function's parameters are arguments of.
  bool is_function_body() const { return static_cast<bool>(take_in_); }

  // ---- functions (function_def.hpp); those of the outermost graph

  detail::FunctionDef& add_function(std::shared_ptr<detail::FunctionDef> function);
  void define(detail::FunctionDef& function, std::shared_ptr<const detail::SubGraph> body);
  const std::vector<std::shared_ptr<detail::FunctionDef>>& functions() const {
    return root_ ? root_->functions_ : functions_;
  }
  /// For passes, whose functions are others.
  void set_functions(std::vector<std::shared_ptr<detail::FunctionDef>> functions) {
    functions_ = std::move(functions);
  }
  /// The outermost graph.
  Graph& root() { return root_ ? *root_ : *this; }
  /// The body of a function that this is, or is inside of; null: none.
  Graph* function_body();

  /// An argument of a sub-graph: an Input that its node feeds.
  Expr argument(const ValueSpec& spec, const detail::Site& site);
  /// Ends the redirection of binds: nodes that are bound on the outer graph go there again.
  void close();
  /// Ends the building of a sub-graph: binding here throws from now on, naming it.
  void seal();
  /// Seals an outermost graph that a trace has filled; errors name it by `what`.
  void seal_as(std::string what) {
    what_ = std::move(what);
    is_sealed_ = true;
  }
  /// While it lives, a sealed graph is open again: a trace's gradient is appended so.
  class Reopened {
   public:
    explicit Reopened(Graph& graph) : graph_(graph), was_(std::exchange(graph.is_sealed_, false)) {}
    Reopened(Reopened&&) = delete;
    ~Reopened() { graph_.is_sealed_ = was_; }

   private:
    Graph& graph_;
    const bool was_;
  };
  bool is_sealed() const { return is_sealed_; }
  const std::string& what() const { return what_; }
  /// Returns this graph's counterpart of an outer graph's expression; empty if there is none.
  Expr captured(const Expr& outer);
  Graph* outer() const { return outer_; }
  /// The innermost sub-graph being built in here, or the graph itself.
  Graph& current() override;
  /// A new version of a node with sub-graphs: the same inputs, the outputs it had, and more of
  /// them. Expressions that refer to it refer to the new version.
  void extend(std::int32_t id, detail::Attrs attrs, const std::vector<ValueSpec>& more_outputs);
  /// For engines: the seed of initial values that have none.
  void seed_states(std::uint64_t seed);
  /// For placement: where a state lives, in full.
  void settle(std::int32_t state, std::string device) {
    own_states().specs[static_cast<std::size_t>(state)].device = std::move(device);
  }

  /// Nodes made while a scope lives are named `scope/...`, constrained to its device, and start
  /// after its controls; variables, queues and actors that are declared meanwhile, inside of loops,
  /// branches and functions too, are named `scope/...`. Scopes nest: the inner device names nodes,
  /// their devices, or both, and the outer one supplies the rest (`/node:w1` and in it `cpu:1`:
  /// `/node:w1/cpu:1`). `colocate_with` replaces the devices around it; a device inside it that
  /// contradicts it is refused when the graph is compiled.
  class Scope {
   public:
    Scope(Scope&&) = delete;
    ~Scope();

   private:
    friend class Graph;
    Scope(Graph& graph, std::string prefix, std::string device, std::vector<std::int32_t> controls,
          bool is_of_states = false);
    Graph& graph_;
    std::shared_ptr<const std::string> outer_scope_, outer_state_scope_;
    std::string outer_device_;
    std::size_t outer_controls_;
  };
  [[nodiscard]] Scope scope(const std::string& name) { return {current(), name, {}, {}, true}; }
  /// Prefixes the names of nodes alone; the library opens one around a loop or a gradient.
  [[nodiscard]] Scope node_scope(const std::string& name) { return {current(), name, {}, {}}; }
  [[nodiscard]] Scope on_device(const std::string& device) { return {current(), {}, device, {}}; }
  /// On the same device as the expression's node, wherever that goes. Throws invalid_argument for
  /// another graph's.
  [[nodiscard]] Scope colocate_with(const Expr& e, At at = At::current());
  [[nodiscard]] Scope after(std::initializer_list<Expr> first, At at = At::current());
  /// Gives the expression's node a name, for fetching, errors and views. Throws already_exists.
  Expr named(const Expr& e, const std::string& name);

  // ---- reading

  std::int32_t size() const { return static_cast<std::int32_t>(nodes_.size()); }
  const detail::Node& node(std::int32_t id) const { return nodes_[id]; }
  const std::vector<detail::Node>& nodes() const { return nodes_; }
  /// A sub-graph's are those of the outermost graph.
  const std::vector<detail::StateSpec>& states() const {
    return root_ ? root_->states() : states_->specs;
  }
  const ValueSpec& spec(detail::Edge e) const { return nodes_[e.node].outputs[e.output]; }
  std::string name_of(std::int32_t id) const;
  /// `MatMul 'layer1/MatMul_7' (train.cpp:41)`: how errors name a node.
  std::string describe(std::int32_t id) const;
  /// The expression of a named node; throws not_found.
  Expr find(const std::string& name);
  Expr expr(detail::Edge e) { return Expr(this, e); }
  /// Returns the edges of expressions to be fed or fetched. Throws invalid_argument, naming the
  /// expression by its index, if it is not of this graph. Throws too if it is to be fed and
  /// something was built with its value.
  std::vector<detail::Edge> edges_to_feed(const std::vector<Expr>& exprs) const;
  std::vector<detail::Edge> edges_to_fetch(const std::vector<Expr>& exprs) const {
    return edges_of(exprs, "fetch");
  }
  /// Marks the node as the whole of an optimizer's step, which the user is to fetch.
  void mark_step(const Expr& e) {
    steps_.push_back(e.edge().node);
    root().has_steps_ = true;
  }
  /// The marked nodes of this graph.
  const std::vector<std::int32_t>& steps() const { return steps_; }
  /// True if a node is marked, in a sub-graph or a function too.
  bool has_steps() const { return root_ ? root_->has_steps() : has_steps_; }
  /// Records that something was built with the value of this edge: feeding it is refused.
  void build_on(detail::Edge e) { built_on_.insert(e); }
  /// Grows with every node and every extension: plans are cached by it.
  std::uint64_t version() const { return nodes_.size() + extensions_; }
  /// Unique among the graphs of this process; copies get their own.
  std::uint64_t id() const { return id_.value; }
  /// One node a line.
  std::string text() const;

  /// Operands of pointwise operations whose axes have names are aligned by name: from the first
  /// NameDims of a graph on, `align` takes the inputs of each such operation, and returns the
  /// inputs that are bound in their place. ops/mesh sets it before main.
  using AlignByName = Exprs (*)(Graph& here, std::span<const Expr> inputs,
                                const detail::Site& site);
  static void set_align_by_name(AlignByName align) { align_by_name_ = align; }
  void set_has_names() { root().has_names_ = true; }

  /// Appends a node as it is, for passes: no inference, no scope.
  std::int32_t append(detail::Node node);
  /// The largest build-time id given so far, by the outermost graph.
  std::uint64_t origins() const { return root_ ? root_->origins() : origins_; }
  /// Ids up to `last` are in use; new nodes get larger ones.
  void reserve_origins(std::uint64_t last) {
    Graph& all = root();
    all.origins_ = last > all.origins_ ? last : all.origins_;
  }
  /// A graph with this one's states, functions and names but no nodes: where a pass writes to.
  Graph blank() const;

 private:
  Exprs bind_here(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
                  const detail::Site& site, int state);
  void place(detail::Node& node, const Replayed* again);
  Expr capture(const Expr& outer, const detail::Site& site);
  /// Runs the checks of the node's sub-graphs, or of the function that it calls.
  void check_bound(const detail::Node& node);
  /// Runs the checks of all nodes that were bound before some function had a body.
  void check_all_bound();
  [[noreturn]] void refuse_foreign(const Expr& foreign, const detail::Site& site) const;
  /// Returns true if an expression of `reader` is valid in this graph too: `reader` is this graph,
  /// or the graph that this one is a copy of.
  bool stands_for(const detail::Reader& reader, detail::Edge e) const;
  std::vector<detail::Edge> edges_of(const std::vector<Expr>& exprs, const char* what) const;

  struct Id {
    Id();
    Id(const Id&) : Id() {}
    Id& operator=(const Id&) { return *this; }
    std::uint64_t value;
  };
  Id id_;
  std::vector<detail::Node> nodes_;
  /// Shared by a graph and its versions from passes, until one of them changes the states.
  class States final : public detail::Counted {
   public:
    States() = default;
    States(const States& o) : detail::Counted(), specs(o.specs), number_of(o.number_of) {}
    std::vector<detail::StateSpec> specs;
    std::unordered_map<std::string, std::int32_t> number_of;  // by name
  };
  States& own_states();

  detail::Ref<States> states_{new States};
  std::unordered_map<std::string, std::int32_t> names_;  // named nodes, by name
  // the open scopes' names, ending in '/', null if none is open: for nodes, for states
  std::shared_ptr<const std::string> scope_, state_scope_;
  std::vector<std::int32_t> steps_;  // marked nodes of this graph
  bool has_steps_ = false;           // kept by the outermost graph: it or a sub-graph has steps
  bool has_names_ = false;           // kept by the outermost graph: some axis has a name
  inline static AlignByName align_by_name_ = nullptr;
  std::string device_;
  std::vector<std::int32_t> controls_;
  std::uint64_t origins_ = 0;  // build-time ids given so far, by the outermost graph
  std::uint64_t extensions_ = 0;
  std::vector<std::shared_ptr<detail::FunctionDef>> functions_;
  std::map<detail::Edge, std::int64_t> environment_;  // values that functions use: their indices
  // constants that sub-graphs have copies of, and edges that gradients count by
  std::set<detail::Edge> built_on_;
  // Used by sub-graphs.
  Graph* outer_ = nullptr;
  Graph* root_ = nullptr;   // the outermost; null if this is it
  Graph* inner_ = nullptr;  // the one being built inside this one
  std::string what_;
  bool is_sealed_ = false;
  std::vector<Capture> captures_;
  std::vector<std::int32_t> outer_controls_;
  detail::Edge environment_edge_;
  TakeIn take_in_;  // set for a function's body
  // used in a graph's first version only
  mutable std::vector<std::pair<std::string, BoundCheck>> bound_checks_;
  std::shared_ptr<const Graph> copy_of_;
  std::int32_t copied_ = 0;  // nodes
};

}  // namespace troupe
