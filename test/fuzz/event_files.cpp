// libFuzzer: files of events, CSV or JSON lines by the first byte. A file is read or refused; rows
// of a query over it, written as changes, are read again and hold at the same times. Instruments:
// actors/events/files.cpp actors/events/align.cpp actors/events/finalize.cpp
// actors/events/batch.cpp actors/events/table.cpp
#include <troupe/actors/events/files.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::events;
using namespace troupe::test;

namespace {

constexpr const char* kFiles[] = {
    "time,symbol,price:real\n1,abc,2.5\n3,\"a, \"\"b\"\"\",inf\n",
    "change,key,begin,end,n\ninsert,1,0,,7\nretract,1,,4,7\ninsert,2,5,9,-1\n",
    "begin,end,n:integer,s:text\r\n0,5,1,1\r\n2,,3,\r\n",
    "{\"time\": 1, \"symbol\": \"a\", \"n\": 2, \"is\": true}\n{\"time\": 0, \"symbol\": "
    "\"\\u00e9\", \"n\": -3, \"is\": false}\n",
    "{\"change\": \"insert\", \"key\": 1, \"begin\": 0, \"end\": null, \"v\": 1.5}\n{\"change\": "
    "\"retract\", \"key\": 1, \"begin\": 0, \"end\": 4, \"v\": 1.5}\n"};

Query query_of(const Schema& schema) {
  Query q;
  q.output("rows", q.source("events", schema));
  return q;
}

Table table_of(const FileEvents& file, std::string& changes, FileKind kind) {
  const Query q = query_of(file.schema);
  RowWriter writer(file.schema, RowForm::changes, kind);
  History rows;
  DirectRun run(q, [&](std::size_t, const Batch& batch) {
    rows.add(batch);
    writer.add(batch);
  });
  feed_files(run, q, {{"events", file}});
  changes = writer.take();
  return canonical(rows);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (std::size_t f = 0; f < std::size(kFiles); ++f)
    seed(std::string(1, f < 3 ? '\0' : '\1') + kFiles[f]);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input input(data, size);
  const FileKind kind = input.next() % 2 == 0 ? FileKind::csv : FileKind::json_lines;
  FileEvents file;
  std::string changes, again;
  Table table;
  try {
    file = events_of_file(kind, input.rest());
    demand(file.guarantees.size() == file.messages.size());
    table = table_of(file, changes, kind);
  } catch (const Error&) { return 0; }
  if (table.empty()) return 0;
  const FileEvents written = events_of_file(kind, changes);
  demand(written.schema.size() == file.schema.size());
  // JSON has one kind of number
  if (written.schema == file.schema) demand(table_of(written, again, kind).size() == table.size());
  return 0;
}
