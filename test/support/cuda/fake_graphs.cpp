// Graphs: capture of streams into a sequence, conditional nodes, executables.
#include <troupe/test/support/cuda/fake_state.hpp>

using namespace fake_cuda;

struct CUgraph_st : Graph {};

/// A copy of a graph. It stays until `reset`, because streams may still run it.
struct CUgraphExec_st {
  cudaGraph_t graph;
  int device;
  std::atomic<bool> is_alive{true};
};

namespace {

struct Graphs {
  std::mutex mutex;  // guards the lists
  std::deque<CUgraph_st> graphs;
  std::deque<CUgraphExec_st> executables;
};

Graphs& all() {
  static Graphs& one = *new Graphs;
  return one;
}

cudaGraph_t make_graph() {
  std::lock_guard lock(all().mutex);
  return &all().graphs.emplace_back();
}

cudaError_t enter_graph(const char* name, const Graph* graph) {
  if (graph != nullptr && graph->is_alive) return enter(name);
  violate(std::string(name) + " uses a graph that was destroyed");
  return result(cudaErrorInvalidValue);
}

// Conditions stay the original's: kernels hold their addresses.
cudaGraph_t copy_of(const Graph& graph) {
  const cudaGraph_t copy = make_graph();
  copy->nodes = graph.nodes;
  for (Node& node : copy->nodes)
    for (cudaGraph_t& body : node.bodies) body = copy_of(*body);
  return copy;
}

// Appends the conditions with a default of a graph and of the bodies in it.
void add_conditions(Graph& graph, std::vector<Graph::Condition*>& conditions) {
  for (Graph::Condition& condition : graph.conditions)
    if (condition.has_default) conditions.push_back(&condition);
  for (const Node& node : graph.nodes)
    for (const cudaGraph_t body : node.bodies) add_conditions(*body, conditions);
}

void run(const Graph& graph, Random& random) {
  for (const Node& node : graph.nodes) {
    if (node.work) {
      node.work(random);
      continue;
    }
    auto condition = [&] { return node.condition->load(std::memory_order_relaxed); };
    if (node.type == cudaGraphCondTypeWhile) {
      while (condition() != 0) run(*node.bodies[0], random);
    } else if (node.type == cudaGraphCondTypeIf) {
      if (condition() != 0) run(*node.bodies[0], random);
      else if (node.bodies.size() > 1) run(*node.bodies[1], random);
    } else if (condition() < node.bodies.size()) {
      run(*node.bodies[condition()], random);
    }
  }
}

cudaError_t begin_capture(const char* name, cudaStream_t stream, cudaGraph_t graph,
                          cudaStreamCaptureMode mode) {
  if (const cudaError_t error = check_not_capturing(name, stream)) return error;
  stream->is_capture_origin = true;
  stream->is_capture_invalid = false;
  stream->capture = graph;
  if (mode != cudaStreamCaptureModeRelaxed) ++captures_begun();
  return cudaSuccess;
}

// Ends the capture in all streams that joined it; returns true if it was valid.
bool end_capture(const Graph* graph) {
  State& s = state();
  std::lock_guard lock(s.handles);
  bool is_valid = true;
  for (CUstream_st& stream : s.streams) {
    if (stream.capture != graph) continue;
    is_valid &= !stream.is_capture_invalid;
    stream.capture = nullptr;
    stream.is_capture_origin = stream.is_capture_invalid = false;
  }
  return is_valid;
}

}  // namespace

void fake_cuda::free_all_graphs() {
  std::lock_guard lock(all().mutex);
  for (CUgraph_st& graph : all().graphs) {
    graph.nodes.clear();
    graph.is_alive = false;
  }
  for (CUgraphExec_st& executable : all().executables) executable.is_alive = false;
}

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  FAKE_CUDA_ENTER("cudaGraphCreate");
  *graph = make_graph();
  count(state().counts.live_graphs);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (const cudaError_t error = enter_graph("cudaGraphDestroy", graph)) return error;
  graph->is_alive = false;
  count(state().counts.live_graphs, -1);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  FAKE_CUDA_ENTER("cudaStreamBeginCapture", stream);
  return begin_capture("cudaStreamBeginCapture", stream, make_graph(), mode);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
                                          cudaStreamCaptureMode mode) {
  FAKE_CUDA_ENTER("cudaStreamBeginCaptureToGraph", stream);
  if (graph == nullptr || !graph->is_alive)
    return enter_graph("cudaStreamBeginCaptureToGraph", graph);
  return begin_capture("cudaStreamBeginCaptureToGraph", stream, graph, mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  FAKE_CUDA_ENTER("cudaStreamEndCapture", stream);
  *graph = nullptr;
  const auto captured = static_cast<cudaGraph_t>(stream->capture.load());
  if (captured == nullptr || !stream->is_capture_origin) {
    violate("cudaStreamEndCapture on a stream that began no capture");
    return result(cudaErrorStreamCaptureUnmatched);
  }
  if (captures_begun() > 0) --captures_begun();
  if (!end_capture(captured)) return result(cudaErrorStreamCaptureInvalidated);
  *graph = captured;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  FAKE_CUDA_ENTER("cudaStreamIsCapturing", stream);
  *status = stream->capture == nullptr   ? cudaStreamCaptureStatusNone
            : stream->is_capture_invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned by_default, unsigned flags) {
  if (const cudaError_t error = enter_graph("cudaGraphConditionalHandleCreate", graph))
    return error;
  Graph::Condition& condition = graph->conditions.emplace_back();
  condition.has_default = (flags & cudaGraphCondAssignDefault) != 0;
  condition.by_default = by_default;
  *handle = reinterpret_cast<cudaGraphConditionalHandle>(&condition.value);
  return cudaSuccess;
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                             const cudaGraphEdgeData*, size_t, cudaGraphNodeParams* parameters) {
  if (const cudaError_t error = enter_graph("cudaGraphAddNode", graph)) return error;
  if (parameters->type != cudaGraphNodeTypeConditional) return result(cudaErrorNotSupported);
  cudaConditionalNodeParams& wanted = parameters->conditional;
  const unsigned most = wanted.type == cudaGraphCondTypeWhile ? 1
                        : wanted.type == cudaGraphCondTypeIf  ? 2
                                                              : ~0u;
  if (wanted.size < 1 || wanted.size > most) return result(cudaErrorInvalidValue);
  Node& added = graph->nodes.emplace_back();
  added.type = wanted.type;
  added.condition = reinterpret_cast<std::atomic<unsigned>*>(wanted.handle);
  for (unsigned i = 0; i < wanted.size; ++i) added.bodies.push_back(make_graph());
  // The array stays where it is when the list of nodes grows.
  wanted.phGraph_out = added.bodies.data();
  *node = nullptr;  // nodes are ordered by their addition; none is named again
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (const cudaError_t error = enter_graph("cudaGraphInstantiate", graph)) return error;
  const cudaGraph_t copy = copy_of(*graph);
  // A launch first sets the conditions that have a default.
  std::vector<Graph::Condition*> conditions;
  add_conditions(*graph, conditions);
  copy->nodes.emplace(copy->nodes.begin())->work = [conditions](Random&) {
    for (Graph::Condition* condition : conditions)
      condition->value.store(condition->by_default, std::memory_order_relaxed);
  };
  std::lock_guard lock(all().mutex);
  *executable = &all().executables.emplace_back(copy, current_device());
  count(state().counts.live_graphs);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  FAKE_CUDA_ENTER("cudaGraphExecDestroy");
  if (executable == nullptr || !executable->is_alive.exchange(false)) {
    violate("cudaGraphExecDestroy of a graph that was destroyed");
    return result(cudaErrorInvalidValue);
  }
  count(state().counts.live_graphs, -1);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  FAKE_CUDA_ENTER("cudaGraphLaunch", stream);
  if (executable == nullptr || !executable->is_alive) {
    violate("cudaGraphLaunch of a graph that was destroyed");
    return result(cudaErrorInvalidValue);
  }
  count(state().counts.graph_launches);
  add_work(stream, [graph = executable->graph](Random& random) { run(*graph, random); });
  return cudaSuccess;
}

}  // extern "C"
