// Expressions where C++ asks for their values: eager ones are read, in a graph there is none.
#include <ostream>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {

namespace {
// The value in the host's memory: a value of a device that runs behind is waited for.
Tensor readable(const Expr& e) {
  const Tensor& t = e.value();
  return t.is_on_host() ? t : dynamic_cast<Eager&>(e.reader()).on_host(e);
}
}  // namespace

Expr::operator bool() const {
  if (const auto* graph = dynamic_cast<const Graph*>(&reader()); graph && !value_.has_value()) {
    const Tracing* const trace = Tracing::active();
    throw Error(Code::failed_precondition,
                fmt::format("C++ asks{} whether {} is true, and it has no value while the graph is "
                            "built; use cond(), while_loop() or where() instead of if, while and "
                            "?:, and logical_and() instead of &&",
                            trace ? " in " + trace->name() : "", graph->describe(edge_.node)));
  }
  const Tensor t = readable(*this);
  if (t.elements() != 1 || t.dtype() == DType::string)
    throw Error(Code::invalid_argument,
                fmt::format("C++ asks whether {} is true, which is no single number; reduce it "
                            "with any() or all()",
                            spec().text()));
  return t.at(0) != 0;
}

std::ostream& operator<<(std::ostream& out, const Expr& e) {
  if (e.is_empty()) return out << "an empty expression";
  if (e.spec().is_list() || dynamic_cast<Graph*>(&e.reader())) return out << e.spec().text();
  return out << readable(e);
}

}  // namespace troupe
