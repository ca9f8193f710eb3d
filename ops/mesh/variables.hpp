// Variables that are stored in pieces, one on each device of a mesh.
//
//   VariableHomes homes{.find = ..., .may_lay_out = ...};      // what the engine has already
//   SpmdProgram spmd = to_spmd(program, partitioning, &homes);
//   homes.made                                                 // variables that have pieces now
//
// A piece of the variable `w` on device i is the variable `w@mesh/i`. Programs that store a
// variable in these pieces read and assign them in place; all other programs join them
// (`join_variables`). Callers of an engine see whole variables alone: the engine joins and cuts
// them with `joined` and `cut`.
//
// Invariants: 1. a variable is whole, or has one arrangement, in an engine; 2. devices that hold
// one piece hold equal values, because each of them applies the same updates. Limit: updates that
// overlap reach the devices in any order: let a run end before the next one or `set` begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/state.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh::detail {

struct Piece {
  troupe::detail::StateSpec spec;    // its name, device and shape; starts as zeros
  std::vector<std::int64_t> starts;  // it begins there in the whole value
};

/// The pieces of a variable, one a device. All but the first are made when they are first looked
/// at: a program that runs by instances is compiled in a time that does not depend on the mesh.
class Pieces {
 public:
  using Make = std::function<Piece(int device)>;

  Pieces() = default;
  Pieces(int count, Make make);
  std::size_t size() const { return lazy_ ? static_cast<std::size_t>(lazy_->count) : 0; }
  const Piece& operator[](std::size_t i) const { return i == 0 ? lazy_->first : all()[i]; }
  std::vector<Piece>::const_iterator begin() const { return all().begin(); }
  std::vector<Piece>::const_iterator end() const { return all().end(); }

 private:
  struct Lazy {
    int count;
    Make make;
    Piece first;
    std::once_flag once;  // publishes `all`
    std::vector<Piece> all;
  };
  const std::vector<Piece>& all() const;

  std::shared_ptr<Lazy> lazy_;  // null: none
};

struct LaidVariable {
  troupe::detail::StateSpec whole;
  Pieces pieces;                     // one a device of the mesh
  std::shared_ptr<const Mesh> mesh;  // null in a test
  std::string text;  // the layout, for reports: "[in, hidden/cols] of mesh rows:2;cols:2"

  bool is_same_arrangement(const LaidVariable& other) const;
  /// The pieces that differ, each once: indices of `pieces`.
  std::vector<std::size_t> distinct() const;
};

/// The variables that an engine has, and those that a program adds.
struct VariableHomes {
  using Laid = std::shared_ptr<const LaidVariable>;
  /// The arrangement of a variable in pieces; null: none. Throws already_exists if dtype or shape
  /// differ.
  std::function<Laid(const troupe::detail::StateSpec&)> find;
  /// True if a variable may be cut into pieces: no program uses it whole.
  std::function<bool(const troupe::detail::StateSpec&)> may_lay_out;
  bool has_any = false;    // `find` finds something
  std::vector<Laid> made;  // arrangements that a program begins
};

/// The numbers of the states that the nodes of a graph use, in their sub-graphs too.
std::set<std::int32_t> states_used_by(const Graph& graph);

/// The piece of a whole value on the host.
Tensor cut(const Tensor& whole, const Piece& piece);
/// The whole value; `value_of(i)` yields the value of piece i on the host.
Tensor joined(const LaidVariable& variable,
              const std::function<Tensor(const troupe::detail::StateSpec& piece)>& value_of);

/// Replaces reads and updates of variables that are stored in pieces, other than `kept`, by those
/// of the pieces: a read joins them, an update cuts its value. Throws failed_precondition, naming
/// node and line, for a use inside a loop, a branch or a function.
troupe::detail::Program join_variables(troupe::detail::Program program, const VariableHomes& homes,
                                       const std::vector<std::string>& kept);

/// The numbers of the pieces' states in a graph, which declares them.
std::vector<std::int32_t> declare_pieces(Graph& graph, const LaidVariable& variable);

}  // namespace troupe::mesh::detail
