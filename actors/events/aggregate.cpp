#include <troupe/actors/events/aggregate.hpp>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <troupe/actors/events/per_snapshot.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

using AggregateKind = AggregateSpec::Kind;

[[noreturn]] void aggregate_refuse(const std::string& sentence) {
  throw Error(Code::invalid_argument, sentence);
}

Type aggregate_type(const std::string& name, const Schema& schema, const AggregateSpec& spec) {
  if (spec.kind == AggregateKind::count) return Type::integer;
  const Type type = schema[schema.index(spec.field)].type;
  if (spec.kind == AggregateKind::user) {
    if (!spec.function)
      aggregate_refuse(fmt::format("{} has no function for '{}'; give one", name, spec.name));
    return spec.type;
  }
  if (spec.kind == AggregateKind::quantile && !(spec.quantile >= 0 && spec.quantile <= 1))
    aggregate_refuse(
        fmt::format("{} computes the quantile {}; name one from 0 to 1", name, spec.quantile));
  const bool is_numeric = spec.kind == AggregateKind::sum || spec.kind == AggregateKind::mean;
  if (is_numeric && type == Type::text)
    aggregate_refuse(
        fmt::format("{} adds up '{}', which is text; name a number", name, spec.field));
  return spec.kind == AggregateKind::mean ? Type::real : type;
}

Schema aggregate_schema(const std::string& name, const Schema& schema,
                        const std::vector<std::string>& group_by,
                        const std::vector<AggregateSpec>& specs) {
  std::vector<Field> fields;
  for (const std::string& field : group_by) fields.push_back(schema[schema.index(field)]);
  if (specs.empty()) aggregate_refuse(fmt::format("{} computes nothing; name an aggregate", name));
  for (const AggregateSpec& spec : specs)
    fields.push_back({spec.name, aggregate_type(name, schema, spec)});
  return Schema(std::move(fields));
}

/// One row a group and snapshot: the key of the group, and a value for each aggregate.
class AggregateRule {
 public:
  using Content = Totals;

  AggregateRule(const Schema& schema, const std::vector<std::string>& group_by,
                std::vector<AggregateSpec> specs)
      : group_columns_(columns_of(schema, group_by)), specs_(std::move(specs)) {
    bool only_counts = true;
    for (const AggregateSpec& spec : specs_) {
      only_counts &= spec.kind == AggregateKind::count;
      value_columns_.push_back(spec.kind == AggregateKind::count ? 0 : schema.index(spec.field));
    }
    if (only_counts) value_columns_.clear();
  }
  void load(const Batch& batch, std::size_t, std::size_t i, Row& group) {
    read_columns(batch, group_columns_, i, group);
    read_columns(batch, value_columns_, i, values_);
  }
  void add(Totals& totals, std::size_t, int by) const { totals.add(specs_, values_, by); }
  bool is_empty(const Totals& totals) const { return totals.events() == 0; }
  void read(const Row& group, const Totals& totals, std::vector<Row>& rows) const {
    totals.read(specs_, rows.emplace_back(group));
  }

 private:
  std::vector<std::size_t> group_columns_;
  std::vector<AggregateSpec> specs_;
  std::vector<std::size_t> value_columns_;  // by aggregate; of a count any; empty: counts alone
  Row values_;                              // by aggregate, from the loaded message
};

/// The rows of the greatest values of a field.
class TopRule {
 public:
  TopRule(const Schema& schema, std::int64_t most, const std::string& by,
          const std::vector<std::string>& group_by)
      : most_(most), by_(schema.index(by)), group_columns_(columns_of(schema, group_by)) {}

  struct Descending {
    bool operator()(const std::pair<Value, Row>& a, const std::pair<Value, Row>& b) const {
      const ValueOrder is_before;
      if (is_before(b.first, a.first)) return true;
      return !is_before(a.first, b.first) &&
             std::lexicographical_compare(a.second.begin(), a.second.end(), b.second.begin(),
                                          b.second.end(), is_before);
    }
  };
  using Content = std::map<std::pair<Value, Row>, std::int64_t, Descending>;  // how often each

  void load(const Batch& batch, std::size_t, std::size_t i, Row& group) {
    read_columns(batch, group_columns_, i, group);
    loaded_ = {value_at(batch.columns[by_], i), batch.row(i)};
  }
  void add(Content& content, std::size_t, int by) const {
    const auto it = content.try_emplace(loaded_, 0).first;
    if ((it->second += by) == 0) content.erase(it);
  }
  bool is_empty(const Content& content) const { return content.empty(); }
  void read(const Row&, const Content& content, std::vector<Row>& rows) const {
    for (auto it = content.begin(); it != content.end(); ++it)
      for (std::int64_t n = 0; n < it->second; ++n) {
        if (static_cast<std::int64_t>(rows.size()) == most_) return;
        rows.push_back(it->first.second);
      }
  }

 private:
  std::int64_t most_;
  std::size_t by_;
  std::vector<std::size_t> group_columns_;
  std::pair<Value, Row> loaded_;
};

/// The events of the first input that equal ones of the second do not cancel. A group is a payload.
class DifferenceRule {
 public:
  struct Content {
    std::int64_t left = 0, right = 0;
  };
  void load(const Batch& batch, std::size_t, std::size_t i, Row& group) { group = batch.row(i); }
  void add(Content& content, std::size_t input, int by) const {
    (input == 0 ? content.left : content.right) += by;
  }
  bool is_empty(const Content& content) const { return content.left == 0 && content.right == 0; }
  void read(const Row& group, const Content& content, std::vector<Row>& rows) const {
    for (std::int64_t n = content.right; n < content.left; ++n) rows.push_back(group);
  }
};

}  // namespace

std::unique_ptr<Operator> make_aggregate(std::string name, const Schema& schema,
                                         const std::vector<std::string>& group_by,
                                         std::vector<AggregateSpec> specs, KeySource keys) {
  Schema made = aggregate_schema(name, schema, group_by, specs);
  return std::make_unique<PerSnapshot<AggregateRule>>(
      std::move(name), std::move(made), 1, AggregateRule(schema, group_by, std::move(specs)), keys);
}

std::unique_ptr<Operator> make_top(std::string name, const Schema& schema, std::int64_t most,
                                   const std::string& by, const std::vector<std::string>& group_by,
                                   KeySource keys) {
  if (most < 1) aggregate_refuse(fmt::format("{} keeps {} rows; name 1 or more", name, most));
  return std::make_unique<PerSnapshot<TopRule>>(std::move(name), schema, 1,
                                                TopRule(schema, most, by, group_by), keys);
}

std::unique_ptr<Operator> make_difference(std::string name, const Schema& schema, KeySource keys) {
  return std::make_unique<PerSnapshot<DifferenceRule>>(std::move(name), schema, 2, DifferenceRule(),
                                                       keys);
}

}  // namespace troupe::events
