// A sampler whose moves are learnt: Hamiltonian Monte Carlo in which small networks scale and shift
// each leapfrog step (Levy, Hoffman, Sohl-Dickstein, "Generalizing Hamiltonian Monte Carlo with
// neural networks", ICLR 2018). The target is a Gaussian in the plane, long and narrow.
//
//   Sampler sampler(scope, "sampler");
//   Moved moved = sampler.move(x, v);          // ten leapfrog steps
//   Expr loss = jump_loss(x, moved);           // small if moves are long and accepted
//
// It is plain code over expressions: it runs at once, or staged inside a traced function. The
// gradient of the target's energy is taken by a tape in each step, so that training differentiates
// through gradients.
#pragma once

#include <string>
#include <vector>

#include <troupe/troupe.hpp>

namespace sampling {

using namespace troupe;

constexpr int kLeapfrogSteps = 10;
constexpr double kStep = 0.1;
constexpr std::int64_t kUnits = 8;

/// The negative logarithm of the density of each point [n, 2], without its constant.
inline Expr energy(const Expr& x) {
  const Expr along = sum(x, {1}), across = gather(x, 0, 1) - gather(x, 1, 1);
  return square(along) / 2.0 + square(across) / 0.1;
}

/// A point's new place and momentum, and the logarithm by which the move scales volumes.
struct Moved {
  Expr x, v, log_scale;
  auto members() { return std::tie(x, v, log_scale); }
};

/// Scales and a shift for two coordinates, from four numbers and the time.
class Network {
 public:
  Network(Eager& e, const std::string& name)
      : w1_(e.variable(name + "/w1", drawn(0.3, {5, kUnits}))),
        w2_(e.variable(name + "/w2", drawn(0.01, {kUnits, 6}))) {}
  struct Out {
    Expr scale, shift, gate;  // [n, 2]
  };
  Out operator()(const Expr& a, const Expr& b, double time) const {
    const Expr when = expand_dims(fill_like(gather(a, 0, 1), time), 1);
    const Expr in = concat({a, b, when}, 1);
    const Exprs parts = split(matmul(tanh(matmul(in, w1_)), w2_), {2, 2, 2}, 1);
    return {tanh(parts[0]), parts[1], tanh(parts[2])};
  }
  std::vector<Variable> variables() const { return {w1_, w2_}; }

 private:
  static Tensor drawn(double deviation, const Shape& shape) {
    return Initializer::normal(0, deviation, 11).make("sampler", DType::f32, shape);
  }
  Variable w1_, w2_;
};

class Sampler {
 public:
  Sampler(Eager& e, const std::string& name)
      : of_v_(e, name + "/v"), of_x_(e, name + "/x"),
        first_(e.constant(Tensor::of<float>({1, 0}, {1, 2}))) {}

  Moved move(const Expr& x, const Expr& v) const {
    Moved at{x, v, sum(x, {1}) * 0.0};
    for (int i = 0; i < kLeapfrogSteps; ++i) {
      const double time = static_cast<double>(i) / kLeapfrogSteps;
      half_kick(at, time);
      for (const Expr& mask : {first_, 1.0 - first_}) drift(at, mask, time);
      half_kick(at, time);
    }
    return at;
  }
  std::vector<Variable> variables() const {
    std::vector<Variable> all = of_v_.variables();
    for (const Variable& w : of_x_.variables()) all.push_back(w);
    return all;
  }

 private:
  static Expr slope_of(const Expr& x) {
    GradientTape tape({.watch_variables = false});
    tape.watch(x);
    return tape.gradient(energy(x), x);
  }
  // Changes the momentum by the slope of the energy.
  void half_kick(Moved& at, double time) const {
    const Expr slope = slope_of(at.x);
    const Network::Out n = of_v_(at.x, slope, time);
    const Expr scale = n.scale * (kStep / 2);
    at.v = at.v * exp(scale) - (kStep / 2) * (slope * exp(kStep * n.gate) + n.shift);
    at.log_scale = at.log_scale + sum(scale, {1});
  }
  // Moves the coordinates that `mask` leaves out, as the others and the momentum tell.
  void drift(Moved& at, const Expr& mask, double time) const {
    const Network::Out n = of_x_(at.v, at.x * mask, time);
    const Expr scale = n.scale * kStep * (1.0 - mask);
    const Expr moved = at.x * exp(scale) + kStep * (at.v * exp(kStep * n.gate) + n.shift);
    at.x = mask * at.x + (1.0 - mask) * moved;
    at.log_scale = at.log_scale + sum(scale, {1});
  }

  Network of_v_, of_x_;
  const Expr first_;  // 1 for the first coordinate
};

/// The probability with which each move from (x, v) is accepted.
inline Expr acceptance(const Expr& x, const Expr& v, const Moved& moved) {
  const auto total = [](const Expr& place, const Expr& momentum) {
    return energy(place) + sum(square(momentum), {1}) / 2.0;
  };
  return exp(minimum(total(x, v) - total(moved.x, moved.v) + moved.log_scale, 0.0));
}

/// Long accepted jumps make it small; chains that do not move make it large.
inline Expr jump_loss(const Expr& x, const Expr& v, const Moved& moved) {
  const Expr jump = acceptance(x, v, moved) * sum(square(moved.x - x), {1}) + 1e-4;
  return mean(1.0 / jump - jump);
}

}  // namespace sampling
