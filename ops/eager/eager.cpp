#include <troupe/ops/eager/eager.hpp>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/ops/eager/fire.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/ordering.hpp>

namespace troupe {
namespace {

// Does more than compute what it yields.
bool acts(const OpDef& op) {
  return !(op.effect == Effect::none || op.effect == Effect::read) || op.side_effect || op.random;
}

// Stands for a value that nobody computes; an extent that is not known counts as 0.
Value stand_in(const ValueSpec& spec) {
  if (spec.is_list()) return List(spec.dtype, spec.shape, spec.depth);
  Shape shape = spec.shape.has_rank() ? spec.shape : Shape{};
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0) shape.set(i, 0);
  return Tensor::zeros(spec.dtype, shape);
}

}  // namespace

Eager::Eager()
    : Reader(0), own_(make_cpu_device()), device_(own_.get()), stream_(device_->make_stream()) {}
Eager::Eager(Device& device) : Reader(0), device_(&device), stream_(device.make_stream()) {}
Eager::~Eager() = default;

bool Eager::is_nan(const Expr& e, const Site& site) {
  const Expr is = bind(find_op("IsNan"), {&e, 1}, {}, site)[0];
  return (is.shape().is_scalar() ? is : bind(find_op("Any"), {&is, 1}, {}, site)[0])
             .value()
             .at(0) != 0;
}

Exprs Eager::compare(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                     Comparisons& watch) {
  for (const Expr& e : inputs)
    if (watch.nan.empty() && is_nan(e, site)) {
      watch.nan = fmt::format("{} ({})", op.name, site_for(site).text());
      watch.operand = e.edge();
    }
  const Exprs fails = bind(opposite_of(op), inputs, std::move(attrs), site);
  return bind(find_op("LogicalNot"), fails, {}, site);
}

Exprs Eager::bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                  int state) {
  if (watch_) {
    watch_->has_effect = watch_->has_effect || (acts(op) && !is_looking_);
    if (is_ordering(op) && is_floating(inputs[0].dtype())) {
      watch_->compares = true;
      if (watch_->nan_holds) {
        Comparisons& by = *std::exchange(watch_, nullptr);
        Exprs out = compare(op, inputs, std::move(attrs), site, by);
        watch_ = &by;
        return out;
      }
    }
  }
  std::vector<ValueSpec> specs;
  std::vector<DType> in_types, out_types;
  std::vector<Shape> in_shapes, out_shapes;
  std::vector<Value> values;
  for (const Expr& e : inputs) {
    specs.push_back(spec_of(e));
    in_types.push_back(specs.back().dtype);
    in_shapes.push_back(specs.back().shape);
    values.push_back(e.held());
  }
  try {
    std::vector<ValueSpec> outputs = infer_outputs(op, specs, attrs);
    if (is_looking_ && acts(op)) {
      Exprs out;
      for (const ValueSpec& s : outputs) out.push_back(Expr(this, stand_in(s)));
      return out;
    }
    for (const ValueSpec& s : outputs) {
      out_types.push_back(s.dtype);
      out_shapes.push_back(s.shape);
    }
    StateInUse use;
    if (state >= 0) use = {&states_[state], store_.get(states_[state])};
    KernelSetup setup{op.name,    attrs,    in_types, in_shapes, out_types,
                      out_shapes, *device_, ++calls_, use.state};
    std::unique_ptr<Kernel> kernel = make_node_kernel(op, setup);
    std::vector<Value> results =
        fire(*kernel, values, outputs.size(), *device_, *stream_, run_, use);
    Exprs out;
    for (Value& v : results) out.push_back(Expr(this, std::move(v)));
    return out;
  } catch (const Error& e) {
    std::string given;
    for (const ValueSpec& s : specs) given += (given.empty() ? "" : ", ") + s.text();
    throw Error(e.code(), fmt::format("{}({}){} at {}: {}", op.name, given, within(site_for(site)),
                                      site_for(site).text(), e.what()));
  }
}

Expr Eager::adopt(const Expr& foreign, const Site&) {
  const bool is_of_graph = !foreign.is_empty() && foreign.reader().depth() > 0;
  return Expr(this, is_looking_ && is_of_graph ? stand_in(foreign.spec()) : foreign.held());
}

ValueSpec Eager::spec_of(const Expr& e) const { return spec_of_value(e.held()); }

int Eager::declare(const StateSpec& spec, const Site&) {
  store_.get(spec);
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (states_[i].name == spec.name) return static_cast<int>(i);
  states_.push_back(spec);
  return static_cast<int>(states_.size()) - 1;
}

}  // namespace troupe
