#include <troupe/actors/events/occurrence.hpp>

#include <algorithm>

namespace troupe::events {
namespace {

Schema occurrence_schema(const Schema& schema, bool keeps_occurrence) {
  std::vector<Field> fields = schema.fields();
  if (keeps_occurrence) fields.push_back({"occurrence", Type::integer});
  return Schema(std::move(fields));
}

}  // namespace

OccurrenceIngress::OccurrenceIngress(const Schema& schema, bool keeps_occurrence)
    : schema_(occurrence_schema(schema, keeps_occurrence)), keeps_occurrence_(keeps_occurrence) {}

void OccurrenceIngress::add(std::uint64_t fact, Time begin, Time end, Time occurrence,
                            const Row& payload, Batch& batch) {
  Row row = payload;
  if (keeps_occurrence_) row.emplace_back(occurrence);
  const auto it = facts_.find(fact);
  const auto is_past = [this](Time sync) {
    return guarantee_ == kForever || (guarantee_ != kNever && sync <= guarantee_);
  };
  if (it == facts_.end() && begin < end && is_past(begin)) {
    ++overtaken_;
    return;
  }
  if (it != facts_.end()) {
    Fact& known = it->second;
    const bool lives = known.begin < known.end;
    const bool shortens =
        lives && begin == known.begin && end <= known.end && begin < end && row == known.payload;
    const bool is_too_late =
        shortens ? end < known.end && is_past(end)
                 : (lives && is_past(known.begin)) || (begin < end && is_past(begin));
    if (occurrence < known.occurrence || is_too_late) {
      ++overtaken_;
      return;
    }
    known.occurrence = occurrence;
    if (shortens) {
      if (end < known.end) batch.retract(known.key, end);
      known.end = end;
      return;
    }
    if (lives) batch.retract(known.key, known.begin);
    known.end = known.begin;
  }
  if (begin >= end) {
    if (it == facts_.end()) facts_.emplace(fact, Fact{0, begin, begin, occurrence, {}});
    return;
  }
  const Key key = next_++;
  batch.insert(key, begin, end, row);
  facts_.insert_or_assign(fact, Fact{key, begin, end, occurrence, std::move(row)});
}

void OccurrenceIngress::guarantee(Time g, Batch& batch) {
  batch.guarantee = g;
  guarantee_ = std::max(guarantee_, g);
  std::erase_if(facts_, [g](const auto& entry) {
    const Fact& fact = entry.second;
    return is_settled(fact.end, g) && is_settled(later(fact.begin, 1), g);
  });
}

}  // namespace troupe::events
