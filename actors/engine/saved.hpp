// An engine's variables in a file of the safetensors format (ops/format/safetensors.hpp), under
// their names, with the engine's step as the metadata `troupe.step`.
//
//   save(engine, "model.safetensors");
//   Loaded loaded = load(engine, graph, "model.safetensors");
//   if (!loaded.is_complete()) std::cerr << loaded.text() << "\n";
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>

namespace troupe {

/// Names that a file and an engine do not have in common, in order.
struct Loaded {
  std::vector<std::string> missing;    // variables of the engine that keep their values
  std::vector<std::string> left_over;  // entries of the file that no variable took
  bool is_complete() const { return missing.empty() && left_over.empty(); }
  /// `missing: w, b; left over: v`; empty if complete.
  std::string text() const;
};

/// Writes the step and all variables that programs of this engine have used (`Engine::variables`),
/// on any node. Values are read one after another: let no run change them meanwhile. Throws the
/// errors of `Engine::get` and `save_safetensors`.
void save(Engine& engine, const std::string& path);

/// Sets the engine's variables that the file has, and the step. The engine has the variables of
/// the graphs that it has compiled or run; pass the graph if there are none yet. A name on one side
/// only is no error and is reported. Another dtype or shape throws invalid_argument, naming the
/// variable, and changes nothing. Throws also the errors of `load_safetensors`. Let no run change
/// variables meanwhile.
Loaded load(Engine& engine, const std::string& path);
/// Declares the variables of `graph` first.
Loaded load(Engine& engine, const Graph& graph, const std::string& path);

}  // namespace troupe
