// Partitions of other nodes' queries: bytes of calls and answers, errors as answers.
#include <troupe/actors/events/partition_host.hpp>

#include <boost/test/unit_test.hpp>

#include <random>

#include <troupe/actors/events/language.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(partition_host_test)

namespace {
using namespace troupe::test;

const Schema kUse{{"user", Type::text}, {"v", Type::integer}, {"x", Type::real}};
const QueryText kPairs{
    "EVENT Pair WHEN SEQUENCE(A x, B y, 10) WHERE CorrelationKey(user, EQUAL) "
    "OUTPUT x.user AS user",
    {{"A", kUse}, {"B", kUse, {.inserts_only = true, .idle_after = 7}}},
    60};

PartitionCall open_call(const std::string& run) {
  PartitionCall call;
  call.kind = PartitionCall::Kind::open;
  call.run = run;
  call.text = kPairs;
  call.nodes = {"b"};
  call.level = Consistency::middle();
  call.plan =
      placed(parse_query(kPairs.text, kPairs.types, kPairs.second), call.nodes, 1).explain();
  return call;
}

StreamBatch use(std::size_t stream, Key key, Time at) {
  Batch batch(kUse);
  batch.insert(key, at, at + 1, {tx("u"), in(3), Value(0.5)});
  batch.shrink(key, at, at + 1, at + 2, {tx("u"), in(3), Value(0.5)});
  batch.guarantee = at - 1;
  return {stream, std::move(batch)};
}

/// Returns bytes [0, n) of a message, and of it from `n` on other ones.
Tensor cut(const Tensor& message, std::size_t n, std::vector<std::uint8_t> then = {}) {
  std::vector<std::uint8_t> bytes(message.data<std::uint8_t>(), message.data<std::uint8_t>() + n);
  bytes.insert(bytes.end(), then.begin(), then.end());
  return Tensor::of(bytes, Shape{static_cast<std::int64_t>(bytes.size())});
}
}  // namespace

BOOST_AUTO_TEST_CASE(calls_and_answers_keep_their_values) {
  PartitionCall call = open_call("a/7");
  call.partitions = 3, call.partition = 2, call.wants_reports = call.changes_level = true;
  call.level = {4, 9};
  call.batches = {use(0, 1, 5), {1, Batch()}};
  const PartitionCall same = read_call(tensor_of(call));
  BOOST_TEST((same.kind == call.kind));
  BOOST_TEST(same.run == call.run);
  BOOST_TEST(same.text.text == call.text.text);
  BOOST_TEST(same.text.types.at(1).name == "B");
  BOOST_TEST((same.text.types[1].schema == kUse));
  BOOST_TEST(same.text.types[1].options.inserts_only);
  BOOST_TEST(same.text.types[1].options.idle_after == 7);
  BOOST_TEST(same.text.second == 60);
  BOOST_TEST(same.plan == call.plan);
  BOOST_TEST(same.nodes == call.nodes, boost::test_tools::per_element());
  BOOST_TEST(same.partitions == 3u);
  BOOST_TEST(same.partition == 2u);
  BOOST_TEST((same.level == call.level));
  BOOST_TEST(same.wants_reports);
  BOOST_TEST(same.changes_level);
  BOOST_REQUIRE(same.batches.size() == 2u);
  BOOST_TEST(text_of(same.batches[0].batch) == text_of(call.batches[0].batch));
  BOOST_TEST((same.batches[0].batch.row(1) == call.batches[0].batch.row(1)));
  BOOST_TEST(same.batches[0].batch.old_end.at(1) == 7);
  BOOST_TEST(same.batches[1].stream == 1u);

  PartitionAnswer answer;
  answer.code = Code::data_loss, answer.error = "why";
  answer.batches = {use(3, 2, 8)};
  answer.effective = 11, answer.reach = 12;
  OperatorReport report;
  report.counters.name = "pattern#4/0", report.counters.blocking = 2.5;
  report.counters.peak_bytes = 99, report.counters.complaints = {"one", "two"};
  report.tokens = 5, report.busy_ns = 6, report.taken = {2, 3};
  answer.reports = {report};
  const PartitionAnswer equal = read_answer(tensor_of(answer));
  BOOST_TEST((equal.code == Code::data_loss));
  BOOST_TEST(equal.error == "why");
  BOOST_TEST(text_of(equal.batches.at(0).batch) == text_of(answer.batches[0].batch));
  BOOST_TEST(equal.effective == 11);
  BOOST_TEST(equal.reach == 12);
  BOOST_TEST(equal.reports.at(0).counters.name == "pattern#4/0");
  BOOST_TEST(equal.reports[0].counters.blocking == 2.5);
  BOOST_TEST(equal.reports[0].counters.peak_bytes == 99u);
  BOOST_TEST(equal.reports[0].counters.complaints.size() == 2u);
  BOOST_TEST(equal.reports[0].tokens == 5u);
  BOOST_TEST(equal.reports[0].taken == report.taken, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(bytes_of_no_message_are_refused) {
  PartitionCall call = open_call("a/1");
  call.batches = {use(0, 1, 5)};
  const Tensor whole = tensor_of(call);
  for (std::size_t n = 0; n < whole.bytes(); ++n)
    BOOST_TEST(
        refusal([&] { read_call(cut(whole, n)); }, Code::data_loss).starts_with("a message"));
  BOOST_TEST(refusal([&] { read_call(cut(whole, whole.bytes(), {0})); }, Code::data_loss) != "");
  // A column that is shorter than its batch.
  call.batches[0].batch.end.pop_back();
  BOOST_TEST(refusal([&] { read_call(tensor_of(call)); }, Code::data_loss) != "");
}

BOOST_AUTO_TEST_CASE(bytes_with_errors_never_end_the_process) {
  PartitionCall call = open_call("a/1");
  call.batches = {use(0, 1, 5)};
  const Tensor whole = tensor_of(call);
  std::mt19937_64 random(5);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t at = random() % whole.bytes();
    const std::uint8_t* bytes = whole.data<std::uint8_t>();
    std::vector<std::uint8_t> rest(bytes + at, bytes + whole.bytes());
    rest[0] = static_cast<std::uint8_t>(random());
    try {
      PartitionHost host;
      host.call(read_call(cut(whole, at, rest)));
    } catch (const Error&) { ++refused; }
  }
  BOOST_TEST(refused > 100);
  BOOST_TEST(refused < 2900);
}

BOOST_AUTO_TEST_CASE(a_partition_answers_what_follows_from_its_batches) {
  PartitionHost host;
  BOOST_TEST(host.call(open_call("a/1")).error == "");
  BOOST_TEST(host.call({.run = "a/1", .batches = {use(0, 1, 5)}}).batches.empty());
  const PartitionAnswer answer =
      host.call({.run = "a/1", .batches = {use(1, 2, 9)}, .wants_reports = true});
  BOOST_REQUIRE(!answer.batches.empty());
  BOOST_TEST(answer.batches[0].batch.begin.at(0) == 9);
  BOOST_TEST(answer.reports.at(0).counters.events_in == 2u);
  BOOST_TEST(answer.reports[0].taken == (std::vector<std::uint64_t>{1, 1}),
             boost::test_tools::per_element());
  BOOST_TEST((host.call({.kind = PartitionCall::Kind::close, .run = "a/1"}).code == Code::ok));
  BOOST_TEST((host.call({.run = "a/1"}).code == Code::unavailable));
}

BOOST_AUTO_TEST_CASE(an_operator_error_is_an_answer_and_stays) {
  PartitionHost host;
  for (const char* run : {"a/1", "a/2"}) BOOST_TEST(host.call(open_call(run)).error == "");
  Batch other(Schema{{"x", Type::real}});
  other.insert(1, 0, 1, {Value(0.5)});
  const PartitionAnswer failed = host.call({.run = "a/1", .batches = {{0, other}}});
  BOOST_TEST((failed.code == Code::invalid_argument));
  BOOST_TEST(failed.error.starts_with("pattern#4/0 takes"), failed.error);
  BOOST_TEST(host.call({.run = "a/1"}).error == failed.error);
  BOOST_TEST(host.call({.run = "a/2", .batches = {use(0, 1, 5)}}).error == "");
  BOOST_TEST(host.call({.run = "a/2", .batches = {use(9, 1, 5)}}).error ==
             "a call has a batch of stream 9 of 2; install one version of Troupe on all nodes");
}

BOOST_AUTO_TEST_CASE(a_node_that_makes_another_plan_refuses) {
  PartitionHost host;
  PartitionCall call = open_call("a/1");
  call.plan += "x";
  BOOST_TEST(host.call(call).error.starts_with("this node makes another plan of the query"));
  call.text.text = "EVENT";
  BOOST_TEST(host.call(call).error.starts_with("line 1"));
  BOOST_TEST((host.call({.run = "a/1"}).code == Code::unavailable));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
