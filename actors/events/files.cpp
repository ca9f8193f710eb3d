#include <troupe/actors/events/files.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::events {
namespace {

using file_json = nlohmann::ordered_json;

[[noreturn]] void file_refuse(std::size_t line, const std::string& sentence) {
  throw Error(Code::data_loss, fmt::format("line {}: {}", line, sentence));
}

template <class T>
std::optional<T> file_number(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// Cells as text, before types are known.
struct FileTable {
  struct Column {
    std::string name;
    std::optional<Type> type;  // if the file gives it
  };
  struct Line {
    std::size_t number;
    std::vector<std::string> cells;
  };
  std::vector<Column> columns;
  std::vector<Line> lines;
};

/// Reads the fields of CSV, with quotes, up to the end of a line.
class CsvReader {
 public:
  explicit CsvReader(const std::string& text) : text_(text) {}
  bool is_at_end() const { return at_ >= text_.size(); }
  std::size_t line() const { return line_; }

  std::vector<std::string> record() {
    std::vector<std::string> cells;
    do cells.push_back(text_.compare(at_, 1, "\"") == 0 ? quoted() : plain());
    while (accept(','));
    accept('\r');
    if (!is_at_end() && !accept('\n'))
      file_refuse(line_, "a quote ends before its cell does; double quotes inside");
    ++line_;
    return cells;
  }

 private:
  bool accept(char c) { return at_ < text_.size() && text_[at_] == c && (++at_, true); }
  std::string plain() {
    const std::size_t begin = at_;
    while (!is_at_end() && text_[at_] != ',' && text_[at_] != '\n') ++at_;
    std::size_t end = at_;
    if (end > begin && text_[end - 1] == '\r') --end;
    return text_.substr(begin, end - begin);
  }
  std::string quoted() {
    const std::size_t begin = line_;
    std::string cell;
    for (++at_; !is_at_end(); ++at_) {
      if (text_[at_] == '"' && text_.compare(at_ + 1, 1, "\"") != 0) {
        ++at_;
        return cell;
      }
      if (text_[at_] == '"') ++at_;
      if (text_[at_] == '\n') ++line_;
      cell += text_[at_];
    }
    file_refuse(begin, "a quote is not closed; close it");
  }

  const std::string& text_;
  std::size_t at_ = 0, line_ = 1;
};

FileTable::Column file_column(const std::string& header) {
  for (const Type type : {Type::integer, Type::real, Type::text}) {
    const std::string suffix = fmt::format(":{}", name_of(type));
    if (header.ends_with(suffix)) return {header.substr(0, header.size() - suffix.size()), type};
  }
  return {header, std::nullopt};
}

FileTable file_of_csv(const std::string& text) {
  FileTable table;
  CsvReader reader(text);
  if (reader.is_at_end()) file_refuse(1, "the file is empty; give it a header");
  for (const std::string& cell : reader.record()) table.columns.push_back(file_column(cell));
  while (!reader.is_at_end()) {
    const std::size_t number = reader.line();
    std::vector<std::string> cells = reader.record();
    if (cells.size() == 1 && cells[0].empty() && table.columns.size() > 1) continue;  // blank
    if (cells.size() != table.columns.size())
      file_refuse(number, fmt::format("there are {} cells and {} columns; give one for each",
                                      cells.size(), table.columns.size()));
    table.lines.push_back({number, std::move(cells)});
  }
  return table;
}

/// Returns a value as a cell, and widens the type of its column to it.
std::string file_cell(const file_json& value, std::optional<Type>& type, std::size_t line,
                      const std::string& name) {
  if (name == "end" && (value.is_null() || value == "forever")) return "";
  Type own = Type::text;
  std::string cell;
  if (value.is_string()) {
    cell = value.get<std::string>();
  } else if (value.is_boolean()) {
    own = Type::integer;
    cell = value.get<bool>() ? "1" : "0";
  } else if (value.is_number()) {
    own = value.is_number_float() ? Type::real : Type::integer;
    cell = value.dump();
  } else {
    file_refuse(line,
                fmt::format("the field '{}' is no text, number or boolean; flatten it", name));
  }
  const bool mixes = type && *type != own;
  if (mixes && (*type == Type::text || own == Type::text))
    file_refuse(line, fmt::format("the field '{}' is {} here and {} above; give it one type", name,
                                  name_of(own), name_of(*type)));
  type = mixes ? Type::real : own;
  return cell;
}

FileTable file_of_json(const std::string& text) {
  FileTable table;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    constexpr int kDeepestLine = 8;
    const auto is_shallow = [&](int depth, file_json::parse_event_t, const file_json&) {
      if (depth > kDeepestLine) file_refuse(number, "the object is nested; flatten it");
      return true;
    };
    const file_json object = [&] {
      try {
        return file_json::parse(line, is_shallow);
      } catch (const file_json::exception&) {
        file_refuse(number, "this is no JSON; give an object on each line");
      }
    }();
    if (!object.is_object()) file_refuse(number, "this is no object; give one on each line");
    if (table.columns.empty())
      for (const auto& [name, value] : object.items()) table.columns.push_back({name, {}});
    FileTable::Line& made = table.lines.emplace_back(FileTable::Line{number, {}});
    for (FileTable::Column& column : table.columns) {
      const auto value = object.find(column.name);
      if (value == object.end())
        file_refuse(number, fmt::format("the field '{}' of the first line is missing; add it",
                                        column.name));
      made.cells.push_back(file_cell(*value, column.type, number, column.name));
    }
    if (object.size() != table.columns.size())
      file_refuse(number,
                  fmt::format("there are {} fields and {} on the first line; make them equal",
                              object.size(), table.columns.size()));
  }
  if (table.columns.empty()) file_refuse(1, "the file is empty; give it a line");
  return table;
}

/// Returns the narrowest type that all cells of a column have.
Type file_type(const FileTable& table, std::size_t column) {
  bool is_integer = true, is_real = true;
  for (const FileTable::Line& line : table.lines) {
    is_integer = is_integer && file_number<std::int64_t>(line.cells[column]);
    const auto real = file_number<double>(line.cells[column]);
    is_real = is_real && (is_integer || (real && std::isfinite(*real)));  // a name may be `inf`
    if (!is_real) return Type::text;
  }
  return is_integer ? Type::integer : Type::real;
}

Value file_value(const FileTable::Line& line, std::size_t column, Type type,
                 const std::string& name) {
  const std::string& cell = line.cells[column];
  if (type == Type::text) return cell;
  if (type == Type::integer) {
    if (const auto value = file_number<std::int64_t>(cell)) return *value;
  } else if (const auto value = file_number<double>(cell)) {
    return *value;
  }
  file_refuse(line.number, fmt::format("'{}' of column '{}' is not {}; write a number or change "
                                       "the type",
                                       cell.substr(0, 40), name, name_of(type)));
}

/// Columns of times and changes.
struct FilePlaces {
  std::optional<std::size_t> time, begin, end, change, key;
  std::string time_name;
  bool has(std::size_t column) const {
    for (const auto& place : {time, begin, end, change, key})
      if (place == column) return true;
    return false;
  }
};

FilePlaces file_places(const FileTable& table, const std::string& time) {
  const auto place = [&](const std::string& name) -> std::optional<std::size_t> {
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      if (table.columns[c].name == name) return c;
    return std::nullopt;
  };
  FilePlaces places;
  places.begin = place("begin");
  places.end = place("end");
  if (places.begin && places.end) {
    places.change = place("change");
    places.key = place("key");
    if (places.change && places.key) return places;
    places.change = places.key = std::nullopt;
    return places;
  }
  places.begin = places.end = std::nullopt;
  places.time = place(time);
  places.time_name = time;
  if (places.time) return places;
  std::string names;
  for (const FileTable::Column& column : table.columns)
    names += (names.empty() ? "" : ", ") + column.name;
  file_refuse(1, fmt::format("there is no column '{}', nor begin and end; name the column of times "
                             "out of {}",
                             time, names));
}

std::int64_t file_integer(const FileTable::Line& line, std::size_t column, const char* name) {
  return std::get<std::int64_t>(file_value(line, column, Type::integer, name));
}

Time file_time(const FileTable::Line& line, std::size_t column, const char* name) {
  const Time time = file_integer(line, column, name);
  if (time < kForever) return time;
  file_refuse(line.number, fmt::format("'{}' is {}, which stands for forever; write an earlier "
                                       "time, or leave an end empty",
                                       name, time));
}

void file_message(const FileTable::Line& line, const FilePlaces& places, Key key, const Row& row,
                  Batch& messages) {
  if (places.time) {
    const Time at = file_time(line, *places.time, places.time_name.c_str());
    return messages.insert(key, at, later(at, 1), row);
  }
  const Time begin = file_time(line, *places.begin, "begin");
  const Time end = line.cells[*places.end].empty() || line.cells[*places.end] == "forever"
                       ? kForever
                       : file_time(line, *places.end, "end");
  if (!places.change) return messages.insert(key, begin, end, row);
  key = static_cast<Key>(file_integer(line, *places.key, "key"));
  const std::string& change = line.cells[*places.change];
  if (change == "insert") return messages.insert(key, begin, end, row);
  if (change == "retract") return messages.retract(key, end);
  file_refuse(line.number,
              fmt::format("the change is '{}'; write insert or retract", change.substr(0, 40)));
}

}  // namespace

FileKind kind_of_file(const std::string& name) {
  for (const char* suffix : {".jsonl", ".ndjson", ".json"})
    if (name.ends_with(suffix)) return FileKind::json_lines;
  return FileKind::csv;
}

FileEvents events_of_file(FileKind kind, const std::string& text, const std::string& time) {
  const std::string sound = text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
  const FileTable table = kind == FileKind::csv ? file_of_csv(sound) : file_of_json(sound);
  const FilePlaces places = file_places(table, time);
  std::vector<Field> fields;
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (places.has(c)) continue;
    columns.push_back(c);
    const auto& [name, type] = table.columns[c];
    fields.push_back({name, type ? *type : file_type(table, c)});
  }
  FileEvents file{Schema(std::move(fields)), {}, {}};
  file.messages = Batch(file.schema);
  Key key = 0;
  Row row(columns.size());
  for (const FileTable::Line& line : table.lines) {
    for (std::size_t f = 0; f < columns.size(); ++f)
      row[f] = file_value(line, columns[f], file.schema[f].type, file.schema[f].name);
    file_message(line, places, ++key, row, file.messages);
  }
  file.guarantees.resize(file.messages.size());
  Time least = kForever;
  for (std::size_t i = file.guarantees.size(); i-- > 0;) {
    const bool is_last = i + 1 == file.guarantees.size();
    // a retraction to forever may follow
    file.guarantees[i] = is_last ? kForever : std::min(before(least), kForever - 1);
    least = std::min(least, file.messages.sync(i));
  }
  return file;
}

namespace {

/// Calls `feed(source, batch)` with all messages of the files, in the order of time between them.
template <class Feed>
void file_feeds(const Query& query, const std::map<std::string, FileEvents>& files, Feed feed_one) {
  constexpr std::size_t kMostFed = 256;  // messages of one file before another may go on
  struct Source {
    std::size_t source;
    const FileEvents* file;
    std::size_t next = 0;
    Time at = kNever;  // largest sync so far
  };
  std::vector<Source> feeds;
  for (const auto& [name, file] : files) feeds.push_back({query.source_index(name), &file});
  for (;;) {
    Source* first = nullptr;
    Time other = kForever;  // up to which the first may go
    for (Source& feed : feeds) {
      if (feed.next == feed.file->messages.size()) continue;
      const Time at = std::max(feed.at, feed.file->messages.sync(feed.next));
      if (!first || at < first->at) {
        if (first) other = std::min(other, first->at);
        first = &feed;
        first->at = at;
      } else {
        other = std::min(other, at);
      }
    }
    if (!first) break;
    Batch batch(first->file->schema);
    const Batch& from = first->file->messages;
    do {
      first->at = std::max(first->at, from.sync(first->next));
      batch.append(from, first->next);
      batch.guarantee = first->file->guarantees[first->next++];
    } while (first->next < from.size() && batch.size() < kMostFed &&
             from.sync(first->next) <= other);
    feed_one(first->source, std::move(batch));
  }
}

}  // namespace

void feed_files(DirectRun& run, const Query& query,
                const std::map<std::string, FileEvents>& files) {
  file_feeds(query, files,
             [&](std::size_t source, Batch batch) { run.feed(source, std::move(batch)); });
  run.finish();
}

void feed_files(RunningQuery& run, const Query& query,
                const std::map<std::string, FileEvents>& files) {
  file_feeds(query, files, [&](std::size_t source, Batch batch) {
    run.feed(query.sources()[source].name, std::move(batch));
  });
  run.finish();
}

// ---- rows --------------------------------------------------------------------------------------

namespace {

std::string file_quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string file_written(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text ? file_quoted(*text) : text_of(value);
}

}  // namespace

RowWriter::RowWriter(Schema schema, RowForm form, FileKind kind, std::string output)
    : schema_(std::move(schema)), form_(form), kind_(kind), output_(std::move(output)) {
  std::vector<const char*> own{"begin", "end"};
  if (form_ == RowForm::changes) own.insert(own.end(), {"change", "key"});
  if (!output_.empty()) own.push_back("output");
  for (const char* name : own)
    if (schema_.has(name))
      throw Error(Code::invalid_argument,
                  fmt::format("a row has a field '{}' beside its own '{}'; rename it", name, name));
  if (kind_ != FileKind::csv) return;
  if (!output_.empty()) text_ = "output,";
  text_ += form_ == RowForm::changes ? "change,key,begin,end" : "begin,end";
  for (const Field& field : schema_.fields())
    text_ += fmt::format(",{}", file_quoted(fmt::format("{}:{}", field.name, name_of(field.type))));
  text_ += "\n";
}

void RowWriter::add(const Batch& batch) {
  if (form_ == RowForm::table) return history_.add(batch);
  for (std::size_t i = 0; i < batch.size(); ++i)
    write(batch.is_insert(i) ? "insert" : "retract", batch.key[i], batch.begin[i], batch.end[i],
          batch.row(i));
}

std::string RowWriter::take() {
  if (form_ == RowForm::table && history_.guarantee() == kForever) {
    for (const Lived& row : canonical(history_)) write("", 0, row.begin, row.end, row.payload);
    history_ = {};
  }
  return std::exchange(text_, "");
}

void RowWriter::write(const char* change, Key key, Time begin, Time end, const Row& row) {
  const bool has_change = form_ == RowForm::changes;
  if (kind_ == FileKind::csv) {
    if (!output_.empty()) text_ += file_quoted(output_) + ",";
    if (has_change) text_ += fmt::format("{},{},", change, key);
    text_ += end == kForever ? fmt::format("{},", begin) : fmt::format("{},{}", begin, end);
    for (const Value& value : row) text_ += "," + file_written(value);
    text_ += "\n";
    return;
  }
  nlohmann::json object;
  if (!output_.empty()) object["output"] = output_;
  if (has_change) {
    object["change"] = change;
    object["key"] = key;
  }
  object["begin"] = begin;
  object["end"] = end == kForever ? nlohmann::json("forever") : nlohmann::json(end);
  for (std::size_t f = 0; f < schema_.size(); ++f)
    object[schema_[f].name] = std::visit([](const auto& v) { return nlohmann::json(v); }, row[f]);
  text_ += json_text(object) + "\n";
}

}  // namespace troupe::events
