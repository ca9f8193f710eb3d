// Not under tsan: one thread steps the simulation.
// Would the seeded simulation notice a mistake in the protocol of runs? Each is planted in what one
// node sends, and must be found within a few schedules: a run that hangs, a wrong value, or a part
// of a run that stays behind.
#include <boost/test/unit_test.hpp>

#include <optional>

#include <troupe/test/support/cluster/faulty.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(planted_test)

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSchedules = 40;  // within which each must be found
constexpr std::uint64_t kFaultless = 5;   // in which nothing may be
// virtual time; a run takes milliseconds, a lost node is known after 5.5 s
constexpr auto kPatience = 15s;

enum class Fault {
  none,
  token_lost,
  token_renamed,
  grants_lost,
  begin_lost,
  left_lost,
  abandon_lost
};
constexpr std::pair<Fault, const char*> kFaults[] = {
    {Fault::token_lost, "a token is lost"},
    {Fault::token_renamed, "a token comes again as that of the next iteration"},
    {Fault::grants_lost, "grants are lost"},
    {Fault::begin_lost, "the beginning of a run is lost"},
    {Fault::left_lost, "that a run was left is lost"},
    {Fault::abandon_lost, "that a run was given up is lost"}};

// Returns a node's message with the fault in it; null: nothing.
class Liar {
 public:
  Liar(Fault fault, std::uint64_t seed) : fault_(fault), random_(seed) {}

  std::optional<Message> said(Message message) {
    auto m = as<RunTokens>(message);
    switch (fault_) {
      case Fault::none: return message;
      case Fault::begin_lost: return unless<BeginRun>(std::move(message));
      case Fault::left_lost: return unless<LeftRun>(std::move(message));
      case Fault::abandon_lost: return unless<AbandonRun>(std::move(message));
      case Fault::grants_lost:
        if (!m) return message;
        m->grants.clear();
        if (m->tokens.empty()) return {};
        return written(*m);
      case Fault::token_lost:
      case Fault::token_renamed:
        if (!m || m->tokens.empty() || has_lied_ || random_() % 8 != 0) return message;
        const auto token =
            m->tokens.begin() + static_cast<std::ptrdiff_t>(random_() % m->tokens.size());
        if (token->path.depth == 0) return message;
        has_lied_ = true;
        if (fault_ == Fault::token_lost) {
          m->tokens.erase(token);
        } else {
          RunToken again = *token;
          ++again.path.number[again.path.depth - 1];
          m->tokens.push_back(std::move(again));
        }
        return written(*m);
    }
    return message;
  }

 private:
  template <class M>
  static std::optional<Message> unless(Message message) {
    return as<M>(message) ? std::nullopt : std::optional<Message>(std::move(message));
  }

  const Fault fault_;
  std::minstd_rand random_;
  bool has_lied_ = false;
};

// Over three nodes, an inner loop in an outer one, two iterations of each at a time. In f32 without
// rounding, and what is wrong stays.
Expr nested(Graph& g, int outer) {
  auto [i, t] = while_loop(
      [=](Expr n, Expr) { return n < outer; },
      [&](Expr n, Expr v) {
        auto [k, u] = while_loop([](Expr m, Expr) { return m < 5; },
                                 [&](Expr m, Expr w) {
                                   Expr next = m + 1, more;
                                   {
                                     auto d = g.on_device("/node:b/cpu:0");
                                     more = w + 0.5;
                                   }
                                   auto d = g.on_device("/node:c/cpu:0");
                                   return std::tuple{next, more + cast(m, DType::f32)};
                                 },
                                 std::tuple{g.constant(0), v}, {.parallel_iterations = 2});
        auto d = g.on_device("/node:b/cpu:0");
        return std::tuple{n + 1, u * 2.0};
      },
      std::tuple{g.constant(0), g.ones(DType::f32, {2})}, {.parallel_iterations = 2});
  return t * 1.0;
}

double expected_of(int outer) {
  double v = 1;
  for (int i = 0; i < outer; ++i) {
    for (int k = 0; k < 5; ++k) v += 0.5 + k;
    v *= 2.0;
  }
  return v;
}

// Returns the error that the simulation finds; none: all is well. The fault is in b, or in the
// owner where only the owner sends such a message.
std::optional<std::string> found(Fault fault, std::uint64_t seed) {
  const std::string liar_name =
      fault == Fault::begin_lost || fault == Fault::abandon_lost ? "a" : "b";
  Nodes nodes(
      3, stepped_partitions(seed), Between::simulation, {},
      [&](const std::string& name, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
        if (name != liar_name) return inner;
        return std::make_unique<FaultyTransport>(
            std::move(inner),
            [liar = std::make_shared<Liar>(fault, seed)](Peer peer, Lane lane, Message m,
                                                         const FaultyTransport::Send& send) {
              if (auto said = liar->said(std::move(m))) send(peer, lane, std::move(*said));
            });
      });
  Graph g;
  constexpr int kOuter = 6;
  Function f = nodes.engine().compile(g, {}, {nested(g, kOuter)});
  for (int round = 0; round < 2; ++round) {
    RunHandle run = f.start({});
    if (!nodes.until(kPatience, [&] { return run.is_done(); })) {
      run.cancel();
      run.wait();
      return "a run hangs";
    }
    try {
      const double value = run.get().at(0).at(0);
      if (value != expected_of(kOuter)) return "a wrong value";
    } catch (const Error& e) { return std::string(e.what()); }
  }
  // One that would go on for ever is cancelled: the others are to leave it too.
  Graph h;
  RunHandle endless = nodes.engine().compile(h, {}, {nested(h, 1'000'000)}).start({});
  for (int i = 0; i < 500; ++i) nodes.step();
  endless.cancel();
  endless.wait();
  const auto has_left = [&] {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (!nodes[i].engine().snapshot().runs.empty()) return false;
    return true;
  };
  nodes.until(1s, [] { return false; });
  if (!has_left()) return "a part of a run stays behind";
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(without_one_nothing_is_found) {
  for (std::uint64_t seed = 1; seed <= kFaultless; ++seed)
    BOOST_TEST(found(Fault::none, seed).value_or("") == "");
}

BOOST_AUTO_TEST_CASE(each_is_found) {
  for (const auto& [fault, name] : kFaults) {
    std::optional<std::string> what;
    std::uint64_t seed = 1;
    for (; seed <= kSchedules && !what; ++seed) what = found(fault, seed);
    BOOST_TEST(what.has_value(), name);
    if (what) BOOST_TEST_MESSAGE(name << ": " << *what << " (schedule " << seed - 1 << ")");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
