// The engine as the host of eager scopes. Traced programs run like any other. Lists may be their
// feeds and fetches, because the gradient of a loop reads the lists that the loop saved.
#include <troupe/actors/engine/engine_impl.hpp>

#include <fmt/format.h>

namespace troupe {
namespace {

class EngineProgram final : public StagedProgram {
 public:
  EngineProgram(Function function, std::shared_ptr<CompiledPlan> compiled)
      : function_(std::move(function)), compiled_(std::move(compiled)) {}

  std::vector<Value> run(std::vector<Value> feeds) override {
    // A run stores its feeds and fetches as tensors, which have the layout of values. The feeds and
    // fetches of a staged program may be lists.
    std::vector<Tensor> in(feeds.size());
    for (std::size_t i = 0; i < feeds.size(); ++i) static_cast<Value&>(in[i]) = std::move(feeds[i]);
    EngineImpl& engine = compiled_->owner();
    std::vector<Tensor> out =
        RunHandle(engine, engine.run(engine.current(compiled_), std::move(in), {})).get();
    std::vector<Value> values(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) values[i] = std::move(static_cast<Value&>(out[i]));
    return values;
  }
  std::string explain() const override { return function_.explain(); }

 private:
  const Function function_;
  const std::shared_ptr<CompiledPlan> compiled_;
};

}  // namespace

StateStore& Engine::eager_states() { return impl_->eager_states(); }

Device& Engine::eager_device() {
  const std::string name = full_name(impl_->options().default_device, impl_->node());
  if (Device* device = impl_->find(name)) return *device;
  throw Error(
      Code::unimplemented,
      fmt::format("an eager scope cannot compute on '{}', the default device of its engine: "
                  "it is another node's",
                  name));
}

Device& Engine::eager_device(const std::string& name) {
  const std::string full = full_name(name, impl_->node());
  if (Device* device = impl_->find(full)) return *device;
  return impl_->peers()->remote_device(full);
}

std::uint64_t Engine::eager_seed() const { return impl_->options().seed; }

std::unique_ptr<StagedProgram> Engine::stage(const Graph& graph, const std::vector<Edge>& feeds,
                                             const std::vector<Edge>& fetches, Keep keep) {
  CompileOptions options;
  options.prune_effects = keep == Keep::fetches;
  std::shared_ptr<CompiledPlan> compiled = impl_->compile(graph, feeds, fetches, options, true);
  return std::make_unique<EngineProgram>(Function(compiled), compiled);
}

}  // namespace troupe
