// A peer that is connected and says what is not its to say: the run it takes part in fails, or it
// is disconnected.
#include <boost/test/unit_test.hpp>

#include <functional>

#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(impostor_test)

namespace {

using namespace std::chrono_literals;

// Node b, which agrees to every plan without making it, and ends every run with `fetches`.
class Impostor final : public TransportListener {
 public:
  explicit Impostor(Nodes& nodes)
      : transport_(nodes.network().make_transport(
            {.name = "b", .incarnation = 50, .address = "sim://b", .engine = {}})) {
    transport_->start(*this);
    transport_->connect("sim://a");
  }
  ~Impostor() { transport_->stop(); }

  std::vector<std::pair<std::int32_t, Tensor>> fetches;
  // messages that it sends before it ends the run
  std::function<void(std::uint64_t run)> when_begun;
  std::uint64_t answers = 0;
  std::vector<Status> inspected;
  std::uint64_t begun = 0;  // as it was acknowledged when a session began
  bool is_lost = false;
  Status why;

  /// Another session, in the same life.
  void come_again() {
    transport_->disconnect(peer_, Status(Code::unavailable, "it comes again"));
    transport_->connect("sim://a");
  }

  template <class M>
  void say(const M& message) {
    transport_->send(peer_, M::kLane, written(message));
  }
  bool say_directly(std::span<const std::byte> record) {
    return transport_->send_direct(peer_, record);
  }
  void say(Message message) { transport_->send(peer_, Lane::data, std::move(message)); }
  void gossip(const std::string& name, std::vector<Member> members = {}) {
    say(Gossip{{.name = name, .incarnation = 50, .address = "sim://b"},
               {.kind = MembershipMessage::Kind::news, .members = std::move(members)}});
  }

  void connected(Peer peer, const PeerInfo&) override {
    peer_ = peer;
    gossip("b");
  }
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message message) override {
    const NodeMessage any = read_message(message);
    if (const auto* plan = std::get_if<MakePlan>(&any)) {
      say(Answer{plan->request, {}, {}});
    } else if (const auto* run = std::get_if<BeginRun>(&any)) {
      if (when_begun) when_begun(run->run);
      say(LeftRun{run->run, {}, fetches});
    } else if (std::holds_alternative<Answer>(any)) {
      ++answers;
    } else if (const auto* answer = std::get_if<Inspected>(&any)) {
      inspected.push_back(answer->status);
    } else if (const auto* runs = std::get_if<RunsBegun>(&any)) {
      begun = runs->last;
    }
  }
  void lost(Peer, const Status& status) override {
    is_lost = true;
    why = status;
  }

 private:
  std::unique_ptr<Transport> transport_;
  Peer peer_ = 0;
};

struct Scene {
  explicit Scene(EarlyLimits early = {}, const SimulationOptions& network = {})
      : nodes(1, stepped(1), Between::simulation, network, {}, early), b(nodes) {
    BOOST_REQUIRE(nodes.until(5s, [&] { return nodes[0].nodes().size() == 2; }));
  }
  // Fetch 0 is b's, fetch 1 is a's.
  Status run() {
    Graph g;
    Expr x = g.input("x", DType::f32, {2}), there;
    {
      auto d = g.on_device("/node:b/cpu:0");
      there = x * 2.0;
    }
    Function f = nodes.engine().compile(g, {x}, {there, x + 1.0});
    return f.start({Tensor::of<float>({1, 2})}).wait();
  }
  Nodes nodes;
  Impostor b;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_peer_delivers_what_is_fetched_from_it) {
  Scene s;
  s.b.fetches = {{0, Tensor::of<float>({2, 4})}};
  BOOST_TEST(s.run().ok());
}

BOOST_AUTO_TEST_CASE(peer_that_delivers_the_fetch_of_another_fails_the_run) {
  for (const std::int32_t index : {1, 2, -1}) {
    Scene s;
    s.b.fetches = {{0, Tensor::of<float>({2, 4})}, {index, Tensor::of<float>({7, 7})}};
    const Status status = s.run();
    BOOST_TEST((status.code() == Code::data_loss), status.message());
    BOOST_TEST(says(status.message(), {"node 'b'", "it sent what was not fetched"}));
  }
}

// A run does not end well without its fetched values either: its caller would get nothing for a
// tensor.
BOOST_AUTO_TEST_CASE(impostor_that_omits_fetched_values_fails_the_run) {
  const Tensor right = Tensor::of<float>({2, 4});
  for (const bool is_twice : {false, true}) {
    Scene s;
    if (is_twice) s.b.fetches = {{0, right}, {0, right}};
    const Status status = s.run();
    BOOST_TEST((status.code() == Code::data_loss), status.message());
    BOOST_TEST(says(status.message(),
                    {"node 'b'", is_twice ? "it sent what was not fetched"
                                          : "it did not send all that was fetched from it"}),
               status.message());
  }
}

// A token or a grant of no edge of its own, of another loop, or with another value than its edge
// carries: counted, logged, and the end of the session. Which of the two partitions is a's, the
// first or the second, the impostor does not know.
BOOST_AUTO_TEST_CASE(tokens_and_grants_that_make_no_sense) {
  const auto said = [](const auto& message_of) {
    std::string all;
    for (const std::int32_t partition : {0, 1, 7, -1}) {
      Scene s;
      s.b.when_begun = [&](std::uint64_t run) {
        RunTokens message = message_of(RunKey{1, run});  // a is the first node
        for (RunGrant& g : message.grants) g.partition = partition;
        for (RunToken& t : message.tokens) t.partition = partition;
        s.b.say(message);
      };
      Graph g;
      Expr x = g.input("x", DType::f32, {2}), there;
      {
        auto d = g.on_device("/node:b/cpu:0");
        there = x * 2.0;
      }
      const Status status =
          s.nodes.engine().compile(g, {x}, {there + 1.0}).start({Tensor::of<float>({1, 2})}).wait();
      BOOST_TEST((status.code() == Code::unavailable || status.code() == Code::data_loss),
                 status.message());
      BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost; }));
      BOOST_TEST(s.nodes[0].run_counters().refused == 1u);
      BOOST_REQUIRE(s.nodes.log().size() == 1u);
      BOOST_TEST(says(s.nodes.log()[0], {"node 'b' sent what it should not have"}));
      all += s.nodes.log()[0] + "\n";
    }
    return all;
  };
  const Tensor right = Tensor::of<float>({2, 4});
  const auto token = [&](auto change) {
    return [=](RunKey key) {
      RunToken t{0, 0, false, {}, right};
      change(t);
      return RunTokens{key, {}, {t}};
    };
  };
  const auto says_each = [&](const std::string& all, std::initializer_list<std::string> parts) {
    BOOST_TEST(says(all, parts), all);
  };
  says_each(said(token([](RunToken& t) { t.receive = 5; })),
            {"a token for no partition of this node", "a token of no edge"});
  says_each(said(token([](RunToken& t) { t.receive = -1; })), {"a number that is too large"});
  says_each(said(token([](RunToken& t) { t.path.depth = 2; })), {"a token of another loop"});
  says_each(said(token([](RunToken& t) {
              t.value = Tensor::of<double>({2, 4});
            })),
            {"a value of another kind than its edge's"});
  says_each(said(token([](RunToken& t) {
              t.value = Tensor::of<float>({2, 4, 6});
            })),
            {"a value of another kind than its edge's"});
  says_each(said(token([](RunToken& t) { t.value = List(DType::f32, Shape{2}); })),
            {"a value of another kind than its edge's"});
  says_each(said(token([](RunToken& t) { t.value = Value(); })),
            {"a value of another kind than its edge's"});
  for (const std::int32_t times : {2, 0, -1})
    says_each(said(token([times](RunToken& t) { t.times = times; })),
              {times < 0 ? "a number that is too large" : "a token for too many iterations"});
  says_each(said([](RunKey key) {
              return RunTokens{key, {{0, 0, {}, 3}}, {}};
            }),
            {"a grant for no partition of this node", "a grant of no edge"});
}

// Direct records in shared memory, where there is no message: unreadable and invalid ones.
BOOST_AUTO_TEST_CASE(records_that_make_no_sense) {
  Plan plan;  // the numbers of a's partition, which is the first or the second, and of none
  plan.partitions.resize(3);
  for (const std::int32_t p : {0, 1, 2})
    plan.partitions[static_cast<std::size_t>(p)].number = p == 2 ? 7 : p;
  const auto said = [&](const auto& record_of) {
    std::string all;
    for (const std::int32_t partition : {0, 1, 2}) {
      Scene s({}, {.bulk = 1, .shared = 1});
      const WrittenTokens nothing({50, 3}, {}, plan);
      const auto is_open = [&] { return s.b.say_directly(nothing.record()); };
      if (!s.nodes.until(5s, is_open)) continue;  // one in ten bulk channels leads nowhere
      bool is_said = false;
      s.b.when_begun = [&](std::uint64_t run) {
        is_said = s.b.say_directly(record_of(RunKey{1, run}, partition));
      };
      Graph g;
      Expr x = g.input("x", DType::f32, {2}), there;
      {
        auto d = g.on_device("/node:b/cpu:0");
        there = x * 2.0;
      }
      const Status status =
          s.nodes.engine().compile(g, {x}, {there + 1.0}).start({Tensor::of<float>({1, 2})}).wait();
      BOOST_TEST(is_said);
      BOOST_TEST((status.code() == Code::unavailable || status.code() == Code::data_loss),
                 status.message());
      BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost; }));
      BOOST_TEST(s.nodes[0].run_counters().refused == 1u);
      BOOST_REQUIRE(s.nodes.log().size() == 1u);
      all += s.nodes.log()[0] + "\n";
    }
    return all;
  };
  std::vector<std::byte> kept;
  const auto of = [&](PartitionMessage message) {
    return [&plan, &kept, message](RunKey run, std::int32_t partition) {
      const Posted one{partition, message};
      const WrittenTokens tokens(run, {&one, 1}, plan);
      kept.assign(tokens.record().begin(), tokens.record().end());
      return std::span<const std::byte>(kept);
    };
  };
  const auto says_each = [&](const std::string& all, std::initializer_list<std::string> parts) {
    BOOST_TEST(says(all, parts), all);
  };
  says_each(said(of(Token{{}, 5, true, {}, {}, 1})),
            {"a token for no partition of this node", "a token of no edge"});
  says_each(said(of(Token{{}, 0, false, Tensor::scalar(1.f), {}, 1})),
            {"a value of another kind than its edge's"});
  says_each(said(of(Token{{}, 0, true, {}, {}, 2})), {"a token for too many iterations"});
  says_each(said(of(Grant{{}, 0, {}, 3})),
            {"a grant for no partition of this node", "a grant of no edge"});
  says_each(said([&](RunKey, std::int32_t) {
              kept.assign(5, std::byte{1});
              return std::span<const std::byte>(kept);
            }),
            {"tokens that end too soon"});
}

BOOST_AUTO_TEST_CASE(a_beginning_run_has_a_number) {
  for (const std::uint64_t id : {0, 7}) {
    Scene s;
    s.b.say(BeginRun{1, id, 1, 0, 0, {}});  // an unknown plan
    s.nodes.until(5s, [&] { return s.b.is_lost; });
    BOOST_TEST(says(s.b.why.message(), {"a run without its owner's number"}) == (id == 0),
               s.b.why.message());
  }
}

// Messages of tokens that end too soon, or go on.
BOOST_AUTO_TEST_CASE(messages_of_tokens_that_make_no_sense) {
  Plan plan;
  plan.partitions.resize(1);
  const std::vector<Posted> one{{0, Token{{}, 0, true, {}, {}, 1}}};
  const auto said = [&](const auto& change) {
    Scene s;
    Message m = WrittenTokens({50, 3}, one, plan).message();
    change(m);
    s.b.say(std::move(m));
    const auto is_told = [&] { return s.b.is_lost || s.nodes[0].run_counters().early == 1; };
    BOOST_TEST(s.nodes.until(5s, is_told));
    BOOST_TEST(s.nodes[0].run_counters().refused == (s.b.is_lost ? 1u : 0u));
    return s.b.is_lost ? s.b.why.message() : std::string("it waits");
  };
  BOOST_TEST(said([](Message&) {}) == "it waits");  // for its run
  BOOST_TEST(says(said([](Message& m) { m.head.resize(1); }), {"tokens that end too soon"}));
  BOOST_TEST(says(said([](Message& m) { m.head.pop_back(); }), {"tokens that end too soon"}));
  BOOST_TEST(
      says(said([](Message& m) { m.head.push_back(std::byte{0}); }), {"it goes on after its end"}));
  // an equal number encoded in two bytes
  BOOST_TEST(says(said([](Message& m) { m.head.insert(m.head.begin(), std::byte{0xcc}); }),
                  {"it is of no kind"}));
  BOOST_TEST(says(said([](Message& m) { m.tensors.push_back(Tensor::scalar(1.0)); }),
                  {"it goes on after its end"}));
}

// Tokens for a run whose beginning was lost with a session go when its owner says, in the next one,
// how far it has got.
BOOST_AUTO_TEST_CASE(a_beginning_that_was_lost_is_not_awaited) {
  Scene s(EarlyLimits{.messages = 3});
  const auto say_of = [&](std::uint64_t run) {
    RunTokens m{{50, run}, {}, {}};
    for (int i = 0; i < 3; ++i) m.tokens.push_back({0, 0, false, {}, Value()});
    s.b.say(m);
  };
  const auto counts = [&](std::uint64_t early, std::uint64_t late) {
    return s.nodes.until(5s, [&] {
      return s.nodes[0].run_counters().early == early && s.nodes[0].run_counters().late == late;
    });
  };
  say_of(3);
  BOOST_TEST(counts(1, 0));
  s.b.say(RunsBegun{5});
  say_of(7);  // as many as are kept of a peer
  BOOST_TEST(counts(2, 0));
  say_of(4);
  BOOST_TEST(counts(2, 1));
  BOOST_TEST(!s.b.is_lost);
}

// A premature list is charged for the memory it takes here: elements that a list lacks are a byte
// each in flight, and a slot in memory.
BOOST_AUTO_TEST_CASE(a_list_of_nothing_is_booked_by_its_slots) {
  for (const std::int64_t elements : {100, 10'000}) {
    Scene s(EarlyLimits{.bytes = 100'000});
    List list(DType::f32, Shape{2});
    list.grow(elements);
    RunTokens m{{50, 3}, {}, {}};
    m.tokens.push_back({0, 0, false, {}, list});
    s.b.say(m);
    const auto is_told = [&] { return s.b.is_lost || s.nodes[0].run_counters().early == 1; };
    BOOST_TEST(s.nodes.until(5s, is_told));
    BOOST_TEST(s.b.is_lost == (elements > 1000), elements << " elements");
  }
}

// Kernels go by what a variable says of itself: a first value of another kind would have them read
// beyond it.
BOOST_AUTO_TEST_CASE(a_variable_of_another_kind_than_declared) {
  StateSpec right;
  right.name = "v";
  right.values = {ValueSpec{DType::f32, Shape{1000}}};
  right.initial = Initializer::tensor(Tensor::zeros(DType::f32, {1000}));
  const auto asked = [](const StateSpec& spec) {
    Scene s;
    s.b.say(GetVariable{1, spec});
    BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost || s.b.answers == 1; }));
    return s.b.is_lost ? s.b.why.message() : std::string("answered");
  };
  BOOST_TEST(asked(right) == "answered");
  std::vector<StateSpec> wrong(4, right);
  wrong[0].initial.value = Tensor::zeros(DType::f32, {1});
  wrong[1].initial.value = Tensor::zeros(DType::f64, {1000});
  wrong[2].initial.value = Tensor();
  wrong[3].values[0].depth = 1;
  for (const StateSpec& spec : wrong)
    BOOST_TEST(says(asked(spec), {"a variable whose initial value differs from its description"}));
  StateSpec open = right;
  open.values[0].shape = Shape{kAny};  // which its first value fits
  BOOST_TEST(says(asked(open), {"a variable of no known shape"}));
  StateSpec actor = right;
  actor.kind = StateSpec::Kind::actor;  // an actor that is not registered
  BOOST_TEST(says(asked(actor), {"a value of what is no variable"}));
}

// Requests are bounded, too: a node serves one after the other, and disconnects a peer that asks
// for more meanwhile than it buffers.
BOOST_AUTO_TEST_CASE(requests_that_wait_are_bounded) {
  for (const std::uint64_t asked : {3u, 2000u}) {
    Scene s(EarlyLimits{.messages = 5});
    for (std::uint64_t n = 1; n <= asked; ++n) s.b.say(GetLoops{n, 7});
    // a itself does nothing meanwhile
    for (const Time end = s.nodes.network().now() + 100ms; s.nodes.network().now() < end;)
      s.nodes.network().step();
    BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost || s.b.answers == asked; }));
    BOOST_TEST(s.b.is_lost == (asked > 5));
    if (asked > 5)
      BOOST_TEST(
          says(s.b.why.message(), {"of its requests wait for node 'a'", "NodeOptions::early"}),
          s.b.why.message());
  }
}

// Requests are also bounded by the memory they keep. A single larger one is still done, because
// otherwise such a variable could never be set.
BOOST_AUTO_TEST_CASE(requests_that_wait_are_bounded_by_bytes) {
  StateSpec spec;
  spec.name = "v";
  spec.values = {ValueSpec{DType::f32, Shape{10'000}}};
  for (const std::uint64_t asked : {1u, 2u, 3u}) {
    Scene s(EarlyLimits{.bytes = asked == 1 ? 1000u : 100'000u});  // each is 40,000
    for (std::uint64_t n = 1; n <= asked; ++n)
      s.b.say(SetVariable{n, spec, Tensor::zeros(DType::f32, {10'000})});
    s.b.say(GetLoops{asked + 1, 7});  // keeps nothing
    // a itself does nothing meanwhile
    for (const Time end = s.nodes.network().now() + 100ms; s.nodes.network().now() < end;)
      s.nodes.network().step();
    BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost || s.b.answers == asked + 1; }));
    BOOST_TEST(s.b.is_lost == (asked > 2), asked << " requests");
    if (asked > 2)
      BOOST_TEST(
          says(s.b.why.message(), {"of its requests wait for node 'a'", "NodeOptions::early"}),
          s.b.why.message());
  }
  Scene s(EarlyLimits{.bytes = 1000});
  s.b.say(GetLoops{1, 7});  // a request without payload does not keep the large one out
  s.b.say(SetVariable{2, spec, Tensor::zeros(DType::f32, {10'000})});
  for (const Time end = s.nodes.network().now() + 100ms; s.nodes.network().now() < end;)
    s.nodes.network().step();
  BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost || s.b.answers == 2; }));
  BOOST_TEST(!s.b.is_lost, s.b.why.message());
  Scene named(EarlyLimits{.bytes = 100'000});
  // whatever it is that they keep
  for (std::uint64_t n = 1; n <= 3; ++n) named.b.say(ClearContainer{n, std::string(40'000, 'x')});
  for (const Time end = named.nodes.network().now() + 100ms; named.nodes.network().now() < end;)
    named.nodes.network().step();
  BOOST_TEST(named.nodes.until(5s, [&] { return named.b.is_lost || named.b.answers == 3; }));
  BOOST_TEST(named.b.is_lost);
}

// A peer that asks and does not read cannot fill a node's memory with answers: its further requests
// wait until they have arrived, and are then done.
BOOST_AUTO_TEST_CASE(answers_that_are_not_read_are_bounded_by_bytes) {
  constexpr std::uint64_t kBytes = 40'000, kBound = 100'000;
  StateSpec spec;
  spec.name = "v";
  spec.values = {ValueSpec{DType::f32, Shape{kBytes / 4}}};
  SimulationOptions network;
  network.bulk = 0;
  Scene s(EarlyLimits{.bytes = kBound}, network);
  const auto until = [&](Time span, auto done) {  // a's own work takes no time
    for (const Time end = s.nodes.network().now() + span; !done() && s.nodes.network().now() < end;
         s.nodes.network().step())
      while (s.nodes.engine().take_step()) {}
    return done();
  };
  s.b.say(SetVariable{1, spec, Tensor::zeros(DType::f32, {kBytes / 4})});
  BOOST_REQUIRE(until(1s, [&] { return s.b.answers == 1; }));
  s.nodes.network().slow_down("a", "b", Time(0), 1e4);  // a value takes 0.4 s
  const auto is_kept = [&](std::uint64_t values) {
    const TransportCounters c = s.nodes[0].counters();
    return c.unsent_bytes + c.unacknowledged_bytes >= values * kBytes;
  };
  for (std::uint64_t n = 1; n <= 3; ++n) {
    s.b.say(GetVariable{1 + n, spec});
    BOOST_TEST(until(50ms, [&] { return is_kept(n); }));
  }
  for (std::uint64_t n = 4; n <= 6; ++n) s.b.say(GetVariable{1 + n, spec});
  s.b.say(InspectNode{8, {}});
  BOOST_TEST(!until(50ms, [&] { return is_kept(4); }));  // three are more than the bound
  BOOST_TEST(s.b.answers == 1u);
  BOOST_TEST(until(2s, [&] { return s.b.answers == 7; }));
  BOOST_TEST(!s.b.is_lost, s.b.why.message());
  BOOST_REQUIRE(s.b.inspected.size() == 1u);
  BOOST_TEST(says(s.b.inspected[0].message(), {"it has not read its earlier answers"}),
             s.b.inspected[0].message());
}

BOOST_AUTO_TEST_CASE(a_session_begins_with_how_far_runs_have_got) {
  Scene s;
  s.b.fetches = {{0, Tensor::of<float>({2, 4})}};
  for (int run = 0; run < 2; ++run) BOOST_TEST(s.run().ok());
  BOOST_TEST(s.b.begun == 0u);
  s.b.come_again();
  BOOST_TEST(s.nodes.until(5s, [&] { return s.b.begun == 2u; }));
}

BOOST_AUTO_TEST_CASE(a_node_that_sends_for_another_is_disconnected) {
  Scene s;
  s.b.gossip("c");
  BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost; }));
  BOOST_TEST(says(s.b.why.message(), {"gossip in the name of another node"}));
}

BOOST_AUTO_TEST_CASE(members_that_are_none_are_no_news) {
  for (const char* name : {"x/y", "caf\xe9"}) {
    Scene s;
    s.b.gossip("b", {{.name = name, .incarnation = 1, .address = {}}});
    BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost; }));
    BOOST_TEST(s.nodes[0].members().size() == 2u);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
