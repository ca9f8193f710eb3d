// The variables of an engine that are stored in pieces over a mesh (ops/mesh/variables.hpp), and
// those that may be: no program has used them yet.
//
//   auto homes = laid.homes(is_new);                        // for the passes of one program
//   laid.note_used(program)                                 // false: others were faster
//   for (const auto& v : homes.made) if (laid.begin(v)) ... // give each piece its value
//   laid.add(v, value);
//
// Threads: any; one program at a time begins and adds arrangements. Invariants: 1. an arrangement
// that was added stays; 2. the names of pieces are no names of variables for callers; 3. a variable
// that a program uses whole gets no arrangement, and one whose arrangement was begun is no longer
// used whole.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/mesh/variables.hpp>

namespace troupe {

class LaidVariables {
 public:
  using Laid = mesh::detail::VariableHomes::Laid;

  /// The arrangement of a variable; null: it is whole.
  Laid find(const std::string& name) const;
  /// The arrangement of the variable that a graph declares so; null: it is whole. Throws
  /// already_exists if dtype or shape differ.
  Laid find(const StateSpec& spec) const;
  /// Announces an arrangement, whose pieces get their values next; false if a program uses the
  /// variable whole.
  bool begin(const Laid& laid);
  /// From here on `find` finds the arrangement. `value`: the whole value, which nothing has cut
  /// yet; none: the pieces have their values.
  void add(const Laid& laid, Tensor value = {});
  /// Takes `begin` back.
  void abandon(const Laid& laid);
  bool is_begun(const std::string& name) const;

  // ---- values that are whole until a program runs that uses the pieces, or a caller reads one

  /// The value; none: it was cut, or the variable has no pieces.
  Tensor uncut(const std::string& name) const;
  /// Replaces it; false: it was cut.
  bool replace_uncut(const std::string& name, Tensor value);
  /// The pieces have their values.
  void note_cut(const std::string& name);
  /// The variables, by the names of their pieces, whose values are whole.
  std::vector<Laid> uncut_among(const std::vector<std::string>& pieces) const;

  /// Returns the view of this table that the passes of a program get. `is_new`: no store has the
  /// state yet.
  mesh::detail::VariableHomes homes(std::function<bool(const StateSpec&)> is_new) const;

  // ---- whole variables that callers gave a value, and no program has used

  void note_callers(const std::string& name);
  /// Records that a program uses its variables as they are now. False, and nothing is recorded, if
  /// an arrangement of one of them was begun meanwhile: the program's passes must run again.
  bool note_used(const Graph& program);

  /// Names of variables, in order, with whole variables in the place of pieces.
  std::vector<std::string> names_among(const std::vector<std::string>& names) const;

 private:
  bool is_piece(const std::string& name) const;

  mutable std::mutex mutex_;             // guards all below
  std::map<std::string, Laid> laid_;     // null: begun
  std::map<std::string, Tensor> uncut_;  // by the name of the whole variable
  enum class Whole : std::uint8_t { of_callers, of_programs };
  std::map<std::string, Whole> whole_;  // variables that callers gave a value, or programs use
};

}  // namespace troupe
