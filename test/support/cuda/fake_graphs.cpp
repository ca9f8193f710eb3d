// Graphs: capture of streams into a sequence, conditional nodes, executables and their updates.
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

// A launch first sets the conditions that have a default.
cudaGraph_t executable_copy_of(const Graph& graph) {
  const cudaGraph_t copy = copy_of(graph);
  std::vector<Graph::Condition*> conditions;
  add_conditions(const_cast<Graph&>(graph), conditions);
  Node& first = *copy->nodes.emplace(copy->nodes.begin());
  first.kind = NodeKind::fill;
  first.work = [conditions](Random&) {
    for (Graph::Condition* condition : conditions)
      condition->value.store(condition->by_default, std::memory_order_relaxed);
  };
  return copy;
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
  const bool is_relaxed = mode == cudaStreamCaptureModeRelaxed;
  stream->capture_thread = is_relaxed ? std::thread::id() : std::this_thread::get_id();
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
  const cudaGraph_t graph = make_graph();
  graph->is_of_capture = true;
  return begin_capture("cudaStreamBeginCapture", stream, graph, mode);
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
  const std::thread::id its = stream->capture_thread;
  if (its != std::thread::id() && its != std::this_thread::get_id()) {
    violate("cudaStreamEndCapture on another thread than the one that began the capture");
    stream->is_capture_invalid = true;
    return result(cudaErrorStreamCaptureWrongThread);
  }
  if (its != std::thread::id()) --captures_begun();
  if (!end_capture(captured)) return result(cudaErrorStreamCaptureInvalidated);
  if (captured->is_of_capture) count(state().counts.live_graphs);
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
  const cudaGraph_t copy = executable_copy_of(*graph);
  std::lock_guard lock(all().mutex);
  *executable = &all().executables.emplace_back(copy, current_device());
  count(state().counts.live_graphs);
  return cudaSuccess;
}

// Launches of the executable that are under way keep its old nodes.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  if (const cudaError_t error = enter_graph("cudaGraphExecUpdate", graph)) return error;
  if (executable == nullptr || !executable->is_alive) {
    violate("cudaGraphExecUpdate of a graph that was destroyed");
    return result(cudaErrorInvalidValue);
  }
  *info = {};
  const std::vector<Node>& before = executable->graph->nodes;  // the first sets conditions
  const auto refuse = [&](cudaGraphExecUpdateResult why) {
    info->result = why;
    return result(cudaErrorGraphExecUpdateFailure);
  };
  if (before.size() != graph->nodes.size() + 1)
    return refuse(cudaGraphExecUpdateErrorTopologyChanged);
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    if (before[i + 1].kind != graph->nodes[i].kind)
      return refuse(cudaGraphExecUpdateErrorNodeTypeChanged);
    if (graph->nodes[i].kind == NodeKind::conditional)
      return refuse(cudaGraphExecUpdateErrorNotSupported);
  }
  executable->graph = executable_copy_of(*graph);
  count(state().counts.graph_updates);
  info->result = cudaGraphExecUpdateSuccess;
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
  if (const cudaError_t error = check_capture(stream)) return error;
  count(state().counts.graph_launches);
  add_work(
      stream, [graph = executable->graph](Random& random) { run(*graph, random); },
      NodeKind::graph);
  return cudaSuccess;
}

}  // extern "C"
