#include <troupe/autodiff/optimizer.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/autodiff/rate.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

namespace {

// A gradient is of its variable's shape, and of its dtype or that in which it is computed.
void refuse_other(const Cotangent& g, const Variable& v, const std::source_location& at) {
  const Shape& shape = (g.is_sparse() ? g.like : g.dense).spec().shape;
  const DType dtype = (g.is_sparse() ? g.values : g.dense).spec().dtype;
  if (shape.is_compatible(v.shape()) && (dtype == v.dtype() || dtype == computed_in(v))) return;
  throw Error(
      Code::invalid_argument,
      fmt::format("apply at {}: the gradient of variable '{}' must be {}{}, as it is, not {}{}",
                  Site(at).text(), v.name(), name_of(v.dtype()), v.shape().text(), name_of(dtype),
                  shape.text()));
}

}  // namespace

Expr Optimizer::minimize(const Expr& loss, const std::vector<Variable>& variables, At at) const {
  std::vector<Cotangent> gradients = cotangents(one_number(loss, "minimize", at), variables,
                                                {.unconnected = Unconnected::none}, at);
  for (const Cotangent& g : gradients)
    if (!g.is_none()) return apply(gradients, variables, at);
  throw Error(Code::invalid_argument,
              fmt::format("minimize at {}: the loss depends on none of the {} variables",
                          Site(at).text(), variables.size()));
}

Expr Optimizer::apply(const std::vector<Expr>& gradients, const std::vector<Variable>& variables,
                      At at) const {
  return apply(std::vector<Cotangent>(gradients.begin(), gradients.end()), variables, at);
}

Expr Optimizer::apply(const std::vector<Cotangent>& gradients,
                      const std::vector<Variable>& variables, At at) const {
  if (gradients.size() != variables.size())
    throw Error(Code::invalid_argument,
                fmt::format("apply at {}: {} gradients for {} variables", Site(at).text(),
                            gradients.size(), variables.size()));
  std::set<std::pair<const Reader*, int>> seen;
  for (auto v = variables.begin(); v != variables.end(); ++v) {
    if (v->state() < 0)
      throw Error(Code::invalid_argument, fmt::format("apply at {}: variable {} was never declared",
                                                      Site(at).text(), v - variables.begin()));
    if (!seen.emplace(&v->reader(), v->state()).second)
      throw Error(
          Code::invalid_argument,
          fmt::format("apply at {}: variable '{}' is named twice, which would take two steps",
                      Site(at).text(), v->name()));
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (gradients[i].is_none()) continue;
    refuse_other(gradients[i], variables[i], at);
    Reader::AtSite site(variables[i].reader(), at);
    check(variables[i]);
  }
  std::vector<Expr> updates;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Variable& v = variables[i];
    const Cotangent& g = gradients[i];
    if (g.is_none()) continue;
    Reader::AtSite site(v.reader(), at);
    if (Cotangent rows = flattened(g); rows.is_sparse())
      updates.push_back(update_rows(v, rows.indices, cast(rows.values, computed_in(v))));
    else updates.push_back(update(v, cast(rows.dense, computed_in(v))));
  }
  if (updates.empty())
    throw Error(Code::invalid_argument,
                fmt::format("apply at {}: there is no gradient", Site(at).text()));
  Reader::AtSite site(updates[0].reader(), at);
  Expr step = group(updates);
  if (auto* graph = dynamic_cast<Graph*>(&step.reader())) graph->mark_step(step);
  return step;
}

Variable Optimizer::slot(const Variable& v, const std::string& name, double initial) const {
  return slot(v, name, computed_in(v), v.shape(), initial);
}

Variable Optimizer::slot(const Variable& v, const std::string& name, DType dtype,
                         const Shape& shape, double initial) const {
  StateSpec spec;
  spec.kind = StateSpec::Kind::variable;
  spec.name = v.name() + "/" + name_ + "/" + name;
  spec.values = {{dtype, shape}};
  spec.initial = Initializer::constant(initial);
  Reader& reader = v.reader();
  spec.device = reader.state_spec(v.state()).device;
  spec.site = reader.current().site_for(reader.site_for(Site()));
  // a full name, found or created: steps of one kind for one variable share it
  const int state = reader.declare(spec, spec.site);
  if (const StateSpec& known = reader.state_spec(state); !known.initial.is_same(spec.initial))
    throw Error(Code::already_exists,
                fmt::format("at {}: {} starts from another value than {}; optimizers of one kind "
                            "share what they remember of a variable",
                            spec.site.text(), known.text(), initial));
  return Variable(&reader, state);
}

}  // namespace troupe
