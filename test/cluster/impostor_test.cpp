// A peer that is connected and says what is not its to say: the run it takes part in fails, or it is disconnected.
#include <boost/test/unit_test.hpp>

#include <troupe/cluster/messages.hpp>
#include <troupe/test/cluster/nodes.hpp>
#include <troupe/test/controlflow/everywhere.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

// Node b, which agrees to every plan without making it, and ends every run with `fetches`.
class Impostor final : public TransportListener {
 public:
  explicit Impostor(Nodes& nodes) : transport_(nodes.network().make_transport({.name = "b", .incarnation = 50, .address = "sim://b", .engine = {}})) {
    transport_->start(*this);
    transport_->connect("sim://a");
  }
  ~Impostor() { transport_->stop(); }

  std::vector<std::pair<std::int32_t, Tensor>> fetches;
  bool is_lost = false;
  Status why;

  template <class M>
  void say(const M& message) {
    transport_->send(peer_, M::kLane, written(message).take());
  }
  void gossip(const std::string& name, std::vector<Member> members = {}) {
    say(Gossip{{.name = name, .incarnation = 50, .address = "sim://b"}, {.kind = MembershipMessage::Kind::news, .members = std::move(members)}});
  }

  void connected(Peer peer, const PeerInfo&) override {
    peer_ = peer;
    gossip("b");
  }
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message message) override {
    MessageReader reader(message);
    const MessageKind kind = kind_of(reader);
    if (kind == MessageKind::make_plan) {
      MakePlan m;
      read_fields(reader, m);
      say(Answer{m.request, {}, {}});
    } else if (kind == MessageKind::begin_run) {
      const auto m = read_all<BeginRun>(reader);
      say(LeftRun{m.run, {}, fetches});
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
  Scene() : nodes(1, options(), Between::simulation), b(nodes) {
    BOOST_REQUIRE(nodes.until(5s, [&] { return nodes[0].nodes().size() == 2; }));
  }
  static EngineOptions options() {
    EngineOptions o;
    o.deterministic = true;
    o.seed = 1;
    return o;
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

BOOST_AUTO_TEST_SUITE(impostor_test)

BOOST_AUTO_TEST_CASE(a_peer_delivers_what_is_fetched_from_it) {
  Scene s;
  s.b.fetches = {{0, Tensor::of<float>({2, 4})}};
  BOOST_TEST(s.run().ok());
}

BOOST_AUTO_TEST_CASE(and_nothing_that_is_fetched_elsewhere) {
  for (const std::int32_t index : {1, 2, -1}) {
    Scene s;
    s.b.fetches = {{0, Tensor::of<float>({2, 4})}, {index, Tensor::of<float>({7, 7})}};
    const Status status = s.run();
    BOOST_TEST((status.code() == Code::data_loss), status.message());
    BOOST_TEST(says(status.message(), {"node 'b'", "it sent what was not fetched"}));
  }
}

BOOST_AUTO_TEST_CASE(who_speaks_for_another_is_disconnected) {
  Scene s;
  s.b.gossip("c");
  BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost; }));
  BOOST_TEST(says(s.b.why.message(), {"what another node would say"}));
}

BOOST_AUTO_TEST_CASE(members_that_are_none_are_no_news) {
  Scene s;
  s.b.gossip("b", {{.name = "x/y", .incarnation = 1, .address = {}}});
  BOOST_TEST(s.nodes.until(5s, [&] { return s.b.is_lost; }));
  BOOST_TEST(s.nodes[0].members().size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
