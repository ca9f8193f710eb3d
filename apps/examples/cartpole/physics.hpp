// A pole on a cart (Barto, Sutton and Anderson, 1983): the cart is pushed left or right, and the
// pole must not fall. Plain C++, in SI units; angles in radians, zero is upright.
#pragma once

#include <cmath>

namespace troupe::cartpole {

inline constexpr double kGravity = 9.8, kCartMass = 1.0, kPoleMass = 0.1, kHalfLength = 0.5,
                        kForce = 10.0, kTick = 0.02;
inline constexpr double kMaxPosition = 2.4, kMaxAngle = 12 * 3.14159265358979323846 / 180;
inline constexpr int kMaxSteps = 200;  // per episode, as in CartPole-v0

struct Cart {
  double position = 0, velocity = 0, angle = 0, spin = 0;

  bool has_fallen() const {
    return std::abs(position) > kMaxPosition || std::abs(angle) > kMaxAngle;
  }

  /// A tick later, pushed to the right or to the left: one explicit Euler step.
  Cart pushed(bool right) const {
    constexpr double mass = kCartMass + kPoleMass, moment = kPoleMass * kHalfLength;
    const double c = std::cos(angle), s = std::sin(angle);
    const double push = ((right ? kForce : -kForce) + moment * spin * spin * s) / mass;
    const double turning =
        (kGravity * s - c * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * c * c / mass));
    const double moving = push - moment * turning * c / mass;
    return {position + kTick * velocity, velocity + kTick * moving, angle + kTick * spin,
            spin + kTick * turning};
  }
};

}  // namespace troupe::cartpole
