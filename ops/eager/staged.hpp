// Staged functions: programs that were traced once and run many times, shared by callers and tapes.
//
// A function, its gradient and the gradient of that are programs over one graph, which only grows:
// each names the edges that it takes and yields. Threads: any. A thread that appends to the graph
// or compiles it holds its mutex; a compiled program runs without.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <troupe/ops/eager/host.hpp>
#include <troupe/ops/eager/remote_device.hpp>

namespace troupe {

class Eager;

namespace detail {

/// The graph that a trace has filled; gradients are appended to it.
struct StagedGraph {
  explicit StagedGraph(EagerHost* in) : host(in) {}
  EagerHost* const host;  // null: programs are replayed on the calling thread
  std::recursive_mutex mutex;
  Graph graph;
};

/// A part of a staged function that is made when it is needed: a tape keeps the gradient there.
class StagedExtension {
 public:
  virtual ~StagedExtension() = default;
};

struct StagedFunction {
  StagedFunction(std::string title, std::shared_ptr<StagedGraph> graph)
      : name(std::move(title)), in(std::move(graph)) {}

  /// A floating variable that the program reads. A scope that calls the program resolves it to the
  /// one of its own states that has this name.
  struct Read {
    int state;  // in the graph
    StateSpec spec;
  };

  const std::string name;  // `function 'step' (train.cpp:41)`
  const std::shared_ptr<StagedGraph> in;
  std::vector<Edge> inputs;
  std::vector<Edge> outputs;
  // effects: those of the graph's nodes from `first` up to `end` are the function's
  Keep keep = Keep::fetches;
  std::int32_t first = 0, end = std::numeric_limits<std::int32_t>::max();
  std::vector<Read> reads;
  // made when first used, under the graph's mutex
  std::shared_ptr<StagedProgram> program;
  // by devices of other nodes; null: the program runs on the host, and reaches that node itself
  std::map<const RemoteDevice*, std::unique_ptr<Kernel>> there;
  std::shared_ptr<StagedExtension> extension;
};

/// Runs the function on values of `scope`, on the function's host, and reports the call to the
/// tapes of this thread. Throws the run's error.
Exprs call_staged(const std::shared_ptr<StagedFunction>& function, std::span<const Expr> inputs,
                  Eager& scope);

/// Returns the trace's `capture` (ops/graph/tracing.hpp): a value from outside becomes one more
/// input of the function, the same one for the same value, and is appended to `captures`. Both must
/// outlive the trace.
std::function<Expr(const Expr& outside, const Site& site)> capture_into(StagedFunction& function,
                                                                        Exprs& captures);

/// Returns the part of the function's graph that it needs, its effects included. All effects of the
/// result are the function's. The caller holds the graph's mutex.
Program program_of(const StagedFunction& function);

/// Fills `reads` with the floating variables that the function's graph reads, its sub-graphs and
/// the functions that it calls included; `scope` declares them.
void find_reads(StagedFunction& function, Eager& scope);

/// Stages code that declares no states: runs it once on a new graph, whose eager values come in as
/// inputs, and runs the program on `scope`. The tapes of this thread record it as one call.
Exprs call_code(std::string name, const std::function<Exprs(Graph&)>& code, Eager& scope);

/// Describes what the compiled program does and where; without a host, its text.
std::string explain_staged(StagedFunction& function);

}  // namespace detail

}  // namespace troupe
