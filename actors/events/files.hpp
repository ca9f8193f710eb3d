// Events in files of CSV and JSON lines, and rows of outputs in both forms.
//
//   FileEvents trades = events_of_file("trades.csv", text);
//   feed_files(run, query, {{"trades", trades}});
//   RowWriter writer(schema, RowForm::changes, FileKind::csv);  writer.add(batch);  writer.take();
//
// A line is a point event at the time of its column `time`; if there are columns `begin` and `end`,
// an event of this lifetime, and an empty end is forever. With the columns `change` and `key` the
// file is a **changelog**: `insert` and `retract` of the same key, in order of arrival; the new end
// of a retraction is in `end`. The other columns are the payload. Lines are in any order.
//
// CSV: a header, quotes as in RFC 4180. A name in the header may carry its type, `price:real`;
// otherwise a column of whole numbers is integer, one of finite numbers real, else text. A column
// that the header declares real may hold inf and nan. JSON lines: an object on a line, with equal
// fields on all lines; true and false are 1 and 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/running_query.hpp>
#include <troupe/actors/events/table.hpp>

namespace troupe::events {

enum class FileKind : std::uint8_t { csv, json_lines };
/// By the end of the name: `.jsonl`, `.ndjson` and `.json` are JSON lines, all else CSV.
FileKind kind_of_file(const std::string& name);

struct FileEvents {
  Schema schema;
  Batch messages;                // any number, in the order of the lines
  std::vector<Time> guarantees;  // by message: nothing with this sync or less follows it
};

/// Reads a file. Throws Error (data_loss) that names the line, and the column where it has one.
/// `time`: the column of times.
FileEvents events_of_file(FileKind kind, const std::string& text, const std::string& time = "time");

/// Feeds files to the sources of these names, in the order of time between files and of lines in a
/// file, and ends the query.
void feed_files(DirectRun& run, const Query& query, const std::map<std::string, FileEvents>& files);
void feed_files(RunningQuery& run, const Query& query,
                const std::map<std::string, FileEvents>& files);

enum class RowForm : std::uint8_t { changes, table };

/// Writes rows of one output. `changes`: a line for each message as it comes, in the form that
/// events_of_file reads. `table`: the rows that hold at last, in order of time.
class RowWriter {
 public:
  /// `output`: its name as a first field of each line; empty: none. Throws Error (invalid_argument)
  /// for a field of the name of one that the writer adds.
  RowWriter(Schema schema, RowForm form, FileKind kind, std::string output = "");
  void add(const Batch& batch);
  /// Returns the lines since the last call; those of a table when the output has ended.
  std::string take();

 private:
  void write(const char* change, Key key, Time begin, Time end, const Row& row);

  const Schema schema_;
  const RowForm form_;
  const FileKind kind_;
  const std::string output_;
  History history_;  // for a table
  std::string text_;
};

}  // namespace troupe::events
