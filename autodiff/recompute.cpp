#include <troupe/autodiff/recompute.hpp>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/eager/bind_observer.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/eager/staged.hpp>

namespace troupe::detail {
namespace {

// A conditional of one branch, whose gradient computes it again.
Exprs in_graph(Graph& graph, const std::function<Operands()>& code, const Site& at) {
  const Expr always = graph.constant(std::int64_t{0});
  const auto scope = graph.node_scope("recompute");
  SubGraphBuilder builder(graph, at);
  const Operands results = builder.add(fmt::format("the function of recompute ({})", at.text()), {},
                                       [&](const Exprs&) { return code(); });
  builder.set_outputs(0, results, std::vector<DType>(results.size(), DType::f32));
  const Exprs captures = builder.finish();
  return bind_case(graph, graph.adopt(always, at), builder.take(), captures, "recompute",
                   builder.controls(), at, true);
}

Exprs in_reader(Reader& reader, const Operands& operands) {
  Exprs out;
  for (const Operand& o : operands) {
    Expr e = o.is_expr() ? o.expr() : Expr(nullptr, o.literal());
    out.push_back(o.is_expr() && &e.reader() == &reader ? e : reader.adopt(e, o.site()));
  }
  return out;
}

}  // namespace

Exprs recomputed(const Operands& given, const std::function<Operands()>& code, const Site& at) {
  Reader* const reader = reader_of(given);
  if (!reader)
    throw Error(Code::invalid_argument,
                fmt::format("recompute at {}: no argument is an expression; give the function what "
                            "it computes with",
                            at.text()));
  if (auto* graph = dynamic_cast<Graph*>(reader)) return in_graph(*graph, code, at);
  auto* scope = dynamic_cast<Eager*>(reader);
  if (!scope || !BindObserver::innermost()) return in_reader(*reader, code());
  return call_code(
      fmt::format("recompute ({})", at.text()),
      [&](Graph& staged) { return in_graph(staged.current(), code, at); }, *scope);
}

}  // namespace troupe::detail
