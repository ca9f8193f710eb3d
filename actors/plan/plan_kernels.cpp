#include <troupe/actors/plan/plan_kernels.hpp>

#include <fmt/format.h>

#include <troupe/actors/plan/finite_watch.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/transfer.hpp>
#include <troupe/ops/mesh/instances.hpp>

namespace troupe {

namespace {

// Stands for the kernels that instances of a plan get one by one.
class ForInstances final : public Kernel {
  void run(KernelContext&) override {
    throw Error(Code::internal, "a node of instances ran before they were made");
  }
};

}  // namespace

std::unique_ptr<Kernel> PlanKernels::make(std::int32_t id, Device& device) {
  const Node& n = program_.node(id);
  const bool is_of_piece =
      n.state >= 0 && short_name(program_.states()[at(n.state)].device) == mesh::detail::kInstances;
  if (is_of_piece || mesh::detail::meets_others(n)) return std::make_unique<ForInstances>();
  return make(id, device, n.state >= 0 ? state(n.state) : Ref<State>());
}

std::unique_ptr<Kernel> PlanKernels::make(std::int32_t id, Device& device, Ref<State> state) {
  const Node& n = program_.node(id);
  try {
    NodeTypes types(program_, n);
    auto kernel = make_node_kernel(*n.op, types.setup(n, device, std::move(state)));
    if (!n.attrs.has(kWatched)) return kernel;
    return std::make_unique<WatchedKernel>(std::move(kernel), n);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", program_.describe(id), e.what()));
  }
}

const Ref<State>& PlanKernels::state(std::int32_t number) {
  Ref<State>& known = state_of_[at(number)];
  if (!known) known = states_.get(program_.states()[at(number)]);
  return known;
}

PlanNode::Rank rank_of(const Node& node) {
  const std::string& op = node.op->name;
  if (op == "ListPop" || op == "ListTake" || op == "ListRead") return PlanNode::Rank::last;
  return !node.outputs.empty() && node.outputs[0].is_list() ? PlanNode::Rank::first
                                                            : PlanNode::Rank::usual;
}

Tensor constant_on(Device& device, const Node& constant) {
  Tensor value = constant.attrs.get<Tensor>("value");
  if (device.is_synchronous()) return value;
  auto stream = device.compute_stream();
  copy_to_device(value, device, *stream);
  stream->synchronize();
  return value;
}

}  // namespace troupe
