#include <troupe/actors/engine/laid_variables.hpp>

#include <fmt/format.h>

namespace troupe {
namespace {

// The name of the variable that `w@mesh/3` is a piece of; empty: it is no piece's name.
std::string whole_of(const std::string& piece) {
  const std::size_t at = piece.rfind("@mesh/");
  return at == std::string::npos ? std::string() : piece.substr(0, at);
}

}  // namespace

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
  return true;
}

void LaidVariables::add(const Laid& laid, Tensor value) {
  std::lock_guard lock(mutex_);
  laid_.insert_or_assign(laid->whole.name, laid);
  if (value.has_value()) uncut_.insert_or_assign(laid->whole.name, std::move(value));
}

Tensor LaidVariables::uncut(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = uncut_.find(name);
  return it == uncut_.end() ? Tensor() : it->second;
}

bool LaidVariables::replace_uncut(const std::string& name, Tensor value) {
  std::lock_guard lock(mutex_);
  const auto it = uncut_.find(name);
  if (it == uncut_.end()) return false;
  std::swap(it->second, value);  // the old value goes behind the lock
  return true;
}

void LaidVariables::note_cut(const std::string& name) {
  std::lock_guard lock(mutex_);
  uncut_.erase(name);
}

std::vector<LaidVariables::Laid> LaidVariables::uncut_among(
    const std::vector<std::string>& pieces) const {
  std::vector<Laid> found;
  std::set<std::string> names;
  std::lock_guard lock(mutex_);
  if (uncut_.empty()) return found;
  for (const std::string& piece : pieces)
    if (std::string name = whole_of(piece); uncut_.contains(name) && names.insert(name).second)
      found.push_back(laid_.at(name));
  return found;
}

bool LaidVariables::is_piece(const std::string& name) const {
  return laid_.contains(whole_of(name));
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
    if (!is_piece(name)) all.insert(name);
  for (const auto& [name, laid] : laid_) all.insert(name);
  return {all.begin(), all.end()};
}

}  // namespace troupe
