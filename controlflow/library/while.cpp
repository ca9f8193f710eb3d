#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/ops/eager/evaluate.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {

TROUPE_OP(While) {
  op.doc("Runs a body sub-graph as long as a condition sub-graph yields true.");
  op.inputs(0, -1);
  declare_loop_attributes(op);
  op.infer([](Inference& c) {
    auto graphs = subgraphs_of(c.attrs());
    const SubGraph &condition = *graphs[0], &body = *graphs[1];
    c.require(c.attrs().get<std::int64_t>("parallel_iterations") >= 1,
              "parallel_iterations must be at least 1");
    ValueSpec predicate = condition.graph.spec(condition.outputs[0]);
    c.require(!predicate.is_list() && predicate.dtype == DType::boolean &&
                  (!predicate.shape.has_rank() || predicate.shape.is_scalar()),
              "its condition must yield a bool scalar, not " + predicate.text());
    for (std::size_t k = 0; k < body.outputs.size(); ++k) {
      ValueSpec variable = body.graph.spec(body.inputs[k]);
      ValueSpec next = body.graph.spec(body.outputs[k]);
      if (k < static_cast<std::size_t>(c.attrs().get<std::int64_t>("variables"))) {
        const ValueSpec& first = c.input(static_cast<int>(k));
        c.require(variable.covers(first),
                  fmt::format("variable {} starts as {}, which its invariant {} does not cover", k,
                              first.text(), variable.text()));
      }
      c.require(variable.dtype == next.dtype && variable.depth == next.depth,
                fmt::format(
                    "variable {} is {} at first and {} after one iteration; it must keep its dtype",
                    k, variable.text(), next.text()));
      c.require(variable.covers(next),
                fmt::format("variable {} is {} at first and {} after one iteration; give it a "
                            "shape invariant that covers both",
                            k, variable.text(), next.text()));
      c.output(variable);
    }
  });
  op.evaluate([](Evaluate& e, const Node& node, std::vector<Value> inputs) {
    WhileView w(node);
    std::vector<Value> variables(std::make_move_iterator(inputs.begin()),
                                 std::make_move_iterator(inputs.begin() + w.explicit_variables));
    for (const ValueSpec& spec : w.implicit) variables.push_back(implicit_value(spec));
    const std::vector<Value> captures(inputs.begin() + w.explicit_variables, inputs.end());
    const auto graphs = subgraphs_of(node);  // the third, if a pass has added it, is the check
    const auto compared = graphs.size() > 2
                              ? std::optional(Comparisons{graphs[0], graphs[2],
                                                          node.attrs.get<std::string>("compared")})
                              : comparisons_of(w.condition, w.variables, w.numbers);
    for (std::int64_t n = 0;; ++n) {
      std::vector<Value> arguments = variables;
      arguments.insert(arguments.end(), captures.begin(), captures.end());
      std::vector<Value> told =
          e.call(compared ? *compared->condition : w.condition, arguments, node.origin, n);
      if (predicate_of(node, e.on_host(told[0])) == 0) {
        if (!compared) return variables;
        arguments.insert(arguments.end(), std::make_move_iterator(told.begin() + 1),
                         std::make_move_iterator(told.end()));
        told = e.call(*compared->check, std::move(arguments), node.origin, n);
        for (std::size_t i = 1; i < told.size() && e.on_host(told[0]).at(0) != 0; ++i)
          if (holds_nan(e.on_host(told[i])))
            throw Error(Code::invalid_argument,
                        name_of_loop(node) + ": " + ended_by_nan(compared->what, i - 1));
        return variables;
      }
      variables.clear();  // so that a list that the body appends to has one holder
      variables = e.call(w.body, std::move(arguments), node.origin, n);
    }
  });
}

}  // namespace troupe
