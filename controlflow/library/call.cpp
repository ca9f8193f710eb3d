#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/eager/evaluate.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe {

TROUPE_OP(Call) {
  op.doc("Calls a function of the graph: its results, once all inputs are there.");
  op.inputs(0, -1);
  op.infer([](Inference& c) {
    const FunctionDef& f = *function_of(c.attrs());
    c.require(c.inputs() == static_cast<int>(f.parameters.size()),
              fmt::format("function '{}' takes {} values, not {}", f.name, f.parameters.size(),
                          c.inputs()));
    for (int i = 0; i < c.inputs(); ++i) {
      const ValueSpec& wanted = f.parameters[static_cast<std::size_t>(i)];
      c.require(wanted.covers(c.input(i)),
                fmt::format("argument {} of function '{}' is {}, and it takes {}", i, f.name,
                            c.input(i).text(), wanted.text()));
    }
    for (const ValueSpec& spec : f.results) c.output(spec);
  });
  op.evaluate(
      [](Evaluate& e, const Node& node, std::vector<Value> inputs) {
        return e.call(*function_of(node), std::move(inputs), node);
      },
      "function");
}

}  // namespace troupe
