#include <troupe/actors/events/join.hpp>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

Schema join_schema(const Schema& left, const Schema& right,
                   const std::vector<std::string>& right_keys) {
  std::vector<Field> fields = left.fields();
  for (const Field& field : right.fields()) {
    if (std::find(right_keys.begin(), right_keys.end(), field.name) != right_keys.end()) continue;
    fields.push_back({left.has(field.name) ? field.name + "_right" : field.name, field.type});
  }
  return Schema(std::move(fields));
}

void join_push(Column& column, const Value& value) {
  std::visit(
      [&](auto& values) {
        values.push_back(std::get<typename std::decay_t<decltype(values)>::value_type>(value));
      },
      column);
}

}  // namespace

Join::Join(std::string name, const Schema& left, const Schema& right,
           const std::vector<std::string>& left_keys, const std::vector<std::string>& right_keys,
           KeySource keys)
    : Operator(std::move(name), join_schema(left, right, right_keys), 2),
      key_columns_{columns_of(left, left_keys), columns_of(right, right_keys)}, keys_(keys) {
  bool is_fit = left_keys.size() == right_keys.size();
  for (std::size_t k = 0; is_fit && k < left_keys.size(); ++k)
    is_fit = left[key_columns_[0][k]].type == right[key_columns_[1][k]].type;
  if (!is_fit)
    throw Error(Code::invalid_argument,
                fmt::format("{} compares keys of {} with keys of {} that differ in number or type; "
                            "name pairs of one type",
                            this->name(), left.text(), right.text()));
  for (std::size_t c = 0; c < right.size(); ++c)
    if (std::find(key_columns_[1].begin(), key_columns_[1].end(), c) == key_columns_[1].end())
      right_columns_.push_back(c);
}

void Join::process(std::size_t input, Batch batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    read_columns(batch, key_columns_[input], i, key_);
    Bucket& bucket = buckets_[key_];
    if (batch.is_insert(i)) insert(input, bucket, batch, i);
    else retract(input, bucket, batch, i);
  }
  count_state(events_);
}

void Join::send(Key key, Time begin, Time end, Time old_end, const Entry& left,
                const Entry& right) {
  Batch& out = output();
  out.key.push_back(key);
  out.begin.push_back(begin);
  out.end.push_back(end);
  out.old_end.push_back(old_end);
  for (std::size_t c = 0; c < left.row.size(); ++c) join_push(out.columns[c], left.row[c]);
  for (std::size_t c = 0; c < right_columns_.size(); ++c)
    join_push(out.columns[left.row.size() + c], right.row[right_columns_[c]]);
}

void Join::insert(std::size_t input, Bucket& bucket, const Batch& batch, std::size_t i) {
  Entry entry{batch.key[i], batch.begin[i], batch.end[i], batch.row(i), {}};
  std::vector<Entry>& others = bucket.sides[1 - input];
  forget(others, guarantee());
  for (const Entry& other : others) {
    const Time begin = std::max(entry.begin, other.begin), end = std::min(entry.end, other.end);
    if (begin >= end) continue;
    const Key key = keys_.next();
    entry.made.push_back({other.key, key});
    send(key, begin, end, Batch::kInsert, input == 0 ? entry : other, input == 0 ? other : entry);
  }
  bucket.sides[input].push_back(std::move(entry));
  ++events_;
}

const Key* Join::made_by(const Entry& later, const Entry& earlier) {
  for (const Made& made : later.made)
    if (made.partner == earlier.key) return &made.key;
  return nullptr;
}

void Join::retract(std::size_t input, Bucket& bucket, const Batch& batch, std::size_t i) {
  std::vector<Entry>& side = bucket.sides[input];
  const auto it =
      std::find_if(side.begin(), side.end(), [&](const Entry& e) { return e.key == batch.key[i]; });
  if (it == side.end()) return;  // nothing that lives can meet it
  for (const Entry& other : bucket.sides[1 - input]) {
    const Time begin = std::max(it->begin, other.begin), old = std::min(it->end, other.end);
    const Time end = std::max(begin, std::min(batch.end[i], other.end));
    if (begin >= old || end >= old) continue;
    const Key* key = made_by(*it, other);
    if (!key) key = made_by(other, *it);
    if (key) send(*key, begin, end, old, input == 0 ? *it : other, input == 0 ? other : *it);
  }
  it->end = batch.end[i];
  if (it->end > it->begin) return;
  *it = std::move(side.back());
  side.pop_back();
  --events_;
}

void Join::forget(std::vector<Entry>& side, Time g) {
  if (g == kNever) return;
  for (std::size_t i = 0; i < side.size();) {
    if (!is_settled(side[i].end, g)) {
      ++i;
      continue;
    }
    if (i + 1 != side.size()) side[i] = std::move(side.back());
    side.pop_back();
    --events_;
  }
}

Time Join::advance(Time g) {
  if (g != kForever && events_ < 2 * swept_ + 64) return g;
  for (auto it = buckets_.begin(); it != buckets_.end();) {
    for (std::vector<Entry>& side : it->second.sides) forget(side, g);
    const bool is_empty = it->second.sides[0].empty() && it->second.sides[1].empty();
    it = is_empty ? buckets_.erase(it) : std::next(it);
  }
  swept_ = events_;
  count_state(events_);
  return g;
}

}  // namespace troupe::events
