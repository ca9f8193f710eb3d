// Descriptors, heuristics and plans of the stand-in for cuDNN. fake_convolution.cpp executes them.
#include <troupe/test/support/cuda/fake_cudnn.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <troupe/devices/cuda/libraries/cudnn_library.hpp>
#include <troupe/test/support/cuda/fake_convolution.hpp>
#include <troupe/test/support/cuda/fake_state.hpp>

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace fake_cudnn {
namespace {

using fake_cuda::violate;

struct Counters {
  std::atomic<std::uint64_t> planned{0}, restored{0}, executed{0};
  std::atomic<std::int64_t> descriptors{0}, handles{0};
};

Options& options() {
  static auto* const all = new Options;
  return *all;
}
Counters& counters() {
  static auto* const all = new Counters;
  return *all;
}

struct Part;
struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::vector<std::byte> bytes;
  std::vector<std::shared_ptr<const Part>> parts;  // if these are its values
  std::int64_t count = 0;
};

// The contents of a descriptor. A descriptor that refers to them keeps them.
struct Part {
  cudnnBackendDescriptorType_t type{};
  bool is_final = false;
  std::map<int, Attribute> attributes;
  Convolution operation{};  // an operation's, a graph's, a configuration's, a plan's
  int engine = -1;          // an engine's, a configuration's, a plan's

  const Attribute* find(int name) const {
    const auto at = attributes.find(name);
    return at == attributes.end() ? nullptr : &at->second;
  }
  template <class T>
  bool read(int name, cudnnBackendAttributeType_t of, std::vector<T>& values) const {
    const Attribute* const a = find(name);
    if (!a || a->type != of || a->bytes.size() != static_cast<std::size_t>(a->count) * sizeof(T))
      return false;
    values.resize(static_cast<std::size_t>(a->count));
    std::memcpy(values.data(), a->bytes.data(), a->bytes.size());
    return true;
  }
  template <class T>
  bool read_one(int name, cudnnBackendAttributeType_t of, T& value) const {
    std::vector<T> values;
    if (!read(name, of, values) || values.size() != 1) return false;
    value = values[0];
    return true;
  }
  const Part* part(int name, cudnnBackendDescriptorType_t of) const {
    const Attribute* const a = find(name);
    return a && a->parts.size() == 1 && a->parts[0]->type == of ? a->parts[0].get() : nullptr;
  }
};

struct Handle {
  std::shared_ptr<Part> part;
};
Part& part_of(cudnnBackendDescriptor_t d) { return *static_cast<Handle*>(d)->part; }

cudnnStatus_t refuse(const std::string& why, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
  violate("cuDNN: " + why);
  return status;
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_FLOAT: return 4;
    default: return 8;
  }
}

// ---- what a descriptor describes, when it is finalized

bool read_tensor(const Part& p, Convolution::Side& side) {
  std::int64_t alignment = 0;
  cudnnDataType_t type{};
  if (!p.read_one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, side.number) ||
      !p.read_one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type) ||
      !p.read_one(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment) ||
      !p.read(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, side.extents) ||
      !p.read(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, side.strides))
    return false;
  side.type = type;
  side.alignment = alignment;
  return side.extents.size() == side.strides.size() && side.extents.size() >= 4 &&
         side.extents.size() <= 5 &&
         std::all_of(side.extents.begin(), side.extents.end(), [](auto e) { return e > 0; });
}

bool read_window(const Part& p, Convolution& c) {
  std::int64_t axes = 0;
  cudnnConvolutionMode_t mode{};
  cudnnDataType_t computed{};
  if (!p.read_one(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, axes) ||
      !p.read_one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, mode) ||
      !p.read_one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, computed) ||
      !p.read(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, c.before) ||
      !p.read(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, c.after) ||
      !p.read(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, c.dilation) ||
      !p.read(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, c.stride))
    return false;
  const auto n = static_cast<std::size_t>(axes);
  for (const auto* values : {&c.before, &c.after, &c.dilation, &c.stride})
    if (values->size() != n) return false;
  const auto is_negative = [](std::int64_t v) { return v < 0; };
  return mode == CUDNN_CROSS_CORRELATION && (n == 2 || n == 3) &&
         std::none_of(c.before.begin(), c.before.end(), is_negative) &&
         std::none_of(c.after.begin(), c.after.end(), is_negative);
}

struct Names {
  int x, w, y, window, alpha, beta;
};
Names names_of(Convolution::Kind kind) {
  switch (kind) {
    case Convolution::Kind::data:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Convolution::Kind::filter:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

bool is_factor(const Part& p, int name, bool is_double, double wanted) {
  double d = 0;
  float f = 0;
  return is_double ? p.read_one(name, CUDNN_TYPE_DOUBLE, d) && d == wanted
                   : p.read_one(name, CUDNN_TYPE_FLOAT, f) && static_cast<double>(f) == wanted;
}

bool read_operation(Part& p, Convolution::Kind kind) {
  const Names names = names_of(kind);
  Convolution c{};
  c.kind = kind;
  const Part* const x = p.part(names.x, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const Part* const w = p.part(names.w, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const Part* const y = p.part(names.y, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const Part* const window = p.part(names.window, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  if (!x || !w || !y || !window || !read_tensor(*x, c.x) || !read_tensor(*w, c.w) ||
      !read_tensor(*y, c.y) || !read_window(*window, c))
    return false;
  const bool is_double = c.x.type == CUDNN_DATA_DOUBLE;
  if (!is_factor(p, names.alpha, is_double, 1) || !is_factor(p, names.beta, is_double, 0))
    return false;
  p.operation = c;
  return c.is_consistent();
}

// ---- engines

constexpr int kRefusing = 0, kRandom = 1, kRounding = 2, kGreedy = 3, kPlain = 4;

std::int64_t workspace_of(int engine) {
  return engine == kGreedy ? std::int64_t{1} << 40 : engine == kPlain ? 1000 : 0;
}

std::vector<int> engines(const Convolution& c, cudnnBackendHeurMode_t mode) {
  if (c.x.type == CUDNN_DATA_DOUBLE) return {};
  if (mode == CUDNN_HEUR_MODE_FALLBACK)
    return options().has_fallback ? std::vector{kRandom, kPlain} : std::vector<int>{};
  return options().recommends ? std::vector{kRefusing, kRandom, kRounding, kGreedy, kPlain}
                              : std::vector<int>{};
}

std::vector<cudnnBackendNumericalNote_t> notes_of(int engine) {
  if (engine == kRandom) return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  if (engine == kRounding)
    return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
  return {};
}

std::string text_of(const Part& plan) {
  std::ostringstream out;
  out << "fake cuDNN " << options().version << ' ' << plan.engine << ' ';
  plan.operation.write(out);
  return out.str();
}

bool restore(Part& plan, const std::string& text) {
  std::istringstream in(text);
  std::string fake, name;
  std::size_t version = 0;
  if (!(in >> fake >> name >> version >> plan.engine) || version != options().version) return false;
  return plan.operation.read(in) && plan.operation.is_consistent();
}

cudnnStatus_t finalize_plan(Part& p) {
  if (!p.find(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)) return refuse("a plan has no handle");
  if (std::vector<char> text;
      p.read(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text)) {
    if (!options().restores || !restore(p, std::string(text.begin(), text.end())))
      return CUDNN_STATUS_NOT_SUPPORTED;
    ++counters().restored;
    return CUDNN_STATUS_SUCCESS;
  }
  const Part* const configuration =
      p.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!configuration) return refuse("a plan has no configuration");
  p.engine = configuration->engine;
  p.operation = configuration->operation;
  if (p.engine == kRefusing) return CUDNN_STATUS_NOT_SUPPORTED;
  ++counters().planned;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_part(Part& p) {
  Convolution::Side side;
  Convolution window;
  switch (p.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return read_tensor(p, side) ? CUDNN_STATUS_SUCCESS : refuse("a tensor is not described");
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return read_window(p, window) ? CUDNN_STATUS_SUCCESS : refuse("a window is not described");
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return read_operation(p,
                            p.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                                ? Convolution::Kind::forward
                            : p.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                                ? Convolution::Kind::data
                                : Convolution::Kind::filter)
                 ? CUDNN_STATUS_SUCCESS
                 : refuse("a convolution is not described, or its extents differ");
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      const Attribute* const ops = p.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
      if (!ops || ops->parts.size() != 1) return refuse("a graph has not one operation");
      p.operation = ops->parts[0]->operation;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      const Part* const graph =
          p.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
      cudnnBackendHeurMode_t mode{};
      if (!graph || !p.read_one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode))
        return refuse("heuristics have no graph or no mode");
      p.operation = graph->operation;
      return engines(p.operation, mode).empty() ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(p);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return CUDNN_STATUS_SUCCESS;
    default: return refuse("a descriptor of this kind is finalized");
  }
}

// ---- the library's functions

std::size_t get_version() { return options().version; }

const char* error_text(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED     ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == CUDNN_STATUS_BAD_PARAM       ? "CUDNN_STATUS_BAD_PARAM"
         : status == CUDNN_STATUS_NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED"
                                                  : "CUDNN_STATUS_EXECUTION_FAILED";
}

cudnnStatus_t create(cudnnHandle_t* handle) {
  if (options().created != CUDNN_STATUS_SUCCESS) return options().created;
  *handle = new cudnnContext{fake_cuda::current_device()};
  ++counters().handles;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnHandle_t handle) {
  delete handle;
  --counters().handles;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  if (stream->device != handle->device) return refuse("a stream is another device's");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t make_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
  auto* const made = new Handle{std::make_shared<Part>()};
  made->part->type = type;
  *d = made;
  ++counters().descriptors;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t end_descriptor(cudnnBackendDescriptor_t d) {
  delete static_cast<Handle*>(d);
  --counters().descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  Part& p = part_of(d);
  if (p.is_final) return refuse("a finalized descriptor is set");
  if (count <= 0 || !values) return refuse("an attribute has no values");
  Attribute a;
  a.type = type;
  a.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& part =
          static_cast<Handle*>(static_cast<const cudnnBackendDescriptor_t*>(values)[i])->part;
      if (!part->is_final) return refuse("a part is not finalized");
      a.parts.push_back(part);
    }
  } else {
    const auto* const from = static_cast<const std::byte*>(values);
    a.bytes.assign(from, from + static_cast<std::size_t>(count) * bytes_of(type));
  }
  p.attributes[name] = std::move(a);
  return CUDNN_STATUS_SUCCESS;
}

// The engines of heuristics go into descriptors that the caller made.
cudnnStatus_t get_engines(const Part& p, std::int64_t most, std::int64_t* count, void* values) {
  cudnnBackendHeurMode_t mode{};
  p.read_one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  const std::vector<int> all = engines(p.operation, mode);
  *count = static_cast<std::int64_t>(all.size());
  for (std::int64_t i = 0; i < std::min(most, *count); ++i) {
    Part& out = part_of(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
    if (out.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return refuse("a result's type differs");
    out.operation = p.operation;
    out.engine = all[static_cast<std::size_t>(i)];
    out.is_final = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t, std::int64_t most, std::int64_t* count,
                  void* values) {
  const Part& p = part_of(d);
  if (!p.is_final) return refuse("a descriptor is read that is not finalized");
  const auto give = [&](const auto& all) {
    *count = static_cast<std::int64_t>(all.size());
    const auto n = static_cast<std::size_t>(std::min(most, *count));
    if (n > 0) std::memcpy(values, all.data(), n * sizeof all[0]);
    return CUDNN_STATUS_SUCCESS;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return get_engines(p, most, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      Part& out = part_of(*static_cast<cudnnBackendDescriptor_t*>(values));
      out.engine = p.engine;
      out.is_final = true;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return give(notes_of(p.engine));
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(std::vector<std::int64_t>{workspace_of(p.engine)});
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: return give(text_of(p));
    default: return refuse("an attribute is read that the stand-in lacks");
  }
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t d) {
  Part& p = part_of(d);
  const cudnnStatus_t status = finalize_part(p);
  p.is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
  const Part &p = part_of(plan), &operands = part_of(pack);
  if (options().executed != CUDNN_STATUS_SUCCESS) return options().executed;
  std::vector<std::int64_t> numbers;
  std::vector<void*> pointers;
  void* workspace = nullptr;
  if (!p.is_final || !operands.is_final ||
      !operands.read(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, numbers) ||
      !operands.read(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers) ||
      !operands.read_one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace) ||
      numbers.size() != pointers.size())
    return refuse("an execution has no plan or no operands");
  Convolution c = p.operation;
  for (Convolution::Side* side : {&c.x, &c.w, &c.y}) {
    const auto at = std::find(numbers.begin(), numbers.end(), side->number);
    if (at == numbers.end()) return refuse("an execution lacks an operand");
    side->data = pointers[static_cast<std::size_t>(at - numbers.begin())];
  }
  const auto bytes = static_cast<std::size_t>(workspace_of(p.engine));
  if (const std::string why = c.why_not_there(workspace, bytes); !why.empty()) return refuse(why);
  ++counters().executed;
  const bool is_random = p.engine == kRandom, rounds = p.engine == kRounding;
  const cudaError_t error = fake_cuda::enqueue(
      handle->stream,
      [c = std::move(c), is_random, rounds, workspace, bytes] {
        if (bytes > 0) std::memset(workspace, 0xFF, bytes);
        c.run(rounds, is_random);
      },
      "a convolution");
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

void reset(const Options& o) {
  options() = o;
  counters().planned = counters().restored = counters().executed = 0;
}

Report report() {
  const Counters& c = counters();
  return {c.planned, c.restored, c.executed, c.descriptors, c.handles};
}

}  // namespace fake_cudnn

namespace troupe::cuda {

const CudnnLibrary& cudnn_library() {
  using namespace fake_cudnn;
  if (options().is_missing)
    throw Error(Code::failed_precondition,
                "libcudnn.so.9 (cuDNN) is in none of: nowhere; install cuDNN 9, or name its folder "
                "in TROUPE_CUDA_LIBRARIES");
  static const CudnnLibrary library{get_version,        error_text,     create, destroy, set_stream,
                                    make_descriptor,    end_descriptor, set,    get,     finalize,
                                    fake_cudnn::execute};
  return library;
}

}  // namespace troupe::cuda
