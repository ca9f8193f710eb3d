// The variables of an engine that are stored in pieces over a mesh (ops/mesh/variables.hpp), and
// those that may be: no program has used them yet.
//
//   auto homes = laid.homes(may_lay_out);           // for the passes of one program
//   for (const auto& v : homes.made) if (laid.add(v)) ...   // give each piece its value
//
// Threads: any. Invariants: 1. an arrangement that was added stays; 2. the names of pieces are no
// names of variables for callers.
#pragma once

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
  /// Adds an arrangement; false if there is an equal one. Throws failed_precondition if another
  /// program has laid the variable out in another way meanwhile.
  bool add(const Laid& laid);
  /// Returns the view of this table that the passes of a program get.
  mesh::detail::VariableHomes homes(std::function<bool(const StateSpec&)> may_lay_out) const;

  // ---- whole variables that callers gave a value, and no program has used

  void note_callers(const std::string& name);
  bool is_callers(const std::string& name) const;
  /// Records that a program uses its variables as they are now.
  void note_used(const Graph& program);

  /// Names of variables, in order, with whole variables in the place of pieces.
  std::vector<std::string> names_among(const std::vector<std::string>& names) const;

 private:
  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, Laid> laid_;
  std::set<std::string> pieces_;   // their names
  std::set<std::string> callers_;  // names
};

}  // namespace troupe
