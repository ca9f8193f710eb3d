// The cart and its pole as an actor of a graph. Its state is the cart's; two kinds of message reach
// it: where to start, and which way to push. Each is a node, anywhere in the graph: in a loop, in a
// branch.
//
//   Simulator world(g);
//   Expr observation = world.start(0.1 * g.random_uniform({4}) - 0.05);
//   Moment now = world.push(action);
#pragma once

#include <troupe/apps/examples/cartpole/physics.hpp>
#include <troupe/troupe.hpp>

namespace troupe::cartpole {

/// An observation of the cart: position, velocity, angle and spin, each scaled to the size of one,
/// f32[4]; and whether it has fallen, bool.
struct Moment {
  Expr observation, has_fallen;
  auto members() { return std::tie(observation, has_fallen); }
};

class Simulator {
 public:
  explicit Simulator(Graph& graph) : graph_(graph) {}

  /// A new episode from `state`, f32[4] in SI units.
  Expr start(const Expr& state) const { return told(state).observation; }
  /// A tick later, pushed left (0) or right (1): `action` is an i32 scalar.
  Moment push(const Expr& action) const { return told(action); }

 private:
  struct Actor : NodeActor {
    Cart cart;
    void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
      if (in[0].dtype() == DType::i32) cart = cart.pushed(in[0].item<std::int32_t>() == 1);
      else cart = {in[0].at(0), in[0].at(1), in[0].at(2), in[0].at(3)};
      auto f = [](double v) { return static_cast<float>(v); };
      out[0] = Tensor::of<float>({f(cart.position / kMaxPosition), f(cart.velocity / 2),
                                  f(cart.angle / kMaxAngle), f(cart.spin / 2)},
                                 {4});
      out[1] = Tensor::scalar(cart.has_fallen());
    }
  };
  Moment told(const Expr& message) const {
    Exprs out = actor_node<Actor>(graph_, "cartpole", {message},
                                  {{DType::f32, Shape{4}}, {DType::boolean, Shape{}}});
    return {out[0], out[1]};
  }
  Graph& graph_;
};

}  // namespace troupe::cartpole
