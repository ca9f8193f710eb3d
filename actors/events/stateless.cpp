#include <troupe/actors/events/stateless.hpp>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

Schema project_schema(const Schema& schema, const Projection& fields) {
  std::vector<Field> out;
  for (const auto& [name, formula] : fields) out.push_back({name, formula.bind(schema).type()});
  return Schema(std::move(out));
}

}  // namespace

Select::Select(std::string name, const Schema& schema, const Formula& condition)
    : Operator(std::move(name), schema, 1), condition_(condition.bind(schema)) {
  if (condition_.type() != Type::integer)
    throw Error(Code::invalid_argument,
                fmt::format("{} has the condition {}, which is {}; compare it with a value",
                            this->name(), condition.text(), name_of(condition_.type())));
}

void Select::process(std::size_t, Batch batch) {
  batch.keep(condition_.marks(batch));
  pass(std::move(batch));
}

Project::Project(std::string name, const Schema& schema, const Projection& fields)
    : Operator(std::move(name), project_schema(schema, fields), 1) {
  for (const auto& [field_name, formula] : fields) formulas_.push_back(formula.bind(schema));
}

void Project::process(std::size_t, Batch batch) {
  std::vector<Column> columns;
  columns.reserve(formulas_.size());
  for (const BoundFormula& formula : formulas_) columns.push_back(formula.evaluate(batch));
  batch.columns = std::move(columns);
  pass(std::move(batch));
}

Union::Union(std::string name, const Schema& schema, std::size_t inputs, std::uint16_t creators)
    : Operator(std::move(name), schema, inputs), next_(creators),
      end_(static_cast<std::uint16_t>(creators + kCreators)) {}

Key Union::renamed(std::size_t input, Key key) {
  const Key creator = key >> KeySource::kBits;
  const auto [it, is_new] = ranges_.try_emplace(creator << 16 | input, next_);
  if (is_new && ++next_ == end_)
    throw Error(Code::resource_exhausted,
                fmt::format("{} joins streams of more than {} creators of rows; unite fewer",
                            name(), kCreators));
  return it->second << KeySource::kBits | (key & ((Key(1) << KeySource::kBits) - 1));
}

void Union::process(std::size_t input, Batch batch) {
  if (input > 0)
    for (Key& key : batch.key) key = renamed(input, key);
  pass(std::move(batch));
}

}  // namespace troupe::events
