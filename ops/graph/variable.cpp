#include <troupe/ops/graph/variable.hpp>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {
namespace {

// The reader that declared a state binds the state's op, and adopts operands of other readers.
Expr to_reader(Reader& reader, const Operand& o, DType wanted) {
  if (o.is_expr())
    return &o.expr().reader() == &reader ? o.expr() : reader.adopt(o.expr(), o.site());
  return reader.adopt(Expr(nullptr, o.is_number() ? o.number_as(wanted) : o.literal()), o.site());
}

// Refuses a variable that no reader has declared.
void require_declared(const Reader* reader, const Site& at) {
  if (!reader)
    throw Error(
        Code::invalid_argument,
        fmt::format(
            "the variable at {} was never declared; take what the graph's `variable` returned",
            at.text()));
}

}  // namespace

Expr Variable::read(Site at) const {
  require_declared(reader_, at);
  return reader_->bind(find_op("ReadVariable"), {}, Attrs{{"dtype", dtype()}, {"shape", shape()}},
                       at, state_)[0];
}

Expr Variable::update(const char* op, const Operand& value) const {
  require_declared(reader_, value.site());
  Expr in = to_reader(reader_->current(), value, dtype());
  return reader_->bind(find_op(op), std::span<const Expr>(&in, 1),
                       Attrs{{"dtype", dtype()}, {"shape", shape()}}, value.site(), state_)[0];
}

Expr Variable::assign(Operand value) const { return update("AssignVariable", value); }
Expr Variable::assign_add(Operand delta) const { return update("AssignAdd", delta); }
Expr Variable::assign_sub(Operand delta) const { return update("AssignSub", delta); }

Expr Variable::scatter(std::int64_t mode, const Operand& indices, const Operand& updates) const {
  require_declared(reader_, indices.site());
  Expr in[2] = {to_reader(reader_->current(), indices, DType::i64),
                to_reader(reader_->current(), updates, dtype())};
  return reader_->bind(find_op("ScatterVariable"), in,
                       Attrs{{"dtype", dtype()}, {"shape", shape()}, {"mode", mode}},
                       indices.site(), state_)[0];
}

Expr Variable::scatter_update(Operand indices, Operand updates) const {
  return scatter(static_cast<std::int64_t>(Scatter::update), indices, updates);
}
Expr Variable::scatter_add(Operand indices, Operand updates) const {
  return scatter(static_cast<std::int64_t>(Scatter::add), indices, updates);
}
Expr Variable::scatter_sub(Operand indices, Operand updates) const {
  return scatter(static_cast<std::int64_t>(Scatter::sub), indices, updates);
}

Expr Queue::enqueue(std::initializer_list<Operand> components) const {
  const StateSpec& spec = reader_->state_spec(state_);
  Site site = components.size() ? components.begin()->site() : Site();
  if (components.size() != spec.values.size())
    throw Error(Code::invalid_argument,
                fmt::format("queue '{}' at {}: elements have {} components, not {}", spec.name,
                            site.text(), spec.values.size(), components.size()));
  std::vector<Expr> in;
  for (const Operand& o : components) {
    const ValueSpec& wanted = spec.values[in.size()];
    in.push_back(to_reader(reader_->current(), o, wanted.dtype));
    ValueSpec given = in.back().spec();
    if (given.dtype != wanted.dtype || !given.shape.is_compatible(wanted.shape))
      throw Error(Code::invalid_argument,
                  fmt::format("queue '{}' at {}: component {} must be {}, not {}", spec.name,
                              site.text(), in.size() - 1, wanted.text(), given.text()));
  }
  return reader_->bind(find_op("Enqueue"), in, {}, site, state_)[0];
}

Exprs Queue::dequeue(At at) const {
  const StateSpec& spec = reader_->state_spec(state_);
  return reader_->bind(find_op("Dequeue"), {}, Attrs{{"components", make_specs_attr(spec.values)}},
                       at, state_);
}

Expr Queue::size(At at) const { return reader_->bind(find_op("QueueSize"), {}, {}, at, state_)[0]; }
Expr Queue::close(At at) const {
  return reader_->bind(find_op("QueueClose"), {}, {}, at, state_)[0];
}

// ---- consoles

Expr Console::print(const std::string& format, std::initializer_list<Operand> values,
                    std::source_location at) const {
  std::vector<Expr> in;
  for (const Operand& o : values) in.push_back(to_reader(reader_->current(), o, DType::f32));
  return reader_->bind(find_op("Print"), in, Attrs{{"format", format}}, at, state_)[0];
}

}  // namespace troupe
