// Requests of peers: in order, within the quota, and paused while a peer does not read.
#include <boost/test/unit_test.hpp>

#include <deque>
#include <functional>
#include <set>

#include <troupe/cluster/node/peer_quota.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(peer_quota_test, TROUPE_ONE_THREAD)

namespace {

/// A quota whose request worker runs when the test says so.
struct Quota {
  explicit Quota(const EarlyLimits& limits) : quota("here", limits, hooks()) {}

  PeerQuota::Hooks hooks() {
    return {.has_session = [this](Peer peer) { return sessions.contains(peer); },
            .unread_bytes = [this](Peer) { return unread; },
            .run_later = [this](std::function<void()> job) { worker.push_back(std::move(job)); },
            .send = [this](Peer to, Lane, Message) { sent.push_back(to); },
            .answer_here = [this](Answer&& a) { answered_here.push_back(a.request); }};
  }
  void work() {
    for (; !worker.empty(); worker.pop_front()) worker.front()();
  }
  /// A request that notes its number when it is done.
  void submit(Peer from, std::uint64_t number, std::uint64_t bytes = 0) {
    quota.submit(from, bytes, [this, number] {
      done.push_back(number);
      return Answer{number, {}, {}};
    });
  }

  std::set<Peer> sessions = {1, 2};
  std::uint64_t unread = 0;
  std::deque<std::function<void()>> worker;
  std::vector<Peer> sent;
  std::vector<std::uint64_t> done, answered_here;
  PeerQuota quota;
};

using Numbers = std::vector<std::uint64_t>;

}  // namespace

BOOST_AUTO_TEST_CASE(requests_are_done_in_order_and_answered) {
  Quota q({});
  q.submit(1, 10), q.submit(2, 20), q.submit(1, 11), q.submit(0, 5);
  BOOST_TEST(q.done.empty());
  q.work();
  BOOST_TEST(q.done == (Numbers{10, 20, 11, 5}), boost::test_tools::per_element());
  BOOST_TEST(q.sent == (std::vector<Peer>{1, 2, 1}), boost::test_tools::per_element());
  BOOST_TEST(q.answered_here == Numbers{5}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(request_over_the_quota_is_refused) {
  Quota q({.messages = 2, .bytes = 100});
  q.submit(1, 10, 60);
  BOOST_CHECK_THROW(q.submit(1, 11, 41), Error);
  q.submit(1, 12, 40);
  BOOST_CHECK_THROW(q.submit(1, 13), Error);  // one too many
  q.submit(2, 20, 1000);  // a request of any size is admitted if none is before it
  q.work();
  q.submit(1, 14, 100);
  q.work();
  BOOST_TEST(q.done == (Numbers{10, 12, 20, 14}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(peer_that_does_not_read_is_paused) {
  Quota q({.messages = 8, .bytes = 0});
  q.unread = 1000;
  q.submit(1, 10), q.submit(1, 11), q.submit(2, 20), q.submit(1, 12);
  q.work();  // the first answer of each peer is unread from then on
  BOOST_TEST(q.done == (Numbers{10, 20}), boost::test_tools::per_element());
  BOOST_TEST(!q.quota.is_draining(1));
  BOOST_TEST(!q.quota.resume());
  q.unread = 0;
  BOOST_TEST(q.quota.resume());
  q.unread = 1000;
  q.work();
  BOOST_TEST(q.done == (Numbers{10, 20, 11}), boost::test_tools::per_element());
  q.unread = 0;
  BOOST_TEST(q.quota.resume());
  q.work();
  BOOST_TEST(q.done == (Numbers{10, 20, 11, 12}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(loss_drops_paused_requests) {
  Quota q({.messages = 3, .bytes = 0});
  q.unread = 1000;
  q.submit(1, 10), q.submit(1, 11), q.submit(1, 12);
  q.work();
  q.sessions.erase(1);
  q.quota.lost(1);
  BOOST_TEST(q.quota.resume());
  q.work();
  BOOST_TEST(q.done == Numbers{10}, boost::test_tools::per_element());
  q.sessions.insert(1);  // the quota is free again
  q.submit(1, 13), q.submit(1, 14), q.submit(1, 15);
  BOOST_CHECK_THROW(q.submit(1, 16), Error);
}

BOOST_AUTO_TEST_CASE(answer_to_a_lost_peer_counts_for_nothing) {
  Quota q({.messages = 8, .bytes = 0});
  q.unread = 1000;
  q.sessions.erase(1);
  q.submit(1, 10), q.submit(1, 11);
  q.work();
  BOOST_TEST(q.done == (Numbers{10, 11}), boost::test_tools::per_element());
  BOOST_TEST(q.quota.is_draining(1));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
