#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/eager/evaluate.hpp>

namespace troupe {
namespace {

std::span<const std::shared_ptr<const SubGraph>> branches_of(const Inference& c) {
  return subgraphs_of(c.attrs());
}

}  // namespace

// The predicate selects the branch: false is 0 and true 1; a number out of range means the last.
TROUPE_OP(Case) {
  op.doc("Runs one of several sub-graphs.");
  op.inputs(1, -1);
  op.attr<std::string>("label");
  op.attr<bool>("recompute", false);  // the gradient computes the branch again: recompute.hpp
  op.attr<std::int64_t>("results");   // the user's; a gradient may have added more outputs
  op.infer([](Inference& c) {
    DType t = c.dtype(0);
    c.require(!c.input(0).is_list() && (t == DType::boolean || t == DType::i32 || t == DType::i64),
              "the predicate must be bool, or i32 or i64 for a choice of several, not " +
                  c.input(0).text() + "; compare it with something");
    c.require(!c.shape(0).has_rank() || c.shape(0).is_scalar(),
              "the predicate must be a scalar, not " + c.input(0).text());
    auto branches = branches_of(c);
    for (std::size_t o = 0; o < branches[0]->outputs.size(); ++o) {
      ValueSpec spec = branches[0]->graph.spec(branches[0]->outputs[o]);
      for (std::size_t b = 1; b < branches.size(); ++b) {
        const ValueSpec other = branches[b]->graph.spec(branches[b]->outputs[o]);
        try {
          spec = common_spec(spec, other);
        } catch (const Error&) {
          throw Error(Code::invalid_argument,
                      fmt::format("output {} is {} in {} and {} in {}; both must be of one dtype",
                                  o, spec.text(), branches[0]->graph.what(), other.text(),
                                  branches[b]->graph.what()));
        }
      }
      c.output(spec);
    }
  });
  op.evaluate([](Evaluate& e, const Node& node, std::vector<Value> inputs) {
    auto branches = subgraphs_of(node);
    auto index = static_cast<std::int64_t>(predicate_of(node, e.on_host(inputs[0])));
    auto last = static_cast<std::int64_t>(branches.size()) - 1;
    if (index < 0 || index > last) index = last;
    inputs.erase(inputs.begin());
    return e.call(*branches[static_cast<std::size_t>(index)], std::move(inputs));
  });
}

}  // namespace troupe
