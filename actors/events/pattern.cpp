#include <troupe/actors/events/pattern.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/actors/events/matcher.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

using PatternKind = Pattern::Kind;

/// The streams of all events, each once, in order of the pattern.
void pattern_streams(const Pattern& pattern, std::vector<Stream>& all) {
  if (pattern.node().stream) all.push_back(*pattern.node().stream);
  for (const Pattern& part : pattern.node().parts) pattern_streams(part, all);
}

}  // namespace

Pattern Pattern::with(Selection selection) const {
  Pattern copy = *this;
  copy.selection_ = selection;
  return copy;
}

Pattern Pattern::consume() const {
  Pattern copy = *this;
  copy.is_consumed_ = true;
  return copy;
}

std::string Pattern::text() const {
  std::vector<std::string> parts;
  for (const Pattern& part : node_->parts) parts.push_back(part.text());
  if (node_->kind == Kind::at_least || (node_->kind == Kind::unless && node_->count > 0))
    parts.insert(node_->kind == Kind::at_least ? parts.begin() : parts.end(),
                 fmt::format("{}", node_->count));
  if (node_->within > 0) parts.push_back(fmt::format("{}", node_->within));
  constexpr const char* kNames[] = {"", "SEQUENCE", "ATLEAST", "UNLESS", "NOT", "CANCEL-WHEN"};
  if (node_->kind == Kind::without) std::swap(parts[0], parts[1]);
  std::string out =
      node_->kind == Kind::event
          ? node_->variable
          : fmt::format("{}({})", kNames[static_cast<int>(node_->kind)], fmt::join(parts, ", "));
  if (selection_ != Selection::each) out += selection_ == Selection::first ? " FIRST" : " LAST";
  return is_consumed_ ? out + " CONSUME" : out;
}

Pattern event(const Stream& stream, std::string variable) {
  return Pattern({PatternKind::event, {}, 0, 0, stream, std::move(variable)});
}
Pattern sequence(std::vector<Pattern> parts, Time within) {
  return Pattern({PatternKind::sequence, std::move(parts), within});
}
Pattern at_least(std::int64_t count, std::vector<Pattern> parts, Time within) {
  return Pattern({PatternKind::at_least, std::move(parts), within, count});
}
Pattern all(std::vector<Pattern> parts, Time within) {
  const auto count = static_cast<std::int64_t>(parts.size());
  return at_least(count, std::move(parts), within);
}
Pattern any(std::vector<Pattern> parts, Time within) {
  return at_least(1, std::move(parts), within);
}
Pattern unless(Pattern present, Pattern absent, Time within) {
  return Pattern({PatternKind::unless, {std::move(present), std::move(absent)}, within});
}
Pattern unless(Pattern present, Pattern absent, std::int64_t contributor, Time within) {
  if (contributor < 1)
    throw Error(Code::invalid_argument,
                fmt::format("UNLESS begins at contributor {}; name one from 1 on", contributor));
  return Pattern(
      {PatternKind::unless, {std::move(present), std::move(absent)}, within, contributor});
}
Pattern without(Pattern absent, Pattern present) {
  return Pattern({PatternKind::without, {std::move(present), std::move(absent)}});
}
Pattern cancel_when(Pattern present, Pattern absent) {
  return Pattern({PatternKind::cancel_when, {std::move(present), std::move(absent)}});
}

Stream match(const Pattern& pattern, const MatchOptions& options) {
  std::vector<Stream> streams;
  pattern_streams(pattern, streams);
  if (streams.empty())
    throw Error(Code::invalid_argument, "a pattern has no event; give it one at least");
  if (pattern.selection() != Selection::each || pattern.is_consumed())
    throw Error(
        Code::invalid_argument,
        fmt::format("{} is the whole pattern; let its parts select and consume", pattern.text()));
  std::vector<std::size_t> inputs, input_of;  // steps; by event
  for (const Stream& stream : streams) {
    if (stream.query_ != streams[0].query_)
      throw Error(Code::invalid_argument,
                  "a pattern has events of two queries; build it of one query's streams");
    const auto it = std::find(inputs.begin(), inputs.end(), stream.step_);
    input_of.push_back(static_cast<std::size_t>(it - inputs.begin()));
    if (it == inputs.end()) inputs.push_back(stream.step_);
  }
  const auto plan = std::make_shared<const MatchPlan>(plan_match(pattern, options, input_of));
  Query& query = *streams[0].query_;
  const std::string where =
      options.where ? fmt::format(" where {}", options.where->text()) : std::string();
  const std::string keys =
      plan->key_names.empty() ? "" : fmt::format(" by ({})", fmt::join(plan->key_names, ", "));
  return query.add(
      "pattern", pattern.text() + where + keys, inputs,
      [plan, n = inputs.size(), k = query.keys()](const std::string& name) {
        return std::make_unique<Matcher>(name, plan, n, k);
      },
      plan->division());
}

Stream at_most(std::int64_t most, const std::vector<Stream>& streams, Time within,
               const std::vector<std::string>& keys) {
  if (streams.empty() || most < 1)
    throw Error(Code::invalid_argument,
                fmt::format("ATMOST permits {} events of {} streams; name 1 or more of each", most,
                            streams.size()));
  Projection fields;
  for (const std::string& key : keys) fields.emplace_back(key, field(key));
  std::optional<Stream> together;
  for (const Stream& stream : streams) {
    const Stream part = stream.project(fields);
    together = together ? together->unite(part) : part;
  }
  return together->hopping(1, within)
      .aggregate(keys, {events::count()})
      .select(field("count") <= most);
}

}  // namespace troupe::events
