// Traced functions in files: a program, the values that it has captured and its variables, which a
// process without the C++ code runs.
//
//   save(step, "step.safetensors", x, y);             // the graph for arguments like x and y
//   SavedFunction step(engine, "step.safetensors");   // or: troupe run step.safetensors 1 2
//   std::vector<Tensor> out = step({x, y});
//
// The file is a safetensors file (ops/format/safetensors.hpp): variables under their names, and
// under names that begin with `troupe.` the optimised, lowered program (program_codec.hpp), its
// constants and captured values. Ops are named, and must be registered where it is loaded.
// Not saved, and refused by name: host callbacks and users' actors, whose code is in the process
// that made them; queues, whose elements are no part of a program; captured lists.
// **Threads**: any may call a loaded function. **Ownership**: the engine must outlive it, and has
// its variables; functions that are loaded into one engine share variables by name.
// These are no members of Traced and Function, whose folder does not depend on the cluster's.
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/trace/traced_function.hpp>

namespace troupe {

namespace detail {

void save(const TracedProgram& traced, const std::string& path);

}  // namespace detail

/// Writes the graph that a call with these arguments runs, which is traced if need be; without
/// arguments, the only graph that the function has. Let no run change variables meanwhile. Throws
/// unimplemented for what is not saved, naming all of it with its lines, and the errors of
/// `save_safetensors`.
template <class F, class... A>
void save(const Traced<F>& function, const std::string& path, const A&... arguments) {
  if constexpr (sizeof...(A) == 0) detail::save(function.only_program(), path);
  else detail::save(function.program(arguments...), path);
}

class SavedFunction {
 public:
  /// Does what the constructor does.
  static SavedFunction load(Engine& engine, const std::string& path) {
    return SavedFunction(engine, path);
  }
  /// Loads the function; sets the engine's variables to the file's values. Throws the errors of
  /// `load_safetensors`, and data_loss if the file holds no function.
  SavedFunction(Engine& engine, const std::string& path);

  /// Runs it. Throws invalid_argument for arguments that do not fit, and the run's error.
  std::vector<Tensor> operator()(std::vector<Tensor> arguments) const;

  const std::string& name() const { return name_; }
  /// The dtype and shape of each tensor argument and of each result.
  const std::vector<ValueSpec>& arguments() const { return arguments_; }
  const std::vector<ValueSpec>& results() const { return results_; }
  /// Names of the variables that the file holds.
  const std::vector<std::string>& variables() const { return variables_; }
  /// `step(f32[?, 3], f32[3]) -> (f32[])`.
  std::string text() const;

 private:
  std::string name_;
  std::vector<ValueSpec> arguments_, results_;
  std::vector<std::string> variables_;
  std::vector<Tensor> captured_;  // follow the arguments
  Function function_;
};

}  // namespace troupe
