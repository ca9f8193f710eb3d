#include <troupe/ops/graph/graph.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/colocation.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {

namespace {
// The traced function whose code runs now, for errors.
std::string in_trace() {
  const Tracing* const trace = Tracing::active();
  return trace ? ", in " + trace->name() : std::string();
}
}  // namespace

Graph::Id::Id() {
  static std::atomic<std::uint64_t> next{1};  // publishes nothing: only its own value is used
  value = next.fetch_add(1, std::memory_order_relaxed);
}

Graph& Graph::current() {
  // binds on a graph around a trace go into the trace
  if (Tracing* const trace = Tracing::active(); trace && trace->is_within(root()))
    return trace->graph().current();
  return inner_ ? inner_->current() : *this;
}

Expr Graph::input(const std::string& name, DType dtype, const Shape& shape, At at) {
  if (const auto taken = names_.find(scope_ ? *scope_ + name : name); taken != names_.end())
    throw Error(Code::already_exists, fmt::format("input '{}' at {}: the name is taken by {}", name,
                                                  Site(at).text(), describe(taken->second)));
  Exprs made = bind_here(find_op("Input"), {}, Attrs{{"dtype", dtype}, {"shape", shape}}, at, -1);
  return named(made[0], name);
}

Exprs Graph::bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                  int state) {
  Graph& here = current();
  const Site& line = here.site_for(site_for(site));
  if (std::all_of(inputs.begin(), inputs.end(),
                  [&](const Expr& e) { return &e.reader() == &here; })) {
    here.require_open(op.name, line);
    if (op.pointwise && inputs.size() > 1 && align_by_name_ && here.root().has_names_) {
      const Exprs named = align_by_name_(here, inputs, line);
      return here.bind_here(op, named, std::move(attrs), line, state);
    }
    return here.bind_here(op, inputs, std::move(attrs), line, state);
  }
  std::vector<Expr> mine;
  mine.reserve(inputs.size());
  for (const Expr& e : inputs) {
    try {
      mine.push_back(&e.reader() == &here ? e : here.adopt(e, line));
    } catch (const Error& error) {
      const auto* other = dynamic_cast<const Graph*>(&e.reader());
      if (!other || !other->outer_) throw;
      const auto beside = std::find_if(inputs.begin(), inputs.end(),
                                       [&](const Expr& x) { return &x.reader() == &here; });
      const std::string where = here.outer_ ? "inside " + here.what_ : std::string("outside of it");
      throw Error(
          error.code(),
          fmt::format("{} at {}: its inputs come from different frames: {} is inside {}, and {} is "
                      "{}; only the results of a loop, a branch "
                      "or a function are known outside",
                      op.name, line.text(), other->describe(e.edge().node), other->what_,
                      beside == inputs.end() ? "this" : here.describe(beside->edge().node), where));
    }
  }
  here.require_open(op.name, line);
  return here.bind_here(op, mine, std::move(attrs), line, state);
}

void Graph::require_open(std::string_view op, const Site& site) const {
  if (is_sealed_)
    throw Error(
        Code::invalid_argument,
        fmt::format("{} at {}{} uses a value from inside {}; only its results are known outside",
                    op, site.text(), in_trace(), what_));
}

Exprs Graph::bind_here(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                       int state) {
  std::vector<ValueSpec> specs;
  specs.reserve(inputs.size());
  Node node;
  node.inputs.reserve(inputs.size());
  for (const Expr& e : inputs) {
    specs.push_back(spec(e.edge()));
    node.inputs.push_back(e.edge());
  }
  const Replayed* again = take_replayed();
  try {
    node.outputs = infer_outputs(op, specs, attrs);
  } catch (const Error& e) {
    std::string given;
    for (const ValueSpec& s : specs) given += (given.empty() ? "" : ", ") + s.text();
    throw Error(e.code(), fmt::format("{}({}){} at {}: {}", op.name, given, within(site),
                                      site.text(), e.what()));
  }
  node.op = &op;
  node.attrs = std::move(attrs);
  node.site = site;
  node.state = state;
  place(node, again);
  if (op.evaluate) check_bound(node);
  std::int32_t id = append(std::move(node));
  if (!nodes_[id].name.empty() && !names_.emplace(nodes_[id].name, id).second)
    nodes_[id].name.clear();  // taken: the repeated node is known by its op and origin
  Exprs out;
  out.reserve(nodes_[id].outputs.size());
  for (std::size_t i = 0; i < nodes_[id].outputs.size(); ++i)
    out.push_back(Expr(this, Edge{id, static_cast<std::int32_t>(i)}));
  return out;
}

Expr Graph::adopt(const Expr& foreign, const Site& site) {
  if (inner_) return current().adopt(foreign, site);
  const Site& line = site_for(site);
  // A value from outside of a trace becomes a hidden input.
  const auto is_outside = [&](const Tracing& trace) {
    const auto* other = dynamic_cast<const Graph*>(&foreign.reader());
    return !other || trace.is_within(other->root_ ? *other->root_ : *other);
  };
  if (Tracing* const trace = foreign.is_empty() ? nullptr : Tracing::active();
      trace && &root() == &trace->graph() && is_outside(*trace)) {
    const Expr at_root = trace->callbacks().capture(foreign, line);
    return &at_root.reader() == this ? at_root : capture(at_root, line);
  }
  if (foreign.is_empty() || foreign.reader().depth() == 0)
    return bind(find_op("Constant"), {}, Attrs{{"value", foreign.value()}}, line)[0];
  if (stands_for(foreign.reader(), foreign.edge())) return Expr(this, foreign.edge());
  for (Graph* g = outer_; g; g = g->outer_)
    if (g->stands_for(foreign.reader(), foreign.edge()))
      return capture(Expr(g, foreign.edge()), line);
  refuse_foreign(foreign, line);
}

bool Graph::stands_for(const Reader& reader, Edge e) const {
  if (&reader == this) return true;
  for (const Graph* g = this; g->copy_of_ && e.node < g->copied_; g = g->copy_of_.get())
    if (g->copy_of_.get() == &reader) return true;
  return false;
}

void Graph::refuse_foreign(const Expr& foreign, const Site& site) const {
  const auto* other = dynamic_cast<const Graph*>(&foreign.reader());
  if (other && (other->outer_ || other->is_sealed_))
    throw Error(
        Code::invalid_argument,
        fmt::format("at {}{}: {} is inside {}; only its results are known outside", site.text(),
                    in_trace(), other->describe(foreign.edge().node), other->what_));
  throw Error(Code::invalid_argument, fmt::format("at {}: expressions of two graphs meet; build "
                                                  "one graph, or feed one's output to the other",
                                                  site.text()));
}

// ---- sub-graphs

Graph::Graph(Graph& outer, std::string what)
    : Reader(outer.depth() + 1, outer), scope_(outer.scope_), state_scope_(outer.state_scope_),
      device_(outer.device_), outer_(&outer), root_(&outer.root()), what_(std::move(what)) {
  outer.inner_ = this;
}

Graph Graph::detached(Graph& root, std::string what) {
  Graph* const open = root.inner_;
  Graph made(root, std::move(what));
  root.inner_ = open;
  made.scope_.reset();
  made.state_scope_.reset();
  made.device_.clear();
  return made;
}

Graph::Graph(std::shared_ptr<const Graph> finished, Graph& outer, std::int32_t nodes)
    // deeper than the original: the copy binds if operands of both meet
    : Reader(std::max(outer.depth(), finished->depth()) + 1, outer) {
  *this = *finished;
  nodes_.resize(static_cast<std::size_t>(nodes));
  std::erase_if(names_, [&](const auto& named) { return named.second >= nodes; });
  outer_ = &outer;
  root_ = &outer.root();
  inner_ = nullptr;
  is_sealed_ = false;
  if (!take_in_) captures_.clear();
  outer_controls_.clear();
  bound_checks_.clear();
  copy_of_ = std::move(finished);
  copied_ = nodes;
}

Expr Graph::captured(const Expr& outer) {
  if (&outer.reader() == this) return outer;
  Expr near = outer;
  if (&outer.reader() != outer_) {
    if (!outer_) return {};
    near = outer_->captured(outer);
    if (near.is_empty()) return {};
  }
  for (const Capture& c : captures_)
    if (c.outer.edge() == near.edge()) return Expr(this, c.inner);
  return {};
}

void Graph::close() {
  if (outer_ && outer_->inner_ == this) outer_->inner_ = nullptr;
}

void Graph::seal() {
  close();
  is_sealed_ = true;
}

Expr Graph::argument(const ValueSpec& spec, const Site& site) {
  Node node;
  node.op = &find_op("Input");
  node.attrs = Attrs{{"dtype", spec.dtype}, {"shape", spec.shape}};
  node.outputs = {spec};
  node.site = site_for(site);
  node.scope = scope_;
  node.origin = ++root().origins_;
  return Expr(this, Edge{append(std::move(node)), 0});
}

Expr Graph::capture(const Expr& outer, const Site& site) {
  Expr near = &outer.reader() == outer_ ? outer : outer_->capture(outer, site);
  for (const Capture& c : captures_)
    if (c.outer.edge() == near.edge()) return Expr(this, c.inner);
  const Node& source = outer_->node(near.edge().node);
  // Known here as well as there; but of a floating one there may be a gradient, and one that starts
  // after something brings that about.
  if (source.op->name == "Constant" && source.controls.empty() &&
      !is_floating(source.outputs[0].dtype) && !is_complex(source.outputs[0].dtype)) {
    Node copy = source;
    copy.controls.clear();
    copy.scope = scope_;
    copy.name.clear();
    copy.origin = ++root().origins_;
    outer_->build_on(near.edge());
    Expr mine(this, Edge{append(std::move(copy)), 0});
    captures_.push_back({near, Edge{}});
    captures_.back().inner = mine.edge();
    return mine;
  }
  // the node that takes it in is bound here, not in the open sub-graph
  Graph* inner = std::exchange(inner_, nullptr);
  Expr mine = take_in_ ? take_in_(*this, near, site) : argument(outer_->spec(near.edge()), site);
  inner_ = inner;
  captures_.push_back({near, mine.edge()});
  return mine;
}

std::int64_t Graph::environment_slot(Edge outer) {
  return environment_.emplace(outer, static_cast<std::int64_t>(environment_.size())).first->second;
}

void Graph::check_when_bound(const std::string& key, BoundCheck check) const {
  if (std::none_of(bound_checks_.begin(), bound_checks_.end(),
                   [&](const auto& known) { return known.first == key; }))
    bound_checks_.emplace_back(key, std::move(check));
}

void Graph::check_bound(const Node& node) {
  const auto ask = [&](const SubGraph& sub) {
    // A check may add another one.
    for (std::size_t i = 0; i < sub.graph.bound_checks_.size(); ++i) {
      const BoundCheck check = sub.graph.bound_checks_[i].second;
      check(*this, node, sub);
    }
  };
  for (const auto& sub : subgraphs_of(node)) ask(*sub);
  if (const FunctionDef* function = function_of(node); function && function->body)
    ask(*function->body);
}

void Graph::check_all_bound() {
  std::size_t checks = 0;
  const std::function<void(Graph&)> walk = [&](Graph& graph) {
    checks += graph.bound_checks_.size();
    for (const Node& node : graph.nodes_) {
      for (const auto& sub : subgraphs_of(node)) walk(const_cast<SubGraph&>(*sub).graph);
      if (node.op->evaluate) graph.check_bound(node);
    }
  };
  // A check in one function may add a check to another.
  for (std::size_t known = checks + 1; known != checks;) {
    known = std::exchange(checks, 0);
    walk(root());
    for (const auto& f : root().functions_)
      if (f->body) walk(const_cast<SubGraph&>(*f->body).graph);
  }
}

Graph* Graph::function_body() {
  Graph* g = this;
  while (g && !g->take_in_) g = g->outer_;
  return g;
}

FunctionDef& Graph::add_function(std::shared_ptr<FunctionDef> function) {
  root().functions_.push_back(std::move(function));
  return *root().functions_.back();
}

void Graph::define(FunctionDef& function, std::shared_ptr<const SubGraph> body) {
  function.body = std::move(body);
  analyse_defined(function, root().functions_);
  ++root().extensions_;
  if (function.body->graph.has_bound_checks()) root().check_all_bound();
}

void Graph::extend(std::int32_t id, Attrs attrs, const std::vector<ValueSpec>& more_outputs) {
  Node& node = nodes_[static_cast<std::size_t>(id)];
  node.attrs = std::move(attrs);
  node.outputs.insert(node.outputs.end(), more_outputs.begin(), more_outputs.end());
  ++extensions_;
}

ValueSpec Graph::spec_of(const Expr& e) const { return spec(e.edge()); }

namespace {

// The parts of a constraint: nodes, their devices, and the colocation.
struct Halves {
  explicit Halves(std::string_view text) {
    if (const std::size_t at = find_colocation(text); at != std::string_view::npos) {
      company = text.substr(at);
      text = text.substr(0, at == 0 ? 0 : at - 1);
    }
    where = find_places(text);
    device = text.substr(where.size());
  }
  std::string text() const {
    std::string all = where;
    if (!where.empty() && !device.empty() && device[0] != '/') all += '/';
    all += device;
    if (!company.empty()) all += (all.empty() ? "" : " ") + company;
    return all;
  }
  std::string where, device, company;
};

// A colocation replaces the constraints around it; constraints inside have to agree with it.
std::string merged(const std::string& outer, const std::string& inner) {
  Halves both(outer);
  const Halves more(inner);
  if (!more.company.empty()) return inner;
  if (!more.where.empty()) both.where = more.where;
  if (!more.device.empty()) both.device = more.device;
  return both.text();
}

// Colocation names the origin of a node: it moves with the origins.
std::string shifted(const std::string& constraint, std::uint64_t by) {
  const std::size_t at = find_colocation(constraint);
  if (by == 0 || at == std::string::npos) return constraint;
  const std::size_t number = constraint.find(':', at) + 1;
  return constraint.substr(0, number) + std::to_string(std::stoull(constraint.substr(number)) + by);
}

}  // namespace

// Gives a new node scope, device, controls and origin: those of here and, if it repeats a node of
// another graph, that node's within them.
void Graph::place(Node& node, const Replayed* again) {
  node.scope = scope_;
  node.device = device_;
  node.controls = controls_;
  if (!again) {
    node.origin = ++root().origins_;
    return;
  }
  const Node& old = again->graph.node(again->id);
  if (old.scope)
    node.scope = scope_ ? std::make_shared<const std::string>(*scope_ + *old.scope) : old.scope;
  if (!old.name.empty()) node.name = scope_ ? *scope_ + old.name : old.name;
  if (!old.device.empty()) node.device = merged(device_, shifted(old.device, again->shift));
  node.controls.insert(node.controls.end(), again->controls.begin(), again->controls.end());
  node.origin = old.origin ? old.origin + again->shift : ++root().origins_;
}

Graph::Scope::Scope(Graph& graph, std::string prefix, std::string device,
                    std::vector<std::int32_t> controls, bool is_of_states)
    : graph_(graph), outer_scope_(graph.scope_), outer_state_scope_(graph.state_scope_),
      outer_device_(graph.device_), outer_controls_(graph.controls_.size()) {
  const auto extend = [&](std::shared_ptr<const std::string>& scope) {
    scope = std::make_shared<const std::string>((scope ? *scope : std::string()) + prefix + "/");
  };
  if (!prefix.empty()) extend(graph_.scope_);
  if (!prefix.empty() && is_of_states) extend(graph_.state_scope_);
  if (!device.empty()) graph_.device_ = merged(outer_device_, device);
  graph_.controls_.insert(graph_.controls_.end(), controls.begin(), controls.end());
}

Graph::Scope::~Scope() {
  graph_.scope_ = std::move(outer_scope_);
  graph_.state_scope_ = std::move(outer_state_scope_);
  graph_.device_ = std::move(outer_device_);
  graph_.controls_.resize(outer_controls_);
}

// The constraints of colocated nodes all name the origin of the node that the others joined.
Graph::Scope Graph::colocate_with(const Expr& e, At at) {
  Graph& here = current();
  Graph* there = &here;
  while (there && (e.is_empty() || &e.reader() != there)) there = there->outer_;
  if (!there)
    throw Error(Code::invalid_argument,
                fmt::format("colocate_with at {}: the expression is of another graph, or of a part "
                            "of this one that is finished",
                            Site(at).text()));
  Node& node = there->nodes_[static_cast<std::size_t>(e.edge().node)];
  if (find_colocation(node.device) == std::string_view::npos) {
    node.device += fmt::format("{}with:{}", node.device.empty() ? "" : " ", node.origin);
    ++root().extensions_;
  }
  return {here, {}, node.device, {}};
}

Graph::Scope Graph::after(std::initializer_list<Expr> first, At at) {
  Graph& here = current();
  std::vector<std::int32_t> nodes;
  for (const Expr& e : first) {
    if (&e.reader() == &here) {
      nodes.push_back(e.edge().node);
      continue;
    }
    // An outer node: the whole node that holds this sub-graph starts after it.
    Graph* inside = &here;
    while (inside->outer_ && inside->outer_ != &e.reader()) inside = inside->outer_;
    if (!inside->outer_) refuse_foreign(e, at);
    inside->outer_controls_.push_back(e.edge().node);
  }
  return {here, {}, {}, std::move(nodes)};
}

Expr Graph::named(const Expr& e, const std::string& name) {
  // an expression of a body or a branch that is being built is named by that graph
  if (&e.reader() != this) {
    if (auto* owner = dynamic_cast<Graph*>(&e.reader())) return owner->named(e, name);
    throw Error(Code::invalid_argument,
                fmt::format("'{}' names a value that is in no graph", name));
  }
  std::string full = scope_ ? *scope_ + name : name;
  auto [it, is_new] = names_.emplace(full, e.edge().node);
  if (!is_new && it->second != e.edge().node)
    throw Error(Code::already_exists,
                fmt::format("the name '{}' is taken by {}", full, describe(it->second)));
  nodes_[e.edge().node].name = full;
  return e;
}

std::vector<Edge> Graph::edges_of(const std::vector<Expr>& exprs, const char* what) const {
  std::vector<Edge> edges;
  for (const Expr& e : exprs) {
    if (e.is_empty())
      throw Error(Code::invalid_argument,
                  fmt::format("{} {} is an empty expression; take what an op returned", what,
                              edges.size()));
    if (&e.reader() != this) {
      const auto* other = dynamic_cast<const Graph*>(&e.reader());
      if (other && other->outer_)
        throw Error(Code::invalid_argument,
                    fmt::format("{} {}, {}, is inside {}; only its results are known outside", what,
                                edges.size(), other->describe(e.edge().node), other->what_));
      if (other)
        throw Error(Code::invalid_argument,
                    fmt::format("{} {}, {}, is of another graph than the one that is compiled",
                                what, edges.size(), other->describe(e.edge().node)));
      throw Error(
          Code::invalid_argument,
          fmt::format("{} {} is the {} that an eager scope computed, no expression of this graph",
                      what, edges.size(), e.spec().text()));
    }
    edges.push_back(e.edge());
  }
  return edges;
}

std::vector<Edge> Graph::edges_to_feed(const std::vector<Expr>& exprs) const {
  std::vector<Edge> edges = edges_of(exprs, "feed");
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (built_on_.contains(edges[i]))
      throw Error(Code::invalid_argument,
                  fmt::format("feed {}, {}, would not reach the loops, branches or gradients that "
                              "were built with the value that it has; "
                              "start from an input instead",
                              i, describe(edges[i].node)));
  return edges;
}

std::string Graph::name_of(std::int32_t id) const {
  const Node& n = nodes_[id];
  if (!n.name.empty()) return n.name;
  // By origin, so that a node that passes moved keeps its name in the user's graph.
  return fmt::format("{}{}_{}", n.scope ? *n.scope : std::string(), n.op->name,
                     n.origin ? static_cast<std::int64_t>(n.origin) - 1 : id);
}

std::string Graph::describe(std::int32_t id) const {
  const Node& n = nodes_[id];
  const std::string& op = n.op->name == "Elsewhere" ? n.attrs.get<std::string>("op") : n.op->name;
  return fmt::format("{} '{}'{} ({})", op, name_of(id), within(n.site), n.site.text());
}

Expr Graph::find(const std::string& name) {
  auto it = names_.find(name);
  if (it == names_.end())
    throw Error(Code::not_found, fmt::format("the graph has no node named '{}'", name));
  return Expr(this, Edge{it->second, 0});
}

std::string Graph::text() const {
  std::string out;
  for (std::int32_t id = 0; id < size(); ++id) {
    const Node& n = nodes_[id];
    out += fmt::format("{}: {}", id, name_of(id));
    if (!n.name.empty()) out += fmt::format(" = {}", n.op->name);
    out += '(';
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      out += fmt::format("{}{}:{}", i ? ", " : "", n.inputs[i].node, n.inputs[i].output);
    out += ')';
    if (!n.attrs.empty()) out += " {" + n.attrs.text() + "}";
    if (n.state >= 0) out += " on '" + states()[static_cast<std::size_t>(n.state)].name + "'";
    for (std::int32_t c : n.controls) out += fmt::format(" ^{}", c);
    for (const ValueSpec& s : n.outputs) out += " -> " + s.text();
    if (!n.device.empty()) out += " @" + n.device;
    out += '\n';
  }
  return out;
}

std::int32_t Graph::append(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<std::int32_t>(nodes_.size()) - 1;
}

void Graph::seed_states(std::uint64_t seed) {
  for (std::size_t i = 0; i < states().size(); ++i)
    if (!states()[i].initial.seed) own_states().specs[i].initial.seed = seed;
}

Graph Graph::blank() const {
  Graph g;
  g.nodes_.reserve(nodes_.size());
  g.states_ = states_;
  g.functions_ = functions_;
  return g;
}

}  // namespace troupe
