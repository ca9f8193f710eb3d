// Operations that the table (table.hpp) leaves to other suites.
#pragma once

#include <map>
#include <string>

namespace troupe::test {

inline constexpr const char* kLists = "controlflow/list_test";

inline constexpr const char* kLoops = "controlflow/loops_test";

inline constexpr const char* kFunctions = "functions_test";
inline constexpr const char* kAlgebra = "linear_algebra_test";

inline constexpr const char* kLibrary = "library_test";

inline constexpr const char* kSpecial = "special_functions_test";

inline constexpr const char* kIndices = "indices_test";

inline constexpr const char* kCalls = "controlflow/function_test";

/// Ops that a table of pure functions of tensors cannot hold, by the suite that tests them. If that
/// suite can, it asserts that it met just these.
inline const std::map<std::string, std::string>& elsewhere() {
  static const std::map<std::string, std::string> ops{
      {"Input", "graph_test"},
      {"Constant", "graph_test"},
      {"NameDims", "mesh_test"},
      {"MeshAllGather", "mesh_test"},
      {"MeshAllReduce", "mesh_test"},
      {"MeshAllToAll", "mesh_test"},
      {"MeshCoordinate", "mesh_test"},
      {"MeshExport", "mesh_test"},
      {"MeshGive", "mesh_test"},
      {"MeshReduceScatter", "mesh_variables_test"},
      {"MeshShift", "mesh_exchange_test"},
      {"MeshSlice", "mesh_test"},
      {"MeshTake", "mesh_test"},
      {"ShiftAlong", "mesh_exchange_test"},
      {"Fused", "passes_test"},
      {"FusedSlices", "passes_test"},
      {"FusedReduce", "passes_test"},
      {"UpdateVariable", "passes_test"},
      {"WithGradient", "gradients_test"},
      {"RandomUniform", "random_test"},
      {"RandomNormal", "random_test"},
      {"TruncatedNormal", "random_test"},
      {"ReadVariable", "state_test"},
      {"AssignVariable", "state_test"},
      {"AssignAdd", "state_test"},
      {"AssignSub", "state_test"},
      {"ScatterVariable", "state_test"},
      {"Enqueue", "state_test"},
      {"Dequeue", "state_test"},
      {"QueueSize", "state_test"},
      {"QueueClose", "state_test"},
      {"Actor", "actors/engine/engine_test"},
      {"Print", "controlflow/print_test"},
      {"StringEqual", "controlflow/strings_test"},
      {"ListEmpty", kLists},
      {"ListReserve", kLists},
      {"ListPush", kLists},
      {"ListPop", kLists},
      {"ListRead", kLists},
      {"ListReadLike", kLists},
      {"ListWrite", kLists},
      {"ListLength", kLists},
      {"ListStack", kLists},
      {"ListStackLike", kLists},
      {"ListUnstack", kLists},
      {"ListGather", kLists},
      {"ListGatherLike", kLists},
      {"ListScatter", kLists},
      {"ListScatterAdd", kLists},
      {"ListErase", kLists},
      {"ListConcat", kLists},
      {"ListConcatLike", kLists},
      {"ListExtents", kLists},
      {"ListSplit", kLists},
      {"ListSum", kLists},
      {"Case", "controlflow/conditionals_test"},
      {"While", kLoops},
      {"ResidentLoop", "controlflow/resident_test"},
      {"Switch", kLoops},
      {"Merge", kLoops},
      {"Enter", kLoops},
      {"Exit", kLoops},
      {"NextIteration", kLoops},
      {"LoopCond", kLoops},
      {"ControlTrigger", kLoops},
      {"Elsewhere", "actors/plan/plan_part_test"},
      {"EnsureShape", kLoops},
      {"Blank", kLoops},
      {"CheckComparisons", "controlflow/comparisons_test"},
      {"Call", kCalls},
      {"Argument", kCalls},
      {"Return", kCalls},
      {"ListAccumulate", kLists},
      {"ListTake", kLists},
      {"ListPut", kLists},
      {"ListProduct", kLists},
      {"Cholesky", kAlgebra},
      {"Qr", kAlgebra},
      {"Svd", kAlgebra},
      {"Eigh", kAlgebra},
      {"Solve", kAlgebra},
      {"TriangularSolve", kAlgebra},
      {"LogDeterminant", kAlgebra},
      {"Attention", kFunctions},
      {"AttentionGradient", kFunctions},
      {"Cofactors", kAlgebra},
      {"CtcLossCurvature", kFunctions},
      {"CtcLoss", kFunctions},
      {"SegmentMax", kFunctions},
      {"RandomUniformLike", kFunctions},
      {"RandomNormalLike", kFunctions},
      {"SegmentMin", kIndices},
      {"Real", kSpecial},
      {"Imaginary", kSpecial},
      {"Complex", kSpecial},
      {"RandomGamma", kLibrary},
      {"RandomPoisson", kLibrary},
      {"RaggedIds", kIndices},
      {"MatchExtents", kFunctions},
  };
  return ops;
}

}  // namespace troupe::test
