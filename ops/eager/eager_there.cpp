// Eager scopes on devices of other nodes: ops and staged programs run there, values stay there.
#include <troupe/ops/eager/eager.hpp>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/eager/bind_observer.hpp>
#include <troupe/ops/eager/list_elements.hpp>
#include <troupe/ops/eager/run_kernel.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {
namespace {

// Returns the program of one op, whose node has no line: its error is completed by the scope.
Program program_of(const OpDef& op, const Attrs& attrs, std::span<const ValueSpec> inputs,
                   std::vector<ValueSpec> outputs, const StateSpec* state, std::uint64_t origin,
                   std::uint64_t seed) {
  Program program;
  Node node;
  node.op = &op;
  node.attrs = attrs;
  for (const ValueSpec& spec : inputs) {
    program.feeds.push_back(program.graph.argument(spec, Site()).edge());
    node.inputs.push_back(program.feeds.back());
  }
  if (state) {
    StateSpec spec = *state;
    spec.site = Site();
    node.state = program.graph.declare(spec, Site());
    program.graph.seed_states(seed);
  }
  const std::size_t results = outputs.size();
  node.outputs = std::move(outputs);
  node.origin = origin;
  const std::int32_t id = program.graph.append(std::move(node));
  for (std::size_t i = 0; i < results; ++i)
    program.fetches.push_back({id, static_cast<std::int32_t>(i)});
  return program;
}

}  // namespace

Eager::Place& Eager::place_for(const OpDef& op, std::span<const Expr> inputs, int state) {
  if (state >= 0) {
    Place* const place = place_of(states_[static_cast<std::size_t>(state)]);
    return place ? *place : *places_[0];
  }
  // a draw inside a loop or a call that is replayed is keyed by its tag, which stays here
  if (handles_lists(op, inputs) || (op.random && tag_ != 0)) return *places_[0];
  return *at_;
}

Eager::Place* Eager::place_of(const StateSpec& state) {
  if (!host_ || troupe::node_of(state.device).empty()) return nullptr;
  for (const auto& place : places_)
    if (place->device->name() == state.device) return place->remote ? place.get() : nullptr;
  try {
    Place& place = place_on(state.device);
    return place.remote ? &place : nullptr;
  } catch (const Error&) {
    // a constraint that names no one device; the state of a lost node does not begin anew here
    if (is_any_index(state.device)) return nullptr;
    throw;
  }
}

Ref<State> Eager::state_of(const StateSpec& spec) {
  Place* const there = place_of(spec);
  return there ? there->remote->state(spec) : store_->get(spec);
}

Exprs Eager::compute_there(Place& place, const OpDef& op, std::span<const Expr> inputs,
                           const std::vector<ValueSpec>& specs, Attrs attrs, const Site& site,
                           int state, const Replayed* again) {
  if (op.name == "Constant") {
    Value value = attrs.get<Tensor>("value");
    place.remote->attribute(*place.stream, op.name, site_for(site));
    copy_to_device(value.tensor(), *place.device, *place.stream);
    return {hold(std::move(value))};
  }
  const Node* const node = again ? &again->graph.node(again->id) : nullptr;
  const StateSpec* const spec = state >= 0 ? &states_[static_cast<std::size_t>(state)] : nullptr;
  // with the state, because a program has the one that it uses
  Attrs key = attrs;
  if (spec) key.set("state", std::int64_t{state});
  const bool is_kept = !node && !op.random && KernelCache::is_plain(attrs);
  KernelCache::Prepared* prepared = is_kept ? place.kernels.find(op, key, inputs) : nullptr;
  std::unique_ptr<KernelCache::Prepared> made;
  if (!prepared) {
    std::vector<ValueSpec> outputs = node ? node->outputs : infer_outputs(op, specs, attrs);
    const std::uint64_t origin = node ? node->origin : op.random ? ++calls_ : 1;
    Program program = program_of(op, attrs, specs, outputs, spec, origin, run_.seed);
    made = std::make_unique<KernelCache::Prepared>(op, std::move(key), std::move(attrs), specs,
                                                   std::move(outputs),
                                                   place.remote->make_kernel(std::move(program)));
    prepared = is_kept ? &place.kernels.add(std::move(made)) : made.get();
  }
  Exprs out = run_kernel(place, *prepared->kernel, op, inputs, prepared->outputs.size(), {}, site);
  if (BindObserver::innermost()) {
    const Ref<State> used = spec ? state_of(*spec) : Ref<State>();
    tell(op, prepared->all, inputs, out, used.get(), state, site);
  }
  return out;
}

std::vector<Value> Eager::run_there(Kernel& program, const std::string& name,
                                    std::span<const Expr> inputs, std::size_t outputs) {
  Place& place = *at_;
  std::vector<Value> in, out(outputs);
  for (const Expr& e : inputs) {
    in.push_back(e.held());
    bring(in.back(), place);
  }
  place.remote->attribute(*place.stream, name, Site());
  run_kernel_blocking(program, in, out, *place.device, *place.stream, run_, {}, tag_, false);
  return out;
}

}  // namespace troupe
