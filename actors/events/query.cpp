#include <troupe/actors/events/query.hpp>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/actors/events/aggregate.hpp>
#include <troupe/actors/events/align.hpp>
#include <troupe/actors/events/finalize.hpp>
#include <troupe/actors/events/join.hpp>
#include <troupe/actors/events/session.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {

void check_consistency(const Consistency& level) {
  if (level.blocking < 0 || level.blocking > level.memory)
    throw Error(Code::invalid_argument,
                fmt::format("a query blocks for B = {} and remembers M = {}; B is from 0 to M",
                            level.blocking, level.memory));
}

// ---- the plan ----------------------------------------------------------------------------------

void Query::demand_new(const std::string& name) const {
  for (const Step& step : steps_)
    if (step.name == name || step.name == name + ".align")
      throw Error(Code::already_exists,
                  fmt::format("a query has two operators '{}'; rename one", name));
  for (const Port& port : outputs_)
    if (port.name == name)
      throw Error(Code::already_exists,
                  fmt::format("a query has two outputs '{}'; rename one", name));
}

std::uint16_t Query::creators(std::uint16_t count) {
  if (next_creator_ > UINT16_MAX - count)
    throw Error(Code::resource_exhausted, "a query has too many operators; cut it in two");
  next_creator_ = static_cast<std::uint16_t>(next_creator_ + count);
  return static_cast<std::uint16_t>(next_creator_ - count);
}

KeySource Query::keys() { return KeySource(creators(1)); }

Stream Query::add(const std::string& kind, std::string what, std::vector<std::size_t> inputs,
                  Maker make, std::optional<Division> division) {
  return add_named(fmt::format("{}#{}", kind, steps_.size()), std::move(what), std::move(inputs),
                   std::move(make), std::move(division));
}

/// Makes the operator once, which checks it.
Stream Query::add_named(std::string name, std::string what, std::vector<std::size_t> inputs,
                        Maker make, std::optional<Division> division) {
  demand_new(name);
  text_ = nullptr;
  Schema schema = make(name)->schema();
  if (!division) division = Division::by_row(schema.size());
  steps_.push_back({std::move(name), std::move(what), std::move(inputs), std::move(make),
                    std::move(schema), std::move(*division)});
  return {this, steps_.size() - 1};
}

Stream Query::source(const std::string& name, const Schema& schema, SourceOptions options) {
  demand_new(name);
  if (options.idle_after < 1)
    throw Error(Code::invalid_argument, fmt::format("source '{}' is idle after {}; give 1 or more",
                                                    name, options.idle_after));
  sources_.push_back({name, steps_.size(), options.idle_after});
  const Stream aligned = add_named(
      name + ".align", "source " + schema.text(), {},
      [schema](const std::string& n) { return std::make_unique<Align>(n, schema, true); });
  return add_named(name + ".finalize", options.inserts_only ? "inserts only" : "", {aligned.step_},
                   [schema, options, k = keys()](const std::string& n) {
                     return std::make_unique<Finalize>(n, schema, options.inserts_only, k);
                   });
}

void Query::output(const std::string& name, const Stream& stream) {
  const Stream ordered =
      add_named(name, "output", {stream.step_}, [schema = stream.schema()](const std::string& n) {
        return std::make_unique<Align>(n, schema, false);
      });
  outputs_.push_back({name, ordered.step_});
}

void Query::set_consistency(const Consistency& level) {
  check_consistency(level);
  level_ = level;
}

std::vector<std::vector<Query::Consumer>> Query::consumers() const {
  std::vector<std::vector<Consumer>> all(steps_.size());
  for (std::size_t s = 0; s < steps_.size(); ++s)
    for (std::size_t i = 0; i < steps_[s].inputs.size(); ++i)
      all[steps_[s].inputs[i]].push_back(
          {s, i, steps_[steps_[s].inputs[i]].split ? steps_[s].partition : -1, false});
  for (auto& consumers : all)
    for (auto it = consumers.begin(); it != consumers.end(); ++it)
      it->is_last = std::none_of(it + 1, consumers.end(), [&](const Consumer& other) {
        return other.partition == it->partition;
      });
  return all;
}

std::size_t Query::source_index(const std::string& name) const {
  std::string names;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].name == name) return i;
    names += (i > 0 ? ", " : "") + sources_[i].name;
  }
  throw Error(Code::not_found,
              fmt::format("a query has no source '{}'; its sources are {}", name, names));
}

std::string Query::explain() const {
  std::string out;
  for (const Step& step : steps_) {
    std::vector<std::string> inputs;
    for (const std::size_t input : step.inputs) inputs.push_back(steps_[input].name);
    out += fmt::format("{}{}{}{}{}{}{}\n", step.name, step.node.empty() ? "" : " on ", step.node,
                       inputs.empty() ? "" : " <- ", fmt::join(inputs, ", "),
                       step.what.empty() ? "" : ": ", step.what);
  }
  return out;
}

// ---- streams -----------------------------------------------------------------------------------

const Schema& Stream::schema() const { return query_->steps_[step_].schema; }

Stream Stream::named(std::string name) const {
  query_->demand_new(name);
  query_->text_ = nullptr;
  query_->steps_[step_].name = std::move(name);
  return *this;
}

Stream Stream::select(const Formula& condition) const {
  return query_->add("select", condition.text(), {step_},
                     [schema = schema(), condition](const std::string& n) {
                       return std::make_unique<Select>(n, schema, condition);
                     });
}

Stream Stream::project(const Projection& fields) const {
  std::string what;
  for (const auto& [name, formula] : fields)
    what += fmt::format("{}{} = {}", what.empty() ? "" : ", ", name, formula.text());
  Division division;
  division.made.assign(schema().size(), -1);
  for (std::size_t f = 0; f < fields.size(); ++f)
    if (const int column = fields[f].second.bind(schema()).only_field(); column >= 0)
      division.made[static_cast<std::size_t>(column)] = static_cast<int>(f);
  return query_->add(
      "project", what, {step_},
      [schema = schema(), fields](const std::string& n) {
        return std::make_unique<Project>(n, schema, fields);
      },
      division);
}

Stream Stream::alter_lifetime(Lifetimes lifetimes) const {
  return query_->add("window", lifetimes.text(), {step_},
                     [schema = schema(), lifetimes, k = query_->keys()](const std::string& n) {
                       return std::make_unique<AlterLifetime>(n, schema, lifetimes, k);
                     });
}

Stream Stream::join(const Stream& right, const std::vector<std::string>& left_keys,
                    const std::vector<std::string>& right_keys) const {
  const std::vector<std::size_t> left = columns_of(schema(), left_keys);
  return query_->add(
      "join", fmt::format("{} = {}", fmt::join(left_keys, ", "), fmt::join(right_keys, ", ")),
      {step_, right.step_},
      [l = schema(), r = right.schema(), left_keys, right_keys,
       k = query_->keys()](const std::string& n) {
        return std::make_unique<Join>(n, l, r, left_keys, right_keys, k);
      },
      Division{{{0, left}, {1, columns_of(right.schema(), right_keys)}},
               {left.begin(), left.end()}});
}

void Stream::demand_schema_of(const Stream& other, const char* verb) const {
  if (schema() != other.schema())
    throw Error(Code::invalid_argument,
                fmt::format("{} streams of {} and {}; project one to the other's schema", verb,
                            schema().text(), other.schema().text()));
}

Stream Stream::unite(const Stream& other) const {
  demand_schema_of(other, "union unites");
  return query_->add(
      "union", "", {step_, other.step_},
      [schema = schema(), k = query_->creators(Union::kCreators)](const std::string& n) {
        return std::make_unique<Union>(n, schema, 2, k);
      });
}

Stream Stream::subtract(const Stream& other) const {
  demand_schema_of(other, "difference takes");
  std::vector<std::size_t> all(schema().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return query_->add(
      "difference", "", {step_, other.step_},
      [schema = schema(), k = query_->keys()](const std::string& n) {
        return make_difference(n, schema, k);
      },
      Division{{{0, all}, {1, all}}, {all.begin(), all.end()}});
}

/// Rows of a group depend on each other and keep their columns.
Division Stream::by_group(const std::vector<std::string>& group_by) const {
  const std::vector<std::size_t> columns = columns_of(schema(), group_by);
  return Division::by(columns, {columns.begin(), columns.end()});
}

Stream Stream::session(Time gap, const std::vector<std::string>& group_by) const {
  return query_->add(
      "session", fmt::format("gap {} by ({})", gap, fmt::join(group_by, ", ")), {step_},
      [schema = schema(), gap, group_by, k = query_->keys()](const std::string& n) {
        return std::make_unique<Session>(n, schema, gap, group_by, k);
      },
      by_group(group_by));
}

Stream Stream::top(std::int64_t most, const std::string& by,
                   const std::vector<std::string>& group_by) const {
  return query_->add(
      "top", fmt::format("{} of {} by ({})", most, by, fmt::join(group_by, ", ")), {step_},
      [schema = schema(), most, by, group_by, k = query_->keys()](const std::string& n) {
        return make_top(n, schema, most, by, group_by, k);
      },
      by_group(group_by));
}

Stream Stream::aggregate(const std::vector<std::string>& group_by,
                         const std::vector<AggregateSpec>& specs) const {
  std::vector<std::string> names;
  for (const AggregateSpec& spec : specs) names.push_back(spec.name);
  std::vector<int> made(group_by.size());  // the group comes first
  std::iota(made.begin(), made.end(), 0);
  return query_->add(
      "aggregate", fmt::format("{} by ({})", fmt::join(names, ", "), fmt::join(group_by, ", ")),
      {step_},
      [schema = schema(), group_by, specs, k = query_->keys()](const std::string& n) {
        return make_aggregate(n, schema, group_by, specs, k);
      },
      Division::by(columns_of(schema(), group_by), made));
}

}  // namespace troupe::events
