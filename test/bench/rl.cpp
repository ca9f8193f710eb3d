// Steps a second of an agent that learns CartPole, its decisions in the graph against the same
// agent driven by a client (experiment 6 of the EuroSys 2018 paper: 21% faster in the graph;
// budget: 1.2x).
//
// Both sides are made of the same pieces of graph, the example's, with the same network, memory and
// batches, the simulator as an actor, one worker each. In the graph one run takes all steps:
// whether to explore, to learn, to renew the target and to start anew are conditionals of a loop.
// The client decides these in C++; it runs one function a step, with the network or without, that
// acts and remembers, and one a lesson. Both get the same dice; what they did, and what they learnt
// from it, must be the same to the last bit.
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include <troupe/apps/examples/cartpole/agent.hpp>
#include <troupe/apps/examples/cartpole/simulator.hpp>
#include <troupe/test/bench/bench.hpp>

namespace {

using namespace troupe;
using namespace troupe::cartpole;

constexpr int kRepetitions = 61;
constexpr std::int64_t kSteps = 200, kLearnEvery = 4, kRenewEvery = 400;
constexpr float kEpsilon = 0.1f;

/// The random draws in the steps of one repetition.
struct Dice {
  Dice(unsigned seed, std::int64_t batch)
      : bits_(seed), chances(draw({kSteps})), lessons(draw({kSteps, batch})),
        starts(draw({kSteps, 4})) {}

 private:
  Tensor draw(const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& v : values) v = static_cast<float>(bits_() >> 8) * 0x1p-24f;
    return Tensor::of<float>(values, shape);
  }
  std::mt19937 bits_;

 public:
  const Tensor chances, lessons, starts;
};

/// An agent, its world and where it stands.
class Side {
 public:
  Tensor get(const std::string& variable) { return engine_.get(variable); }
  const Tensor& observation() const { return observation_; }
  std::int64_t batch() const { return agent_.options().batch; }

 protected:
  Expr start(const Expr& chances) const { return world_.start(0.1 * chances - 0.05); }
  Expr remember(const Expr& step, const Expr& observation, const Expr& action, const Moment& now) {
    return agent_.remember(step, {observation, action, graph_.constant(1.f), now.observation,
                                  cast(now.has_fallen, DType::f32)});
  }

  Graph graph_;
  Agent agent_{graph_, {}};
  Simulator world_{graph_};
  Engine engine_{{.workers = 1}};
  Tensor observation_ = Tensor::zeros(DType::f32, {4});
  std::int64_t step_ = 0, length_ = 0;
};

class InGraph final : public Side {
 public:
  InGraph() {
    Expr first = graph_.input("first", DType::i64, Shape{}),
         length = graph_.input("length", DType::i64, Shape{});
    Expr observation = graph_.input("observation", DType::f32, {4}),
         chances = graph_.input("chances", DType::f32, {kSteps});
    Expr lessons = graph_.input("lessons", DType::f32, {kSteps, batch()}),
         starts = graph_.input("starts", DType::f32, {kSteps, 4});
    struct State {
      Expr i, length, observation;
      auto members() { return std::tie(i, length, observation); }
    };
    auto body = [&](State s) {
      Expr step = first + s.i;
      Expr action = agent_.decide(s.observation, gather(chances, s.i), graph_.constant(kEpsilon));
      Moment now = world_.push(action);
      remember(step, s.observation, action, now);
      when(mod(step, kLearnEvery) == 0, [&] { agent_.learn(step, gather(lessons, s.i)); });
      when(mod(step, kRenewEvery) == 0, [&] { agent_.renew_target(); });
      Expr is_over = logical_or(now.has_fallen, s.length + 1 >= kMaxSteps);
      return State{s.i + 1, where(is_over, 0, s.length + 1),
                   cond(
                       is_over, [&] { return start(gather(starts, s.i)); },
                       [&] { return now.observation; })};
    };
    State last = while_loop([](State s) { return s.i < kSteps; }, body,
                            State{graph_.constant(std::int64_t{0}), length, observation});
    run_ = engine_.compile(graph_, {first, length, observation, chances, lessons, starts},
                           {last.length, last.observation});
  }

  void steps(const Dice& dice) {
    std::vector<Tensor> out = run_({Tensor::scalar(step_), Tensor::scalar(length_), observation_,
                                    dice.chances, dice.lessons, dice.starts});
    step_ += kSteps;
    length_ = out[0].item<std::int64_t>();
    observation_ = out[1];
  }

 private:
  Function run_;
};

class ByClient final : public Side {
 public:
  ByClient() {
    Expr step = graph_.input("step", DType::i64, Shape{}),
         observation = graph_.input("observation", DType::f32, {4});
    Expr chance = graph_.input("chance", DType::f32, Shape{}),
         lesson = graph_.input("lesson", DType::f32, {batch()});
    Expr chances = graph_.input("chances", DType::f32, {4});
    auto act = [&](std::vector<Expr> feeds, const Expr& action) {
      Moment now = world_.push(action);
      return engine_.compile(
          graph_, feeds,
          {now.observation, now.has_fallen, remember(step, observation, action, now)});
    };
    explore_ = act({step, observation, chance}, agent_.any(chance, graph_.constant(kEpsilon)));
    exploit_ = act({step, observation}, agent_.best(observation));
    learn_ = engine_.compile(graph_, {step, lesson}, {agent_.learn(step, lesson)});
    renew_ = engine_.compile(graph_, {}, {agent_.renew_target()});
    start_ = engine_.compile(graph_, {chances}, {start(chances)});
  }

  void steps(const Dice& dice) {
    for (std::int64_t i = 0; i < kSteps; ++i, ++step_) {
      const Tensor step = Tensor::scalar(step_);
      const float chance = dice.chances.data<float>()[i];
      std::vector<Tensor> now = chance < kEpsilon
                                    ? explore_({step, observation_, Tensor::scalar(chance)})
                                    : exploit_({step, observation_});
      if (step_ % kLearnEvery == 0) learn_({step, row(dice.lessons, i)});
      if (step_ % kRenewEvery == 0) renew_({});
      const bool is_over = now[1].item<bool>() || ++length_ >= kMaxSteps;
      if (is_over) length_ = 0;
      observation_ = is_over ? start_({row(dice.starts, i)})[0] : std::move(now[0]);
    }
  }

 private:
  static Tensor row(const Tensor& t, std::int64_t i) {
    const std::int64_t n = t.shape()[1];
    const float* from = t.data<float>() + i * n;
    return Tensor::of<float>(std::vector<float>(from, from + n), {n});
  }

  Function explore_, exploit_, learn_, renew_, start_;
};

void require_identical(InGraph& graph, ByClient& client) {
  bool same = identical(graph.observation(), client.observation());
  for (const char* name :
       {"memory/actions", "memory/observations", "q/w0", "q/b1", "q/w2", "target/w1"})
    same = same && identical(graph.get(name), client.get(name));
  if (same) return;
  std::fprintf(stderr, "the graph and the client did not do the same\n");
  std::exit(1);
}

/// Time that all threads have spent computing, and spinning, in nanoseconds.
double cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto ns = [](const timeval& t) {
    return 1e9 * static_cast<double>(t.tv_sec) + 1e3 * static_cast<double>(t.tv_usec);
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

/// Takes the steps; their wall time goes to `times`, what they cost in processor time to `cpu`.
void time_steps(auto& side, const Dice& dice, std::vector<double>& times, double& cpu) {
  const double begin = bench::now_ns(), cpu_begin = cpu_ns();
  side.steps(dice);
  times.push_back((bench::now_ns() - begin) / kSteps);
  cpu += (cpu_ns() - cpu_begin) / (kSteps * kRepetitions);
}

}  // namespace

int main(int argc, char** argv) {
  InGraph graph;
  ByClient client;
  // one side alone, for a profiler: profile graph|client
  if (argc > 2 && std::strcmp(argv[1], "profile") == 0) {
    const bool is_graph = std::strcmp(argv[2], "graph") == 0;
    for (unsigned i = 0; i < 150; ++i)
      is_graph ? graph.steps(Dice(i, graph.batch())) : client.steps(Dice(i, graph.batch()));
    return 0;
  }
  for (unsigned i = 0; i < 20; ++i) {  // before anything is timed: both learn, and warm up
    const Dice dice(i, graph.batch());
    graph.steps(dice);
    client.steps(dice);
    require_identical(graph, client);
  }
  bench::Comparison c{.name = "rl",
                      .unit = "ns a step",
                      .peer = "the same agent driven by a client",
                      .peer_version = "same build",
                      .budget = 1.2,
                      .speed_up = true};
  double cpu = 0, peer_cpu = 0;
  for (unsigned i = 0; i < kRepetitions; ++i) {
    const Dice dice(100 + i, graph.batch());
    time_steps(graph, dice, c.ours, cpu);
    time_steps(client, dice, c.theirs, peer_cpu);
    require_identical(graph, client);
  }
  c.also = {{"cpu_ns", cpu}, {"peer_cpu_ns", peer_cpu}};
  c.print();
}
