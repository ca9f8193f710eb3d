#include <troupe/ops/collectives/mirrored_variable.hpp>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

MirroredVariable::MirroredVariable(Graph& graph, const std::string& name, DType dtype,
                                   const Shape& shape, const Initializer& initial,
                                   const collective::Group& group, At at)
    : name_(name), devices_(group.devices()) {
  for (int m = 0; m < group.size(); ++m) {
    const auto there = graph.on_device(group.device(m));
    copies_.push_back(
        graph.variable(fmt::format("{}/replica-{}", name, m), dtype, shape, initial, at));
  }
}

Expr MirroredVariable::start(const std::vector<MirroredVariable>& variables, At at) {
  if (variables.empty())
    throw Error(Code::invalid_argument,
                fmt::format("start at {}: there is no mirrored variable; give one or more",
                            Site(at).text()));
  Exprs set;
  for (const MirroredVariable& v : variables) {
    auto& graph = dynamic_cast<Graph&>(v[0].reader());
    const Expr first = v[0].read(at);
    for (std::size_t m = 1; m < v.copies_.size(); ++m) {
      const auto there = graph.on_device(v.devices_[m]);
      set.push_back(v.copies_[m].assign(first));
    }
  }
  return group(set, at);
}

}  // namespace troupe
