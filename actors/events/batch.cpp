#include <troupe/actors/events/batch.hpp>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

template <class T>
void batch_join(std::vector<T>& to, std::vector<T>&& from) {
  if (to.empty()) to = std::move(from);
  else
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

template <class T>
void batch_gather(std::vector<T>& to, const std::vector<T>& from,
                  std::span<const std::uint32_t> rows) {
  const std::size_t old = to.size();
  to.resize(old + rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) to[old + i] = from[rows[i]];
}

template <class T>
void batch_keep(std::vector<T>& values, const std::vector<std::uint8_t>& marks) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (marks[i]) {
      if (kept != i) values[kept] = std::move(values[i]);
      ++kept;
    }
  values.resize(kept);
}

}  // namespace

Column column_of(Type type) {
  if (type == Type::integer) return std::vector<std::int64_t>();
  if (type == Type::real) return std::vector<double>();
  return std::vector<std::string>();
}

Batch::Batch(const Schema& schema) {
  columns.reserve(schema.size());
  for (const Field& field : schema.fields()) columns.push_back(column_of(field.type));
}

Row Batch::row(std::size_t i) const {
  Row row;
  row.reserve(columns.size());
  for (const Column& column : columns) row.push_back(value_at(column, i));
  return row;
}

void Batch::add(Key k, Time from, Time to, Time old, const Row* payload) {
  if (payload && payload->size() != columns.size())
    throw Error(Code::invalid_argument,
                fmt::format("an event has {} fields and the schema {}; give one value a field",
                            payload->size(), columns.size()));
  for (std::size_t c = 0; payload && c < columns.size(); ++c)
    if ((*payload)[c].index() != columns[c].index())
      throw Error(Code::invalid_argument,
                  fmt::format("field {} of an event is {} and the schema has {}; convert it", c,
                              name_of(type_of((*payload)[c])),
                              name_of(static_cast<Type>(columns[c].index()))));
  key.push_back(k);
  begin.push_back(from);
  end.push_back(to);
  old_end.push_back(old);
  for (std::size_t c = 0; c < columns.size(); ++c)
    std::visit(
        [&](auto& values) {
          using T = typename std::decay_t<decltype(values)>::value_type;
          if (payload) values.push_back(std::get<T>((*payload)[c]));
          else values.emplace_back();
        },
        columns[c]);
}

void Batch::insert(Key k, Time from, Time to, const Row& payload) {
  add(k, from, to, kInsert, &payload);
}
void Batch::retract(Key k, Time new_end) { add(k, new_end, new_end, kForever, nullptr); }
void Batch::shrink(Key k, Time from, Time to, Time old, const Row& payload) {
  add(k, from, to, old, &payload);
}

void Batch::append_times(const Batch& other, std::size_t i) {
  key.push_back(other.key[i]);
  begin.push_back(other.begin[i]);
  end.push_back(other.end[i]);
  old_end.push_back(other.old_end[i]);
}

void Batch::append(const Batch& other, std::size_t i) {
  append_times(other, i);
  for (std::size_t c = 0; c < columns.size(); ++c)
    std::visit(
        [&](auto& values) {
          values.push_back(std::get<std::decay_t<decltype(values)>>(other.columns[c])[i]);
        },
        columns[c]);
}

void Batch::append(const Batch& other, std::span<const std::uint32_t> rows) {
  batch_gather(key, other.key, rows);
  batch_gather(begin, other.begin, rows);
  batch_gather(end, other.end, rows);
  batch_gather(old_end, other.old_end, rows);
  for (std::size_t c = 0; c < columns.size(); ++c)
    std::visit(
        [&](auto& values) {
          batch_gather(values, std::get<std::decay_t<decltype(values)>>(other.columns[c]), rows);
        },
        columns[c]);
}

void Batch::append(Batch&& other) {
  guarantee = std::max(guarantee, other.guarantee);
  batch_join(key, std::move(other.key));
  batch_join(begin, std::move(other.begin));
  batch_join(end, std::move(other.end));
  batch_join(old_end, std::move(other.old_end));
  for (std::size_t c = 0; c < columns.size(); ++c)
    std::visit(
        [&](auto& values) {
          batch_join(values, std::move(std::get<std::decay_t<decltype(values)>>(other.columns[c])));
        },
        columns[c]);
}

void Batch::keep(const std::vector<std::uint8_t>& marks) {
  batch_keep(key, marks);
  batch_keep(begin, marks);
  batch_keep(end, marks);
  batch_keep(old_end, marks);
  for (Column& column : columns)
    std::visit([&](auto& values) { batch_keep(values, marks); }, column);
}

void Batch::reserve(std::size_t n) {
  key.reserve(n);
  begin.reserve(n);
  end.reserve(n);
  old_end.reserve(n);
  for (Column& column : columns) std::visit([n](auto& values) { values.reserve(n); }, column);
}

void Batch::clear() {
  key.clear();
  begin.clear();
  end.clear();
  old_end.clear();
  for (Column& column : columns) std::visit([](auto& values) { values.clear(); }, column);
}

std::string text_of(const Batch& batch) {
  std::string out;
  const auto time = [](Time t) {
    return t == kForever ? std::string("inf") : t == kNever ? "-inf" : fmt::format("{}", t);
  };
  for (std::size_t i = 0; i < batch.size(); ++i)
    out += batch.is_insert(i)
               ? fmt::format("I({},[{},{}):{})\n", batch.key[i], time(batch.begin[i]),
                             time(batch.end[i]), text_of(batch.row(i)))
               : fmt::format("R({},{})\n", batch.key[i], time(batch.end[i]));
  if (batch.guarantee != kNever) out += fmt::format("G({})\n", time(batch.guarantee));
  return out;
}

void check_schema(const Batch& batch, const Schema& schema, const std::string& name) {
  bool fits = batch.columns.size() == schema.size();
  for (std::size_t c = 0; fits && c < schema.size(); ++c)
    fits = batch.columns[c].index() == static_cast<std::size_t>(schema[c].type);
  if (fits) return;
  std::string have;
  for (const Column& column : batch.columns)
    have +=
        fmt::format("{}{}", have.empty() ? "" : ", ", name_of(static_cast<Type>(column.index())));
  throw Error(Code::invalid_argument,
              fmt::format("{} takes events of {} and was given ({}); build batches with its schema",
                          name, schema.text(), have));
}

}  // namespace troupe::events
