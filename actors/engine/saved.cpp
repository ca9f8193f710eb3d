#include <troupe/actors/engine/saved.hpp>

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/ops/format/safetensors.hpp>

namespace troupe {
namespace {

constexpr const char* kStep = "troupe.step";

}  // namespace

std::string Loaded::text() const {
  std::vector<std::string> parts;
  if (!missing.empty()) parts.push_back(fmt::format("missing: {}", fmt::join(missing, ", ")));
  if (!left_over.empty()) parts.push_back(fmt::format("left over: {}", fmt::join(left_over, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void save(Engine& engine, const std::string& path) {
  NamedTensors tensors;
  for (const std::string& name : engine.variables()) tensors.emplace_back(name, engine.get(name));
  save_safetensors(path, tensors, {{kStep, std::to_string(engine.step())}});
}

Loaded load(Engine& engine, const std::string& path) {
  const TensorFile file = load_safetensors(path);
  const std::vector<std::string> names = engine.variables();
  std::set<std::string> wanted(names.begin(), names.end());
  Loaded loaded;
  std::vector<const std::pair<std::string, Tensor>*> taken;
  for (const auto& entry : file.tensors) {
    const auto& [name, value] = entry;
    if (wanted.erase(name) == 0) {
      loaded.left_over.push_back(name);
      continue;
    }
    const Tensor now = engine.get(name);
    if (now.dtype() != value.dtype() || now.shape() != value.shape())
      throw Error(
          Code::invalid_argument,
          fmt::format("variable '{}' is {}{}, and '{}' holds {}{} for it; nothing was loaded", name,
                      name_of(now.dtype()), now.shape().text(), path, name_of(value.dtype()),
                      value.shape().text()));
    taken.push_back(&entry);
  }
  for (const auto* entry : taken) engine.set(entry->first, entry->second);
  if (const auto step = file.metadata.find(kStep); step != file.metadata.end()) {
    const std::string& text = step->second;
    std::uint64_t number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc())
      engine.set_step(number);
  }
  loaded.missing.assign(wanted.begin(), wanted.end());
  std::sort(loaded.left_over.begin(), loaded.left_over.end());
  return loaded;
}

Loaded load(Engine& engine, const Graph& graph, const std::string& path) {
  for (const StateSpec& spec : graph.states())
    if (spec.kind == StateSpec::Kind::variable) engine.impl().get(spec);
  return load(engine, path);
}

}  // namespace troupe
