// Not under tsan: it has one thread; running_query_test has several.
// Files of events: types, lifetimes, changelogs, errors; rows written and read again.
#include <troupe/actors/events/files.hpp>

#include <boost/test/unit_test.hpp>

#include <limits>
#include <random>

#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_files_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

std::string refused(FileKind kind, const std::string& text) {
  return refusal([&] { events_of_file(kind, text); }, Code::data_loss);
}
}  // namespace

BOOST_AUTO_TEST_CASE(csv_types_are_found) {
  const FileEvents file = events_of_file(
      FileKind::csv, "a,time,b,c,d:real\n1,7,1.5,\"x,\"\"y\"\"\n\",1\r\n-2,3,2,nan,2\n");
  BOOST_TEST(file.schema.text() == "(a integer, b real, c text, d real)");
  BOOST_TEST(text_of(file.messages) ==
             "I(1,[7,8):(1, 1.5, \"x,\"y\"\n\", 1))\nI(2,[3,4):(-2, 2, \"nan\", 2))\n");
  BOOST_TEST(file.guarantees == (std::vector<Time>{2, kForever}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(json_lines_have_equal_fields) {
  const FileEvents file =
      events_of_file(FileKind::json_lines,
                     "{\"begin\":1,\"end\":\"forever\",\"on\":true,\"r\":1,\"s\":\"x\"}\n\n"
                     "{\"s\":\"y\",\"r\":0.5,\"on\":false,\"end\":9,\"begin\":4}\n");
  BOOST_TEST(file.schema.text() == "(on integer, r real, s text)");
  BOOST_TEST(text_of(file.messages) == "I(1,[1,inf):(1, 1, \"x\"))\nI(2,[4,9):(0, 0.5, \"y\"))\n");
}

BOOST_AUTO_TEST_CASE(changes_are_read_again) {
  const Schema schema{{"n", Type::integer}, {"s", Type::text}, {"r", Type::real}};
  Batch batch(schema);
  batch.insert(7, 1, kForever, {in(5), tx("a,\"b\n"), Value(2.5)});
  batch.insert(9, 3, 8, {in(6), tx(""), Value(1e300)});
  batch.shrink(7, 1, 4, kForever, {in(5), tx("a,\"b\n"), Value(2.5)});
  batch.guarantee = kForever;
  for (const FileKind kind : {FileKind::csv, FileKind::json_lines}) {
    RowWriter writer(schema, RowForm::changes, kind), rows(schema, RowForm::table, kind);
    writer.add(batch);
    rows.add(batch);
    const FileEvents file = events_of_file(kind, writer.take());
    Query q;
    q.output("out", q.source("s", file.schema));
    Ran ran(q);
    feed_files(ran.run, q, {{"s", file}});
    const FileEvents table = events_of_file(kind, rows.take());
    History at_last;
    at_last.add(table.messages);
    const std::size_t s = file.schema.index("s");  // JSON sorts its fields
    BOOST_TEST(ran.table().size() == 2u);
    BOOST_TEST(ran.table()[0].begin == 1);
    BOOST_TEST(ran.table()[0].end == 4);
    BOOST_TEST((ran.table()[0].payload[s] == tx("a,\"b\n")));
    BOOST_TEST((canonical(at_last) == ran.table()));
  }
}

BOOST_AUTO_TEST_CASE(files_are_fed_in_order_of_time) {
  const FileEvents a = events_of_file(FileKind::csv, "time,n\n1,1\n9,2\n5,3\n"),
                   b = events_of_file(FileKind::csv, "time,n\n4,4\n6,5\n");
  Query q;
  q.output("out", q.source("a", a.schema).unite(q.source("b", b.schema)));
  Ran ran(q);
  feed_files(ran.run, q, {{"a", a}, {"b", b}});
  std::string order = ran.text;
  for (std::size_t at; (at = order.find("I(")) != std::string::npos;)
    order.erase(at, order.find('[', at) - at);
  std::erase(order, '\n');
  BOOST_TEST(order ==
             "[1,2):(1))[4,5):(4))[6,7):(5))G(4)[9,10):(2))[5,6):(3))G(inf)");  // a has 5 to come
  BOOST_TEST(ran.output.guarantee() == kForever);
  BOOST_TEST(ran.of("a.align").refused == 0u);
}

BOOST_AUTO_TEST_CASE(wrong_files_name_the_line) {
  const auto csv = [](const char* text) { return refused(FileKind::csv, text); };
  const auto json = [](const char* text) { return refused(FileKind::json_lines, text); };
  BOOST_TEST(csv("") == "line 1: the file is empty; give it a header");
  BOOST_TEST(csv("a,b\n1,2\n") ==
             "line 1: there is no column 'time', nor begin and end; name the column of times out "
             "of a, b");
  BOOST_TEST(csv("time,b\n1,2\n1\n") ==
             "line 3: there are 1 cells and 2 columns; give one for each");
  BOOST_TEST(csv("time,b:integer\n1,x\n") ==
             "line 2: 'x' of column 'b' is not integer; write a number or change the type");
  BOOST_TEST(csv("time,b\n1.5,x\n").starts_with("line 2: '1.5' of column 'time' is not integer"));
  BOOST_TEST(csv("time,b\n1,\"x") == "line 2: a quote is not closed; close it");
  BOOST_TEST(csv("time,b\n1,\"x\"y\n") ==
             "line 2: a quote ends before its cell does; double quotes inside");
  BOOST_TEST(csv("change,key,begin,end\nupdate,1,2,3\n") ==
             "line 2: the change is 'update'; write insert or retract");
  BOOST_TEST(json("") == "line 1: the file is empty; give it a line");
  BOOST_TEST(json("{\"time\":1}\n[1]\n") == "line 2: this is no object; give one on each line");
  BOOST_TEST(json("{\"time\":1}\n{]\n") == "line 2: this is no JSON; give an object on each line");
  BOOST_TEST(json("{\"time\":1,\"n\":1}\n{\"time\":1,\"n\":\"x\"}\n") ==
             "line 2: the field 'n' is text here and integer above; give it one type");
  BOOST_TEST(json("{\"time\":1,\"n\":1}\n{\"time\":1}\n") ==
             "line 2: the field 'n' of the first line is missing; add it");
  BOOST_TEST(json("{\"time\":1,\"n\":[1]}\n") ==
             "line 1: the field 'n' is no text, number or boolean; flatten it");
  BOOST_TEST(json(("{\"time\":" + std::string(100'000, '[')).c_str()).starts_with("line 1: "));
}

BOOST_AUTO_TEST_CASE(mutated_files_are_read_or_refused) {
  std::mt19937_64 random(3);
  const std::string sound[] = {
      "change,key,begin,end,a,b\ninsert,1,2,3,\"x\",2.5\nretract,1,,2,y,1\n",
      "{\"time\":1,\"a\":\"x\",\"b\":2.5}\n{\"time\":7,\"a\":\"\\u0041\",\"b\":3}\n"};
  for (int n = 0; n < 2000; ++n)
    for (const FileKind kind : {FileKind::csv, FileKind::json_lines}) {
      std::string text = sound[kind == FileKind::json_lines];
      for (auto changes = 1 + random() % 4; changes > 0; --changes) {
        const std::size_t at = random() % text.size();
        if (random() % 2 == 0) text[at] = static_cast<char>(random() % 256);
        else text.erase(at, 1);
      }
      try {
        const FileEvents file = events_of_file(kind, text);
        BOOST_TEST(file.guarantees.size() == file.messages.size());
      } catch (const Error&) {}
    }
}

BOOST_AUTO_TEST_CASE(times_stop_before_forever) {
  const FileEvents file =
      events_of_file(FileKind::csv, "change,key,begin,end\ninsert,1,2,\nretract,1,2,\n");
  BOOST_TEST(file.guarantees == (std::vector<Time>{kForever - 1, kForever}),
             boost::test_tools::per_element());
  BOOST_TEST(refused(FileKind::csv, "time,n\n1,1\n9223372036854775807,2\n") ==
             "line 3: 'time' is 9223372036854775807, which stands for forever; write an earlier "
             "time, or leave an end empty");
}

BOOST_AUTO_TEST_CASE(byte_order_marks_are_skipped) {
  BOOST_TEST(events_of_file(FileKind::csv, "\xEF\xBB\xBFtime,n\n1,1\n").messages.size() == 1u);
  BOOST_TEST(events_of_file(FileKind::json_lines, "\xEF\xBB\xBF{\"time\":1}\n").messages.size() ==
             1u);
}

BOOST_AUTO_TEST_CASE(infinite_reals_are_read_again) {
  const Schema schema{{"r", Type::real}};
  Batch batch(schema);
  batch.insert(1, 0, 1, {Value(std::numeric_limits<double>::infinity())});
  batch.insert(2, 0, 1, {Value(std::numeric_limits<double>::quiet_NaN())});
  RowWriter writer(schema, RowForm::changes, FileKind::csv);
  writer.add(batch);
  BOOST_TEST(text_of(events_of_file(FileKind::csv, writer.take()).messages) == text_of(batch));
}

BOOST_AUTO_TEST_CASE(rows_have_no_field_of_the_writer) {
  const auto made = [](const char* name, RowForm form, const char* output) {
    return refusal(
        [&] {
          RowWriter({{name, Type::text}}, form, FileKind::json_lines, output);
        },
        Code::invalid_argument);
  };
  BOOST_TEST(made("end", RowForm::table, "") ==
             "a row has a field 'end' beside its own 'end'; rename it");
  BOOST_TEST(made("key", RowForm::changes, "") != "");
  BOOST_TEST(made("output", RowForm::table, "x") != "");
  RowWriter({{"key", Type::text}, {"output", Type::text}}, RowForm::table, FileKind::csv);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
