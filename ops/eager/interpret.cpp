#include <troupe/ops/eager/interpret.hpp>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/ops/eager/fire.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {

Interpreter::Interpreter()
    : own_(make_cpu_device()), device_(own_.get()), stream_(device_->make_stream()) {}
Interpreter::Interpreter(Device& device) : device_(&device), stream_(device.compute_stream()) {}
Interpreter::~Interpreter() = default;

std::vector<Tensor> Interpreter::run(const Graph& graph, const Feeds& feeds,
                                     const std::vector<Expr>& fetches) {
  std::vector<Expr> keys;
  std::vector<Tensor> values;
  for (const auto& [to, value] : feeds) {
    keys.push_back(to);
    values.push_back(value);
  }
  return run(prune(graph, graph.edges_to_feed(keys), graph.edges_to_fetch(fetches)), values);
}

std::vector<Tensor> Interpreter::run(const Program& program, const std::vector<Tensor>& feeds) {
  const Graph& graph = program.graph;
  if (feeds.size() != program.feeds.size())
    throw Error(Code::invalid_argument,
                fmt::format("{} values were fed to {} inputs", feeds.size(), program.feeds.size()));
  for (Edge e : program.fetches)
    if (graph.spec(e).is_list())
      throw Error(Code::invalid_argument,
                  fmt::format("{} yields a list, which is not fetched; fetch what is read from it, "
                              "stacked or concatenated",
                              graph.describe(e.node)));
  std::vector<Value> arguments;
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const ValueSpec& wanted = graph.spec(program.feeds[i]);
    if (wanted.is_list())
      throw Error(Code::invalid_argument,
                  fmt::format("{} yields a list, which is not fed; feed the tensors it is made of",
                              graph.describe(program.feeds[i].node)));
    if (!feeds[i].has_value() || feeds[i].dtype() != wanted.dtype ||
        !feeds[i].shape().is_compatible(wanted.shape))
      throw Error(
          Code::invalid_argument,
          fmt::format("{} takes {}, not {}", graph.describe(program.feeds[i].node), wanted.text(),
                      feeds[i].has_value() ? ValueSpec{feeds[i].dtype(), feeds[i].shape()}.text()
                                           : "nothing"));
    arguments.push_back(feeds[i]);
  }
  specs_ = &graph.states();
  tag_ = 0;
  depth_ = 0;
  std::vector<Value> results =
      run_graph(graph, program.feeds, std::move(arguments), program.fetches);
  ++run_.id;
  ++run_.step;
  std::vector<Tensor> out;
  for (const Value& v : results) out.push_back(on_host(v));
  return out;
}

std::vector<Value> Interpreter::run_graph(const Graph& graph, std::span<const Edge> inputs,
                                          std::vector<Value> arguments,
                                          std::span<const Edge> outputs) {
  std::vector<std::vector<Value>> values(static_cast<std::size_t>(graph.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values[static_cast<std::size_t>(inputs[i].node)] = {std::move(arguments[i])};
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    if (!values[static_cast<std::size_t>(id)].empty()) continue;
    std::vector<Value> operands;
    for (Edge e : graph.node(id).inputs)
      operands.push_back(
          values[static_cast<std::size_t>(e.node)][static_cast<std::size_t>(e.output)]);
    values[static_cast<std::size_t>(id)] = fire_node(graph, id, operands);
  }
  std::vector<Value> out;
  for (Edge e : outputs)
    out.push_back(values[static_cast<std::size_t>(e.node)][static_cast<std::size_t>(e.output)]);
  return out;
}

std::vector<Value> Interpreter::call(const SubGraph& sub, std::vector<Value> arguments) {
  return run_graph(sub.graph, sub.inputs, std::move(arguments), sub.outputs);
}

std::vector<Value> Interpreter::call(const SubGraph& sub, std::vector<Value> arguments,
                                     std::uint64_t key, std::int64_t n) {
  std::uint64_t outer = std::exchange(tag_, fold_tag(tag_, key, static_cast<std::uint64_t>(n)));
  std::vector<Value> out = run_graph(sub.graph, sub.inputs, std::move(arguments), sub.outputs);
  tag_ = outer;
  return out;
}

std::vector<Value> Interpreter::call(const FunctionDef& function, std::vector<Value> arguments,
                                     const Node& node) {
  if (!function.body)
    throw Error(Code::failed_precondition,
                fmt::format("function '{}' ({}) is called at {} and was never defined",
                            function.name, function.site.text(), node.site.text()));
  if (depth_ >= kMaxDepth)
    throw Error(Code::resource_exhausted, too_deep(function, kMaxDepth, node.site));
  ++depth_;
  std::vector<Value> out = call(*function.body, std::move(arguments), node.origin, 0);
  --depth_;
  return out;
}

std::vector<Value> Interpreter::fire_node(const Graph& graph, std::int32_t id,
                                          std::vector<Value>& inputs) {
  const Node& node = graph.node(id);
  std::vector<Value> out = node.op->evaluate ? node.op->evaluate(*this, node, std::move(inputs))
                                             : fire_kernel(graph, id, inputs);
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (!fits(out[i], node.outputs[i]))
      throw Error(Code::internal,
                  fmt::format("{}: inference said {} of output {}, the kernel made {}",
                              graph.describe(id), node.outputs[i].text(), i, text_of(out[i])));
  return out;
}

std::vector<Value> Interpreter::fire_kernel(const Graph& graph, std::int32_t id,
                                            std::vector<Value>& inputs) {
  const Node& node = graph.node(id);
  try {
    for (Value& v : inputs)
      if (!v.is_list()) bring_to_device(v.tensor(), *device_, *stream_);
    StateInUse use;
    if (node.state >= 0)
      use.spec = &(*specs_)[static_cast<std::size_t>(node.state)],
      use.state = states_.get(*use.spec);
    NodeTypes types(graph, node);
    std::unique_ptr<Kernel> kernel =
        make_node_kernel(*node.op, types.setup(node, *device_, use.state));
    std::vector<Value> out =
        fire(*kernel, inputs, node.outputs.size(), *device_, *stream_, run_, use, tag_);
    for (Value& v : out)
      // made of host scalars
      if (v.kind() == Value::Kind::tensor) bring_to_device(v.tensor(), *device_, *stream_);
    stream_->synchronize();
    return out;
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", graph.describe(id), e.what()));
  }
}

Tensor Interpreter::on_host(const Value& value) {
  const Tensor& t = value.tensor();
  if (t.is_on_host()) return t;
  // A scalar in a device's memory is no inline scalar: it comes back as a vector of one.
  Tensor host = Tensor::empty(t.dtype(), t.shape().is_scalar() ? Shape{1} : t.shape());
  device_->copy_to_host(*stream_, t, View(host));
  stream_->synchronize();
  return host.reshaped(t.shape());
}

Tensor Interpreter::get(const Graph& graph, const std::string& variable) {
  for (const StateSpec& spec : graph.states())
    if (spec.kind == StateSpec::Kind::variable && spec.name == variable)
      return on_host(static_cast<VariableState&>(*states_.get(spec)).snapshot());
  throw Error(Code::not_found, fmt::format("the graph has no variable '{}'", variable));
}

}  // namespace troupe
