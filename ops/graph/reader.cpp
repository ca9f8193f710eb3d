#include <troupe/ops/graph/reader.hpp>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/suggest_name.hpp>
#include <troupe/ops/graph/tracing.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe::detail {
namespace {

// States are identified by their names alone: two without a name would be one.
void require_name(const std::string& name, std::string_view what, const Site& at) {
  if (name.empty())
    throw Error(Code::invalid_argument, std::string(what) + " at " + at.text() + " needs a name");
}

void require_numbers(DType dtype, std::string_view what, const Site& at) {
  if (dtype == DType::string)
    throw Error(Code::invalid_argument,
                fmt::format("{} at {}: expected a numeric dtype, got string", what, at.text()));
}

void require_queue(const std::string& name, const std::vector<ValueSpec>& components,
                   const Site& at) {
  require_name(name, "the queue", at);
  if (components.empty())
    throw Error(Code::invalid_argument, "queue '" + name + "' at " + at.text() +
                                            " needs at least one component in an element");
}

}  // namespace

Expr Reader::constant(Tensor value, At at) {
  return bind(find_op("Constant"), {}, Attrs{{"value", std::move(value)}}, at)[0];
}

namespace {

// A tensor of one value; its extents may be expressions.
Expr filled(Reader& reader, Tensor value, const detail::Extents& shape,
            const std::source_location& at) {
  if (shape.is_known())
    return reader.bind(find_op("Fill"), {},
                       Attrs{{"value", std::move(value)}, {"shape", shape.known()}}, at)[0];
  const Reader::AtSite here(reader, reader.site_for(at));
  return broadcast_to(reader.current().constant(std::move(value), at), shape);
}

}  // namespace

Expr Reader::zeros(DType dtype, const detail::Extents& shape, At at) {
  require_numbers(dtype, "zeros", site_for(at));
  return filled(*this, Tensor::scalar_as(dtype, 0), shape, at);
}

Expr Reader::ones(DType dtype, const detail::Extents& shape, At at) {
  require_numbers(dtype, "ones", site_for(at));
  return filled(*this, Tensor::scalar_as(dtype, 1), shape, at);
}

Expr Reader::random_uniform(const Shape& shape, DType dtype, At at) {
  return bind(find_op("RandomUniform"), {}, Attrs{{"shape", shape}, {"dtype", dtype}}, at)[0];
}

Expr Reader::random_normal(const Shape& shape, DType dtype, At at) {
  return bind(find_op("RandomNormal"), {}, Attrs{{"shape", shape}, {"dtype", dtype}}, at)[0];
}

Expr Reader::truncated_normal(const Shape& shape, DType dtype, At at) {
  return bind(find_op("TruncatedNormal"), {}, Attrs{{"shape", shape}, {"dtype", dtype}}, at)[0];
}

Variable Reader::variable(const std::string& name, const Tensor& initial, At at) {
  if (!initial.has_value())
    throw Error(Code::invalid_argument,
                "variable '" + name + "' at " + Site(at).text() +
                    ": its initial value holds nothing: it is a Tensor that was never given one");
  return variable(name, initial.dtype(), initial.shape(), Initializer::tensor(initial), at);
}

Variable Reader::variable(const std::string& name, DType dtype, const Shape& shape,
                          Initializer init, At at) {
  require_name(name, "the variable", at);
  if (!shape.is_known())
    throw Error(Code::invalid_argument, "variable '" + name + "' at " + Site(at).text() +
                                            " needs a shape known in full, not " + shape.text());
  if (init.kind == Initializer::Kind::tensor && !fits(init.value, {dtype, shape}))
    throw Error(Code::invalid_argument, "variable '" + name + "' at " + Site(at).text() + " is " +
                                            ValueSpec{dtype, shape}.text() +
                                            ", and its initial value " + text_of(init.value));
  if (init.kind == Initializer::Kind::orthogonal && (shape.rank() < 1 || !is_floating(dtype)))
    throw Error(Code::invalid_argument,
                "variable '" + name + "' at " + Site(at).text() +
                    ": Initializer::orthogonal makes floating matrices of one axis or more, not " +
                    ValueSpec{dtype, shape}.text());
  if (const std::string why = init.misfit(dtype); !why.empty())
    throw Error(Code::invalid_argument,
                "variable '" + name + "' at " + Site(at).text() + ": " + why);
  StateSpec spec;
  spec.kind = StateSpec::Kind::variable;
  spec.name = name;
  spec.values = {{dtype, shape}};
  spec.initial = std::move(init);
  return Variable(this, declare_new(std::move(spec), at));
}

int Reader::declare_new(StateSpec spec, const Site& site) {
  spec.site = site_for(site);
  return declare(spec, site);
}

namespace {

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// Names that end as `name` does, or the one that is spelled most like it.
std::string names_near(std::string_view name, std::span<const StateSpec> states) {
  std::vector<std::string_view> names, alike;
  for (const StateSpec& s : states) {
    if (s.kind != StateSpec::Kind::variable) continue;
    names.push_back(s.name);
    if (alike.size() < 3 && last_part(s.name) == last_part(name)) alike.push_back(s.name);
  }
  if (alike.empty()) return did_you_mean(name, names);
  return fmt::format("; did you mean '{}'?", fmt::join(alike, "', '"));
}

}  // namespace

Variable Reader::find_variable(const std::string& name, At at) {
  const std::string_view full = std::string_view(name).substr(name.starts_with('/') ? 1 : 0);
  const std::span<const StateSpec> states = declared_states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].name != full) continue;
    if (states[i].kind == StateSpec::Kind::variable) return Variable(this, static_cast<int>(i));
    throw Error(Code::not_found, fmt::format("find_variable at {}: {} is no variable",
                                             site_for(at).text(), states[i].text()));
  }
  throw Error(Code::not_found, fmt::format("find_variable at {}: there is no variable '{}'{}",
                                           site_for(at).text(), full, names_near(full, states)));
}

Variable Reader::variable(const std::string& name, const Expr& initial, At at) {
  if (initial.reader().depth() == 0) return variable(name, initial.value(), at);
  Tracing* const trace = Tracing::active();
  if (!trace)
    throw Error(Code::failed_precondition,
                fmt::format("variable '{}' at {}: its initial value is an expression, which has no "
                            "value while a graph is built; give it a Tensor or an Initializer",
                            name, Site(at).text()));
  const ValueSpec spec = initial.spec();
  if (spec.is_list() || !spec.shape.is_known())
    throw Error(Code::invalid_argument,
                fmt::format("variable '{}' at {}: its initial value must be a tensor of a shape "
                            "known in full, not {}",
                            name, Site(at).text(), spec.text()));
  if (trace->callbacks().starts_as_expression)
    trace->callbacks().starts_as_expression(name, site_for(at));
  const Variable made = variable(name, spec.dtype, spec.shape, Initializer::constant(0), at);
  trace->callbacks().initialized(state_spec(made.state()), initial, site_for(at));
  return made;
}

Queue Reader::fifo_queue(const std::string& name, std::vector<ValueSpec> components,
                         std::int64_t capacity, At at) {
  require_queue(name, components, at);
  if (capacity < 1)
    throw Error(Code::invalid_argument,
                "queue '" + name + "' at " + Site(at).text() + " needs a capacity of at least 1");
  StateSpec spec;
  spec.kind = StateSpec::Kind::fifo_queue;
  spec.name = name;
  spec.values = std::move(components);
  spec.capacity = capacity;
  return Queue(this, declare_new(std::move(spec), at));
}

Queue Reader::shuffling_queue(const std::string& name, std::vector<ValueSpec> components,
                              std::int64_t capacity, std::int64_t min_after_dequeue,
                              std::uint64_t seed, At at) {
  require_queue(name, components, at);
  if (capacity < 1 || min_after_dequeue < 0 || min_after_dequeue >= capacity)
    throw Error(Code::invalid_argument, "queue '" + name + "' at " + Site(at).text() +
                                            " needs 0 <= min_after_dequeue < capacity");
  StateSpec spec;
  spec.kind = StateSpec::Kind::shuffling_queue;
  spec.name = name;
  spec.values = std::move(components);
  spec.capacity = capacity;
  spec.min_after_dequeue = min_after_dequeue;
  spec.seed = seed;
  return Queue(this, declare_new(std::move(spec), at));
}

Console Reader::console(const std::string& name, At at) {
  StateSpec spec;
  spec.kind = StateSpec::Kind::console;
  spec.name = name;
  return Console(this, declare_new(std::move(spec), at));
}

}  // namespace troupe::detail
