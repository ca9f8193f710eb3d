// Finds which actors of a program cause which, from the times of their firings alone.
//
// The program is open-loop: Poisson arrivals, one run each, pass through fifteen actors with a
// chain of three, a branch, a fan-out and two joins. Each actor adds a random service time to the
// times it receives, so the clock is virtual. CT-NOR and three simpler methods see the recorded
// times; the edges of the graph are the truth.
//
// Exit code: 0 if CT-NOR has precision and recall of at least 0.8, and no method finds more.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

constexpr double kEnd = 400;  // s of the virtual clock

/// The times that actors have recorded. One run is in progress at a time.
struct Recording {
  std::vector<dependence::Channel> channels;
  dependence::Edges truth;
};

/// Fires when its last input has come, and its output is later by a service time.
struct Stage : NodeActor {
  Stage(Recording* all, std::size_t index, double mean)
      : recording(all), channel(index), random(index + 1), service(1 / mean) {}

  void receive(std::span<const Tensor> inputs, std::span<Tensor> outputs) override {
    double at = 0;
    for (const Tensor& input : inputs) at = std::max(at, input.item<double>());
    at += service(random);
    recording->channels[channel].times.push_back(at);
    outputs[0] = Tensor::scalar(at);
  }

  Recording* recording;
  std::size_t channel;
  std::mt19937_64 random;
  std::exponential_distribution<double> service;
};

struct Node {
  Expr time;
  std::vector<std::string> names;  // actors that may have set it
};

class Program {
 public:
  Program(Graph& g, Recording& recording) : g_(g), recording_(recording) {}

  Node stage(const std::string& name, const std::vector<Node>& inputs, double mean) {
    const std::size_t index = recording_.channels.size();
    recording_.channels.push_back({name, {}});
    std::vector<Expr> times;
    for (const Node& input : inputs) {
      times.push_back(input.time);
      for (const std::string& from : input.names) recording_.truth.emplace(from, name);
    }
    Expr time = actor_node(
        g_, name, times, {{DType::f64, Shape{}}},
        [all = &recording_, index, mean] { return std::make_unique<Stage>(all, index, mean); })[0];
    return {time, {name}};
  }

 private:
  Graph& g_;
  Recording& recording_;
};

void report(const char* name, const dependence::Retrieval& found) {
  std::printf("%-15s %s\n", name, found.text().c_str());
}

}  // namespace

int main() {
  Recording recording;
  Graph g;
  Program p(g, recording);
  Expr arrival = g.input("arrival", DType::f64, Shape{});
  Expr is_known = g.input("is_known", DType::boolean, Shape{});

  Node gate = p.stage("gate", {{arrival, {}}}, 0.001);
  Node parse = p.stage("parse", {gate}, 0.02);
  Node check = p.stage("check", {parse}, 0.03);
  Node query, decode;
  Expr found = cond(
      is_known,
      [&] {
        Node cache = p.stage("cache", {check}, 0.01);
        decode = p.stage("decode", {cache}, 0.02);
        return decode.time;
      },
      [&] {
        Node plan = p.stage("plan", {check}, 0.03);
        query = p.stage("query", {plan}, 0.05);
        return query.time;
      });
  Node merge = p.stage("merge", {{found, {"decode", "query"}}}, 0.01);
  Node logged = p.stage("log", {merge}, 0.04);
  Node rank = p.stage("rank", {merge}, 0.03);
  Node ads = p.stage("ads", {merge}, 0.05);
  Node page = p.stage("page", {rank, ads}, 0.01);
  Node sent = p.stage("send", {page}, 0.02);

  // Another program of the same engine, with arrivals of its own.
  Graph h;
  Program q(h, recording);
  Expr tick = h.input("tick", DType::f64, Shape{});
  Node timer = q.stage("timer", {{tick, {}}}, 0.001);
  Node sweep = q.stage("sweep", {timer}, 0.05);

  Engine engine({.workers = 1});
  Function serve = engine.compile(g, {arrival, is_known}, {sent.time, logged.time});
  Function clean = engine.compile(h, {tick}, {sweep.time});
  std::mt19937_64 random(20);
  std::exponential_distribution<double> gap(3), pause(1);
  std::bernoulli_distribution known(0.4);
  for (double t = gap(random); t < kEnd; t += gap(random))
    serve({Tensor::scalar(t), Tensor::scalar(known(random))});
  for (double t = pause(random); t < kEnd; t += pause(random)) clean({Tensor::scalar(t)});

  for (dependence::Channel& channel : recording.channels) {
    std::sort(channel.times.begin(), channel.times.end());  // one request overtakes another
    std::erase_if(channel.times, [](double t) { return t > kEnd; });
  }
  const double support = 0.5;
  dependence::DependenceGraph graph = dependence::find_dependences(
      recording.channels, kEnd, {.support = support, .has_acausal = false, .shifts = 0});
  dependence::judge(graph, recording.truth);
  std::printf("%s\n", text_of(graph).c_str());
  report("CT-NOR", *graph.truth);
  bool is_best = true;
  for (const auto baseline :
       {dependence::Baseline::co_occurrence, dependence::Baseline::pairwise_ratio,
        dependence::Baseline::delay_spike}) {
    const dependence::Retrieval other = dependence::retrieval_of(
        dependence::edges_by(baseline, recording.channels, kEnd, support), recording.truth);
    report(name_of(baseline), other);
    is_best = is_best && other.precision < graph.truth->precision;
  }
  return is_best && graph.truth->precision >= 0.8 && graph.truth->recall >= 0.8 ? 0 : 1;
}
