// Liveness: the loop variables, results, arguments and captured values that a program's fetches and
// effects need, through all nested sub-graphs and functions at once.
//
//   Liveness live(program);
//   live.live_outputs(live.outermost(), id);
//
// Demand flows backwards, from the fetches and the effects, until nothing new is needed: so a
// variable that only feeds itself is never reached. A function is analysed once for each set of
// results that calls use (a version). Invariant: a value only becomes live, never the reverse.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

class Liveness {
 public:
  struct Version;

  /// A graph where it stands: the outermost one, a sub-graph of a node, a body of a version.
  struct Place {
    const Graph* graph = nullptr;
    const std::vector<Edge>* inputs = nullptr;  // null: the outermost
    const std::vector<Edge>* outputs = nullptr;
    Place* outer = nullptr;  // null: none, or the body of a version
    std::int32_t node = -1;  // in `outer`
    Version* version = nullptr;
    std::vector<char> needed;  // by node
    // the rest is the analysis's own
    std::vector<std::int32_t> first_output;  // index in `live` of each node's first
    std::vector<char> live;                  // by output
    std::vector<std::int32_t> argument;  // the index of an Input node among the arguments; -1: none
    std::map<std::int32_t, std::vector<Place*>> inside;
    std::map<std::int32_t, std::vector<char>> arguments;  // for nodes with sub-graphs
    std::map<std::int32_t, std::vector<std::int32_t>> effects_before;
    std::map<std::int32_t, Version*> called;
  };
  /// A function, of which calls use these results.
  struct Version {
    const FunctionDef* function = nullptr;
    std::vector<char> used;
    Place* body = nullptr;
    std::vector<char> arguments;
    std::size_t number = 0;
    std::set<std::pair<Place*, std::int32_t>> calls;
  };
  struct InOrder {
    bool operator()(const Version* a, const Version* b) const { return a->number < b->number; }
  };

  explicit Liveness(const Program& program);

  const Place& outermost() const { return *outermost_; }
  /// True if a functional node has an output, an argument or a captured value that is not live.
  bool drops_any() const;

  std::vector<char> live_outputs(const Place& place, std::int32_t id) const;
  /// The arguments that any sub-graph of the node uses.
  const std::vector<char>& arguments_of(const Place& place, std::int32_t id) const {
    return place.arguments.at(id);
  }
  /// The parameters that the body of a version uses.
  const std::vector<char>& live_arguments(const Place& body) const {
    return body.version->arguments;
  }
  const std::vector<Place*>& inside(const Place& place, std::int32_t id) const {
    return place.inside.at(id);
  }
  /// The version that a Call node calls; null for other nodes.
  const Version* called(const Place& place, std::int32_t id) const;
  /// A write to an environment whose element no function reads.
  bool is_dropped_write(const Place& place, std::int32_t id) const;
  /// Nodes of the outermost graph with effects that are reached only through inputs that `id` has
  /// lost.
  const std::vector<std::int32_t>& effects_before(const Place& place, std::int32_t id) const;

 private:
  Place& open(const Graph& graph, const std::vector<Edge>* inputs,
              const std::vector<Edge>* outputs);
  Place& open_inside(Place& outer, std::int32_t id, const SubGraph& sub);
  Version& version_of(const FunctionDef& function, std::vector<char> used);
  void need(Place& place, std::int32_t id);
  void need(Place& place, Edge e);
  void need_argument(Place& place, std::size_t k);
  void look(Place& place, std::int32_t id);
  void look_at_case(Place& place, std::int32_t id);
  void look_at_while(Place& place, std::int32_t id);
  void look_at_call(Place& place, std::int32_t id);
  void look_at_lists(Place& place, const Node& node);
  bool has_effects(const Node& node);
  bool is_live(const Place& place, Edge e) const;
  void need_slot(std::int64_t slot);
  void need_all_slots();
  void settle();
  std::vector<Edge> kept_inputs(const Place& place, std::int32_t id) const;
  void find_lost_effects();
  void lost_effects_of(std::int32_t id, std::vector<char>& reached);
  void reach(std::int32_t id, std::vector<char>& reached) const;

  const Program& program_;
  std::deque<Place> places_;
  std::deque<Version> versions_;
  std::map<const FunctionDef*, std::map<std::vector<char>, Version*>> versions_of_;
  Place* outermost_ = nullptr;
  std::vector<std::pair<Place*, std::int32_t>> open_;  // nodes with new demand
  std::unordered_map<const Node*, bool> has_effects_;
  std::set<std::int64_t> slots_;  // elements of environments that are read
  bool all_slots_ = false;
  std::map<std::int64_t, std::vector<std::pair<Place*, std::int32_t>>> writes_;  // by slot
  std::vector<char> effect_below_;  // by node in the outermost graph
  bool keeps_arguments_ = false;    // calls keep theirs: primitives are wired by hand
  bool is_unfinished_ = false;      // a function without a body is called
};

}  // namespace troupe
