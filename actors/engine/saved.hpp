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

/// Writes all variables that programs of this engine have used (`Engine::variables`), on whichever
/// node they live, and the step. Values are taken one after the other: let no run change them
/// meanwhile. Throws what `Engine::get` and `save_safetensors` throw.
void save(Engine& engine, const std::string& path);

/// Sets the engine's variables that the file has, and the step. An engine knows the variables of
/// what it has compiled or run: give the graph before that. A name on one side only is no error and
/// is reported; another dtype or shape throws invalid_argument, naming the variable, and changes
/// nothing. Throws also what `load_safetensors` throws. Let no run change variables meanwhile.
Loaded load(Engine& engine, const std::string& path);
/// Declares the variables of `graph` first.
Loaded load(Engine& engine, const Graph& graph, const std::string& path);

}  // namespace troupe
