// Expressions that are computed as C++ reaches them: values that print, loops and `if` of C++, and
// derivatives of whatever ran: gradients, Jacobians, and products in a direction.
//
// Newton's method finds the minimum of Rosenbrock's valley, f = (1 - x)^2 + 100 (y - x^2)^2, where
// steps along the gradient creep. The Hessian is the Jacobian of the gradient.
#include <cmath>
#include <iostream>

#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

Expr valley(const Expr& p) {
  const Expr x = gather(p, 0), y = gather(p, 1);
  return square(1.0 - x) + 100.0 * square(y - square(x));
}

}  // namespace

int main() {
  Eager e;
  Expr p = e.constant(Tensor::of<double>({-1.2, 1.0}));
  int steps = 0;
  for (double height = 1; height > 1e-20 && steps < 50; ++steps) {
    GradientTape outer;
    outer.watch(p);
    Expr value, gradient;
    {
      GradientTape inner;
      inner.watch(p);
      value = valley(p);
      gradient = inner.gradient(value, p);
    }
    const Expr hessian = outer.jacobian(gradient, p);
    height = value.value().item<double>();
    if (steps == 0)
      std::cout << "at " << p << " the height is " << value << ",\nthe gradient " << gradient
                << ",\nthe Hessian " << hessian << "\n";
    p = p - reshape(solve(hessian, reshape(gradient, Shape{2, 1})), Shape{2});
  }
  std::cout << "after " << steps << " steps: " << p << "\n";

  // The Hessian times a vector, without the Hessian; and forward mode.
  const Expr along = e.constant(Tensor::of<double>({1.0, 0.0}));
  const Expr column = hessian_vector_product(valley, p, along);
  const auto [height, slope] = jvp(valley, p + 0.1, along);
  std::cout << "the first column of the Hessian there: " << column << "\n";
  std::cout << "beside it the height is " << height << " and the slope along x " << slope << "\n";

  const auto is_near = [](const Expr& at, std::int64_t i, double wanted) {
    return std::abs(at.value().at(i) - wanted) < 1e-6;
  };
  const bool is_found = is_near(p, 0, 1) && is_near(p, 1, 1);
  const bool is_right = is_near(column, 0, 802) && is_near(column, 1, -400);
  return is_found && is_right ? 0 : 1;
}
