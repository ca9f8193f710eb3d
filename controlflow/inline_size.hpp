// InlineSizes: how many nodes a call of a function becomes if lowering puts the body in its place,
// and the bodies of the calls in it in theirs.
//
// A function that calls another twice, which calls another twice, and so on, doubles with each
// level. So a function that would become too many nodes, and is called in several places, keeps its
// calls; in its callers such a call is one node, so sizes begin anew there. Lowered programs then
// grow with the number of functions.
#pragma once

#include <cstdint>
#include <map>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

class InlineSizes {
 public:
  static constexpr std::int64_t kMost = 10'000;  // nodes that a function with several calls becomes

  /// The program outlives this.
  explicit InlineSizes(const Program& program);

  /// Returns whether calls of the function, which has a body, are kept for its size.
  bool is_too_large(const FunctionDef& function);

 private:
  void count_calls(const Graph& graph);
  std::int64_t size_of(const FunctionDef& function);
  std::int64_t size_of(const Graph& graph);

  std::map<const FunctionDef*, int> calls_;  // in the texts of the program and of its functions
  std::map<const FunctionDef*, std::int64_t> sizes_;
};

}  // namespace troupe
