// Functions of complex numbers, which follow prelude.cuh where a printed program has any.
#ifndef TROUPE_WITHOUT_COMPLEX  // a ninth of what a small kernel takes to compile

// ---- Functions of complex numbers, computed in f64. Cuts, infinities and NaN are those of C's
// Annex G, as in the CPU's libm. Sine, tangent and their inverses are the hyperbolic functions with
// the parts of operand and result swapped.

TROUPE_FN c128 swapped(c128 z) { return {z.im, z.re}; }
TROUPE_FN bool is_infinite(f64 x) { return fabs(x) == infinity(); }
TROUPE_FN bool is_finite(f64 x) { return fabs(x) < infinity(); }
TROUPE_FN f64 zero_if_nan(f64 x) { return x != x ? copysign(0.0, x) : x; }
TROUPE_FN f64 one_if_infinite(f64 x) { return copysign(is_infinite(x) ? 1.0 : 0.0, x); }

// x y and x / y that are infinite, or 0, where an infinite operand would give NaN (Annex G).
TROUPE_LONG_FN c128 product_of(c128 x, c128 y) {
  const c128 r = op_mul(x, y);
  if (r.re == r.re || r.im == r.im) return r;
  bool is_known = is_infinite(x.re * y.re) || is_infinite(x.im * y.im) ||
                  is_infinite(x.re * y.im) || is_infinite(x.im * y.re);
  if (is_infinite(x.re) || is_infinite(x.im)) {
    x = {one_if_infinite(x.re), one_if_infinite(x.im)};
    y = {zero_if_nan(y.re), zero_if_nan(y.im)};
    is_known = true;
  }
  if (is_infinite(y.re) || is_infinite(y.im)) {
    y = {one_if_infinite(y.re), one_if_infinite(y.im)};
    x = {zero_if_nan(x.re), zero_if_nan(x.im)};
    is_known = true;
  }
  if (!is_known) return r;
  x = {zero_if_nan(x.re), zero_if_nan(x.im)};
  y = {zero_if_nan(y.re), zero_if_nan(y.im)};
  const c128 direction = op_mul(x, y);
  return {infinity() * direction.re, infinity() * direction.im};
}
TROUPE_LONG_FN c128 quotient_of(c128 x, c128 y) {
  const c128 r = op_div(x, y);
  if (r.re == r.re || r.im == r.im) return r;
  f64 size;
  if ((is_infinite(x.re) || is_infinite(x.im)) && is_finite(y.re) && is_finite(y.im)) {
    x = {one_if_infinite(x.re), one_if_infinite(x.im)};
    size = infinity();
  } else if ((is_infinite(y.re) || is_infinite(y.im)) && is_finite(x.re) && is_finite(x.im)) {
    y = {one_if_infinite(y.re), one_if_infinite(y.im)};
    size = 0;
  } else {
    return r;
  }
  return {size * (x.re * y.re + x.im * y.im), size * (x.im * y.re - x.re * y.im)};
}

// e^x (c, s) where e^x alone may overflow.
TROUPE_FN c128 times_exp(f64 x, f64 c, f64 s) {
  for (int i = 0; i < 2 && x > 709; ++i, x -= 709) c *= exp(709.0), s *= exp(709.0);
  const f64 e = x > 709 ? 1.7976931348623157e308 : exp(x);
  return {e * c, e * s};
}
TROUPE_LONG_FN c128 op_exp(c128 z) {
  if (!is_finite(z.im)) {
    if (z.re == -infinity()) return {0, copysign(0.0, z.im)};
    return {z.re == infinity() ? z.re : not_a_number(), not_a_number()};
  }
  if (z.im == 0) return {exp(z.re), z.im};
  f64 s, c;
  sincos(z.im, &s, &c);
  if (!is_infinite(z.re)) return times_exp(z.re, c, s);
  const f64 size = z.re < 0 ? 0 : infinity();
  return {copysign(size, c), copysign(size, s)};
}
TROUPE_LONG_FN c128 op_cosh(c128 z) {
  if (!is_finite(z.im))
    return {is_infinite(z.re) ? infinity() : not_a_number(), z.re == 0 ? 0 : not_a_number()};
  const f64 sign = z.re == z.re ? copysign(1.0, z.re) : 1;
  if (z.im == 0) return {cosh(z.re), z.im * sign};
  f64 s, c;
  sincos(z.im, &s, &c);
  if (is_infinite(z.re)) return {copysign(infinity(), c), copysign(infinity(), s) * sign};
  if (fabs(z.re) > 709) return times_exp(fabs(z.re), c / 2, s * sign / 2);
  return {cosh(z.re) * c, sinh(z.re) * s};
}
TROUPE_LONG_FN c128 op_sinh(c128 z) {
  if (!is_finite(z.im))
    return {is_infinite(z.re) ? infinity() : z.re == 0 ? z.re : not_a_number(), not_a_number()};
  if (z.im == 0) return {sinh(z.re), z.im};
  f64 s, c;
  sincos(z.im, &s, &c);
  const f64 sign = copysign(1.0, z.re);
  if (is_infinite(z.re)) return {copysign(infinity(), c) * sign, copysign(infinity(), s)};
  if (fabs(z.re) > 709) return times_exp(fabs(z.re), c * sign / 2, s / 2);
  return {sinh(z.re) * c, cosh(z.re) * s};
}
TROUPE_LONG_FN c128 op_tanh(c128 z) {
  f64 s = z.im, c = 1;
  if (is_finite(z.im)) sincos(z.im, &s, &c);
  if (is_infinite(z.re))
    return {copysign(1.0, z.re),
            copysign(0.0, is_finite(z.im) && fabs(z.im) > 1 ? s * c : z.im)};
  if (z.im == 0) return {tanh(z.re), z.im};
  if (!is_finite(z.im)) return {z.re == 0 ? z.re : not_a_number(), not_a_number()};
  if (fabs(z.re) > 354) return {copysign(1.0, z.re), 4 * s * c * exp(-2 * fabs(z.re))};
  const f64 sine = sinh(z.re), cosine = cosh(z.re), below = sine * sine + c * c;
  return {sine * cosine / below, s * c / below};
}

// The logarithm of |x + iy|, for x, y >= 0 and none NaN. Near 1 the square less 1 is taken with the
// errors of its terms, or all digits would be lost.
TROUPE_LONG_FN f64 log_of_size(f64 x, f64 y) {
  const f64 more = fmax(x, y), less = fmin(x, y);
  if (is_infinite(more)) return more;
  if (more > 8e307) return log(hypot(more / 2, less / 2)) + 0.69314718055994531;
  if (more < 1e-290) return log(hypot(more * 0x1p200, less * 0x1p200)) - 138.62943611198906;
  if (more < 0.5 || more > 2 || less > 1 || more * more + less * less < 0.5)
    return log(hypot(more, less));
  const f64 a = more * more, a_rest = fma(more, more, -a), b = less * less,
            b_rest = fma(less, less, -b);
  const f64 first = a - 1, first_rest = (a - (first + 1)) + ((first + 1) - 1 - first);
  const f64 sum = first + b, part = sum - first,
            sum_rest = (first - (sum - part)) + (b - part);
  return log1p(sum + (first_rest + sum_rest + a_rest + b_rest)) / 2;
}
TROUPE_LONG_FN c128 op_log(c128 z) {
  if (z.re == 0 && z.im == 0) return {-infinity(), atan2(z.im, z.re)};
  if (z.re == z.re && z.im == z.im)
    return {log_of_size(fabs(z.re), fabs(z.im)), atan2(z.im, z.re)};
  return {is_infinite(z.re) || is_infinite(z.im) ? infinity() : not_a_number(), not_a_number()};
}
TROUPE_LONG_FN c128 op_sqrt(c128 z) {
  if (is_infinite(z.im)) return {infinity(), z.im};
  if (is_infinite(z.re)) {
    const f64 other = z.im == z.im ? 0 : not_a_number();
    if (z.re < 0) return {other, copysign(infinity(), z.im)};
    return {z.re, copysign(other, z.im)};
  }
  if (z.re != z.re || z.im != z.im) return {not_a_number(), not_a_number()};
  if (z.im == 0) {
    const f64 root = sqrt(fabs(z.re));
    return z.re < 0 ? c128{0, copysign(root, z.im)} : c128{root, z.im};
  }
  f64 x = z.re, y = fabs(z.im), unit = 1;
  if (fmax(fabs(x), y) > 4e307) x /= 4, y /= 4, unit = 2;
  else if (fmax(fabs(x), y) < 1e-290) x *= 0x1p200, y *= 0x1p200, unit = 0x1p-100;
  const f64 root = sqrt((hypot(x, y) + fabs(x)) / 2), other = y / root / 2;
  if (x > 0) return {root * unit, copysign(other * unit, z.im)};
  return {other * unit, copysign(root * unit, z.im)};
}

// Inverse hyperbolic and trigonometric functions of x + iy, for x, y >= 0, after Hull, Fairgrieve
// and Tang (1997). With A the mean of the distances from i and from -i, `real` is acosh(A), and the
// angle is asin(y / A) = atan2(sine, cosine).
struct Arcs {
  f64 real, sine, cosine;
};
// (sqrt(a^2 + b^2) - b) / 2, where `size` is the root.
TROUPE_FN f64 half_above(f64 a, f64 b, f64 size) {
  return b < 0 ? (size - b) / 2 : b == 0 ? a / 2 : a * a / (size + b) / 2;
}
TROUPE_LONG_FN Arcs arcs_of(f64 x, f64 y) {
  const f64 epsilon = 0x1p-52;
  const f64 far = hypot(x, y + 1), near = hypot(x, y - 1), a = fmax((far + near) / 2, 1.0);
  const bool is_beside = x < epsilon * fabs(y - 1);  // the cut, or so near it that x^2 is lost
  Arcs arcs;
  if (a >= 10) {
    arcs.real = log(a + sqrt(a * a - 1));
  } else if (y == 1 && x < epsilon * epsilon / 128) {
    arcs.real = sqrt(x);
  } else if (!is_beside) {
    const f64 less = half_above(x, 1 + y, far) + half_above(x, 1 - y, near);  // A - 1
    arcs.real = log1p(less + sqrt(less * (a + 1)));
  } else if (y < 1) {
    arcs.real = x / sqrt((1 - y) * (1 + y));
  } else {
    arcs.real = log1p((y - 1) + sqrt((y - 1) * (y + 1)));
  }
  arcs.sine = y;
  if (y < 0x1p-509) {  // the cosine is 1; both are scaled, or the sine would be subnormal
    arcs.cosine = a * (2 / epsilon);
    arcs.sine = y * (2 / epsilon);
  } else if (y == 1 && x < epsilon / 128) {
    arcs.cosine = sqrt(x) * sqrt((a + y) / 2);
  } else if (!is_beside) {
    arcs.cosine =
        sqrt((half_above(x, y + 1, far) + half_above(x, y - 1, near)) * (a + y));
  } else if (y > 1) {
    const f64 scale = 4 / epsilon / epsilon;
    arcs.cosine = x * scale * y / sqrt((y + 1) * (y - 1));
    arcs.sine = y * scale;
  } else {
    arcs.cosine = sqrt((1 - y) * (1 + y));
  }
  return arcs;
}
TROUPE_FN bool is_far(f64 x, f64 y) { return x > 1e15 || y > 1e15; }
TROUPE_LONG_FN c128 op_asinh(c128 z) {
  const f64 x = fabs(z.re), y = fabs(z.im);
  if (x != x || y != y) {
    if (is_infinite(y)) return {copysign(y, z.re), not_a_number()};
    return {is_infinite(x) ? z.re : not_a_number(), z.im == 0 ? z.im : not_a_number()};
  }
  f64 re, im;
  if (is_far(x, y)) {
    re = log_of_size(x, y) + 0.69314718055994531, im = atan2(y, x);
  } else {
    const Arcs arcs = arcs_of(x, y);
    re = arcs.real, im = atan2(arcs.sine, arcs.cosine);
  }
  return {copysign(re, z.re), copysign(im, z.im)};
}
TROUPE_LONG_FN c128 op_acos(c128 z) {
  const f64 x = fabs(z.re), y = fabs(z.im);
  if (x != x || y != y) {
    const c128 w = swapped(op_asinh(swapped(z)));
    return {1.5707963267948966 - w.re, -w.im};
  }
  f64 re, im;
  if (is_far(x, y)) {
    re = atan2(y, z.re), im = log_of_size(x, y) + 0.69314718055994531;
  } else {
    const Arcs arcs = arcs_of(y, x);
    re = atan2(arcs.cosine, copysign(arcs.sine, z.re)), im = arcs.real;
  }
  return {re, -copysign(im, z.im)};
}
TROUPE_LONG_FN c128 op_acosh(c128 z) {
  const c128 w = op_acos(z);
  return {fabs(w.im), copysign(w.re, z.im)};
}
TROUPE_LONG_FN c128 op_atanh(c128 z) {
  const f64 x = fabs(z.re), y = fabs(z.im), quarter_turn = copysign(1.5707963267948966, z.im);
  if (is_infinite(y)) return {copysign(0.0, z.re), quarter_turn};
  if (is_infinite(x)) return {copysign(0.0, z.re), y == y ? quarter_turn : z.im};
  if (x != x || y != y) return {x == 0 ? z.re : not_a_number(), not_a_number()};
  if (y == 0 && x <= 1) return {atanh(z.re), z.im};
  if (x == 0) return {z.re, atan(z.im)};
  if (is_far(x, y)) {
    const f64 most = fmax(x, y), a = x / most, b = y / most;
    return {copysign(a / (a * a + b * b) / most, z.re), quarter_turn};
  }
  const f64 re = x == 1 && y < 0x1p-52 ? (0.69314718055994531 - log(y)) / 2
                                        : log1p(4 * x / ((x - 1) * (x - 1) + y * y)) / 4;
  const f64 im = x == 1 ? atan2(2.0, -y) / 2 : atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2;
  return {copysign(re, z.re), copysign(im, z.im)};
}
TROUPE_FN c128 op_cos(c128 z) { return op_cosh({-z.im, z.re}); }
TROUPE_FN c128 op_sin(c128 z) { return swapped(op_sinh(swapped(z))); }
TROUPE_FN c128 op_tan(c128 z) { return swapped(op_tanh(swapped(z))); }
TROUPE_FN c128 op_asin(c128 z) { return swapped(op_asinh(swapped(z))); }
TROUPE_FN c128 op_atan(c128 z) { return swapped(op_atanh(swapped(z))); }
TROUPE_FN c128 op_rsqrt(c128 z) { return quotient_of({1, 0}, op_sqrt(z)); }
// By its parts: e^x cos(y) - 1 is (e^x - 1) cos(y) - 2 sin(y / 2)^2, of which neither part is lost
// near zero.
TROUPE_LONG_FN c128 op_expm1(c128 z) {
  const f64 half = sin(z.im / 2);
  return {expm1(z.re) * cos(z.im) - 2 * half * half,
          z.im == 0 ? z.im : exp(z.re) * sin(z.im)};
}
// Near zero |1 + z|^2 is 1 + x (2 + x) + y^2.
TROUPE_LONG_FN c128 op_log1p(c128 z) {
  if (!(fabs(z.re) < 0.5 && fabs(z.im) < 0.5)) return op_log({1 + z.re, z.im});
  return {log1p(z.re * (2 + z.re) + z.im * z.im) / 2, atan2(z.im, 1 + z.re)};
}
TROUPE_LONG_FN c128 op_sigmoid(c128 z) {
  const bool is_below = z.re < 0;
  const c128 e = op_exp(is_below ? z : op_neg(z));
  return quotient_of(is_below ? e : c128{1, 0}, {1 + e.re, e.im});
}
// x^0 is 1, and 0^y is 0 where y's real part is above 0: by way of log(x) both would be NaN.
TROUPE_LONG_FN c128 op_pow(c128 x, c128 y) {
  if (y.re == 0 && y.im == 0) return {1, 0};
  if (x.re == 0 && x.im == 0 && y.re > 0) return {0, 0};
  return op_exp(product_of(y, op_log(x)));
}
TROUPE_FN c64 op_pow(c64 x, c64 y) {
  return op_cast<c64>(op_pow(op_cast<c128>(x), op_cast<c128>(y)));
}
#define TROUPE_COMPLEX(name) \
  TROUPE_FN c64 op_##name(c64 z) { return op_cast<c64>(op_##name(op_cast<c128>(z))); }
TROUPE_COMPLEX(exp)
TROUPE_COMPLEX(expm1)
TROUPE_COMPLEX(log)
TROUPE_COMPLEX(log1p)
TROUPE_COMPLEX(sqrt)
TROUPE_COMPLEX(rsqrt)
TROUPE_COMPLEX(sin)
TROUPE_COMPLEX(cos)
TROUPE_COMPLEX(tan)
TROUPE_COMPLEX(asin)
TROUPE_COMPLEX(acos)
TROUPE_COMPLEX(atan)
TROUPE_COMPLEX(sinh)
TROUPE_COMPLEX(cosh)
TROUPE_COMPLEX(tanh)
TROUPE_COMPLEX(asinh)
TROUPE_COMPLEX(acosh)
TROUPE_COMPLEX(atanh)
TROUPE_COMPLEX(sigmoid)
#undef TROUPE_COMPLEX

#endif
