#include <troupe/actors/events/table.hpp>

#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

namespace troupe::events {

void History::add(const Batch& batch) {
  for (std::size_t i = 0; i < batch.size(); ++i)
    messages_.push_back({batch.key[i], batch.begin[i], batch.end[i], batch.is_insert(i),
                         batch.is_insert(i) ? batch.row(i) : Row()});
  guarantee_ = std::max(guarantee_, batch.guarantee);
}

Table canonical(const History& history, Time to) {
  std::unordered_map<Key, Time> ends;
  for (const History::Message& m : history.messages()) {
    const auto [it, is_new] = ends.try_emplace(m.key, m.end);
    if (!is_new) it->second = std::min(it->second, m.end);
  }
  Table table;
  for (const History::Message& m : history.messages()) {
    if (!m.is_insert || m.begin > to) continue;
    const Time end = std::min(ends.at(m.key), later(to, 1));
    if (m.begin < end) table.push_back({m.begin, end, m.payload});
  }
  std::sort(table.begin(), table.end());
  return table;
}

Table canonical_at(const History& history, Time at) {
  Table table;
  for (Lived& row : canonical(history))
    if (row.begin <= at && at < row.end)
      table.push_back({at, later(at, 1), std::move(row.payload)});
  std::sort(table.begin(), table.end());
  return table;
}

Table coalesce(Table table) {
  std::sort(table.begin(), table.end(), [](const Lived& a, const Lived& b) {
    return std::tie(a.payload, a.begin, a.end) < std::tie(b.payload, b.begin, b.end);
  });
  Table out;
  for (Lived& row : table) {
    if (!out.empty() && out.back().payload == row.payload && row.begin <= out.back().end)
      out.back().end = std::max(out.back().end, row.end);
    else out.push_back(std::move(row));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Table normal(const Table& table) {
  std::map<Row, std::map<Time, int>> changes;
  for (const Lived& row : table)
    if (row.begin < row.end) ++changes[row.payload][row.begin], --changes[row.payload][row.end];
  Table out;
  for (const auto& [payload, steps] : changes) {
    Time since = kNever;
    int alive = 0;
    for (const auto& [at, step] : steps) {
      if (step == 0) continue;
      for (int i = 0; i < alive; ++i) out.push_back({since, at, payload});
      since = at;
      alive += step;
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_equivalent_to(const History& a, const History& b, Time to) {
  return normal(canonical(a, to)) == normal(canonical(b, to));
}

bool is_equivalent_at(const History& a, const History& b, Time at) {
  return canonical_at(a, at) == canonical_at(b, at);
}

Table per_window(const Table& snapshots, Time hop, Time size) {
  Table out;
  for (const Lived& row : snapshots)
    for (Time at = row.begin; at < row.end; at += hop)
      out.push_back({at + hop - size, at + hop, row.payload});
  std::sort(out.begin(), out.end());
  return out;
}

std::string text_of(const Table& table) {
  std::string out;
  for (const Lived& row : table)
    out +=
        fmt::format("{}[{},{}):{}", out.empty() ? "" : " ", row.begin,
                    row.end == kForever ? "inf" : fmt::format("{}", row.end), text_of(row.payload));
  return out;
}

}  // namespace troupe::events
