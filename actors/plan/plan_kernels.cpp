#include <troupe/actors/plan/plan_kernels.hpp>

#include <fmt/format.h>

#include <troupe/actors/plan/finite_watch.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {

std::unique_ptr<Kernel> PlanKernels::make(std::int32_t id, Device& device) {
  const Node& n = program_.node(id);
  try {
    NodeTypes types(program_, n);
    auto kernel = make_node_kernel(
        *n.op, types.setup(n, device, n.state >= 0 ? state(n.state) : Ref<State>()));
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

Tensor constant_on(Device& device, const Node& constant) {
  Tensor value = constant.attrs.get<Tensor>("value");
  if (device.is_synchronous()) return value;
  auto stream = device.compute_stream();
  copy_to_device(value, device, *stream);
  stream->synchronize();
  return value;
}

}  // namespace troupe
