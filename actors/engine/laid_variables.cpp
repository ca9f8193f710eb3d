#include <troupe/actors/engine/laid_variables.hpp>

#include <fmt/format.h>

namespace troupe {

LaidVariables::Laid LaidVariables::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = laid_.find(name);
  return it == laid_.end() ? nullptr : it->second;
}

LaidVariables::Laid LaidVariables::find(const StateSpec& spec) const {
  Laid laid = find(spec.name);
  if (laid && !laid->whole.is_same(spec))
    throw Error(Code::already_exists,
                fmt::format("{}: the engine has {} already, with another dtype, shape or kind; "
                            "give one of them another name",
                            spec.text(), laid->whole.text()));
  return laid;
}

bool LaidVariables::add(const Laid& laid) {
  std::lock_guard lock(mutex_);
  const auto [it, is_new] = laid_.try_emplace(laid->whole.name, laid);
  if (!is_new && !it->second->is_same_arrangement(*laid))
    throw Error(Code::failed_precondition,
                fmt::format("{} was stored as {} meanwhile, and this program stores it as {}; "
                            "compile it again",
                            laid->whole.text(), it->second->text, laid->text));
  for (const auto& piece : laid->pieces) pieces_.insert(piece.spec.name);
  return is_new;
}

mesh::detail::VariableHomes LaidVariables::homes(
    std::function<bool(const StateSpec&)> may_lay_out) const {
  mesh::detail::VariableHomes homes;
  homes.find = [this](const std::string& name) { return find(name); };
  homes.may_lay_out = std::move(may_lay_out);
  std::lock_guard lock(mutex_);
  homes.has_any = !laid_.empty();
  return homes;
}

void LaidVariables::note_callers(const std::string& name) {
  std::lock_guard lock(mutex_);
  callers_.insert(name);
}

bool LaidVariables::is_callers(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return callers_.contains(name);
}

void LaidVariables::note_used(const Graph& program) {
  std::lock_guard lock(mutex_);
  if (callers_.empty()) return;
  for (const Node& n : program.nodes())
    if (n.state >= 0) callers_.erase(program.states()[static_cast<std::size_t>(n.state)].name);
}

std::vector<std::string> LaidVariables::names_among(const std::vector<std::string>& names) const {
  std::lock_guard lock(mutex_);
  std::set<std::string> all;
  for (const std::string& name : names)
    if (!pieces_.contains(name)) all.insert(name);
  for (const auto& [name, laid] : laid_) all.insert(name);
  return {all.begin(), all.end()};
}

}  // namespace troupe
