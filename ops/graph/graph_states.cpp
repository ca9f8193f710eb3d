// The states of a graph: their names, and second declarations of a name.
#include <troupe/ops/graph/graph.hpp>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe {

int Graph::declare(const StateSpec& spec, const Site& site) {
  if (root_) {
    StateSpec here = spec;
    if (here.device.empty()) here.device = device_;
    return root_->declare(here, site);
  }
  StateSpec placed = spec;
  if (placed.device.empty()) placed.device = device_;
  if (const auto it = states_->number_of.find(placed.name); it != states_->number_of.end()) {
    const StateSpec& known = states()[static_cast<std::size_t>(it->second)];
    if (known.is_same(placed)) return it->second;
    throw Error(Code::already_exists,
                fmt::format("at {}: {} is declared already, with another dtype, shape or kind",
                            site.text(), known.text()));
  }
  States& mine = own_states();
  const auto number = static_cast<std::int32_t>(mine.specs.size());
  mine.number_of.emplace(placed.name, number);
  mine.specs.push_back(std::move(placed));
  return number;
}

namespace {

[[noreturn]] void refuse_second(const StateSpec& first, const StateSpec& second) {
  using enum StateSpec::Kind;
  const auto is_queue = [](const StateSpec& s) {
    return s.kind == fifo_queue || s.kind == shuffling_queue;
  };
  const bool is_one_kind = first.kind == second.kind || (is_queue(first) && is_queue(second));
  std::string why;
  if (!is_one_kind)
    why = fmt::format("the name is taken by {}; give one of them another name", first.text());
  else if (first.kind == actor)
    why = fmt::format("{} has {}; give one of them another name, or open a scope for each",
                      first.text(), difference_of_actors(*first.actor, *second.actor));
  else
    why = fmt::format(
        "{} is declared already; open a scope for each, or share it by {}", first.text(),
        first.kind == variable ? fmt::format("its handle or find_variable(\"{}\")", first.name)
                               : std::string("its handle"));
  throw Error(Code::already_exists, fmt::format("{}: {}", second.text(), why));
}

}  // namespace

int Graph::declare_new(StateSpec spec, const Site& site) {
  const Graph& here = current();
  spec.site = here.site_for(site_for(site));
  using enum StateSpec::Kind;
  if (spec.kind != console) {
    if (spec.name.starts_with('/')) spec.name.erase(0, 1);
    else if (here.state_scope_) spec.name.insert(0, *here.state_scope_);
    if (spec.name.empty())
      throw Error(Code::invalid_argument,
                  fmt::format("the state '/' at {} needs a name", spec.site.text()));
  }
  const auto& number_of = root().states_->number_of;
  if (const auto it = number_of.find(spec.name); it != number_of.end()) {
    const int number = it->second;
    const StateSpec& first = states()[static_cast<std::size_t>(number)];
    // A program that was replayed here brought it along, and shares it by name.
    const bool is_replayed = !*first.site.file;
    const bool is_shared = spec.kind == console || spec.kind == actor || is_replayed;
    if (!is_shared || !first.is_same(spec)) refuse_second(first, spec);
    if (is_replayed) root().own_states().specs[static_cast<std::size_t>(number)].site = spec.site;
    return number;
  }
  return declare(spec, site);
}

Graph::States& Graph::own_states() {
  if (!states_->is_sole()) states_ = Ref<States>(new States(*states_));
  return *states_;
}

}  // namespace troupe
