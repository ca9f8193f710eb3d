// An agent that learns from the results of its actions: a deep Q-network (Mnih et al., Nature 2015)
// with double estimates (van Hasselt et al., AAAI 2016). Its parts are pieces of graph; the caller
// that puts them together decides when to act, to remember, to learn and to renew.
//
//   Agent agent(g, {});
//   Expr action = agent.decide(observation, g.random_uniform({}), epsilon);
//   agent.remember(step, {observation, action, reward, next, is_end});
//   agent.learn(step, g.random_uniform({agent.options().batch}));
//
// Ops that change the agent yield a token: outside of loops and branches, fetch it or order others
// after it. The agent's memory, networks and optimizer slots are variables: all its state lives in
// the engine.
#pragma once

#include <string>
#include <vector>

#include <troupe/troupe.hpp>

namespace troupe::cartpole {

struct AgentOptions {
  std::int64_t inputs = 4, actions = 2, hidden = 64;
  std::int64_t memory = 10'000;  // moments; the oldest is forgotten first
  std::int64_t batch = 32;
  double discount = 0.98;
  // Adam's; it falls to a tenth over `rate_steps`, or earlier learning would be forgotten
  double rate = 1e-3;
  double rate_steps = 40'000;
  std::uint64_t seed = 0;
};

/// One moment, or a batch of them: f32[inputs], i32[], f32[], f32[inputs], f32[]. `is_end` is one
/// where nothing follows, else zero.
struct Experience {
  Expr observation, action, reward, next, is_end;
};

class Agent {
 public:
  Agent(Graph& graph, AgentOptions options)
      : options_(options), graph_(graph), network_(make_network("q", options.seed)),
        target_(make_network("target", options.seed)),
        observations_(rows("observations", DType::f32, {options.memory, options.inputs})),
        actions_(rows("actions", DType::i32, {options.memory})),
        rewards_(rows("rewards", DType::f32, {options.memory})),
        nexts_(rows("nexts", DType::f32, {options.memory, options.inputs})),
        ends_(rows("ends", DType::f32, {options.memory})) {}

  const AgentOptions& options() const { return options_; }

  /// The action of the highest value, an i32 scalar.
  Expr best(const Expr& observation) const {
    return cast(reshape(argmax(values(network_, expand_dims(observation, 0)), 1), Shape{}),
                DType::i32);
  }
  /// An action at random; `chance` is drawn uniformly from [0, epsilon).
  Expr any(const Expr& chance, const Expr& epsilon) const {
    return cast(floor(chance / epsilon * static_cast<double>(options_.actions)), DType::i32);
  }
  /// With probability epsilon any action, else the best. `chance` is drawn uniformly from [0, 1).
  Expr decide(const Expr& observation, const Expr& chance, const Expr& epsilon) const {
    return cond(
        chance < epsilon, [&] { return any(chance, epsilon); }, [&] { return best(observation); },
        {.name = "explore"});
  }

  /// Stores the transition of step `step`, an i64 scalar.
  Expr remember(const Expr& step, const Experience& e) const {
    Expr place = mod(step, options_.memory);
    return group({observations_.scatter_update(place, e.observation),
                  actions_.scatter_update(place, e.action),
                  rewards_.scatter_update(place, e.reward), nexts_.scatter_update(place, e.next),
                  ends_.scatter_update(place, e.is_end)});
  }

  /// One step down the gradient of the error on a batch of what is remembered from steps 0 to
  /// `step`; `chances`, f32[batch] in [0, 1), choose it.
  Expr learn(const Expr& step, const Expr& chances) const {
    Experience e = recall(minimum(step + 1, options_.memory), chances);
    // The network chooses the next action, the target says what it is worth: one alone believes its
    // own mistakes.
    Expr promised = of(values(target_, e.next), argmax(values(network_, e.next), 1));
    Expr found = stop_gradient(e.reward + options_.discount * (1.0 - e.is_end) * promised);
    Expr error = mean(huber(of(values(network_, e.observation), e.action) - found));
    Expr rate = options_.rate * maximum(0.1, 1.0 - cast(step, DType::f32) / options_.rate_steps);
    return Adam({.learning_rate = rate}).minimize(error, network_);
  }

  /// Copies the network to the target.
  Expr renew_target() const {
    std::vector<Expr> copied;
    for (std::size_t i = 0; i < network_.size(); ++i)
      copied.push_back(target_[i].assign(network_[i]));
    return group(copied);
  }

  /// Weights and biases, in turn.
  const std::vector<Variable>& network() const { return network_; }

 private:
  Variable rows(const std::string& name, DType dtype, const Shape& shape) const {
    return graph_.variable("memory/" + name, dtype, shape, Initializer::constant(0));
  }

  std::vector<Variable> make_network(const std::string& name, std::uint64_t seed) const {
    std::vector<Variable> made;
    const std::int64_t widths[] = {options_.inputs, options_.hidden, options_.hidden,
                                   options_.actions};
    for (std::size_t i = 0; i + 1 < std::size(widths); ++i) {
      made.push_back(graph_.variable(name + "/w" + std::to_string(i), DType::f32,
                                     {widths[i], widths[i + 1]},
                                     Initializer::glorot(widths[i], widths[i + 1], seed)));
      made.push_back(graph_.variable(name + "/b" + std::to_string(i), DType::f32, {widths[i + 1]},
                                     Initializer::constant(0)));
    }
    return made;
  }

  /// Returns the value of each action: f32[batch, actions].
  Expr values(const std::vector<Variable>& network, const Expr& observations) const {
    Expr x = observations;
    for (std::size_t i = 0; i + 2 < network.size(); i += 2)
      x = tanh(matmul(x, network[i]) + network[i + 1]);
    return matmul(x, network[network.size() - 2]) + network.back();
  }

  Expr of(const Expr& values, const Expr& actions) const {
    return sum(values * one_hot(actions, options_.actions), {1});
  }

  /// Quadratic near zero, linear far away (Huber, 1964).
  static Expr huber(const Expr& x) {
    Expr far = abs(x);
    return where(far < 1.0, 0.5 * square(x), far - 0.5);
  }

  Experience recall(const Expr& known, const Expr& chances) const {
    Expr places = cast(floor(chances * cast(known, DType::f32)), DType::i64);
    return {gather(observations_, places), gather(actions_, places), gather(rewards_, places),
            gather(nexts_, places), gather(ends_, places)};
  }

  AgentOptions options_;
  Graph& graph_;
  std::vector<Variable> network_, target_;
  Variable observations_, actions_, rewards_, nexts_, ends_;
};

}  // namespace troupe::cartpole
