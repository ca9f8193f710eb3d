#include <troupe/actors/frames/frames.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {
std::map<std::int32_t, std::int32_t> numbered(const std::vector<Edge>& feeds) {
  std::map<std::int32_t, std::int32_t> fed;
  for (Edge e : feeds) fed.emplace(e.node, static_cast<std::int32_t>(fed.size()));
  return fed;
}

Frames::Frames(const Graph& g, const std::map<std::int32_t, std::int32_t>& fed,
               const std::vector<std::int32_t>& partition)
    : g_(g), partition_(partition), role_(at(g.size()), Role::kernel),
      frame_(at(g.size()), kNone), frames_{{}} {
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "NextIteration") {
      const auto [closed, is_first] = is_closed_.emplace(g.node(id).inputs[1].node, id);
      if (!is_first)
        throw Error(
            Code::invalid_argument,
            fmt::format(
                "{}: {} closes the loop at {} already; merge their values, and close it once",
                g.describe(id), g.describe(closed->second), g.describe(closed->first)));
    }
  for (std::int32_t id = 0; id < g.size(); ++id) {
    role_[at(id)] = fed.contains(id) ? Role::feed : role_of(id);
    frame_[at(id)] = find_frame(id);
  }
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "LoopCond") {
      Frame& f = frames_[at(frame_[at(id)] < 0 ? 0 : frame_[at(id)])];
      if (f.leader < 0) f.leader = partition[at(id)];
    }
  for (const auto& [merge, next] : is_closed_) check_loop(merge, next);
  check_enters();
}

// Returns true for a value that a loop takes from outside. It comes once, so as a predicate it
// could not send a token in each iteration.
bool Frames::is_same_each_time(std::int32_t id) const {
  while (role_[at(id)] == Role::alias) id = g_.node(id).inputs[0].node;
  return role_[at(id)] == Role::enter && g_.node(id).attrs.get_or("constant", false);
}

Role Frames::role_of(std::int32_t id) const {
  const Node& n = g_.node(id);
  const std::string& op = n.op->name;
  if (op == "Constant") return n.controls.empty() ? Role::constant : Role::kernel;
  if (op == "Switch") return Role::switch_;
  if (op == "Merge") return is_closed_.contains(id) ? Role::loop_merge : Role::merge;
  if (op == "Enter") return Role::enter;
  if (op == "Exit") return Role::exit;
  if (op == "NextIteration") return Role::next;
  if (op == "ControlTrigger") return Role::trigger;
  if (op == "Call") return Role::call;
  if (op == "Argument") return Role::argument;
  if (op == "Return") return Role::return_;
  if (op == "LoopCond" || op == "Identity") {
    bool is_here = partition_[at(n.inputs[0].node)] == partition_[at(id)] ||
                   role_[at(n.inputs[0].node)] == Role::constant;
    return n.controls.empty() && is_here &&
                   !(op == "LoopCond" && is_same_each_time(n.inputs[0].node))
               ? Role::alias
               : Role::identity;
  }
  return Role::kernel;
}

// Returns the frame of a node's tokens, which follows from the frames of its inputs.
std::int32_t Frames::find_frame(std::int32_t id) {
  const Node& n = g_.node(id);
  std::int32_t inputs = kNone, decided_by = -1;
  static constexpr const char* kInAndOut = "take values in with Enter and out with Exit";
  auto join = [&](std::int32_t from, const char* advice) {
    std::int32_t f = frame_[at(from)];
    if (f == kNone) return;
    if (inputs == kNone) inputs = f, decided_by = from;
    else if (inputs != f)
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: its inputs come from different frames: {} is {}, and {} is {}; {}",
                      g_.describe(id), g_.describe(decided_by), place(inputs), g_.describe(from),
                      place(f), advice));
  };
  if (role_[at(id)] == Role::loop_merge && !n.controls.empty())
    throw Error(Code::invalid_argument,
                fmt::format("{}: the Merge of a loop starts its iterations and waits for nothing "
                            "else; let its users wait for {}",
                            g_.describe(id), g_.describe(n.controls[0])));
  std::size_t count = n.op->name == "NextIteration" ? 1 : n.inputs.size();
  // The last input of a Call carries the values from outside; a user cannot set it.
  static constexpr const char* kCalled =
      "a function that calls itself, draws or is waited for cannot be called in a loop that is "
      "built by hand: use while_loop";
  for (std::size_t i = 0; i < count; ++i)
    join(n.inputs[i].node, role_[at(id)] == Role::call && i + 1 == count ? kCalled : kInAndOut);
  for (std::int32_t c : n.controls)
    join(c, n.state < 0 ? kInAndOut
                        : "effects in a loop that is built by hand have no order with those "
                          "elsewhere: use while_loop");
  switch (role_[at(id)]) {
    case Role::constant: return kNone;
    case Role::alias: return inputs;
    case Role::enter: return entered(n, inputs, id);
    case Role::argument: return called(*function_of(n));
    case Role::exit:
      if (inputs <= 0)
        throw Error(
            Code::invalid_argument,
            fmt::format("{}: its input is in no frame that it could leave", g_.describe(id)));
      return frames_[at(inputs)].parent;
    default: return std::max(0, inputs);
  }
}

std::int32_t Frames::entered(const Node& n, std::int32_t parent, std::int32_t id) {
  const auto& name = n.attrs.get<std::string>("frame");
  for (std::size_t f = 1; f < frames_.size(); ++f)
    if (frames_[f].name == name && (parent == kNone || frames_[f].parent == parent))
      return static_cast<std::int32_t>(f);
  Frame f;
  f.name = name;
  f.parent = std::max(0, parent);
  f.depth = frames_[at(f.parent)].depth + 1;
  f.window = static_cast<std::int32_t>(
      std::min(n.attrs.get<std::int64_t>("parallel_iterations"), kMostOpen));
  f.key = static_cast<std::uint64_t>(n.attrs.get<std::int64_t>("key"));
  if (f.key == 0) f.key = g_.node(id).origin;
  frames_.push_back(std::move(f));
  return static_cast<std::int32_t>(frames_.size()) - 1;
}

std::int32_t Frames::called(const FunctionDef& function) {
  for (std::size_t f = 1; f < frames_.size(); ++f)
    if (frames_[f].function == &function) return static_cast<std::int32_t>(f);
  Frame f;
  f.name = function.name;
  f.depth = 1;
  f.function = &function;
  frames_.push_back(std::move(f));
  return static_cast<std::int32_t>(frames_.size()) - 1;
}

std::string Frames::place(std::int32_t frame) const {
  if (frame == 0) return "outside of loops";
  return fmt::format("in {} '{}'", frames_[at(frame)].function ? "function" : "loop",
                     frames_[at(frame)].name);
}

void Frames::check_loop(std::int32_t merge, std::int32_t next) const {
  const Node& m = g_.node(merge);
  if (role_[at(merge)] != Role::loop_merge)
    throw Error(Code::invalid_argument, fmt::format("{} closes a loop at {}, which is no Merge",
                                                    g_.describe(next), g_.describe(merge)));
  for (Edge e : m.inputs)
    if (role_[at(e.node)] != Role::enter)
      throw Error(Code::invalid_argument,
                  fmt::format("{}: a Merge at which {} closes a loop takes Enters only, not {}",
                              g_.describe(merge), g_.describe(next), g_.describe(e.node)));
  if (m.inputs.size() > 1)
    throw Error(Code::invalid_argument,
                fmt::format("{}: a Merge at which {} closes a loop takes one Enter; merge what it "
                            "may start from before that",
                            g_.describe(merge), g_.describe(next)));
  if (g_.node(m.inputs[0].node).attrs.get<bool>("constant"))
    throw Error(Code::invalid_argument,
                fmt::format("{}: {} is constant: its value is there in every iteration, and none "
                            "starts with it alone",
                            g_.describe(merge), g_.describe(m.inputs[0].node)));
  // as placement has put them: they bring tokens to its users, in its partition
  for (const std::int32_t with : {m.inputs[0].node, next})
    if (partition_[at(with)] != partition_[at(merge)])
      throw Error(Code::invalid_argument,
                  fmt::format("{} is on another device than {}, where its loop starts",
                              g_.describe(with), g_.describe(merge)));
  if (frame(merge) != frame(next))
    throw Error(Code::invalid_argument,
                fmt::format("{} is {} and closes a loop at {}, which is {}", g_.describe(next),
                            place(frame(next)), g_.describe(merge), place(frame(merge))));
  if (role_[at(resolve(g_.node(next).inputs[0]).node)] == Role::loop_merge)
    throw Error(Code::invalid_argument,
                fmt::format("{}: the loop has no Switch, so it never ends", g_.describe(next)));
}

// Checks that only Merges use the Enter of a loop variable. Every node fires in every iteration, so
// another user would wait in the second iteration for a value that only the first one gets.
void Frames::check_enters() const {
  std::set<std::int32_t> loops;
  for (const auto& [merge, next] : is_closed_) loops.insert(frame(merge));
  const auto check = [&](std::int32_t user, std::int32_t enter) {
    if (role(enter) == Role::enter && role(user) != Role::loop_merge &&
        loops.contains(frame(enter)) && !g_.node(enter).attrs.get<bool>("constant"))
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: the value of {} is there in the first iteration of loop '{}' only; take "
                      "it from a Merge, or make it a constant Enter",
                      g_.describe(user), g_.describe(enter), frames_[at(frame(enter))].name));
  };
  for (std::int32_t id = 0; id < g_.size(); ++id) {
    for (Edge e : g_.node(id).inputs) check(id, e.node);
    for (std::int32_t c : g_.node(id).controls) check(id, c);
  }
}

}  // namespace troupe
