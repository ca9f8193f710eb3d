#include <troupe/cluster/protocol/saved_function.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/cluster/transport/wire.hpp>
#include <troupe/ops/eager/staged.hpp>
#include <troupe/ops/format/safetensors.hpp>

namespace troupe {
namespace {

// Names in the file.
constexpr const char* kName = "troupe.function";
constexpr const char* kFormat = "troupe.format";
constexpr const char* kProgram = "troupe.program";
constexpr const char* kConstant = "troupe.constant.";
constexpr const char* kCaptured = "troupe.captured.";
constexpr const char* kDevice = "cpu:0";

// Nodes of the graph, of its sub-graphs and of the functions that it calls.
void for_each_node(const Graph& graph, std::set<const FunctionDef*>& seen,
                   const std::function<void(const Node&)>& use) {
  for (const Node& node : graph.nodes()) {
    use(node);
    for (const auto& sub : subgraphs_of(node)) for_each_node(sub->graph, seen, use);
    const FunctionDef* f = function_of(node);
    if (f && f->body && seen.insert(f).second) for_each_node(f->body->graph, seen, use);
  }
}

// Throws if the program holds what only this process has.
void refuse_unsaved(const Graph& graph, const TracedProgram& traced) {
  std::map<std::string, std::string> unsaved;  // the object and its line
  std::set<const FunctionDef*> seen;
  for_each_node(graph, seen, [&](const Node& node) {
    if (node.state < 0) return;
    const StateSpec& state = graph.states()[static_cast<std::size_t>(node.state)];
    switch (state.kind) {
      case StateSpec::Kind::actor:
        unsaved.emplace(fmt::format("the user actor '{}'", state.name), node.site.text());
        break;
      case StateSpec::Kind::fifo_queue:
      case StateSpec::Kind::shuffling_queue:
        unsaved.emplace(fmt::format("the queue '{}'", state.name), node.site.text());
        break;
      default: break;
    }
  });
  for (std::size_t i = 0; i < traced.captures.size(); ++i)
    if (traced.captures[i].reader().depth() > 0 || traced.captures[i].held().is_list())
      unsaved.emplace(fmt::format("captured value {}, {}", i, traced.captures[i].spec().text()),
                      "a list, or a value of a graph");
  if (unsaved.empty()) return;
  std::vector<std::string> all;
  for (const auto& [what, where] : unsaved) all.push_back(fmt::format("{} ({})", what, where));
  throw Error(Code::unimplemented,
              fmt::format("{} cannot be saved: it uses {}; compute these outside of it and pass "
                          "their values as arguments",
                          traced.staged->name, fmt::join(all, ", ")));
}

Tensor bytes_as_tensor(const std::vector<std::byte>& bytes) {
  Tensor t = Tensor::empty(DType::u8, {static_cast<std::int64_t>(bytes.size())});
  if (!bytes.empty()) std::memcpy(t.mutable_data<std::uint8_t>(), bytes.data(), bytes.size());
  return t;
}

[[noreturn]] void no_function(const std::string& path, const std::string& why) {
  throw Error(Code::data_loss,
              fmt::format("'{}' holds no function that can be run: {}", path, why));
}

std::string text_of(const std::vector<ValueSpec>& specs) {
  std::vector<std::string> all;
  for (const ValueSpec& s : specs) all.push_back(s.text());
  return fmt::format("({})", fmt::join(all, ", "));
}

}  // namespace

void detail::save(const TracedProgram& traced, const std::string& path) {
  StagedFunction& f = *traced.staged;
  const std::lock_guard lock(f.in->mutex);
  const Graph& graph = f.in->graph;
  refuse_unsaved(graph, traced);
  const Program own = program_of(f);
  Program program =
      optimize(own.graph, own.feeds, own.fetches,
               {.optimize = true, .keep = f.keep, .resident = {false, "it is saved"}});
  // It is loaded onto one device, wherever its parts and variables are now.
  for (std::size_t s = 0; s < program.graph.states().size(); ++s)
    program.graph.settle(static_cast<std::int32_t>(s), {});
  program.graph.seed_states(traced.scope->host() ? traced.scope->host()->eager_seed() : 0);
  PlacementOptions where;
  where.default_device = kDevice;
  const std::vector<StateSpec> states(program.graph.states().begin(), program.graph.states().end());
  MessageWriter writer;
  Placed placed = place(std::move(program), where);
  std::fill(placed.device.begin(), placed.device.end(), kDevice);
  write(writer, placed);
  const Message message = writer.take();

  NamedTensors tensors = {{kProgram, bytes_as_tensor(message.head)}};
  for (std::size_t i = 0; i < message.tensors.size(); ++i)
    tensors.emplace_back(kConstant + std::to_string(i), message.tensors[i]);
  for (std::size_t i = 0; i < traced.captures.size(); ++i)
    tensors.emplace_back(kCaptured + std::to_string(i), traced.scope->on_host(traced.captures[i]));
  for (const StateSpec& s : states)
    if (s.kind == StateSpec::Kind::variable)
      tensors.emplace_back(s.name, traced.scope->get(graph, s.name));
  save_safetensors(path, tensors,
                   {{kName, traced.name}, {kFormat, std::to_string(wire::kVersion)}});
}

SavedFunction::SavedFunction(Engine& engine, const std::string& path) {
  const TensorFile file = load_safetensors(path);
  const auto name = file.metadata.find(kName);
  if (name == file.metadata.end()) no_function(path, "it has no metadata 'troupe.function'");
  name_ = name->second;
  const auto format = file.metadata.find(kFormat);
  if (format == file.metadata.end() || format->second != std::to_string(wire::kVersion))
    throw Error(
        Code::unimplemented,
        fmt::format("'{}' holds a function in format {}, and this version of Troupe reads "
                    "{}; save it again with this version",
                    path, format == file.metadata.end() ? "none" : format->second, wire::kVersion));
  std::map<std::string, Tensor> entries(file.tensors.begin(), file.tensors.end());
  const auto numbered = [&](const char* prefix) {
    std::vector<Tensor> all;
    for (auto it = entries.end();; entries.erase(it)) {
      it = entries.find(prefix + std::to_string(all.size()));
      if (it == entries.end()) return all;
      all.push_back(it->second);
    }
  };
  const auto head = entries.find(kProgram);
  if (head == entries.end() || head->second.dtype() != DType::u8)
    no_function(path, "it has no entry 'troupe.program'");
  Message message;
  const auto* bytes = reinterpret_cast<const std::byte*>(head->second.data<std::uint8_t>());
  message.head.assign(bytes, bytes + head->second.elements());
  entries.erase(head);
  message.tensors = numbered(kConstant);
  captured_ = numbered(kCaptured);

  Placed placed;
  try {
    MessageReader reader(message);
    read(reader, placed, std::string());
    reader.end();
  } catch (const Error& e) { no_function(path, e.what()); }
  // the reader checks less of what belongs to other nodes, and here all runs on this one
  if (placed.part || std::any_of(placed.device.begin(), placed.device.end(),
                                 [](const std::string& d) { return !node_of(d).empty(); }))
    no_function(path, "its program is placed on other nodes");
  const Program& program = placed.program;
  if (program.feeds.size() < captured_.size()) no_function(path, "captured values are left over");
  for (std::size_t i = 0; i + captured_.size() < program.feeds.size(); ++i)
    arguments_.push_back(program.graph.spec(program.feeds[i]));
  for (Edge e : program.fetches) results_.push_back(program.graph.spec(e));
  const std::vector<StateSpec> states(program.graph.states().begin(), program.graph.states().end());
  // the device on which it is loaded
  EngineImpl& impl = engine.impl();
  const std::string device = full_name(impl.options().default_device, impl.node());
  for (std::string& d : placed.device) d = device;
  placed.default_device = device;
  function_ = Function(impl.adopt(std::move(placed)));
  for (const StateSpec& s : states) {
    if (s.kind != StateSpec::Kind::variable) continue;
    const auto value = entries.find(s.name);
    if (value == entries.end()) no_function(path, fmt::format("variable '{}' is missing", s.name));
    impl.set(s, value->second);
    variables_.push_back(s.name);
  }
}

std::vector<Tensor> SavedFunction::operator()(std::vector<Tensor> arguments) const {
  if (arguments.size() != arguments_.size())
    throw Error(Code::invalid_argument, fmt::format("{} takes {} arguments, and {} are given",
                                                    text(), arguments_.size(), arguments.size()));
  arguments.insert(arguments.end(), captured_.begin(), captured_.end());
  return function_(std::move(arguments));
}

std::string SavedFunction::text() const {
  return fmt::format("{}{} -> {}", name_, text_of(arguments_), text_of(results_));
}

}  // namespace troupe
