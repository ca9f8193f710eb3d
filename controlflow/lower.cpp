#include <troupe/controlflow/lower.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/controlflow/inline_size.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/devices/base/fault_injection.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe {
namespace {

class Lowering {
 public:
  Lowering(const Program& from, bool keeps_resident)
      : from_(from), keeps_resident_(keeps_resident),
        sizes_(from), to_{from.graph.blank(), {}, {}} {
    for (const StateSpec& s : from.graph.states())
      has_queues_ = has_queues_ || s.kind == StateSpec::Kind::fifo_queue ||
                    s.kind == StateSpec::Kind::shuffling_queue;
    const auto anywhere = [&](std::string_view op) {
      const auto& functions = from.graph.functions();
      return holds(from.graph, op) ||
             std::any_of(functions.begin(), functions.end(),
                         [&](const auto& f) { return f->body && holds(f->body->graph, op); });
    };
    has_frames_by_hand_ = anywhere("Enter");
    has_primitives_ = has_frames_by_hand_ || anywhere("Switch");
  }

  Program run() {
    Frame root;
    std::vector<std::vector<Edge>> at = inline_graph(from_.graph, {}, {}, root);
    for (Edge e : from_.feeds) to_.feeds.push_back(at[index(e.node)][index(e.output)]);
    for (Edge e : from_.fetches) to_.fetches.push_back(at[index(e.node)][index(e.output)]);
    while (!called_.empty()) {
      const FunctionDef* f = called_.back();
      called_.pop_back();
      lower_function(*f);
    }
    return std::move(to_);
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  // Primitives in a program before lowering mean control flow wired by hand: a value may be dead,
  // or of an iteration, without a sign of it in its graph.
  static bool holds(const Graph& graph, std::string_view op) {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) {
      const auto subs = subgraphs_of(n);
      return n.op->name == op || std::any_of(subs.begin(), subs.end(), [&](const auto& sub) {
               return holds(sub->graph, op);
             });
    });
  }

  struct Access {
    std::int32_t node;
    Effect effect;
  };
  /// Accesses to one state that later ones may have to wait for.
  using Open = std::vector<Access>;

  /// The context into which nodes are put: the outermost graph, a branch, an iteration.
  struct Frame {
    std::int32_t pivot = -1;  // live where this runs; -1: always
    std::map<std::int32_t, Open> open;
    std::vector<Edge> invariant;  // values that exist before this iteration begins
    // NaN checks of loops that have ended here: later writes wait for them
    std::vector<std::int32_t> checks;
  };

  // ---- nodes

  std::int32_t append(const char* op, std::vector<Edge> inputs, std::vector<ValueSpec> outputs,
                      const Node& like, Attrs attrs = {}, std::vector<std::int32_t> controls = {}) {
    Node n;
    n.op = &find_op(op);
    n.attrs = std::move(attrs);
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    n.controls = std::move(controls);
    n.site = like.site;
    n.scope = like.scope;
    n.device = {};  // placed with the nodes that it serves
    n.origin = like.origin;
    return to_.graph.append(std::move(n));
  }
  ValueSpec spec(Edge e) const { return to_.graph.spec(e); }

  Edge switched(Edge data, Edge predicate, std::int64_t branches, const Node& like) {
    std::vector<ValueSpec> outputs(static_cast<std::size_t>(branches), spec(data));
    return {append("Switch", {data, predicate}, std::move(outputs), like,
                   Attrs{{"branches", branches}}),
            0};
  }
  Edge merged(std::vector<Edge> inputs, const ValueSpec& out, const Node& like) {
    return {append("Merge", std::move(inputs), {out, {DType::i32, Shape{}}}, like), 0};
  }
  Edge entered(Edge value, const std::string& frame, bool constant, int parallel,
               const Node& like) {
    return {append("Enter", {value}, {spec(value)}, like,
                   Attrs{{"frame", frame},
                         {"constant", constant},
                         {"parallel_iterations", std::int64_t{parallel}},
                         {"key", static_cast<std::int64_t>(like.origin)}}),
            0};
  }
  /// A unit-valued token that is there after `after`.
  std::int32_t token(std::vector<std::int32_t> after, const Node& like) {
    return append("Constant", {}, {{DType::boolean, Shape{}}}, like,
                  Attrs{{"value", Tensor::scalar(true)}}, std::move(after));
  }
  Edge identity(Edge e, const Node& like, std::vector<std::int32_t> controls) {
    std::int32_t id = append("Identity", {e}, {spec(e)}, like, {}, std::move(controls));
    return {id, 0};
  }
  bool is_constant(Edge e) const {
    const Node& n = to_.graph.node(e.node);
    return n.op->name == "Constant" && n.controls.empty();
  }
  /// True if e is equal in most iterations: from outside, or a variable's value.
  bool recurs(Edge e, const Frame& frame) const {
    return is_constant(e) || to_.graph.node(e.node).op->name == "ReadVariable" ||
           std::find(frame.invariant.begin(), frame.invariant.end(), e) != frame.invariant.end();
  }
  /// Returns the value as a token of this frame; a constant has no token of its own.
  Edge as_token(Edge e, const Frame& frame, const Node& like) {
    bool has_one = !is_constant(e) && std::find(frame.invariant.begin(), frame.invariant.end(),
                                                e) == frame.invariant.end();
    return has_one || frame.pivot < 0 ? e : identity(e, like, {frame.pivot});
  }

  // ---- state

  /// Accesses in `open` that `effect` has to wait for; not those that others of them wait for.
  static std::vector<std::int32_t> conflicting(const Open& open, Effect effect) {
    std::vector<std::int32_t> nodes;
    for (auto a = open.begin(); a != open.end(); ++a)
      if (conflicts(a->effect, effect) &&
          std::none_of(a + 1, open.end(),
                       [&](const Access& b) {
                         return conflicts(a->effect, b.effect) && conflicts(b.effect, effect);
                       }) &&
          // a call that enqueues and dequeues is there twice
          std::find(nodes.begin(), nodes.end(), a->node) == nodes.end())
        nodes.push_back(a->node);
    return nodes;
  }
  // Removes an access if the new one waits for it, and if every later access that would wait for it
  // waits for the new one. A read does not replace a write: the next read does not wait for a read.
  static void add_access(Open& open, Access access) {
    constexpr Effect kAll[] = {Effect::read, Effect::write, Effect::enqueue, Effect::dequeue};
    std::erase_if(open, [&](const Access& a) {
      return std::all_of(std::begin(kAll), std::end(kAll),
                         [&](Effect e) {
                           return !conflicts(a.effect, e) || conflicts(access.effect, e);
                         }) &&
             conflicts(a.effect, access.effect);
    });
    if (is_planted(Planted::read_hides_write) && access.effect == Effect::read)
      std::erase_if(open, [](const Access& a) { return a.effect == Effect::write; });
    open.push_back(access);
  }

  /// States that one order token serves.
  struct OrderGroup {
    std::vector<std::int32_t> states;
    Effect effect;
    std::vector<std::int32_t> before;  // accesses of the states wait for these nodes
  };

  /// Returns the effect that represents the accesses before the group inside of it: only reads do
  /// not conflict with each other.
  static Effect seen_inside(Effect of_group) {
    return of_group == Effect::read ? Effect::write : of_group;
  }

  using Accessors = std::map<std::int32_t, std::vector<std::int32_t>>;  // by state

  /// States that wait for the same nodes, and that a loop's body gives to the same branches and
  /// loops only, wait for each other as one: an optimizer has dozens of slots, and each token costs
  /// ten firings an iteration. Programs with queues are not grouped: a node that waits for a state
  /// that it does not use might wait for an element that is enqueued after it.
  std::vector<OrderGroup> grouped(const Effects& effects, const Frame& frame,
                                  const Accessors& accessors = {}) const {
    std::vector<OrderGroup> groups;
    using Key =
        std::tuple<Effect, std::vector<std::int32_t>, std::vector<std::int32_t>, std::string>;
    std::map<Key, std::size_t> place;
    for (auto [state, effect] : effects) {
      auto open = frame.open.find(state);
      std::vector<std::int32_t> before = open == frame.open.end()
                                             ? std::vector<std::int32_t>()
                                             : conflicting(open->second, effect);
      if (effect == Effect::write)
        before.insert(before.end(), frame.checks.begin(), frame.checks.end());
      auto by = accessors.find(state);
      std::vector<std::int32_t> who = has_queues_             ? std::vector{state}
                                      : by == accessors.end() ? std::vector<std::int32_t>()
                                                              : by->second;
      Key key{effect, before, std::move(who), from_.graph.states()[index(state)].device};
      auto [it, is_new] = place.emplace(std::move(key), groups.size());
      if (is_new) groups.push_back({{}, effect, std::move(before)});
      groups[it->second].states.push_back(state);
    }
    return groups;
  }

  /// Appends the nodes that end the group's accesses in `frame`, except `known` and those in
  /// `nodes`: open accesses, and for writes the checks too.
  static void add_accesses(std::vector<std::int32_t>& nodes, const OrderGroup& group, Frame& frame,
                           std::int32_t known = -1) {
    for (std::int32_t state : group.states)
      for (const Access& a : frame.open[state])
        if (a.node != known && conflicts(a.effect, seen_inside(group.effect)) &&
            std::find(nodes.begin(), nodes.end(), a.node) == nodes.end())
          nodes.push_back(a.node);
    if (group.effect == Effect::write)
      nodes.insert(nodes.end(), frame.checks.begin(), frame.checks.end());
  }

  /// Returns for each state the nodes of a loop's sub-graphs that access it, with their effects. An
  /// op that is no branch or loop has one state.
  static Accessors accessors_in(const Node& loop) {
    Accessors all;
    std::int32_t place = 0;
    for (const auto& sub : subgraphs_of(loop))
      for (const Node& n : sub->graph.nodes()) {
        ++place;
        for (auto [state, effect] : effects_of(n)) {
          all[state].push_back(place);
          all[state].push_back(static_cast<std::int32_t>(effect));
        }
      }
    return all;
  }

  // ---- graphs

  /// Puts a graph's nodes here; its Input nodes are `inputs`, given as `arguments`.
  std::vector<std::vector<Edge>> inline_graph(const Graph& graph, const std::vector<Edge>& inputs,
                                              const std::vector<Edge>& arguments, Frame& frame) {
    std::vector<std::vector<Edge>> at(index(graph.size()));
    // by node: the nodes that a control edge from it waits for
    std::vector<std::vector<std::int32_t>> done(index(graph.size()));
    std::vector<char> is_waited_for(index(graph.size()), 0);
    for (const Node& n : graph.nodes())
      for (std::int32_t c : n.controls) is_waited_for[index(c)] = 1;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at[index(inputs[i].node)] = {arguments[i]};
      done[index(inputs[i].node)] = {arguments[i].node};
      // A Switch fires for both sides: a node that waits for one side waits for that side's token.
      const Node& source = to_.graph.node(arguments[i].node);
      if (is_waited_for[index(inputs[i].node)] && source.op->name == "Switch")
        done[index(inputs[i].node)] = {identity(arguments[i], graph.node(inputs[i].node), {}).node};
    }
    for (std::int32_t id = 0; id < graph.size(); ++id) {
      if (!at[index(id)].empty()) continue;
      const Node& node = graph.node(id);
      Node mine = node;
      if (mine.device.empty()) mine.device = device_;
      for (Edge& e : mine.inputs) e = at[index(e.node)][index(e.output)];
      mine.controls.clear();
      for (std::int32_t c : node.controls) {
        for (std::int32_t d : done[index(c)])
          if (!is_constant({d, 0}) &&
              std::find(mine.controls.begin(), mine.controls.end(), d) == mine.controls.end())
            mine.controls.push_back(d);
      }
      if (node.op->name == "Case") at[index(id)] = lower_case(mine, frame, done[index(id)]);
      else if (node.op->name == "While") at[index(id)] = lower_while(mine, frame, done[index(id)]);
      else if (node.op->name == "ResidentLoop" && !keeps_resident_)
        at[index(id)] = lower_while(mine, frame, done[index(id)]);
      else if (node.op->name == "ResidentLoop")
        at[index(id)] = put_resident(mine, frame, done[index(id)]);
      else if (node.op->name == "Call")
        at[index(id)] =
            lower_call(std::move(mine), frame, done[index(id)], is_waited_for[index(id)] != 0);
      else at[index(id)] = put(std::move(mine), frame, done[index(id)]);
    }
    return at;
  }

  std::vector<Edge> put(Node node, Frame& frame, std::vector<std::int32_t>& done) {
    const bool is_plain_constant = node.op->name == "Constant" && node.controls.empty();
    const auto is_outside = [&](std::int32_t c) {
      return std::any_of(frame.invariant.begin(), frame.invariant.end(),
                         [&](Edge e) { return e.node == c; });
    };
    if (frame.pivot >= 0 && !is_plain_constant &&
        std::all_of(node.controls.begin(), node.controls.end(), is_outside)) {
      bool has_token = std::any_of(node.inputs.begin(), node.inputs.end(), [&](Edge e) {
        return !is_constant(e) && std::find(frame.invariant.begin(), frame.invariant.end(), e) ==
                                      frame.invariant.end();
      });
      if (!has_token && !is_planted(Planted::pivot_forgotten)) node.controls.push_back(frame.pivot);
    }
    const Effects effects = effects_of(node);
    const auto wait_for = [&](const std::vector<std::int32_t>& nodes) {
      for (std::int32_t c : nodes)
        if (std::find(node.controls.begin(), node.controls.end(), c) == node.controls.end())
          node.controls.push_back(c);
    };
    for (auto [state, effect] : effects) wait_for(conflicting(frame.open[state], effect));
    if (std::any_of(effects.begin(), effects.end(),
                    [](const auto& e) { return e.second == Effect::write; }))
      wait_for(frame.checks);
    // These pass a token on and never fire: it is their value that waits.
    if (!node.controls.empty() &&
        (node.op->name == "Enter" || node.op->name == "Exit" || node.op->name == "NextIteration"))
      node.inputs[0] = identity(node.inputs[0], node, std::exchange(node.controls, {}));
    if (node.op->name == "Merge")
      for (Edge& e : node.inputs) e = enter_of_its_own(e);
    if (node.op->name == "MatMul" && frame.pivot >= 0 && recurs(node.inputs[1], frame))
      node.attrs.set("b_recurs", true);
    std::size_t outputs = node.outputs.size();
    std::int32_t id = to_.graph.append(std::move(node));
    for (auto [state, effect] : effects) add_access(frame.open[state], {id, effect});
    done = {id};
    std::vector<Edge> edges;
    for (std::size_t o = 0; o < outputs; ++o) edges.push_back({id, static_cast<std::int32_t>(o)});
    return edges;
  }

  // In a loop by hand several Merges may start from one Enter. An Enter must serve the users of one
  // Merge only.
  Edge enter_of_its_own(Edge e) {
    if (to_.graph.node(e.node).op->name != "Enter" || entered_by_hand_.insert(e.node).second)
      return e;
    Node again = to_.graph.node(e.node);
    return {to_.graph.append(std::move(again)), e.output};
  }

  std::vector<Edge> outputs_of(const SubGraph& sub, const std::vector<std::vector<Edge>>& at,
                               const Frame& frame, const Node& like) {
    std::vector<Edge> out;
    for (Edge e : sub.outputs)
      out.push_back(as_token(at[index(e.node)][index(e.output)], frame, like));
    return out;
  }

  // Returns by argument whether a node or an output of the sub-graph uses it.
  static std::vector<char> used_arguments(const SubGraph& sub) {
    std::vector<char> used(index(sub.graph.size()), 0);
    for (const Node& n : sub.graph.nodes()) {
      for (Edge e : n.inputs) used[index(e.node)] = 1;
      for (std::int32_t c : n.controls) used[index(c)] = 1;
    }
    for (Edge e : sub.outputs) used[index(e.node)] = 1;
    std::vector<char> out;
    for (Edge e : sub.inputs) out.push_back(used[index(e.node)]);
    return out;
  }

  std::vector<Edge> lower_case(const Node& node, Frame& frame, std::vector<std::int32_t>& done) {
    auto branches = subgraphs_of(node);
    const auto n = static_cast<std::int64_t>(branches.size());
    Edge predicate = as_token(node.inputs[0], frame, node);
    if (!node.controls.empty()) predicate = identity(predicate, node, node.controls);
    const Effects effects = effects_of(node);
    // For each group of states one token, for which the branches' effects on them wait.
    const std::vector<OrderGroup> groups = grouped(effects, frame);
    std::vector<Edge> order;
    for (const OrderGroup& g : groups)
      order.push_back(g.before.empty() ? Edge{}
                                       : switched({token(g.before, node), 0}, predicate, n, node));
    // the Switch of each captured value, made when first used
    std::vector<Edge> through(node.inputs.size(), Edge{});
    Edge pivots{};
    std::vector<std::vector<Edge>> results;
    std::vector<std::vector<Edge>> after(groups.size());  // a token a branch
    std::vector<Edge> ends;
    for (std::int64_t b = 0; b < n; ++b) {
      const SubGraph& sub = *branches[static_cast<std::size_t>(b)];
      const std::int64_t number =
          is_planted(Planted::nested_switch_turned) && frame.pivot >= 0 ? n - 1 - b : b;
      auto side = [&](Edge of_switch) {
        return Edge{of_switch.node, static_cast<std::int32_t>(number)};
      };
      Frame inside;
      if (pivots.node < 0) pivots = switched(predicate, predicate, n, node);
      inside.pivot = identity(side(pivots), node, {}).node;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        if (order[i].node < 0) continue;
        const std::int32_t before = identity(side(order[i]), node, {}).node;
        for (std::int32_t state : groups[i].states)
          inside.open[state].push_back({before, seen_inside(groups[i].effect)});
      }
      std::vector<char> used = used_arguments(sub);
      std::vector<Edge> arguments;
      for (std::size_t k = 0; k < sub.inputs.size(); ++k) {
        Edge outside = node.inputs[k + 1];
        if (!used[k] || is_constant(outside)) {
          arguments.push_back(outside);
          continue;
        }
        if (through[k + 1].node < 0) through[k + 1] = switched(outside, predicate, n, node);
        arguments.push_back(side(through[k + 1]));
      }
      auto at = inline_graph(sub.graph, sub.inputs, arguments, inside);
      results.push_back(outputs_of(sub, at, inside, node));
      for (std::size_t i = 0; i < groups.size(); ++i) {
        std::vector<std::int32_t> last{inside.pivot};
        add_accesses(last, groups[i], inside);
        after[i].push_back({token(std::move(last), node), 0});
      }
      if (node.outputs.empty() && effects.empty()) ends.push_back({inside.pivot, 0});
    }
    std::vector<Edge> out;
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      std::vector<Edge> sides;
      for (const auto& r : results) sides.push_back(r[o]);
      out.push_back(merged(std::move(sides), node.outputs[o], node));
      done.push_back(out.back().node);
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      std::int32_t end = merged(std::move(after[i]), {DType::boolean, Shape{}}, node).node;
      done.push_back(end);
      for (std::int32_t state : groups[i].states)
        add_access(frame.open[state], {end, groups[i].effect});
    }
    if (!ends.empty())
      done.push_back(merged(std::move(ends), {DType::boolean, Shape{}}, node).node);
    return out;
  }

  std::vector<Edge> lower_while(const Node& node, Frame& frame, std::vector<std::int32_t>& done) {
    WhileView w(node);
    const int parallel = w.parallel_iterations;
    const std::string name = fmt::format("{}/{}", node.attrs.get<std::string>("label"), ++frames_);
    const Effects effects = effects_of(node);
    auto into = [&](Edge value, bool constant) {
      value = as_token(value, frame, node);
      // A loop with control edges waits for them before any of its values enters.
      if (!node.controls.empty()) value = identity(value, node, node.controls);
      return entered(value, name, constant, parallel, node);
    };
    std::vector<char> used = used_arguments(w.body);
    std::vector<char> used_by_condition = used_arguments(w.condition);

    Frame each;  // an iteration: the condition, then the body
    std::vector<Edge> variables, arguments;
    for (int k = 0; k < w.variables; ++k) {
      Edge first = k < w.explicit_variables
                       ? node.inputs[index(k)]
                       : implicit(w.implicit[static_cast<std::size_t>(k - w.explicit_variables)],
                                  frame, node);
      variables.push_back(merged({into(first, false)}, node.outputs[index(k)], node));
    }
    // The order token of a group of states: a variable of the loop.
    struct Order {
      OrderGroup group;
      Edge merge;
      bool is_serial;            // accesses of different iterations wait for each other
      std::int32_t before = -1;  // a constant Enter: accesses of every iteration wait for it
    };
    std::vector<Order> orders;
    for (OrderGroup& group : grouped(effects, frame, accessors_in(node))) {
      std::vector<std::int32_t> before = group.before;
      bool waits = !before.empty();
      // `before` may stand before a call whose body this is in: the pivot comes after the call
      if (frame.pivot >= 0) before.push_back(frame.pivot);
      Edge start{token(std::move(before), node), 0};
      const bool is_serial =
          conflicts(group.effect, group.effect) && !is_planted(Planted::order_not_threaded);
      Order o{std::move(group), merged({into(start, false)}, {DType::boolean, Shape{}}, node),
              is_serial};
      if (!o.is_serial && waits) o.before = into(start, true).node;
      orders.push_back(std::move(o));
    }
    Edge trigger{};
    if (variables.empty() && orders.empty()) {
      Edge start{token(frame.pivot >= 0 ? std::vector<std::int32_t>{frame.pivot}
                                        : std::vector<std::int32_t>{},
                       node),
                 0};
      trigger = merged({into(start, false)}, {DType::boolean, Shape{}}, node);
    }
    const Edge first_merge = !variables.empty() ? variables[0]
                             : !orders.empty()  ? orders[0].merge
                                                : trigger;
    each.pivot = first_merge.node;

    arguments = variables;
    for (int k = 0; k < w.captures; ++k) {
      Edge outside = node.inputs[index(w.explicit_variables + k)];
      std::size_t place = index(w.variables + k);
      if (is_constant(outside) || (!used[place] && !used_by_condition[place])) {
        arguments.push_back(outside);
        continue;
      }
      arguments.push_back(into(outside, true));
      each.invariant.push_back(arguments.back());
    }
    for (const Order& o : orders) {
      const std::int32_t first = o.is_serial ? o.merge.node : o.before;
      for (std::int32_t state : o.group.states)
        if (first >= 0) each.open[state].push_back({first, seen_inside(o.group.effect)});
    }
    auto at = inline_graph(w.condition.graph, w.condition.inputs, arguments, each);
    // the predicate, then its compared values
    const std::vector<Edge> told = outputs_of(w.condition, at, each, node);
    Edge predicate = told[0];
    predicate = {append("LoopCond", {predicate}, {{DType::boolean, Shape{}}}, node,
                        Attrs{{"structured", !has_primitives_}}),
                 0};

    std::vector<Edge> switches;
    for (Edge v : variables) switches.push_back(switched(v, predicate, 2, node));
    auto last = [](Edge of_switch) { return Edge{of_switch.node, 0}; };
    auto next = [](Edge of_switch) { return Edge{of_switch.node, 1}; };
    Frame body;
    body.invariant = each.invariant;
    // After the condition's own accesses an order token goes on as if it were a variable.
    std::vector<Edge> order_switches;
    for (const Order& o : orders) {
      Edge here = o.merge;
      std::vector<std::int32_t> accesses{o.merge.node};
      add_accesses(accesses, o.group, each, o.before);
      if (accesses.size() > 1) here = {token(std::move(accesses), node), 0};
      order_switches.push_back(switched(here, predicate, 2, node));
    }
    if (trigger.node >= 0) order_switches.push_back(switched(trigger, predicate, 2, node));
    body.pivot = identity(next(!switches.empty() ? switches[0] : order_switches[0]), node, {}).node;
    std::vector<std::int32_t> order_inside;
    for (std::size_t i = 0; i < orders.size(); ++i) {
      order_inside.push_back(identity(next(order_switches[i]), node, {}).node);
      const std::int32_t first = orders[i].is_serial ? order_inside[i] : orders[i].before;
      for (std::int32_t state : orders[i].group.states)
        if (first >= 0) body.open[state].push_back({first, seen_inside(orders[i].group.effect)});
    }
    for (std::size_t k = 0; k < variables.size(); ++k) arguments[k] = next(switches[k]);
    at = inline_graph(w.body.graph, w.body.inputs, arguments, body);
    std::vector<Edge> results = outputs_of(w.body, at, body, node);
    for (std::size_t k = 0; k < variables.size(); ++k)
      append("NextIteration", {results[k], variables[k]}, {spec(results[k])}, node);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      std::vector<std::int32_t> accesses{order_inside[i]};
      add_accesses(accesses, orders[i].group, body, orders[i].before);
      Edge end =
          accesses.size() > 1 ? Edge{token(std::move(accesses), node), 0} : next(order_switches[i]);
      append("NextIteration", {end, orders[i].merge}, {{DType::boolean, Shape{}}}, node);
    }
    if (trigger.node >= 0)
      append("NextIteration", {next(order_switches[0]), trigger}, {{DType::boolean, Shape{}}},
             node);

    std::vector<Edge> out;
    for (std::size_t k = 0; k < variables.size(); ++k) {
      out.push_back({append("Exit", {last(switches[k])}, {spec(variables[k])}, node), 0});
      done.push_back(out.back().node);
    }
    for (std::size_t i = 0; i < orders.size(); ++i) {
      std::int32_t exit =
          append("Exit", {last(order_switches[i])}, {{DType::boolean, Shape{}}}, node);
      done.push_back(exit);
      for (std::int32_t state : orders[i].group.states)
        add_access(frame.open[state], {exit, orders[i].group.effect});
    }
    if (trigger.node >= 0)
      done.push_back(append("Exit", {last(order_switches[0])}, {{DType::boolean, Shape{}}}, node));
    if (subgraphs_of(node).size() > 2) {
      std::vector<Edge> ended = out;
      ended.insert(ended.end(), node.inputs.begin() + w.explicit_variables, node.inputs.end());
      for (std::size_t i = 1; i < told.size(); ++i)
        ended.push_back(
            {append("Exit", {last(switched(told[i], predicate, 2, node))}, {spec(told[i])}, node),
             0});
      check_end(node, ended, done[0], frame);
    }
    return out;
  }

  // A loop that stays whole. Loops in it are numbered as if they were lowered, since errors name
  // them so.
  std::vector<Edge> put_resident(Node node, Frame& frame, std::vector<std::int32_t>& done) {
    node.attrs.set("frame", std::int64_t{frames_ + 1});
    frames_ += loops_in(node);
    const Node loop = node;
    std::vector<Edge> out = put(std::move(node), frame, done);
    for (const std::int64_t state : loop.attrs.get_or<std::vector<std::int64_t>>("reads", {}))
      add_access(frame.open[static_cast<std::int32_t>(state)], {out[0].node, Effect::read});
    if (subgraphs_of(loop).size() > 2) {
      const WhileView w(loop);
      const auto told = out.begin() + w.variables;
      std::vector<Edge> ended(out.begin(), told);
      ended.insert(ended.end(), loop.inputs.begin() + w.explicit_variables, loop.inputs.end());
      ended.insert(ended.end(), told, out.end());
      check_end(loop, ended, out[0].node, frame);
    }
    return out;
  }

  static int loops_in(const Node& node) {
    int loops = node.op->name == "ResidentLoop";
    for (const auto& sub : subgraphs_of(node))
      for (const Node& n : sub->graph.nodes()) loops += loops_in(n);
    return loops;
  }

  // Checks whether a comparison with NaN has ended the loop, once it has ended: `exit` is one of
  // its Exits. If so, later writes do not happen. Two kinds of programs have writes that do not
  // wait for the check. With queues, the loop may wait for an element that is enqueued after a
  // write. With primitives by hand, the loop may be dead, or of an iteration, and the write not.
  void check_end(const Node& node, const std::vector<Edge>& ended, std::int32_t exit,
                 Frame& frame) {
    const SubGraph& check = *subgraphs_of(node)[2];
    auto at = inline_graph(check.graph, check.inputs, ended, frame);
    const std::int32_t done = append(
        "CheckComparisons", outputs_of(check, at, frame, node), {}, node,
        Attrs{{"loop", name_of_loop(node)}, {"compared", node.attrs.get<std::string>("compared")}},
        {exit});
    if (!has_queues_ && !has_primitives_) frame.checks.push_back(done);
  }

  /// Nodes that have fired, or are dead, when these values are there, or dead. A Switch fires for
  /// both sides, a call ends after its results.
  std::vector<std::int32_t> there(const std::vector<Edge>& values, const Node& like) {
    std::vector<std::int32_t> nodes;
    for (Edge e : values) {
      if (is_constant(e)) continue;
      const std::string& op = to_.graph.node(e.node).op->name;
      nodes.push_back(op == "Switch" || op == "Call" ? identity(e, like, {}).node : e.node);
    }
    return nodes;
  }

  // A call that cannot lead to another of its function is replaced by the body, unless
  // 1. another node waits for the whole call. A call that both enqueues to and dequeues from one
  //    queue is replaced even then: it would fire once, and wait for an enqueue that waits for its
  //    dequeue.
  // 2. its draws have to differ from those of other calls.
  // 3. the bodies would be too many nodes.
  // Effects of the body happen once all arguments are there, and not at all if one is dead. So a
  // body with effects runs in a frame of its own, whose pivot comes after the arguments. A body
  // without effects computes as its inputs arrive. Its results are dead if an argument is, which
  // matters only for primitives by hand.
  std::vector<Edge> lower_call(Node node, Frame& frame, std::vector<std::int32_t>& done,
                               bool is_waited_for) {
    const FunctionDef& f = *function_of(node);
    if (!f.body)
      throw Error(Code::failed_precondition,
                  fmt::format("function '{}' ({}) is called at {} and was never defined", f.name,
                              f.site.text(), node.site.text()));
    const bool is_whole = (is_waited_for || !node.controls.empty() || sizes_.is_too_large(f)) &&
                          (has_primitives_ || !puts_and_takes(f.effects));
    if (f.is_recursive || f.has_draws || is_whole) {
      if (lowered_.insert(&f).second) called_.push_back(&f);
      return put(std::move(node), frame, done);
    }
    const std::int32_t first = to_.graph.size();
    std::vector<Edge> arguments = node.inputs;
    // The environment is no argument of the user's. Effects that take values from it wait for it,
    // except in a loop by hand, because the environment is outside of the loop.
    std::size_t waited_for = arguments.size();
    if (!f.parameters.empty() && f.parameters.back().depth == ValueSpec::kAnyDepth)
      if (!f.has_effect || has_frames_by_hand_ || !used_arguments(*f.body).back()) --waited_for;
    const std::int32_t outer_pivot = frame.pivot;
    std::vector<std::int32_t> given;
    if (f.has_effect || has_primitives_)
      given = there(
          {arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(waited_for)}, node);
    given.insert(given.end(), node.controls.begin(), node.controls.end());
    if (f.has_effect && !given.empty()) {
      if (outer_pivot >= 0) given.push_back(outer_pivot);
      frame.pivot = token(std::move(given), node);
      for (std::size_t i = 0; i < waited_for; ++i)
        if (!is_constant(arguments[i])) arguments[i] = identity(arguments[i], node, {frame.pivot});
    }
    std::string outer = std::exchange(device_, node.device);
    auto at = inline_graph(f.body->graph, f.body->inputs, arguments, frame);
    device_ = std::move(outer);
    std::vector<Edge> out;
    for (Edge e : f.body->outputs) {
      const Edge result = at[index(e.node)][index(e.output)];
      if (f.has_effect)
        out.push_back(frame.pivot == outer_pivot ? result : as_token(result, frame, node));
      else out.push_back(given.empty() ? result : identity(result, node, given));
    }
    if (is_waited_for) done = there(out, node);
    for (const auto& [state, effect] : f.effects)
      for (const Access& a : frame.open[state])
        if (is_waited_for && a.node >= first) done.push_back(a.node);
    frame.pivot = outer_pivot;
    return out;
  }

  static bool puts_and_takes(const Effects& effects) {
    return std::any_of(effects.begin(), effects.end(), [&](const auto& e) {
      return e.second == Effect::enqueue && effects.contains({e.first, Effect::dequeue});
    });
  }

  // The body of a function, once, for all calls of it.
  void lower_function(const FunctionDef& f) {
    Node like;
    like.site = f.site;
    auto numbered = [&](std::size_t i) {
      return Attrs{{"function", refer_to(f)}, {"index", static_cast<std::int64_t>(i)}};
    };
    std::vector<Edge> arguments;
    for (std::size_t i = 0; i < f.parameters.size(); ++i)
      arguments.push_back({append("Argument", {}, {f.parameters[i]}, like, numbered(i)), 0});
    Frame body;
    body.pivot = arguments[0].node;
    auto at = inline_graph(f.body->graph, f.body->inputs, arguments, body);
    std::vector<Edge> results = outputs_of(*f.body, at, body, like);
    for (std::size_t i = 0; i < results.size(); ++i)
      append("Return", {results[i]}, {}, like, numbered(i));
  }

  Edge implicit(const ValueSpec& s, const Frame& frame, const Node& like) {
    if (s.is_list()) {
      std::vector<std::int32_t> controls;
      if (frame.pivot >= 0) controls.push_back(frame.pivot);
      Attrs attrs = attrs_of(s);
      attrs.set("saved", true);  // a gradient made the variable: see WhileStep::save
      return {append("ListEmpty", {}, {s}, like, std::move(attrs), std::move(controls)), 0};
    }
    return {append("Constant", {}, {s}, like, Attrs{{"value", Tensor::scalar_as(s.dtype, 0)}}), 0};
  }

  const Program& from_;
  const bool keeps_resident_;
  InlineSizes sizes_;
  Program to_;
  int frames_ = 0;
  std::string device_;  // the device of the call whose body is being put, for nodes without one
  std::set<const FunctionDef*> lowered_;
  std::vector<const FunctionDef*> called_;  // functions in lowered_ whose bodies are not put yet
  bool has_queues_ = false;
  bool has_primitives_ = false;  // wired by hand
  bool has_frames_by_hand_ = false;
  std::set<std::int32_t> entered_by_hand_;  // Enters that a Merge has
};

}  // namespace

Program lower(Program program, bool keeps_resident) {
  return Lowering(program, keeps_resident).run();
}

}  // namespace troupe
