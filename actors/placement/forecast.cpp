#include <troupe/actors/placement/forecast.hpp>

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

Forecaster::Forecaster(const Program& program, const CostModel& model, std::size_t home)
    : program_(program), model_(model), home_(home), fed_(numbered(program.feeds)),
      nowhere_(at(program.graph.size()), 0), frames_(program.graph, fed_, nowhere_),
      scopes_(frames_.all().size()) {
  const Graph& g = program_.graph;
  for (const Node& n : g.nodes()) {
    const std::string& op = n.op->name;
    Made v;
    v.is_alias = (only_moves_tokens(n) && op != "Exit") || op == "ReadVariable" ||
                 op == "Reshape" || op == "ExpandDims" || op == "Squeeze";
    for (const ValueSpec& s : n.outputs)
      v.bytes += model_.size_of(s).bytes, v.is_known = v.is_known && model_.size_of(s).is_known;
    v.work = model_.work_of(g, static_cast<std::int32_t>(values_.size()));
    values_.push_back(v);
  }
  cost_.resize(model_.devices().size(), std::vector<double>(at(g.size())));
  for (std::size_t d = 0; d < cost_.size(); ++d)
    for (std::int32_t id = 0; id < g.size(); ++id) cost_[d][at(id)] = model_.ns(g, id, d);
  // A call takes the time of the function's body once, because the depth of recursion is unknown.
  std::map<const FunctionDef*, std::int32_t> frame_of;
  for (std::size_t f = 1; f < frames_.all().size(); ++f)
    if (const FunctionDef* function = frames_.all()[f].function)
      frame_of[function] = static_cast<std::int32_t>(f);
  if (!frame_of.empty()) {
    const std::vector<std::vector<double>> own = cost_;
    for (std::int32_t id = 0; id < g.size(); ++id)
      if (const FunctionDef* function =
              frames_.role(id) == Role::call ? function_of(g.node(id)) : nullptr)
        for (std::size_t d = 0; d < cost_.size(); ++d)
          for (std::int32_t in : nodes_within(frame_of.at(function)))
            cost_[d][at(id)] += own[d][at(in)];
  }
  build();
}

std::vector<std::int32_t> Forecaster::nodes_within(std::int32_t frame) const {
  std::vector<std::int32_t> out;
  for (std::int32_t id = 0; id < program_.graph.size(); ++id) {
    if (frames_.role(id) == Role::constant) continue;
    std::int32_t f = frames_.frame(id);
    while (f > frame) f = frames_.all()[at(f)].parent;
    if (f == frame) out.push_back(id);
  }
  return out;
}

// ---- items

double Forecaster::trips(std::int32_t frame) const {
  return frames_.all()[at(frame)].function ? 1 : model_.options().trips;
}

std::int32_t Forecaster::common(std::int32_t a, std::int32_t b) const {
  while (a != b) {
    std::int32_t& deeper = a > b ? a : b;  // a frame stands behind the one around it
    deeper = frames_.all()[at(deeper)].parent;
    if (deeper < 0) return -1;
  }
  return a;
}

void Forecaster::build() {
  const Graph& g = program_.graph;
  std::vector<std::int32_t> of_node(at(g.size()), -1), of_frame(scopes_.size(), -1);
  const auto add = [&](std::int32_t scope, Item item) {
    Scope& s = scopes_[at(scope)];
    s.items.push_back(item);
    return static_cast<std::int32_t>(s.items.size()) - 1;
  };
  for (std::size_t f = 1; f < scopes_.size(); ++f)
    if (!frames_.all()[f].function)
      of_frame[f] = add(frames_.all()[f].parent, {-1, static_cast<std::int32_t>(f)});
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (frames_.role(id) != Role::constant) of_node[at(id)] = add(frames_.frame(id), {id, -1});
  for (Scope& s : scopes_) s.inputs.resize(s.items.size());
  const auto item = [&](std::int32_t node, std::int32_t scope) {
    std::int32_t f = frames_.frame(node);
    if (f == scope) return of_node[at(node)];
    while (frames_.all()[at(f)].parent != scope) f = frames_.all()[at(f)].parent;
    return of_frame[at(f)];
  };
  const auto connect = [&](std::int32_t from, std::int32_t to, double bytes) {
    if (of_node[at(from)] < 0 || of_node[at(to)] < 0) return;
    const std::int32_t scope = common(frames_.frame(from), frames_.frame(to));
    if (scope < 0) return;
    const std::int32_t a = item(from, scope), b = item(to, scope);
    if (a != b) scopes_[at(scope)].inputs[at(b)].push_back({a, from, to, bytes});
  };
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    const std::size_t inputs = n.op->name == "NextIteration" ? 1 : n.inputs.size();
    for (std::size_t i = 0; i < inputs; ++i)
      // a Group gets no value from another device
      connect(n.inputs[i].node, id,
              n.op->name == "Group" ? 1 : model_.size_of(g.spec(n.inputs[i])).bytes);
    for (std::int32_t c : n.controls) connect(c, id, 0);
  }
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) order(*scope);
}

// Orders items by rank, each behind the items that it needs.
void Forecaster::order(Scope& scope) {
  const std::size_t count = scope.items.size();
  std::vector<std::vector<std::pair<std::int32_t, double>>> users(count);
  std::vector<std::int32_t> awaited(count, 0);
  for (std::size_t i = 0; i < count; ++i)
    for (const In& in : scope.inputs[i])
      users[at(in.from)].emplace_back(static_cast<std::int32_t>(i), in.bytes), ++awaited[i];
  std::vector<std::int32_t> sorted;
  {
    std::vector<std::int32_t> left = awaited;
    for (std::size_t i = 0; i < count; ++i)
      if (left[i] == 0) sorted.push_back(static_cast<std::int32_t>(i));
    for (std::size_t k = 0; k < sorted.size(); ++k)
      for (const auto& [user, bytes] : users[at(sorted[k])])
        if (--left[at(user)] == 0) sorted.push_back(user);
  }
  const std::size_t devices = model_.devices().size();
  for (auto i = sorted.rbegin(); i != sorted.rend(); ++i) {
    double after = 0;
    for (const auto& [user, bytes] : users[at(*i)]) {
      // The mean over all pairs of devices: the transfer between the first and the last device
      // stands for each pair of different devices.
      const double sent = devices > 1
                              ? model_.transfer_ns(bytes, 0, devices - 1) *
                                    static_cast<double>(devices - 1) / static_cast<double>(devices)
                              : 0;
      after = std::max(after, sent + scope.items[at(user)].rank);
    }
    scope.items[at(*i)].rank = item_ns(scope.items[at(*i)], home_) + after;
  }
  const auto is_later = [&](std::int32_t a, std::int32_t b) {
    const double x = scope.items[at(a)].rank, y = scope.items[at(b)].rank;
    return x != y ? x < y : a > b;
  };
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, decltype(is_later)> ready(is_later);
  for (std::size_t i = 0; i < count; ++i)
    if (awaited[i] == 0) ready.push(static_cast<std::int32_t>(i));
  Scope made;
  std::vector<std::int32_t> place(count, -1);
  while (!ready.empty()) {
    const std::int32_t i = ready.top();
    ready.pop();
    place[at(i)] = static_cast<std::int32_t>(made.items.size());
    made.items.push_back(scope.items[at(i)]);
    made.inputs.push_back(std::move(scope.inputs[at(i)]));
    for (In& in : made.inputs.back()) in.from = place[at(in.from)];
    for (const auto& [user, bytes] : users[at(i)])
      if (--awaited[at(user)] == 0) ready.push(user);
  }
  scope = std::move(made);
}

double Forecaster::item_ns(const Item& item, std::size_t device) const {
  if (item.node >= 0) return cost_[device][at(item.node)];
  double once = 0;
  for (const Item& within : scopes_[at(item.frame)].items) once += item_ns(within, device);
  return trips(item.frame) * once;
}

double Forecaster::held_bytes(const Item& item) const {
  double bytes = 0;
  if (item.frame >= 0) {
    for (const Item& within : scopes_[at(item.frame)].items) bytes += held_bytes(within);
    return bytes;
  }
  return only_moves_tokens(program_.graph.node(item.node)) ? 0 : values_[at(item.node)].bytes;
}

// ---- a schedule

Forecast Forecaster::run(std::vector<std::int32_t> device) {
  device_ = std::move(device);
  resolve_devices();
  Forecast out;
  out.devices.resize(model_.devices().size());
  within_.assign(scopes_.size(), {});
  for (std::size_t f = scopes_.size() - 1; f > 0; --f)
    if (!frames_.all()[f].function)
      within_[f] = schedule(static_cast<std::int32_t>(f), nullptr, out);
  std::vector<Timed> timed;
  const Iterated all = schedule(0, &timed, out);
  for (std::size_t d = 0; d < out.devices.size(); ++d) {
    out.devices[d].busy_ns = all.busy[d];
    out.devices[d].peak_bytes = all.peak[d];
    const auto limit = static_cast<double>(model_.memory_of(d));
    if (limit > 0) out.missing_bytes += std::max(0.0, all.peak[d] - limit);
  }
  trace(timed, out);
  const Graph& g = program_.graph;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Work& work = values_[at(id)].work;
    if (work.flops == 0 && work.bytes == 0) continue;
    Forecast::OnDevice& d = out.devices[at(device_[at(id)])];
    double times = 1;
    for (std::int32_t f = frames_.frame(id); f > 0; f = frames_.all()[at(f)].parent)
      times *= trips(f);
    ++d.nodes;
    d.flops += times * work.flops;
    d.is_known = d.is_known && values_[at(id)].is_known;
  }
  return out;
}

void Forecaster::resolve_devices() {
  const Graph& g = program_.graph;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    std::int32_t& d = device_[at(id)];
    if (fed_.contains(id)) d = static_cast<std::int32_t>(home_);
    for (Edge e : g.node(id).inputs)
      if (d < 0) d = device_[at(e.node)];
    for (std::int32_t c : g.node(id).controls)
      if (d < 0) d = device_[at(c)];
    if (d < 0) d = static_cast<std::int32_t>(home_);
  }
}

Forecaster::Iterated Forecaster::schedule(std::int32_t frame, std::vector<Timed>* kept,
                                          Forecast& out) {
  const Scope& scope = scopes_[at(frame)];
  const std::size_t devices = model_.devices().size();
  Iterated result{0, std::vector<double>(devices), std::vector<double>(devices),
                  std::vector<char>(devices)};
  std::vector<Timed> timed(scope.items.size());
  std::vector<double> free_at(devices, 0);
  std::vector<std::int32_t> last_on(devices, -1);
  for (std::size_t i = 0; i < scope.items.size(); ++i) {
    const Item& item = scope.items[i];
    Timed& t = timed[i];
    for (const In& in : scope.inputs[i]) {
      const auto from = at(device_[at(in.from_node)]), to = at(device_[at(in.to_node)]);
      const double made = timed[at(in.from)].end,
                   came = made + model_.transfer_ns(in.bytes, from, to);
      if (t.because < 0 || came > t.start)
        t = {came, 0, in.from, from == to ? -1 : in.from_node, made};
    }
    const auto occupy = [&](std::size_t d) {
      result.is_used[d] = 1;
      if (free_at[d] > t.start) t = {free_at[d], 0, last_on[d], -1, 0};
    };
    double took = 0;
    if (item.node >= 0) {
      const auto d = at(device_[at(item.node)]);
      took = cost_[d][at(item.node)];
      if (took > 0) {
        occupy(d);
        result.busy[d] += took;
      }
      t.end = t.start + took;
      if (took > 0) free_at[d] = t.end, last_on[d] = static_cast<std::int32_t>(i);
      continue;
    }
    const Iterated& inner = within_[at(item.frame)];
    for (std::size_t d = 0; d < devices; ++d)
      if (inner.is_used[d]) occupy(d);
    t.end = t.start + trips(item.frame) * inner.ns;
    for (std::size_t d = 0; d < devices; ++d) {
      if (!inner.is_used[d]) continue;
      result.busy[d] += trips(item.frame) * inner.busy[d];
      free_at[d] = t.end, last_on[d] = static_cast<std::int32_t>(i);
    }
  }
  for (const Timed& t : timed) result.ns = std::max(result.ns, t.end);
  hold(frame, timed, within_, result, out);
  if (kept) *kept = std::move(timed);
  return result;
}

// ---- memory

// A value takes memory from when its node begins until its last user ends; on another device from
// when it comes.
void Forecaster::hold(std::int32_t frame, const std::vector<Timed>& timed,
                      const std::vector<Iterated>& within, Iterated& out,
                      Forecast& forecast) const {
  const Graph& g = program_.graph;
  const Scope& scope = scopes_[at(frame)];
  const auto is_alias = [&](const Item& item) {
    return item.node >= 0 && values_[at(item.node)].is_alias;
  };
  constexpr double kEver = std::numeric_limits<double>::infinity();
  std::vector<double> until(timed.size(), 0);
  if (frame == 0)
    for (std::size_t i = 0; i < timed.size(); ++i)
      for (Edge e : program_.fetches)
        if (scope.items[i].node == e.node) until[i] = kEver;
  std::vector<std::map<std::int32_t, double>> copies(timed.size());  // device: until
  for (std::size_t i = timed.size(); i-- > 0;) {
    const double used = is_alias(scope.items[i]) ? until[i] : timed[i].end;
    for (const In& in : scope.inputs[i]) {
      const std::int32_t to = device_[at(in.to_node)];
      double& end = to == device_[at(in.from_node)] ? until[at(in.from)] : copies[at(in.from)][to];
      end = std::max(end, used);
      until[at(in.from)] = std::max(until[at(in.from)], timed[at(in.from)].end);
    }
  }
  struct Change {
    double when, bytes;
  };
  std::vector<std::vector<Change>> changes(out.peak.size());
  const auto take = [&](std::int32_t device, double from, double to, double bytes,
                        std::int32_t node) {
    if (bytes == 0) return;
    changes[at(device)].push_back({from, bytes});
    if (to != kEver) changes[at(device)].push_back({std::max(from, to), -bytes});
    Forecast::OnDevice& d = forecast.devices[at(device)];
    if (node >= 0 && bytes > d.largest_bytes) d.largest = node, d.largest_bytes = bytes;
  };
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const Item& item = scope.items[i];
    if (item.frame >= 0) {
      const double open =
          std::min(trips(item.frame), static_cast<double>(frames_.all()[at(item.frame)].window));
      for (std::size_t d = 0; d < out.peak.size(); ++d)
        take(static_cast<std::int32_t>(d), timed[i].start, timed[i].end,
             open * within[at(item.frame)].peak[d], -1);
      continue;
    }
    const double bytes = values_[at(item.node)].bytes;
    if (!is_alias(item))
      take(device_[at(item.node)], timed[i].start, std::max(until[i], timed[i].end), bytes,
           item.node);
    for (const auto& [device, end] : copies[i])
      take(device, timed[i].end + model_.transfer_ns(bytes, at(device_[at(item.node)]), at(device)),
           end, bytes, item.node);
  }
  if (frame == 0) {
    // by device, and constant or (negative) variable: it is counted, as it is always in memory
    std::map<std::pair<std::int32_t, std::int32_t>, bool> there;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      const std::int32_t d = device_[at(id)];
      const StateSpec* state = n.state >= 0 ? &g.states()[at(n.state)] : nullptr;
      if (state && state->kind == StateSpec::Kind::variable &&
          !std::exchange(there[{d, -1 - n.state}], true))
        take(d, 0, kEver, model_.size_of(state->values[0]).bytes, id);
      for (Edge e : n.inputs)
        if (frames_.role(e.node) == Role::constant && !std::exchange(there[{d, e.node}], true))
          take(d, 0, kEver, model_.size_of(g.spec(e)).bytes, e.node);
    }
  }
  for (std::size_t d = 0; d < changes.size(); ++d) {
    std::sort(changes[d].begin(), changes[d].end(), [](const Change& a, const Change& b) {
      return a.when != b.when ? a.when < b.when : a.bytes < b.bytes;
    });
    double now = 0;
    for (const Change& c : changes[d]) out.peak[d] = std::max(out.peak[d], now += c.bytes);
  }
}

// ---- the critical path

void Forecaster::trace(const std::vector<Timed>& timed, Forecast& out) const {
  const Scope& scope = scopes_[0];
  std::int32_t last = -1;
  for (std::size_t i = 0; i < timed.size(); ++i)
    if (timed[i].end > out.ns) out.ns = timed[i].end, last = static_cast<std::int32_t>(i);
  std::int32_t fetched = -1;
  for (Edge e : program_.fetches)
    for (std::size_t i = 0; i < timed.size(); ++i) {
      if (scope.items[i].node != e.node) continue;
      const double came =
          timed[i].end + model_.transfer_ns(model_.size_of(program_.graph.spec(e)).bytes,
                                            at(device_[at(e.node)]), home_);
      if (came > out.ns) out.ns = came, last = static_cast<std::int32_t>(i), fetched = e.node;
    }
  if (fetched >= 0)
    out.path.push_back(
        {fetched, -1, static_cast<std::int32_t>(home_), true, timed[at(last)].end, out.ns});
  for (std::int32_t i = last; i >= 0; i = timed[at(i)].because) {
    const Item& item = scope.items[at(i)];
    const Timed& t = timed[at(i)];
    if (item.frame >= 0) {
      const std::vector<std::int32_t> nodes = nodes_within(item.frame);
      out.path.push_back({nodes.empty() ? -1 : nodes[0], item.frame,
                          nodes.empty() ? -1 : device_[at(nodes[0])], false, t.start, t.end});
    } else if (t.end > t.start) {
      out.path.push_back({item.node, -1, device_[at(item.node)], false, t.start, t.end});
    }
    if (t.sent >= 0)
      out.path.push_back(
          {t.sent, -1, item.node >= 0 ? device_[at(item.node)] : -1, true, t.sent_at, t.start});
  }
  std::reverse(out.path.begin(), out.path.end());
}

}  // namespace troupe
