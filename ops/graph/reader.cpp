#include <troupe/ops/graph/reader.hpp>

#include <fmt/format.h>

#include <troupe/devices/list/list.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {
namespace {

// States are told apart by their names alone: of two without one, each would be the other.
void require_name(const std::string& name, std::string_view what, const Site& at) {
  if (name.empty())
    throw Error(Code::invalid_argument, std::string(what) + " at " + at.text() + " needs a name");
}

void require_numbers(DType dtype, std::string_view what, const Site& at) {
  if (dtype == DType::string)
    throw Error(Code::invalid_argument,
                fmt::format("{} at {}: strings are no numbers", what, at.text()));
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

Expr Reader::zeros(DType dtype, const Shape& shape, At at) {
  require_numbers(dtype, "zeros", site_for(at));
  return bind(find_op("Fill"), {}, Attrs{{"value", Tensor::scalar_as(dtype, 0)}, {"shape", shape}},
              at)[0];
}

Expr Reader::ones(DType dtype, const Shape& shape, At at) {
  require_numbers(dtype, "ones", site_for(at));
  return bind(find_op("Fill"), {}, Attrs{{"value", Tensor::scalar_as(dtype, 1)}, {"shape", shape}},
              at)[0];
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
  StateSpec spec;
  spec.kind = StateSpec::Kind::variable;
  spec.name = name;
  spec.values = {{dtype, shape}};
  spec.initial = std::move(init);
  return Variable(this, declare(spec, at));
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
  return Queue(this, declare(spec, at));
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
  return Queue(this, declare(spec, at));
}

Console Reader::console(const std::string& name, At at) {
  StateSpec spec;
  spec.kind = StateSpec::Kind::console;
  spec.name = name;
  return Console(this, declare(spec, at));
}

}  // namespace troupe
