// Requests to other nodes: each is done once, by the peer that was asked or by its loss.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <set>
#include <thread>

#include <troupe/cluster/node/request_table.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(request_table_test)

namespace {

struct Table {
  explicit Table(const EarlyLimits& limits = {})
      : requests(
            limits, [this](Peer peer) { return sessions.contains(peer); }, waiter) {}

  std::set<Peer> sessions = {1, 2};
  Waiter waiter{false, {}};
  RequestTable requests;
};

Answer answer_to(std::uint64_t request, std::uint64_t states) {
  Answer a{request, {}, {}};
  a.states = states;
  return a;
}

void ask(RequestTable& requests, std::uint64_t id, std::uint64_t bytes) {
  requests.ask(id, bytes, [] {});
}

}  // namespace

BOOST_AUTO_TEST_CASE(await_returns_the_answer) {
  Table t;
  const std::uint64_t first = t.requests.add(1), second = t.requests.add(1);
  t.requests.answered(1, answer_to(second, 20), {});
  t.requests.answered(1, answer_to(first, 10), {});
  BOOST_TEST(t.requests.await(first).states == 10u);
  BOOST_TEST(t.requests.await(second).states == 20u);
}

BOOST_AUTO_TEST_CASE(answer_of_another_peer_is_ignored) {
  Table t;
  const std::uint64_t id = t.requests.add(1);
  t.requests.answered(2, answer_to(id, 66), {});
  t.requests.answered(1, answer_to(id, 10), {});
  t.requests.answered(1, answer_to(id, 11), {});
  t.requests.answered(1, answer_to(id + 1, 12), {});
  BOOST_TEST(t.requests.await(id).states == 10u);
}

BOOST_AUTO_TEST_CASE(loss_ends_requests_to_that_peer_only) {
  Table t;
  const std::uint64_t lost = t.requests.add(1), open = t.requests.add(2);
  t.requests.lost(1, Status(Code::unavailable, "it has gone"));
  const RequestTable::Reply reply = t.requests.await(lost);
  BOOST_TEST((reply.status.code() == Code::unavailable));
  BOOST_TEST(reply.status.message() == "it was lost: it has gone");
  BOOST_TEST(!t.requests.take(open).has_value());
}

BOOST_AUTO_TEST_CASE(request_without_a_session_is_done) {
  Table t;
  t.sessions.erase(1);
  const std::uint64_t id = t.requests.add(1);
  BOOST_TEST((t.requests.await(id).status.code() == Code::unavailable));
  int called = 0;
  t.requests.add(1, {}, [&](const RequestTable::Reply& r) { called += !r.status.ok(); });
  BOOST_TEST(called == 1);
}

BOOST_AUTO_TEST_CASE(continuation_is_called_once) {
  Table t;
  std::vector<std::string> replies;
  const auto note = [&](const RequestTable::Reply& r) {
    replies.push_back(r.status.ok() ? std::to_string(r.states) : "lost");
  };
  const std::uint64_t answered = t.requests.add(1, {}, note);
  t.requests.add(2, {}, note);
  t.requests.answered(1, answer_to(answered, 10), {});
  t.requests.answered(1, answer_to(answered, 11), {});
  t.requests.lost(1, Status(Code::unavailable, "it has gone"));
  BOOST_TEST(replies == std::vector<std::string>{"10"}, boost::test_tools::per_element());
  t.requests.lost(2, Status(Code::unavailable, "it has gone"));
  t.requests.lost(2, Status(Code::unavailable, "it has gone"));
  BOOST_TEST(replies == (std::vector<std::string>{"10", "lost"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(reply_has_the_time_that_it_took) {
  Table t;
  const std::uint64_t timed = t.requests.add(1, std::chrono::nanoseconds(100));
  const std::uint64_t told = t.requests.add(1);
  for (const std::uint64_t id : {timed, told}) {
    Answer a{id, {}, {}};
    a.ns = 7;
    t.requests.answered(1, std::move(a), std::chrono::nanoseconds(350));
  }
  BOOST_TEST(t.requests.await(timed).ns == 250u);
  BOOST_TEST(t.requests.await(told).ns == 7u);
}

BOOST_AUTO_TEST_CASE(ask_waits_until_there_is_room) {
  Table t(EarlyLimits{.messages = 8, .bytes = 100});
  const std::uint64_t first = t.requests.add(1), other = t.requests.add(2),
                      second = t.requests.add(1);
  ask(t.requests, first, 60);
  ask(t.requests, other, 60);  // to another peer
  std::atomic<bool> is_answered{false}, had_room{false};
  std::thread asking([&] { t.requests.ask(second, 60, [&] { had_room = is_answered.load(); }); });
  std::this_thread::yield();
  is_answered = true;
  t.requests.answered(1, answer_to(first, 0), {});
  asking.join();
  BOOST_TEST(had_room.load());
}

BOOST_AUTO_TEST_CASE(request_that_was_not_sent_takes_no_room) {
  Table t(EarlyLimits{.messages = 1, .bytes = 100});
  const std::uint64_t first = t.requests.add(1), second = t.requests.add(1);
  const auto fail = [] { throw Error(Code::invalid_argument, "cannot be sent"); };
  BOOST_CHECK_THROW(t.requests.ask(first, 60, fail), Error);
  bool is_sent = false;
  t.requests.ask(second, 60, [&] { is_sent = true; });
  BOOST_TEST(is_sent);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
