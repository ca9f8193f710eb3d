// An agent that learns to balance a pole, inside the graph: the world is an actor, and episodes and
// steps are loops; to explore, to learn and to renew the target are conditionals. One run is the
// whole training; it ends when the return, averaged over a hundred episodes, exceeds the goal.
//
//   cartpole                      # until 195 of 200, some seconds on two cores
//   cartpole --seed 7 --goal 150
//
// Exit codes: 0 the goal was reached; 1 it was not, within --episodes and --seconds; 2 the command
// line makes no sense.
//
// Test: --goal 60 --episodes 300
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <troupe/apps/examples/cartpole/agent.hpp>
#include <troupe/apps/examples/cartpole/simulator.hpp>

using namespace troupe;
using namespace troupe::cartpole;

namespace {

struct Options {
  std::int64_t episodes = 2000;
  double seconds = 600;
  double goal = 195;
  std::uint64_t seed = 1;
  int workers = 0;
};

constexpr std::int64_t kAveraged = 100;    // episodes
constexpr std::int64_t kExploring = 5000;  // steps after which few actions are random
constexpr double kLeastEpsilon = 0.01;
constexpr std::int64_t kFirstLessons = 500;  // steps remembered before it learns
constexpr std::int64_t kLearnEvery = 4, kRenewEvery = 400;

using Clock = std::chrono::steady_clock;

// Prints the progress, and returns whether there is time for more.
class Journal final : public NodeActor {
 public:
  Journal(Clock::time_point begin, double seconds) : begin_(begin), seconds_(seconds) {}
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    const auto episodes = in[0].item<std::int64_t>(), steps = in[1].item<std::int64_t>();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    fmt::print("episode {:>5}  step {:>7}  average return {:>7.2f}  {:>6.0f} steps/s\n", episodes,
               steps, in[2].at(0), static_cast<double>(steps) / seconds);
    std::fflush(stdout);
    out[0] = Tensor::scalar(seconds < seconds_);
  }

 private:
  const Clock::time_point begin_;
  const double seconds_;
};

struct Episode {
  Expr steps, length, observation, has_fallen;  // steps count on from one episode to the next
  auto members() { return std::tie(steps, length, observation, has_fallen); }
};

struct Training {
  Expr episodes, steps, average, goes_on;
  auto members() { return std::tie(episodes, steps, average, goes_on); }
};

Training train(Graph& g, const Options& options) {
  Agent agent(g, {.seed = options.seed});
  Simulator world(g);
  Variable returns = g.variable("returns", DType::f32, {kAveraged}, Initializer::constant(0));

  auto step = [&](Episode e) {
    Expr epsilon =
        maximum(kLeastEpsilon, 1.0 - cast(e.steps, DType::f32) / static_cast<double>(kExploring));
    Expr action = agent.decide(e.observation, g.random_uniform({}), epsilon);
    Moment now = world.push(action);
    agent.remember(e.steps, {e.observation, action, g.constant(1.f), now.observation,
                             cast(now.has_fallen, DType::f32)});
    when(logical_and(e.steps >= kFirstLessons, mod(e.steps, kLearnEvery) == 0),
         [&] { agent.learn(e.steps, g.random_uniform({agent.options().batch})); },
         {.name = "learn"});
    when(mod(e.steps, kRenewEvery) == 0, [&] { agent.renew_target(); }, {.name = "renew"});
    return Episode{e.steps + 1, e.length + 1, now.observation, now.has_fallen};
  };

  auto episode = [&](Training t) {
    Episode first{t.steps, g.constant(std::int64_t{0}),
                  world.start(0.1 * g.random_uniform({4}) - 0.05), g.constant(false)};
    Episode last = while_loop(
        [](Episode e) { return logical_and(logical_not(e.has_fallen), e.length < kMaxSteps); },
        step, first, {.name = "episode"});
    Expr episodes = t.episodes + 1;
    // Every step is worth one.
    Expr kept = returns.scatter_update(mod(t.episodes, kAveraged), cast(last.length, DType::f32));
    Expr average = sum(kept) / cast(minimum(episodes, kAveraged), DType::f32);
    Expr is_done = logical_or(logical_and(episodes >= kAveraged, average > options.goal),
                              episodes >= options.episodes);
    Expr has_time = cond(
        logical_or(is_done, mod(episodes, 50) == 0),
        [&] {
          return actor_node(g, "journal", {episodes, last.steps, average},
                            {{DType::boolean, Shape{}}},
                            [begin = Clock::now(), seconds = options.seconds] {
                              return std::make_unique<Journal>(begin, seconds);
                            })[0];
        },
        [&] { return g.constant(true); }, {.name = "report"});
    return Training{episodes, last.steps, average, logical_and(has_time, logical_not(is_done))};
  };

  return while_loop([](Training t) { return t.goes_on; }, episode,
                    Training{g.constant(std::int64_t{0}), g.constant(std::int64_t{0}),
                             g.constant(0.f), g.constant(true)},
                    {.name = "training"});
}

int run(const Options& options) {
  Graph g;
  Training last = train(g, options);
  Engine engine({.workers = options.workers, .seed = options.seed});
  std::vector<Tensor> out = engine.compile(g, {}, {last.episodes, last.average})({});
  const auto episodes = out[0].item<std::int64_t>();
  const double average = out[1].at(0);
  const bool is_reached = episodes >= kAveraged && average > options.goal;
  fmt::print("{} after {} episodes: an average return of {:.2f} over the last {}\n",
             is_reached ? fmt::format("learnt to exceed {}", options.goal)
                        : fmt::format("did not exceed {}", options.goal),
             episodes, average, std::min(episodes, kAveraged));
  return is_reached ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Learns to balance a pole on a cart (CartPole-v0), inside the graph.", "cartpole"};
  Options options;
  app.add_option("--goal", options.goal,
                 "average return of 100 episodes, of at most 200, at which it stops")
      ->check(CLI::Range(0.0, 200.0))
      ->capture_default_str()
      ->type_name("R");
  app.add_option("--episodes", options.episodes, "at most as many")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--seconds", options.seconds, "no new episode later than this, within 50 episodes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->type_name("S");
  app.add_option("--seed", options.seed, "seed of the first weights, the world and the choices")
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--workers", options.workers,
                 "threads; they change speed, never results (0: one a core)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "cartpole: {}; see cartpole --help\n", e.what());
    return 2;
  }
  try {
    return run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cartpole: {}\n", e.what());
    return 1;
  }
}
