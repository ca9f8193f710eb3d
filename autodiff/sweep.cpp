#include <troupe/autodiff/sweep.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/autodiff/control.hpp>
#include <troupe/autodiff/differentiate.hpp>

namespace troupe {

void Arrivals::add(std::int32_t output, Cotangent c) {
  std::int32_t slot = free_;
  if (slot >= 0) free_ = pool_[static_cast<std::size_t>(slot)].next;
  else slot = static_cast<std::int32_t>(pool_.size()), pool_.emplace_back();
  std::int32_t& first = first_[static_cast<std::size_t>(output)];
  pool_[static_cast<std::size_t>(slot)] = {std::move(c), first};
  first = slot;
}

Cotangent Arrivals::take(std::int32_t output) {
  std::int32_t& first = first_[static_cast<std::size_t>(output)];
  if (first < 0) return {};
  const auto pop = [&] {
    Slot& s = pool_[static_cast<std::size_t>(first)];
    Cotangent c = std::move(s.cotangent);
    s.cotangent = {};
    const std::int32_t next = std::exchange(s.next, free_);
    free_ = std::exchange(first, next);
    return c;
  };
  Cotangent last = pop();
  if (first < 0) return last;
  std::vector<Cotangent> terms;
  terms.push_back(std::move(last));
  while (first >= 0) terms.push_back(pop());
  std::reverse(terms.begin(), terms.end());
  return sum_of(terms);
}

Sweep::Sweep(Graph& graph, std::int32_t size, const std::vector<Edge>& xs, Flags states,
             Request& request)
    : graph_(graph), request_(request), activity_(graph, size, std::move(states), request.flows),
      is_x_(static_cast<std::size_t>(activity_.outputs()), 0), arrivals_(activity_.outputs()) {
  for (Edge x : xs) {
    if (x.node >= size) continue;
    activity_.mark(x);
    is_x_[static_cast<std::size_t>(activity_.at(x))] = 1;
  }
  activity_.spread();
}

void Sweep::seed(Edge y, Cotangent dy) {
  if (activity_.is_active(y)) arrivals_.add(activity_.at(y), std::move(dy));
}

void Sweep::run() {
  for (std::int32_t id = activity_.size() - 1; id >= 0; --id)
    if (has_arrivals(id)) visit(id);
}

Cotangent Sweep::of(Edge x) const {
  auto it = of_edges_.find(x);
  return it == of_edges_.end() ? Cotangent() : it->second;
}

Cotangent Sweep::of_state(std::int32_t state) const {
  auto it = of_states_.find(state);
  return it == of_states_.end() ? Cotangent() : sum_of(it->second);
}

bool Sweep::has_arrivals(std::int32_t id) const {
  for (std::int32_t i = activity_.first(id); i < activity_.first(id + 1); ++i)
    if (arrivals_.any(i)) return true;
  return false;
}

void Sweep::visit(std::int32_t id) {
  Graph& here = graph_.current();
  Graph::AtSite site(here, graph_.node(id).site);
  auto device = here.on_device(graph_.node(id).device);
  std::vector<Cotangent> totals;
  const std::int32_t first = activity_.first(id), outputs = activity_.first(id + 1) - first;
  for (std::int32_t i = 0; i < outputs; ++i) {
    totals.push_back(arrivals_.take(first + i));
    if (is_x_[static_cast<std::size_t>(first + i)] && !totals.back().is_none()) {
      of_edges_[Edge{id, i}] = totals.back();
      if (request_.xs_are_independent) totals.back() = Cotangent();
    }
  }
  if (request_.xs_are_independent &&
      std::all_of(totals.begin(), totals.end(), [](const auto& c) { return c.is_none(); }))
    return;
  const Node& node = graph_.node(id);
  if (is_wanted_read(node, activity_.states())) of_states_[node.state].push_back(totals[0]);
  else if (node.op->evaluate) pass_through_control(id, std::move(totals));
  else if (node.op->differentiable) pass_on(id, std::move(totals));
}

void Sweep::pass_on(std::int32_t id, std::vector<Cotangent> totals) {
  // A copy: the graph's nodes move when it grows.
  const Node& node = graph_.node(id);
  const OpDef& op = *node.op;
  Attrs attrs = node.attrs;
  std::vector<Edge> inputs = node.inputs;
  Differentiated firing;
  firing.cotangents = std::move(totals);
  bool any_needed = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_active = activity_.is_active(inputs[i]) && !op.takes_only_shape(i);
    firing.inputs.push_back(graph_.expr(inputs[i]));
    firing.needed.push_back(is_active);
    any_needed = any_needed || is_active;
  }
  if (!any_needed) return;
  for (std::int32_t i = 0; i < activity_.first(id + 1) - activity_.first(id); ++i)
    firing.outputs.push_back(graph_.expr(Edge{id, i}));
  std::vector<Cotangent> dxs;
  try {
    dxs = differentiate(op, attrs, std::move(firing));
  } catch (const Error& e) { fail(id, e.code(), e.what()); }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!dxs[i].is_none()) arrivals_.add(activity_.at(inputs[i]), std::move(dxs[i]));
}

void Sweep::pass_through_control(std::int32_t id, std::vector<Cotangent> totals) {
  const Node& node = graph_.node(id);
  const std::vector<Edge> inputs = node.inputs;
  ControlStep step{
      graph_, request_, id, std::move(totals), activity_.active_inputs(node), activity_.states(),
      {}};
  // A captured list's cotangent so far becomes the first value of the backward node's sum, so that
  // the node adds its elements to it in place.
  const std::size_t first_capture = captures_begin(node);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool goes_through =
        i >= first_capture && step.needed[i] && graph_.spec(inputs[i]).is_list();
    step.arrived.push_back(goes_through ? arrivals_.take(activity_.at(inputs[i])) : Cotangent());
  }
  ControlCotangents made;
  try {
    made = differentiate_control(step);
  } catch (const Error& e) { fail(id, e.code(), e.what()); }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!made.inputs[i].is_none())
      arrivals_.add(activity_.at(inputs[i]), std::move(made.inputs[i]));
  for (auto& [state, c] : made.states) of_states_[state].push_back(std::move(c));
}

void Sweep::fail(std::int32_t id, Code code, const std::string& why) const {
  throw Error(code, fmt::format("the gradient of {}: {}", graph_.describe(id), why));
}

}  // namespace troupe
