// A variable with a copy on each member of a group, which reads its own.
//
//   MirroredVariable w(g, "w", DType::f32, {784, 10}, Initializer::glorot(784, 10), replicas);
//   Expr y = matmul(x, w[r]);                    // on member r: no message
//   engine.run(g, {}, {MirroredVariable::start({w, b})});   // once: all copies start as the first
//
// The program keeps the copies equal, by updates that are equal: all_reduce yields one value to all
// members, and an optimizer does the same with it everywhere.
//
// The number of copies is the program's: it decides their names (`NAME/replica-0`, ...). The group
// decides where they are, and changes no bit.
// Threads: as the graph. Ownership: the graph must outlive it.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

class Graph;

class MirroredVariable {
 public:
  using At = std::source_location;
  /// Throws as Graph::variable.
  MirroredVariable(Graph& graph, const std::string& name, DType dtype, const Shape& shape,
                   const Initializer& initial, const collective::Group& group,
                   At at = At::current());

  const std::string& name() const { return name_; }
  const std::vector<Variable>& copies() const { return copies_; }
  const Variable& operator[](int member) const { return copies_[static_cast<std::size_t>(member)]; }

  /// Sets all copies to the first one's value: to fetch before the first step, because initial
  /// values are drawn by name. Throws invalid_argument for no variable.
  static Expr start(const std::vector<MirroredVariable>& variables, At at = At::current());

 private:
  std::string name_;
  std::vector<std::string> devices_;
  std::vector<Variable> copies_;
};

}  // namespace troupe
