// Not under tsan: it drives one part of a partition on one thread.
// Cut edges at one end: credit, room, run lengths, and the tokens that a receiver refuses.
#include <troupe/actors/executor/cut_edges.hpp>

#include <optional>
#include <tuple>

#include <boost/test/unit_test.hpp>

#include <troupe/test/actors/executor/partition_parts.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(cut_edges_test, TROUPE_ONE_THREAD)

namespace {

constexpr std::int32_t kLoop = 1, kWindow = 4;  // iterations that an edge grants
// Partition 1 is on this node, partition 2 on another. Edges with a number of either go there and
// come from there.
constexpr std::int32_t kHere = 0, kElsewhere = 1;
constexpr std::uint64_t kEdgeBytes = 10'000;

std::shared_ptr<Plan> plan_on(Device& device, std::int32_t every) {
  auto plan = std::make_shared<Plan>();
  Graph g;
  Expr source = g.named(g.constant(1.0f), "source");
  plan->program = prune(g, {}, {source.edge()});
  plan->nodes = {"a", "b"};
  plan->edge_bytes = kEdgeBytes;
  plan->partitions.resize(3);
  plan->partitions[2].node = 1;
  PartitionPlan& mine = plan->partitions[0];
  mine.device = &device;
  mine.frames.resize(2);
  mine.frames[0].children = 1;
  FramePlan& loop = mine.frames[kLoop];
  loop.name = "loop";
  loop.parent = 0;
  loop.depth = 1;
  loop.window = 2 * kWindow;
  loop.known = kWindow;
  loop.receives = 2;
  loop.edges_out = loop.edges_in = {kHere, kElsewhere};
  loop.granted = {kWindow - 1, kWindow - 1};
  loop.senders = {{kHere, kWindow, 1}, {kElsewhere, kWindow, every}};
  loop.told = {kElsewhere};
  for (const std::int32_t edge : {kHere, kElsewhere}) {
    PartitionPlan::Send send;
    send.partition = edge + 1;
    send.frame = kLoop;
    send.place[0] = edge;
    send.window = kWindow;
    mine.sends.push_back(send);
    PartitionPlan::Receive receive;
    receive.partition = edge + 1;
    receive.frame = kLoop;
    receive.send = edge;
    receive.place = edge;
    receive.window = kWindow;
    mine.receives.push_back(receive);
  }
  return plan;
}

struct Arrival {
  std::int32_t edge;
  std::int64_t iteration;
  std::optional<float> value;  // none: a dead token
  friend bool operator==(const Arrival&, const Arrival&) = default;
};

using Arrivals = std::vector<Arrival>;
using Sent = std::vector<std::tuple<std::int32_t, std::int64_t, std::int32_t>>;
using Grants = std::vector<std::pair<std::int32_t, std::int64_t>>;

/// A loop with cut edges, one execution of it, and the tokens that reach its iterations.
struct Edges final : CutEdges::Client {
  explicit Edges(std::int32_t every = 1) : parts(plan_on(*device, every)) {
    parts.driver.on_batch_sent = [this] { edges.on_batch_sent(); };
    loop = &instance_at(*parts.outside, kLoop);
  }

  void arrive(IterationState& iteration, const PartitionPlan::Receive& receive, bool is_dead,
              Value&& value) override {
    arrivals.push_back(
        {receive.place, iteration.number,
         is_dead ? std::nullopt : std::optional(value.tensor().to_vector<float>()[0])});
  }
  void held_token_sent(IterationState& iteration) override { --iteration.unfired; }
  FrameState& instance_at(IterationState& parent, std::int32_t frame) override {
    FrameState*& child = parent.children[0];
    if (!child) child = &parts.frames.take(parent, frame, 0);
    return *child;
  }
  void receive_in(RunState& run_state, Token& token) override {
    edges.receive(*run_state.root, token);
  }

  IterationState& open() { return parts.frames.take_iteration(*loop); }
  void send(IterationState& from, std::int32_t edge, float value) {
    Value v = Tensor::scalar(value);
    edges.send(from, edge, &v);
  }
  void receive(std::int32_t edge, std::int64_t iteration, float value, std::int32_t times = 1) {
    Token token{parts.run, edge, false, Tensor::scalar(value), {}, times};
    token.path.depth = 1;
    token.path.number[0] = iteration;
    edges.receive(*parts.state->root, token);
  }
  void grant(std::int32_t edge, std::int64_t last) {
    Grant grant{parts.run, edge, {}, last};
    grant.path.depth = 1;
    edges.receive(grant);
  }
  /// Returns edge, first iteration and number of iterations of the tokens that were sent.
  Sent tokens() const {
    Sent all;
    for (const Posted& posted : parts.driver.sent)
      if (const Token* token = std::get_if<Token>(&posted.message))
        all.emplace_back(posted.partition - 1, token->path.number[0], token->times);
    return all;
  }
  /// Returns edge and last iteration of the grants that were posted, sent or not.
  Grants grants() const {
    Grants all;
    for (const auto* posted : {&parts.driver.sent, &parts.driver.batch})
      for (const Posted& p : *posted)
        if (const Grant* grant = std::get_if<Grant>(&p.message))
          all.emplace_back(grant->send, grant->last);
    return all;
  }
  const Status& failure() const { return parts.run->status(); }

  const std::unique_ptr<Device> device = make_cpu_device();
  PartitionParts parts;
  CutEdges edges{*parts.plan,  parts.mine,     parts.driver,   parts.runs, parts.frames,
                 parts.stream, parts.observer, parts.failures, *this};
  FrameState* loop = nullptr;
  std::vector<Arrival> arrivals;
};

}  // namespace

// ---- out

BOOST_AUTO_TEST_CASE(buffered_token_keeps_its_iteration_open) {
  Edges e;
  for (int n = 0; n < kWindow; ++n) e.send(e.open(), kHere, 1.0f);
  BOOST_TEST(e.tokens().size() == std::size_t{kWindow});
  IterationState& beyond = e.open();
  const std::int32_t before = beyond.unfired;
  e.send(beyond, kHere, 1.0f);
  BOOST_TEST(e.tokens().size() == std::size_t{kWindow});
  BOOST_TEST(beyond.unfired == before + 1);
  BOOST_TEST(e.parts.observer.held_tokens() == 1u);
  e.grant(kHere, kWindow);
  BOOST_TEST((e.tokens().back() == Sent::value_type{kHere, kWindow, 1}));
  BOOST_TEST(beyond.unfired == before);
  BOOST_TEST(e.parts.state->held.empty());
}

BOOST_AUTO_TEST_CASE(grant_counts_for_the_edges_to_its_partition) {
  Edges e;
  for (int n = 0; n <= kWindow; ++n) e.open();
  e.send(*e.loop->at(kWindow), kHere, 1.0f);
  e.send(*e.loop->at(kWindow), kElsewhere, 2.0f);
  BOOST_TEST(e.parts.state->held.size() == 2u);
  e.grant(kElsewhere, kWindow);
  BOOST_TEST((e.tokens() == Sent{{kElsewhere, kWindow, 1}}));
  BOOST_TEST(e.parts.state->held.size() == 1u);
  BOOST_TEST(e.loop->granted[kElsewhere] == kWindow);
  BOOST_TEST(e.loop->granted[kHere] == kWindow - 1);
}

BOOST_AUTO_TEST_CASE(grant_that_was_overtaken_changes_nothing) {
  Edges e;
  for (int n = 0; n < kWindow + 2; ++n) e.open();
  e.grant(kHere, kWindow + 1);
  e.grant(kHere, kWindow);
  e.send(*e.loop->at(kWindow + 1), kHere, 1.0f);
  BOOST_TEST((e.tokens() == Sent{{kHere, kWindow + 1, 1}}));
}

BOOST_AUTO_TEST_CASE(grant_of_iterations_never_sent_is_refused) {
  Edges e;
  e.open();
  e.grant(kElsewhere, kWindow);  // iteration 0 is over there
  BOOST_TEST(e.parts.driver.refusals.empty());
  e.grant(kElsewhere, kWindow + 1);  // and iteration 1, which has not begun here
  BOOST_REQUIRE(e.parts.driver.refusals.size() == 1u);
  BOOST_TEST(e.parts.driver.refusals[0].first == 2);
  BOOST_TEST(e.loop->granted[kElsewhere] == kWindow);
}

BOOST_AUTO_TEST_CASE(large_token_waits_for_room) {
  Edges e;
  for (int n = 0; n < kWindow; ++n) e.open();
  const auto send = [&](std::int64_t n, std::int64_t floats) {
    Value v = Tensor::of<float>(std::vector<float>(static_cast<std::size_t>(floats)), {floats});
    e.edges.send(*e.loop->at(n), kHere, &v);
  };
  constexpr std::int64_t kMost = kEdgeBytes / 3;  // floats: more than the edge's bytes
  send(1, kMost);                                 // one of any size may be in flight
  send(3, kMost / 2);
  BOOST_TEST((e.tokens() == Sent{{kHere, 1, 1}}));
  BOOST_TEST(e.parts.observer.held_by_bytes() == 1u);
  send(2, 100);    // small: bounded by the iteration window alone
  send(0, kMost);  // the oldest iteration's token always goes: its receiver may await nothing else
  BOOST_TEST((e.tokens() == Sent{{kHere, 1, 1}, {kHere, 2, 1}, {kHere, 0, 1}}));
  e.grant(kHere, kWindow + 1);  // iterations 0 and 1 are over there
  BOOST_TEST((e.tokens().back() == Sent::value_type{kHere, 3, 1}));
  BOOST_TEST(e.parts.state->held.empty());
}

BOOST_AUTO_TEST_CASE(equal_tokens_in_a_row_go_as_one) {
  Edges e;
  for (const float value : {1.0f, 1.0f, 2.0f}) e.send(e.open(), kElsewhere, value);
  BOOST_TEST(e.tokens().empty());  // batched
  e.edges.flush();
  BOOST_TEST((e.tokens() == Sent{{kElsewhere, 0, 2}, {kElsewhere, 2, 1}}));
  BOOST_TEST(e.parts.state->sent == 3u);  // each is counted
}

BOOST_AUTO_TEST_CASE(run_length_ends_with_its_batch_and_its_grant) {
  Edges e;
  for (int n = 0; n < 2; ++n) e.send(e.open(), kElsewhere, 1.0f);
  e.edges.flush();
  for (int n = 2; n < kWindow + 2; ++n) e.send(e.open(), kElsewhere, 1.0f);
  e.edges.flush();
  BOOST_TEST((e.tokens() == Sent{{kElsewhere, 0, 2}, {kElsewhere, 2, kWindow - 2}}));
  BOOST_REQUIRE(e.parts.state->held.size() == 1u);  // buffered tokens are run lengths, too
  BOOST_TEST(e.parts.state->held[0].times == 2);
  e.grant(kElsewhere, kWindow);  // its receiver may be idle: no flush is needed
  BOOST_TEST((e.tokens().back() == Sent::value_type{kElsewhere, kWindow, 1}));
}

BOOST_AUTO_TEST_CASE(predicates_that_are_true_go_as_one) {
  Edges e;
  const Value yes = Tensor::scalar(true);
  for (int n = 0; n < 3; ++n) e.edges.broadcast_predicate(e.open(), &yes, true);
  e.edges.broadcast_predicate(e.open(), nullptr, false);
  e.edges.flush();
  BOOST_TEST((e.tokens() == Sent{{kElsewhere, 0, 3}, {kElsewhere, 3, 1}}));
}

BOOST_AUTO_TEST_CASE(flush_sends_a_batch_once) {
  Edges e;
  e.edges.flush();
  BOOST_TEST(e.parts.driver.flushes == 0);
  e.send(e.open(), kHere, 1.0f);  // to this node: not batched
  e.edges.flush();
  BOOST_TEST(e.parts.driver.flushes == 0);
  e.send(*e.loop->at(0), kElsewhere, 1.0f);
  e.edges.flush();
  e.edges.flush();
  BOOST_TEST(e.parts.driver.flushes == 1);
}

// Tokens that follow from a failure would look like its cause on another node.
BOOST_AUTO_TEST_CASE(failed_run_sends_nothing_to_other_nodes) {
  Edges e;
  e.parts.run->fail(Status(Code::internal, "planted"));
  e.send(e.open(), kElsewhere, 1.0f);
  e.send(*e.loop->at(0), kHere, 1.0f);
  e.edges.flush();
  BOOST_TEST((e.tokens() == Sent{{kHere, 0, 1}}));
}

// ---- in

BOOST_AUTO_TEST_CASE(token_arrives_when_its_iteration_opens) {
  Edges e;
  e.open();
  e.receive(kHere, 0, 10.0f);
  e.receive(kHere, 2, 12.0f);
  BOOST_TEST((e.arrivals == Arrivals{{kHere, 0, 10.0f}}));
  e.edges.deliver_future(e.open());
  BOOST_TEST(e.arrivals.size() == 1u);
  e.edges.deliver_future(e.open());
  BOOST_TEST((e.arrivals.back() == Arrival{kHere, 2, 12.0f}));
  BOOST_TEST(e.loop->future.empty());
}

BOOST_AUTO_TEST_CASE(run_length_token_arrives_as_if_each_came_alone) {
  Edges e;
  e.open();
  e.receive(kElsewhere, 0, 5.0f, kWindow);
  BOOST_TEST((e.arrivals == Arrivals{{kElsewhere, 0, 5.0f}}));
  for (int n = 1; n < kWindow; ++n) e.edges.deliver_future(e.open());
  BOOST_REQUIRE(e.arrivals.size() == std::size_t{kWindow});
  for (std::int64_t n = 0; n < kWindow; ++n)
    BOOST_TEST((e.arrivals[static_cast<std::size_t>(n)] == Arrival{kElsewhere, n, 5.0f}));
  BOOST_TEST(e.parts.driver.refusals.empty());
}

BOOST_AUTO_TEST_CASE(token_that_comes_twice_is_refused) {
  Edges e;
  e.open();
  e.receive(kElsewhere, 0, 1.0f);
  e.receive(kElsewhere, 0, 1.0f);
  e.receive(kElsewhere, 1, 1.0f);  // waits
  e.receive(kElsewhere, 1, 1.0f);
  BOOST_REQUIRE(e.parts.driver.refusals.size() == 2u);
  BOOST_TEST(e.parts.driver.refusals[0].first == 2);
  BOOST_TEST(e.parts.driver.refusals[0].second.ends_with("that had come"));
  e.edges.deliver_future(e.open());
  BOOST_TEST((e.arrivals == Arrivals{{kElsewhere, 0, 1.0f}, {kElsewhere, 1, 1.0f}}));
  BOOST_TEST(!e.parts.run->is_poisoned());  // another node may be faulty; the run goes on
}

BOOST_AUTO_TEST_CASE(token_beyond_the_grant_is_refused) {
  Edges e;
  e.open();
  e.receive(kElsewhere, kWindow, 1.0f);
  BOOST_REQUIRE(e.parts.driver.refusals.size() == 1u);
  BOOST_TEST(e.parts.driver.refusals[0].second.ends_with("that it was not granted"));
  e.receive(kElsewhere, kWindow - 1, 1.0f, 2);  // the first of its two iterations is granted
  BOOST_TEST(e.parts.driver.refusals.size() == 2u);
  for (int n = 1; n < kWindow; ++n) e.edges.deliver_future(e.open());
  BOOST_TEST((e.arrivals == Arrivals{{kElsewhere, kWindow - 1, 1.0f}}));
}

BOOST_AUTO_TEST_CASE(token_of_a_done_iteration_is_refused) {
  Edges e;
  e.open();
  e.open();
  e.loop->oldest = 1;
  e.receive(kElsewhere, 0, 1.0f);
  BOOST_REQUIRE(e.parts.driver.refusals.size() == 1u);
  BOOST_TEST(e.parts.driver.refusals[0].second.ends_with("for an iteration that is done"));
  BOOST_TEST(e.arrivals.empty());
}

BOOST_AUTO_TEST_CASE(token_of_an_ended_loop_is_refused) {
  Edges e;
  e.parts.outside->children[0] = e.parts.frames.ended();
  e.receive(kElsewhere, 0, 1.0f);
  BOOST_REQUIRE(e.parts.driver.refusals.size() == 1u);
  BOOST_TEST(e.parts.driver.refusals[0].second.ends_with("for a loop that has ended"));
}

BOOST_AUTO_TEST_CASE(refused_token_of_this_node_fails_the_run) {
  Edges e;
  e.open();
  e.receive(kHere, kWindow, 1.0f);
  BOOST_TEST(e.parts.driver.refusals.empty());
  BOOST_REQUIRE(e.parts.run->is_poisoned());
  BOOST_TEST((e.failure().code() == Code::internal));
  BOOST_TEST(e.failure().message().find("'source'") != std::string::npos, e.failure().message());
}

BOOST_AUTO_TEST_CASE(grants_name_the_last_iteration_of_the_window) {
  Edges e(2);  // the other node gets every second grant
  e.loop->oldest = 5;
  e.edges.grant(*e.loop, CutEdges::Credit::due);
  BOOST_TEST((e.grants() == Grants{{kHere, 4 + kWindow}}));
  e.edges.grant(*e.loop, CutEdges::Credit::behind);
  BOOST_TEST((e.grants() == Grants{{kHere, 4 + kWindow}, {kElsewhere, 4 + kWindow}}));
  e.loop->oldest = 6;
  e.edges.grant(*e.loop, CutEdges::Credit::due);
  BOOST_TEST(e.grants().size() == 4u);
}

// Its sender may hold a large token until a grant names the oldest iteration.
BOOST_AUTO_TEST_CASE(large_token_announces_the_oldest_iteration) {
  Edges e(2);
  e.open();
  e.open();
  e.loop->oldest = 1;
  Token token{e.parts.run, kElsewhere, false, {}, {}, 1};
  token.path.depth = 1;
  token.path.number[0] = 1;
  token.value = Tensor::of<float>(std::vector<float>(2000), {2000});
  e.edges.receive(*e.parts.state->root, token);
  BOOST_TEST(e.loop->has_large);
  BOOST_TEST((e.grants() == Grants{{kElsewhere, kWindow}}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
