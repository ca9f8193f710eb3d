// Functions of statistics that the standard library lacks.
#pragma once

namespace troupe::dependence {

/// Returns the derivative of log Γ at x > 0.
double digamma(double x);
/// Returns the second derivative of log Γ at x > 0.
double trigamma(double x);
/// Returns the regularised lower incomplete gamma function P(a, x) for a > 0 and x >= 0.
double gamma_cumulative(double a, double x);
/// Returns the probability that a chi-square variable of one degree of freedom exceeds x.
double chi_square_1_tail(double x);

}  // namespace troupe::dependence
