#include <troupe/actors/placement.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <troupe/ops/function_def.hpp>

namespace troupe {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

bool only_moves_tokens(const Node& n) {
  static const char* const names[] = {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "ControlTrigger", "Identity"};
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return n.op->name == name; }) ||
         (n.op->name == "Constant" && !n.controls.empty());
}

class Placement {
 public:
  Placement(const Program& p, const PlacementOptions& options)
      : g_(p.graph), options_(options), node_(options.here), default_(full_name(options.default_device, options.here)), device_(at(g_.size())) {
    bool is_spread = false;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      device_[at(id)] = demanded(id);
      if (device_[at(id)].empty() && !only_moves_tokens(g_.node(id))) device_[at(id)] = drawn(id);
    }
    keep_functions_together();
    for (const std::string& d : device_) is_spread = is_spread || (!d.empty() && d != default_);
    if (is_spread) follow();
    for (std::string& d : device_)
      if (d.empty()) d = default_;
  }

  std::vector<std::string> take() { return std::move(device_); }

 private:
  std::string demanded(std::int32_t id) const {
    const Node& n = g_.node(id);
    return n.state >= 0 ? home_of(g_.states()[at(n.state)]) : full_name(n.device, node_);
  }

  // What is done to a state is done where it lives, whatever scope that is written in: where it was
  // declared. A user's own code and a console read and write the host's memory.
  std::string home_of(const StateSpec& state) const {
    const std::string home = state.device.empty() ? default_ : full_name(state.device, node_);
    return !state.is_of_host() || short_name(home).starts_with("cpu:") ? home : full_name("cpu:0", node_of(home));
  }

  // A function's body, what it calls and all calls of it are on one device: what the bodies demand, else
  // what the first call does.
  void keep_functions_together() {
    std::vector<const FunctionDef*> in(at(g_.size()), nullptr);  // the function whose body a node is in
    std::map<const FunctionDef*, const FunctionDef*> leader;     // of those that have to be together; itself: it is the leader
    auto find = [&](const FunctionDef* f) {
      while (leader.emplace(f, f).first->second != f) f = leader.at(f);
      return f;
    };
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.op->name == "Argument") in[at(id)] = function_of(n);
      for (Edge e : n.inputs)
        if (in[at(e.node)]) in[at(id)] = in[at(e.node)];
      for (std::int32_t c : n.controls)
        if (in[at(c)]) in[at(id)] = in[at(c)];
      if (n.op->name == "Call" && in[at(id)]) leader[find(function_of(n))] = find(in[at(id)]);
    }
    struct Home {
      std::string device;
      std::int32_t who = -1;
      bool is_of_body = false;
    };
    std::map<const FunctionDef*, Home> homes;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const bool is_call = g_.node(id).op->name == "Call";
      if (!is_call && !in[at(id)]) continue;
      const std::string wanted = demanded(id);
      Home& home = homes[find(is_call ? function_of(g_.node(id)) : in[at(id)])];
      if (wanted.empty() || (is_call && home.who >= 0)) continue;
      if (home.is_of_body && !is_call && home.device != wanted)
        throw Error(Code::unimplemented, fmt::format("{} is constrained to {} and {} to {}: all of a function that calls itself runs on one device",
                                                     g_.describe(home.who), home.device, g_.describe(id), wanted));
      home = {wanted, id, !is_call};
    }
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const bool is_call = g_.node(id).op->name == "Call";
      if (!is_call && !in[at(id)]) continue;
      const std::string& device = homes[find(is_call ? function_of(g_.node(id)) : in[at(id)])].device;
      device_[at(id)] = device.empty() ? default_ : device;
    }
  }

  // Those that only move tokens, from what they serve, until nothing changes.
  void follow() {
    std::map<std::int32_t, std::int32_t> next_of;  // a loop's Merge
    std::map<std::int32_t, std::int32_t> merge_of;  // an Enter
    std::vector<std::vector<std::int32_t>> users(at(g_.size()));
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.op->name == "NextIteration") next_of[n.inputs[1].node] = id;
      for (Edge e : n.inputs) users[at(e.node)].push_back(id);
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
            if (round == 1 && found.empty()) found = device_[at(g_.node(n.inputs[0].node).inputs[0].node)];
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

  std::string drawn(std::int32_t id) const {
    if (options_.scatter.empty()) return default_;
    const std::uint64_t hash = (options_.seed + g_.node(id).origin + 1) * 0x9E3779B97F4A7C15ull;
    return full_name(options_.scatter[(hash >> 32) % options_.scatter.size()], node_);
  }

  const Graph& g_;
  const PlacementOptions& options_;
  const std::string node_;
  const std::string default_;
  std::vector<std::string> device_;
};

constexpr std::string_view kNode = "/node:";

}  // namespace

std::string_view node_of(std::string_view device) {
  if (!device.starts_with(kNode)) return {};
  device.remove_prefix(kNode.size());
  return device.substr(0, device.find('/'));
}

std::string_view short_name(std::string_view device) {
  if (!device.starts_with(kNode)) return device;
  const std::size_t slash = device.find('/', kNode.size());
  return slash == std::string_view::npos ? "cpu:0" : device.substr(slash + 1);
}

std::string full_name(std::string_view device, std::string_view node) {
  if (device.empty() || node.empty()) return std::string(device);
  const std::string_view on = node_of(device);
  return fmt::format("{}{}/{}", kNode, on.empty() ? node : on, short_name(device));
}

Placed place(Program program, const PlacementOptions& options) {
  std::vector<std::string> device = Placement(program, options).take();
  const Graph& g = program.graph;
  // Constant Enters on every device that uses them.
  std::map<std::pair<std::int32_t, std::string>, std::int32_t> copies;  // Enter, device: the copy's place in `more`
  Rewriter rewriter(program);
  std::vector<std::string> placed;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    Node node = rewriter.translated(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      std::int32_t source = g.node(id).inputs[i].node;
      const Node& s = g.node(source);
      if (s.op->name != "Enter" || !s.attrs.get<bool>("constant") || device[at(source)] == device[at(id)]) continue;
      auto [it, is_new] = copies.emplace(std::pair{source, device[at(id)]}, -1);
      if (is_new) {
        it->second = rewriter.graph().append(rewriter.translated(source));
        placed.push_back(device[at(id)]);
      }
      node.inputs[i] = Edge{it->second, 0};
    }
    rewriter.replace(id, std::move(node));
    placed.push_back(device[at(id)]);
  }
  return {rewriter.finish(), std::move(placed), full_name(options.default_device, options.here), nullptr};
}

}  // namespace troupe
