#include <troupe/actors/placement/placement.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <troupe/actors/placement/choose_devices.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

namespace troupe {
namespace {

// The devices that constraints allow.
class Allowed {
 public:
  explicit Allowed(const PlacementOptions& options)
      : options_(options), devices_(devices_to_choose_from(options)) {}

  const std::vector<std::string>& devices() const { return devices_; }

  /// The one preferred first.
  std::vector<std::string> by(const Constraint& c, const std::string& text) const {
    if (c.is_exact()) return {full_name(c.device, c.node)};
    std::vector<std::string> found;
    for (const std::string& d : devices_)
      if (c.allows(d, labels_of(node_of(d)))) found.push_back(d);
    // A constraint that names a node may use its host device, even if others may not.
    if (const std::string there = full_name(kHostDevice, c.node);
        found.empty() && !c.node.empty() && c.allows(there, labels_of(c.node)))
      found.push_back(there);
    if (found.empty())
      throw Error(Code::invalid_argument,
                  fmt::format("no device is what '{}' asks for; there are {}", text,
                              fmt::join(devices_, ", ")));
    return found;
  }

 private:
  NodeLabels labels_of(std::string_view node) const {
    for (const NodeLabels& n : options_.nodes)
      if (n.name == node) return n;
    return {std::string(node), {}};
  }

  const PlacementOptions& options_;
  const std::vector<std::string> devices_;
};

bool knows_node(const PlacementOptions& options, std::string_view node) {
  return std::any_of(options.nodes.begin(), options.nodes.end(),
                     [&](const NodeLabels& n) { return n.name == node; });
}

// A kind that only another node has is taken for one with memory of its own.
bool is_of_host(std::string_view device) {
  const DeviceKind* const kind = find_device_kind(kind_of(device));
  return kind && kind->is_host;
}

std::string home_of(const StateSpec& state, const Allowed& allowed,
                    const PlacementOptions& options) {
  const Constraint c = parse_constraint(state.device, options.here);
  auto settled = options.homes.find(state.name);
  if (!c.is_exact() && settled != options.homes.end() &&
      knows_node(options, node_of(settled->second)))
    return settled->second;
  const std::string home = c.is_free() ? full_name(options.default_device, options.here)
                                       : allowed.by(c, state.device)[0];
  return !state.is_of_host() || is_of_host(home) ? home : full_name(kHostDevice, node_of(home));
}

class PlacementOf {
 public:
  PlacementOf(const Program& p, const PlacementOptions& options)
      : program_(p), g_(p.graph), options_(options), node_(options.here),
        default_(full_name(options.default_device, options.here)), allowed_(options),
        device_(at(g_.size())), wishes_(at(g_.size())) {
    for (std::int32_t id = 0; id < g_.size(); ++id) wish(id);
    for (std::int32_t id = 0; id < g_.size(); ++id) device_[at(id)] = demanded(id);
    place_functions();
    if (options_.policy == Placement::automatic && options_.scatter.empty()) choose();
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (device_[at(id)].empty() && !only_moves_tokens(g_.node(id))) device_[at(id)] = drawn(id);
    const bool is_spread = std::any_of(device_.begin(), device_.end(), [&](const std::string& d) {
      return !d.empty() && d != default_;
    });
    if (is_spread) follow();
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (device_[at(id)].empty())
        device_[at(id)] = in_[at(id)] ? homes_.at(in_[at(id)]) : default_;
    join_loops();
  }

  std::vector<std::string> take() { return std::move(device_); }

 private:
  /// The devices that a node may go to; empty: any device.
  struct Wish {
    std::vector<std::string> allowed;
    std::int32_t group = -1;
  };
  struct Group {
    std::vector<std::string> allowed;
    std::int32_t who = -1;  // the first node of the group with a constraint
    std::string text;
  };

  void wish(std::int32_t id) {
    const Node& n = g_.node(id);
    if (n.device.empty() && n.state < 0) return;
    Wish& w = wishes_[at(id)];
    try {
      const Constraint c = parse_constraint(n.device, node_);
      // An operation on a state goes to the state's device, not to that of the scope in which the
      // operation is written. Users' actors and consoles use the host's memory.
      if (n.state >= 0) check_not_lost(g_.states()[at(n.state)], options_);
      if (n.state >= 0) w.allowed = {home_of(g_.states()[at(n.state)], allowed_, options_)};
      else if (!c.is_free()) w.allowed = allowed_.by(c, n.device);
      if (!c.group.empty()) join(id, c.group, w);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}: {}", g_.describe(id), e.what()));
    }
  }

  // A group goes where all of it may.
  void join(std::int32_t id, const std::string& name, Wish& w) {
    auto [it, is_new] = group_of_.emplace(name, static_cast<std::int32_t>(groups_.size()));
    if (is_new) groups_.emplace_back();
    w.group = it->second;
    Group& group = groups_[at(w.group)];
    if (w.allowed.empty()) return;
    std::vector<std::string> both;
    for (const std::string& d : group.allowed)
      if (std::find(w.allowed.begin(), w.allowed.end(), d) != w.allowed.end()) both.push_back(d);
    if (group.who >= 0 && both.empty())
      throw Error(Code::invalid_argument,
                  fmt::format("it can be on {}, and {}, with which it is colocated, on {}",
                              fmt::join(w.allowed, ", "), g_.describe(group.who),
                              fmt::join(group.allowed, ", ")));
    group.allowed = group.who < 0 ? w.allowed : both;
    if (group.who < 0) group.who = id;
  }

  const std::vector<std::string>& allowed_of(std::int32_t id) const {
    const Wish& w = wishes_[at(id)];
    return w.group >= 0 ? groups_[at(w.group)].allowed : w.allowed;
  }

  // Returns the device that constraints alone decide; empty if the cost model chooses.
  std::string demanded(std::int32_t id) const {
    const std::vector<std::string>& allowed = allowed_of(id);
    const bool is_open =
        options_.policy == Placement::automatic && options_.scatter.empty() && allowed.size() > 1;
    if (allowed.empty() && wishes_[at(id)].group >= 0 && options_.policy == Placement::constraints)
      return drawn(static_cast<std::uint64_t>(wishes_[at(id)].group));
    return allowed.empty() || is_open ? std::string() : allowed[0];
  }

  void choose() {
    std::vector<std::string> names = allowed_.devices();
    const auto index = [&](const std::string& name) {
      auto it = std::find(names.begin(), names.end(), name);
      if (it == names.end()) it = names.insert(it, name);
      return static_cast<std::int32_t>(it - names.begin());
    };
    std::vector<std::int32_t> anywhere;
    for (const std::string& d : allowed_.devices()) anywhere.push_back(index(d));
    const std::int32_t home = index(default_);
    std::vector<Choice> choices(at(g_.size()));
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      Choice& c = choices[at(id)];
      if (!device_[at(id)].empty()) c.device = index(device_[at(id)]);
      if (c.device >= 0 || n.op->name == "Constant" || n.op->name == "Input") continue;
      for (const std::string& d : allowed_of(id)) c.allowed.push_back(index(d));
      c.group = wishes_[at(id)].group;
      if (c.allowed.empty() && (c.group >= 0 || !only_moves_tokens(n))) c.allowed = anywhere;
    }
    const CostModel model(options_.costs, names, options_.measured);
    const std::vector<std::int32_t> chosen = choose_devices(program_, model, at(home), choices);
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (chosen[at(id)] >= 0) device_[at(id)] = names[at(chosen[at(id)])];
    for (std::int32_t id = 0; id < g_.size(); ++id)  // constants go with their first users
      for (Edge e : g_.node(id).inputs)
        if (g_.node(e.node).op->name == "Constant" && device_[at(e.node)].empty())
          device_[at(e.node)] = device_[at(id)];
  }

  // Places all calls of a function, its Arguments and its Returns on one device, its home. It is
  // the first device that the body demands, else that of the first call with a demand, else the
  // home of functions that it calls or that call it. Nodes of the body without a constraint go
  // there too (except nodes that only move tokens, if the body is on several devices). So do nodes
  // that are colocated with a call.
  void place_functions() {
    in_.assign(at(g_.size()), nullptr);
    // union-find over functions that share a home; a leader maps to itself
    std::map<const FunctionDef*, const FunctionDef*> leader;
    auto find = [&](const FunctionDef* f) {
      while (leader.emplace(f, f).first->second != f) f = leader.at(f);
      return f;
    };
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.op->name == "Argument") in_[at(id)] = function_of(n);
      for (Edge e : n.inputs)
        if (in_[at(e.node)]) in_[at(id)] = in_[at(e.node)];
      for (std::int32_t c : n.controls)
        if (in_[at(c)]) in_[at(id)] = in_[at(c)];
      if (is_call(id) && in_[at(id)]) leader[find(function_of(n))] = find(in_[at(id)]);
    }
    std::map<std::int32_t, std::int32_t> in_group;  // its first call, else its first node of a body
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const std::int32_t group = wishes_[at(id)].group;
      if (!function_at(id) || group < 0) continue;
      std::int32_t& who = in_group.emplace(group, id).first->second;
      if (is_call(id) && !is_call(who)) who = id;
      leader[find(function_at(id))] = find(function_at(who));
    }
    struct Home {
      std::string device;
      bool is_of_body = false;
      bool is_spread = false;
      void wanted(const std::string& there, bool by_body) {
        is_spread = is_spread || (is_of_body && by_body && there != device);
        if (device.empty() || (by_body && !is_of_body)) device = there, is_of_body = by_body;
      }
    };
    std::map<const FunctionDef*, Home> together, own;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      if (!function_at(id) || allowed_of(id).empty()) continue;
      together[find(function_at(id))].wanted(allowed_of(id)[0], !is_call(id));
      own[function_at(id)].wanted(allowed_of(id)[0], !is_call(id));
    }
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const FunctionDef* f = function_at(id);
      if (!f) continue;
      const Home& all = together[find(f)];
      const std::string& demanded =
          all.is_spread && !own[f].device.empty() ? own[f].device : all.device;
      auto home = homes_.find(f);
      if (home == homes_.end())
        home = homes_.emplace(f, demanded.empty() ? drawn(0x5EED + homes_.size()) : demanded).first;
      const std::string& op = g_.node(id).op->name;
      const bool is_free = (all.is_spread || !options_.scatter.empty()) && !is_call(id) &&
                           op != "Argument" && op != "Return";
      if (!is_free) device_[at(id)] = home->second;
      else if (!allowed_of(id).empty()) device_[at(id)] = allowed_of(id)[0];
      else
        device_[at(id)] = only_moves_tokens(g_.node(id)) || !options_.scatter.empty()
                              ? std::string()
                              : home->second;
    }
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      auto found = in_group.find(wishes_[at(id)].group);
      if (found == in_group.end()) continue;
      const FunctionDef* f = function_at(found->second);
      const std::vector<std::string>& allowed = allowed_of(id);
      std::string device = homes_.at(f);
      const bool is_allowed =
          allowed.empty() || std::find(allowed.begin(), allowed.end(), device) != allowed.end();
      if (!is_call(found->second) && !is_allowed) device = allowed[0];
      else if (!is_allowed)
        throw Error(Code::invalid_argument,
                    fmt::format("{}: it is colocated with a call of function '{}', which runs on "
                                "{}; its group can be on {}",
                                g_.describe(id), f->name, device, fmt::join(allowed, ", ")));
      if (is_call(id) && homes_.at(function_at(id)) != device)
        throw Error(Code::invalid_argument,
                    fmt::format("{}: it is colocated with a call of function '{}', which is called "
                                "on {}, and '{}' is called on {}: "
                                "take one of them out of the group",
                                g_.describe(id), f->name, device, function_at(id)->name,
                                homes_.at(function_at(id))));
      device_[at(id)] = device;
    }
  }

  bool is_call(std::int32_t id) const { return g_.node(id).op->name == "Call"; }
  /// Returns the function that the node calls, or in whose body it is; null: none.
  const FunctionDef* function_at(std::int32_t id) const {
    return is_call(id) ? function_of(g_.node(id)) : in_[at(id)];
  }

  // Places the nodes that only move tokens with the nodes that they serve, to a fixed point.
  void follow() {
    std::map<std::int32_t, std::int32_t> next_of;   // a loop's Merge
    std::map<std::int32_t, std::int32_t> merge_of;  // an Enter
    std::vector<std::vector<std::int32_t>> users(at(g_.size()));
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.op->name == "NextIteration") next_of[n.inputs[1].node] = id;
      for (Edge e : n.inputs) users[at(e.node)].push_back(id);
      for (std::int32_t c : n.controls)
        // an Enter that the accesses of every iteration wait for
        if (g_.node(c).op->name == "Enter") users[at(c)].push_back(id);
    }
    for (const auto& [merge, next] : next_of)
      for (Edge e : g_.node(merge).inputs) merge_of[e.node] = merge;
    // In the second round a loop variable that is only passed on stays where it came from.
    for (int round = 0; round < 2; ++round) {
      for (bool changed = true; changed;) {
        changed = false;
        for (std::int32_t id = 0; id < g_.size(); ++id) {
          if (!device_[at(id)].empty()) continue;
          const Node& n = g_.node(id);
          const std::string& op = n.op->name;
          std::string found;
          if (op == "NextIteration") found = device_[at(n.inputs[1].node)];
          else if (op == "Merge" && next_of.contains(id)) {
            found = device_[at(g_.node(next_of[id]).inputs[0].node)];
            if (round == 1 && found.empty())
              found = device_[at(g_.node(n.inputs[0].node).inputs[0].node)];
          } else if (op == "Enter" && merge_of.contains(id)) {
            found = device_[at(merge_of[id])];
          } else if (op == "Enter") {
            for (std::int32_t u : users[at(id)])
              if (found.empty()) found = device_[at(u)];
          } else {
            for (Edge e : n.inputs)
              if (found.empty()) found = device_[at(e.node)];
            if (n.inputs.empty())
              for (std::int32_t c : n.controls)
                if (found.empty()) found = device_[at(c)];
          }
          if (found.empty()) continue;
          device_[at(id)] = std::move(found);
          changed = true;
        }
      }
    }
  }

  // Moves the Enters and the NextIteration of a loop variable to the device of its Merge, from any
  // scope, because they send tokens to the Merge's users.
  void join_loops() {
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      if (g_.node(id).op->name != "NextIteration") continue;
      const std::int32_t merge = g_.node(id).inputs[1].node;
      device_[at(id)] = device_[at(merge)];
      for (Edge e : g_.node(merge).inputs)
        if (g_.node(e.node).op->name == "Enter") device_[at(e.node)] = device_[at(merge)];
    }
  }

  std::string drawn(std::uint64_t what) const {
    if (options_.scatter.empty()) return default_;
    const std::uint64_t hash = (options_.seed + what + 1) * 0x9E3779B97F4A7C15ull;
    return full_name(options_.scatter[(hash >> 32) % options_.scatter.size()], node_);
  }
  std::string drawn(std::int32_t id) const { return drawn(g_.node(id).origin); }

  const Program& program_;
  const Graph& g_;
  const PlacementOptions& options_;
  const std::string node_;
  const std::string default_;
  const Allowed allowed_;
  std::vector<std::string> device_;
  std::vector<Wish> wishes_;
  std::map<std::string, std::int32_t> group_of_;
  std::vector<Group> groups_;
  std::vector<const FunctionDef*> in_;  // the function whose body a node is in
  std::map<const FunctionDef*, std::string> homes_;
};

// Rewrites a placed program. A loop's constants enter it on every device that uses them. A Group,
// which needs no value, gets one boolean from each other device: else a step that updates variables
// there would send these whole. f32 tensors are sent between nodes as bf16 on all edges, or on the
// edges from and to an EdgeAsBf16.
class Cutter {
 public:
  Cutter(const Program& program, const std::vector<std::string>& device, bool as_bf16)
      : g_(program.graph), device_(device), rewriter_(program), enter_(at(g_.size()), -1),
        is_lossy_(at(g_.size()), as_bf16), wants_lossy_(at(g_.size()), false) {
    // a Merge, of which a NextIteration says more
    std::vector<char> is_loops(at(g_.size()), false);
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (g_.node(id).op->name == "NextIteration") is_loops[at(g_.node(id).inputs[1].node)] = true;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      is_lossy_[at(id)] =
          as_bf16 || n.op->name == "EdgeAsBf16" || (!is_loops[at(id)] && routes_lossy(n));
      const bool only_repeats =
          (n.op->name == "Identity" || n.op->name == "LoopCond") && n.controls.empty();
      if (n.op->name == "Enter" && n.attrs.get<bool>("constant")) enter_[at(id)] = id;
      else if (only_repeats) enter_[at(id)] = enter_[at(n.inputs[0].node)];
    }
    find_who_wants_lossy(program.fetches);
  }

  Program cut(std::vector<std::string>& placed) {
    placed_ = &placed;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      Node node = translated(id, device_[at(id)]);
      rewriter_.replace(id, std::move(node));
      placed.push_back(device_[at(id)]);
    }
    return rewriter_.finish();
  }

 private:
  using Key = std::pair<Edge, std::string>;

  Edge append(Node node, const std::string& device) {
    placed_->push_back(device);
    return {rewriter_.graph().append(std::move(node)), 0};
  }

  // A node as it is on a device, not yet appended.
  Node translated(std::int32_t id, const std::string& device) {
    Node node = rewriter_.translated(id);
    const Node& old = g_.node(id);
    for (std::size_t i = 0; i < old.inputs.size(); ++i)
      if (old.op->name != "NextIteration" || i != 1)
        // a Group waits for its inputs, and has no use for their values
        node.inputs[i] =
            brought(old.inputs[i], device, wants_lossy_[at(id)] && old.op->name != "Group");
    for (std::int32_t c : old.controls)
      if (enter_[at(c)] >= 0)
        std::replace(node.controls.begin(), node.controls.end(), rewriter_.control_at(c),
                     entered(enter_[at(c)], device).node);
    if (old.op->name == "Group") join_on_their_devices(old, device, node);
    return node;
  }

  // Replaces the inputs of a Group from each other device by one Group on that device.
  void join_on_their_devices(const Node& old, const std::string& device, Node& group) {
    std::map<std::string, std::vector<std::size_t>> elsewhere;  // by device: places of inputs
    for (std::size_t i = 0; i < old.inputs.size(); ++i) {
      const std::int32_t from = old.inputs[i].node;
      const std::string& op = g_.node(from).op->name;  // feeds and constants are not sent as tokens
      if (device_[at(from)] != device && enter_[at(from)] < 0 && op != "Input" && op != "Constant")
        elsewhere[device_[at(from)]].push_back(i);
    }
    std::vector<char> is_joined(old.inputs.size(), false);
    for (const auto& [there, inputs] : elsewhere) {
      const ValueSpec& first = g_.spec(old.inputs[inputs[0]]);
      if (inputs.size() == 1 && !first.is_list() && first.shape.is_scalar()) continue;
      Node part;
      part.op = old.op;
      for (const std::size_t i : inputs) part.inputs.push_back(rewriter_.at(old.inputs[i]));
      part.outputs = old.outputs;
      part.site = old.site;
      part.scope = old.scope;
      part.origin = old.origin;
      for (const std::size_t i : inputs) is_joined[i] = i != inputs[0];
      group.inputs[inputs[0]] = append(std::move(part), there);
    }
    std::vector<Edge> left;
    for (std::size_t i = 0; i < group.inputs.size(); ++i)
      if (!is_joined[i]) left.push_back(group.inputs[i]);
    group.inputs = std::move(left);
  }

  static bool hands_on(const Node& n) {
    const std::string& op = n.op->name;
    return op == "Identity" || op == "Switch" || op == "Enter" || op == "Exit";
  }
  // Returns true if the node passes on a value from an EdgeAsBf16. A Merge does so only if all its
  // inputs do, because a loop's first value may differ from later ones.
  bool routes_lossy(const Node& n) const {
    if (hands_on(n)) return is_lossy_[at(n.inputs[0].node)];
    return n.op->name == "Merge" && std::all_of(n.inputs.begin(), n.inputs.end(),
                                                [&](Edge e) { return is_lossy_[at(e.node)]; });
  }
  // Marks each EdgeAsBf16, and each node that passes a value on to marked nodes only.
  void find_who_wants_lossy(const std::vector<Edge>& fetches) {
    std::vector<int> users(at(g_.size()), 0), wanting(at(g_.size()), 0);
    for (const Edge e : fetches) ++users[at(e.node)];
    for (std::int32_t id = g_.size() - 1; id >= 0; --id) {
      const Node& n = g_.node(id);
      wants_lossy_[at(id)] = n.op->name == "EdgeAsBf16" ||
                             (hands_on(n) && users[at(id)] > 0 && users[at(id)] == wanting[at(id)]);
      for (const Edge e : n.inputs)
        ++users[at(e.node)], wanting[at(e.node)] += wants_lossy_[at(id)];
    }
  }

  // Returns a value for a node on a device; `is_wanted_lossy`: the node may get it rounded.
  Edge brought(Edge e, const std::string& device, bool is_wanted_lossy) {
    if (device_[at(e.node)] == device) return rewriter_.at(e);
    if (enter_[at(e.node)] >= 0) return entered(enter_[at(e.node)], device);
    return (is_wanted_lossy || is_lossy_[at(e.node)]) && may_be_narrowed(e, device)
               ? widened(e, device)
               : rewriter_.at(e);
  }

  // Returns a loop's constant on a device. It crosses once, when the loop begins.
  Edge entered(std::int32_t enter, const std::string& device) {
    if (device_[at(enter)] == device) return rewriter_.at({enter, 0});
    auto [it, is_new] = entered_.emplace(Key{{enter, 0}, device}, Edge{});
    if (is_new) it->second = append(translated(enter, device), device);
    return it->second;
  }

  // Feeds and constants are not sent as tokens. Scalars control loops, and save nothing.
  bool may_be_narrowed(Edge e, const std::string& device) const {
    const ValueSpec& spec = g_.spec(e);
    const std::string& op = g_.node(e.node).op->name;
    return spec.dtype == DType::f32 && !spec.is_list() && !spec.shape.is_scalar() &&
           op != "Input" && op != "Constant" && node_of(device_[at(e.node)]) != node_of(device);
  }

  Edge cast(Edge from, const ValueSpec& spec, DType to, const Node& like,
            const std::string& device) {
    Node n;
    n.op = &find_op("Cast");
    n.attrs.set("dtype", to);
    n.inputs = {from};
    n.outputs = {{to, spec.shape}};
    n.site = like.site;
    n.scope = like.scope;
    n.origin = like.origin;
    return append(std::move(n), device);
  }

  Edge widened(Edge e, const std::string& device) {
    const Node& source = g_.node(e.node);
    auto [narrow, is_new] = narrowed_.emplace(e, Edge{});
    if (is_new)
      narrow->second = cast(rewriter_.at(e), g_.spec(e), DType::bf16, source, device_[at(e.node)]);
    auto [wide, is_first] = widened_.emplace(Key{e, device}, Edge{});
    if (is_first) wide->second = cast(narrow->second, g_.spec(e), DType::f32, source, device);
    return wide->second;
  }

  const Graph& g_;
  const std::vector<std::string>& device_;
  Rewriter rewriter_;
  // by node: the constant Enter whose value it is or repeats; else -1
  std::vector<std::int32_t> enter_;
  // by node: its outputs, or its inputs, may be sent between cluster nodes as bf16
  std::vector<char> is_lossy_, wants_lossy_;
  std::vector<std::string>* placed_ = nullptr;
  std::map<Key, Edge> entered_, widened_;
  std::map<Edge, Edge> narrowed_;
};

}  // namespace

std::vector<std::string> devices_to_choose_from(const PlacementOptions& options) {
  std::vector<std::string> devices;
  const auto add = [&](const std::string& name) {
    if (std::find(devices.begin(), devices.end(), name) == devices.end()) devices.push_back(name);
  };
  if (!options.devices.empty()) {
    for (const std::string& d : options.devices) {
      add(full_name(d, options.here));
      const std::string node(node_of(devices.back()));
      if (node == options.here || std::any_of(options.nodes.begin(), options.nodes.end(),
                                              [&](const NodeLabels& n) { return n.name == node; }))
        continue;
      std::vector<std::string> names;
      for (const NodeLabels& n : options.nodes) names.push_back(n.name);
      throw Error(
          Code::not_found,
          fmt::format(
              "EngineOptions::devices names '{}', and there is no node '{}'; there are {}{}", d,
              node, fmt::join(names, ", "), did_you_mean(node, {names.begin(), names.end()})));
    }
    auto preferred =
        std::find(devices.begin(), devices.end(), full_name(options.default_device, options.here));
    if (preferred != devices.end()) std::rotate(devices.begin(), preferred, preferred + 1);
    return devices;
  }
  add(full_name(options.default_device, options.here));
  if (options.here.empty()) return devices;
  add(full_name(kHostDevice, options.here));
  std::vector<std::string> others;
  for (const NodeLabels& n : options.nodes)
    if (!n.is_only_named()) others.push_back(full_name(kHostDevice, n.name));
  std::sort(others.begin(), others.end());
  for (const std::string& d : others) add(d);
  return devices;
}

std::string home_of(const StateSpec& state, const PlacementOptions& options) {
  return home_of(state, Allowed(options), options);
}

void check_not_lost(const StateSpec& state, const PlacementOptions& options) {
  const auto settled = options.homes.find(state.name);
  if (state.kind != StateSpec::Kind::variable || settled == options.homes.end()) return;
  const Constraint c = parse_constraint(state.device, options.here);
  if (c.is_exact() || !c.node.empty()) return;  // it is made nowhere else
  const std::string_view node = node_of(settled->second);
  if (knows_node(options, node)) return;
  throw Error(Code::failed_precondition,
              fmt::format("the value of variable '{}' is lost: node '{}', where it was, is not "
                          "there any more; give it one by Engine::set, or its initial value by "
                          "Engine::initialize, which make it on another node",
                          state.name, node));
}

Placed place(Program program, const PlacementOptions& options) {
  const std::vector<std::string> device = PlacementOf(program, options).take();
  Placed placed{{}, {}, full_name(options.default_device, options.here), nullptr};
  placed.program = Cutter(program, device, options.edges.as_bf16).cut(placed.device);
  placed.edge_bytes = options.edges.bytes;
  placed.edge_ahead = options.edges.ahead;
  Graph& g = placed.program.graph;
  for (std::size_t s = 0; s < g.states().size(); ++s)
    if (!options.here.empty())
      g.settle(static_cast<std::int32_t>(s), home_of(g.states()[s], options));
  return placed;
}

}  // namespace troupe
