#include <troupe/controlflow/resident/resident_loop.hpp>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {

void ResidentKernel::run(KernelContext& c) {
  auto execution = take();
  execution->start(c, [] {});
  try {
    for (;;) {
      switch (execution->advance({})) {
        case ResidentRun::Outcome::more: continue;
        case ResidentRun::Outcome::done:
          execution->take(c.all_outputs());
          give_back(std::move(execution));
          return;
        case ResidentRun::Outcome::abandoned:
          throw Error(Code::cancelled, "the run is over; start another one");
        case ResidentRun::Outcome::waiting:
          (void)execution.release();  // its kernel refers to it
          throw Error(Code::failed_precondition,
                      "a kernel in the loop ends later; run the loop in an engine");
      }
    }
  } catch (const Error& e) {
    if (!execution) throw;
    const std::string where = execution->where();
    throw Error(e.code(), where.empty()
                              ? e.what()
                              : fmt::format("{}: in {}: {}", where, execution->tag(), e.what()));
  }
}

std::unique_ptr<ResidentRun> ResidentKernel::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      auto run = std::move(spare_.back());
      spare_.pop_back();
      return run;
    }
  }
  return std::make_unique<ResidentRun>(program_, counts_);
}

void ResidentKernel::give_back(std::unique_ptr<ResidentRun> run) {
  ended_.executions.fetch_add(1, kRelaxed);
  ended_.iterations.fetch_add(static_cast<std::uint64_t>(run->iterations()), kRelaxed);
  run->clear();
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(run));
}

TROUPE_OP(ResidentLoop) {
  op.doc("A While that its device runs as a whole.");
  op.inputs(0, -1);
  op.attr<std::shared_ptr<const AttrObject>>("graphs");
  declare_loop_attributes(op);
  op.attr<std::int64_t>("frame", 1);  // its number, by which errors name it; loops within follow
  op.attr<bool>("compiled", true);    // its scalar steps are machine code, where possible
  op.attr<std::int64_t>("small", 0);  // tensors of so many elements at most are registers
  // states that are read before it: later writes wait for its end, as for that of a lowered loop
  op.attr<std::vector<std::int64_t>>("reads", {});
  op.side_effect();  // the executor alone runs it: never folded, never merged
  op.not_differentiable();
  op.infer([](Inference& c) {
    const auto graphs = subgraphs_of(c.attrs());
    for (std::size_t k = 0; k < graphs[1]->outputs.size(); ++k)
      c.output(graphs[1]->graph.spec(graphs[1]->inputs[k]));
    for (std::size_t i = 1; i < graphs[0]->outputs.size(); ++i)
      c.output(graphs[0]->graph.spec(graphs[0]->outputs[i]));
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    if (!s.device.is_synchronous())
      throw Error(Code::unimplemented,
                  fmt::format("a resident loop runs on a CPU, not on {}; compile it with "
                              "CompileOptions::resident_loops = false",
                              s.device.name()));
    // by what stands for them in the body, which says, too, what is a list
    const SubGraph& body = *subgraphs_of(s.attrs)[1];
    const auto given = static_cast<std::size_t>(s.attrs.get<std::int64_t>("variables"));
    std::vector<ValueSpec> inputs;
    for (std::size_t k = 0; k < body.inputs.size(); ++k)
      if (k < given || k >= body.outputs.size()) inputs.push_back(body.graph.spec(body.inputs[k]));
    return std::make_unique<ResidentKernel>(s.attrs, s.origin, inputs, s.device);
  });
}

}  // namespace troupe
