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

bool LaidVariables::begin(const Laid& laid) {
  std::lock_guard lock(mutex_);
  const auto whole = whole_.find(laid->whole.name);
  if (whole != whole_.end() && whole->second == Whole::of_programs) return false;
  laid_.try_emplace(laid->whole.name);
  for (const auto& piece : laid->pieces) pieces_.insert(piece.spec.name);
  return true;
}

void LaidVariables::add(const Laid& laid) {
  std::lock_guard lock(mutex_);
  laid_.insert_or_assign(laid->whole.name, laid);
}

void LaidVariables::abandon(const Laid& laid) {
  std::lock_guard lock(mutex_);
  laid_.erase(laid->whole.name);
}

bool LaidVariables::is_begun(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return laid_.contains(name);
}

mesh::detail::VariableHomes LaidVariables::homes(
    std::function<bool(const StateSpec&)> is_new) const {
  mesh::detail::VariableHomes homes;
  homes.find = [this](const StateSpec& spec) { return find(spec); };
  homes.may_lay_out = [this, is_new = std::move(is_new)](const StateSpec& spec) {
    const bool has_no_store = is_new(spec);
    std::lock_guard names_lock(mutex_);
    const auto whole = whole_.find(spec.name);
    return whole == whole_.end() ? has_no_store : whole->second == Whole::of_callers;
  };
  std::lock_guard lock(mutex_);
  homes.has_any = !laid_.empty();
  return homes;
}

void LaidVariables::note_callers(const std::string& name) {
  std::lock_guard lock(mutex_);
  whole_.try_emplace(name, Whole::of_callers);
}

bool LaidVariables::note_used(const Graph& program) {
  std::vector<std::string> names;
  for (std::int32_t state : mesh::detail::states_used_by(program)) {
    const StateSpec& spec = program.states()[static_cast<std::size_t>(state)];
    if (spec.kind == StateSpec::Kind::variable) names.push_back(spec.name);
  }
  std::lock_guard lock(mutex_);
  for (const std::string& name : names)
    if (laid_.contains(name)) return false;
  for (const std::string& name : names) whole_.insert_or_assign(name, Whole::of_programs);
  return true;
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
