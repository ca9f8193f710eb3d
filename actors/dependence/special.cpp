#include <troupe/actors/dependence/special.hpp>

#include <cmath>

namespace troupe::dependence {

// Both: recurrence up to 6, then the asymptotic series.
double digamma(double x) {
  double shift = 0;
  for (; x < 6; ++x) shift -= 1 / x;
  const double y = 1 / (x * x);
  return shift + std::log(x) - 0.5 / x -
         y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y / 132))));
}

double trigamma(double x) {
  double shift = 0;
  for (; x < 6; ++x) shift += 1 / (x * x);
  const double y = 1 / (x * x);
  return shift + 1 / x + y / 2 +
         y / x * (1.0 / 6 - y * (1.0 / 30 - y * (1.0 / 42 - y * (1.0 / 30 - y * 5 / 66))));
}

// The series below a + 1, Lentz's continued fraction above.
double gamma_cumulative(double a, double x) {
  if (x <= 0) return 0;
  if (std::isinf(x)) return 1;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  constexpr int kMostTerms = 500;
  constexpr double kEnough = 1e-16;
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < kMostTerms && term > sum * kEnough; ++n) sum += term *= x / (a + n);
    return front * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < kMostTerms; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1) < kEnough) break;
  }
  return 1 - front * h;
}

double chi_square_1_tail(double x) { return x <= 0 ? 1 : std::erfc(std::sqrt(x / 2)); }

double chi_square_tail(double degrees, double x) {
  return 1 - gamma_cumulative(degrees / 2, x / 2);
}

double normal_tail(double x) { return 0.5 * std::erfc(x / std::sqrt(2.0)); }

// Two series: the one of small x converges where the other does not.
double kolmogorov_tail(double x) {
  if (x <= 0) return 1;
  constexpr int kTerms = 20;
  double sum = 0;
  if (x < 1) {
    const double pi = std::acos(-1.0);
    for (int k = 1; k < kTerms; k += 2) sum += std::exp(-k * k * pi * pi / (8 * x * x));
    return 1 - std::sqrt(2 * pi) / x * sum;
  }
  for (int k = 1; k < kTerms; ++k) sum += (k % 2 ? 2 : -2) * std::exp(-2.0 * k * k * x * x);
  return sum;
}

}  // namespace troupe::dependence
