// A user's own actors as nodes of a graph: a simulator with state, and a sink for events.
// A proportional controller, which is graph, keeps a room, which is an actor, at 20 degrees.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include <troupe/troupe.hpp>

using namespace troupe;

// A room that loses heat to a cold world. Only the room reads or writes its temperature, which
// stays between runs.
struct Room : NodeActor {
  float temperature = 5;

  void receive(std::span<const Tensor> inputs, std::span<Tensor> outputs) override {
    float heating = inputs[0].item<float>();
    if (std::isnan(heating)) throw Error(Code::invalid_argument, "the heating is not a number");
    temperature += 0.1f * heating - 0.05f * temperature;  // outside it is 0 degrees
    outputs[0] = Tensor::scalar(temperature);
  }
};

int main() {
  Graph g;
  Expr target = g.input("target", DType::f32, Shape{});
  Variable last = g.variable("last", Tensor::scalar(5.f));

  // Heats in proportion to the missing degrees, plus the loss; never cools.
  Expr heating = relu(4.0 * (target - last) + 0.5 * target);
  Expr now = actor_node<Room>(g, "room", {heating}, {{DType::f32, Shape{}}})[0];
  Expr remembered = last.assign(now);

  // A lambda with state is an actor too: here a sink that keeps the values that pass.
  auto history = std::make_shared<std::vector<float>>();
  Expr noted = actor_node(g, "history", {now}, {{DType::i64, Shape{}}},
                          [history](std::span<const Tensor> in, std::span<Tensor> out) {
                            history->push_back(in[0].item<float>());
                            out[0] = Tensor::scalar(static_cast<std::int64_t>(history->size()));
                          })[0];

  Engine engine;
  Function minute = engine.compile(g, {target}, {now, noted, remembered});
  for (int i = 0; i < 60; ++i) minute({Tensor::scalar(20.f)});
  for (std::size_t i = 0; i < history->size(); i += 10)
    std::printf("minute %2zu: %.2f degrees\n", i + 1, (*history)[i]);
  bool is_warm = history->size() == 60 && std::abs(history->back() - 20) < 0.1f;

  // An exception of an actor fails only its run, and names the actor and the line.
  bool is_refused = false;
  try {
    minute({Tensor::scalar(NAN)});
  } catch (const Error& e) {
    std::printf("the run failed: %s\n", e.what());
    is_refused = true;
  }
  return is_warm && is_refused ? 0 : 1;
}
