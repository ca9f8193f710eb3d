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
/// Returns the probability that a chi-square variable of `degrees` exceeds x.
double chi_square_tail(double degrees, double x);
/// Returns the probability that a standard normal variable exceeds x.
double normal_tail(double x);
/// Returns the probability that the statistic of Kolmogorov and Smirnov, times the root of the
/// number of values, exceeds x.
double kolmogorov_tail(double x);

}  // namespace troupe::dependence
