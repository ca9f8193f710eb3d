// Rows of the pointwise operations.
#pragma once

#include <troupe/test/ops/tables/table.hpp>

namespace troupe::test {

struct Domain {
  double low, high;
};

/// Shapes of one operand: scalar, one element, none, short, and longer than a vector register with
/// a tail.
inline std::vector<Case> unary_cases(Domain d, const Attrs& attrs = {}) {
  Draws draws(1);
  std::vector<Case> out;
  for (const Shape& s :
       {Shape{}, Shape{1}, Shape{0}, Shape{3}, Shape{2, 3}, Shape{2, 0, 3}, Shape{1, 37}})
    out.push_back({{draws.values(s, d.low, d.high)}, attrs});
  return out;
}

/// Shapes that meet in every way broadcasting knows.
inline std::vector<std::vector<Shape>> meetings() {
  return {{{}, {}},      {{3}, {}},        {{}, {2, 3}}, {{2, 3}, {2, 3}},
          {{2, 3}, {3}}, {{2, 1}, {1, 3}}, {{1}, {4}},   {{4, 1, 3}, {2, 1}},
          {{1, 1}, {1}}, {{0, 3}, {3}},    {{1}, {0}},   {{2, 1}, {2, 19}}};
}

inline std::vector<Case> binary_cases(Domain a, Domain b, Role role = Role::value) {
  Draws draws(2);
  std::vector<Case> out;
  for (const auto& m : meetings()) {
    Case c{{draws.values(m[0], a.low, a.high), draws.values(m[1], b.low, b.high)}, {}};
    if (role == Role::truth) c = {{draws.truths(m[0]), draws.truths(m[1])}, {}};
    out.push_back(c);
  }
  return out;
}

inline std::vector<Case> where_cases() {
  Draws draws(3);
  std::vector<Case> out;
  for (const auto& m : meetings())
    for (const Shape& condition : {m[0], m[1]})
      out.push_back({{draws.truths(condition), draws.values(m[0]), draws.values(m[1])}, {}});
  return out;
}

/// A reference from a function of one element and the attributes.
inline Reference elementwise(Callable<double(double, const Attrs&)> f) {
  return [f](const std::vector<Array>& x, const Attrs& attrs) {
    return std::vector<Array>{
        tabulate(x[0].shape, [&](const Index& i) { return f(x[0][i], attrs); })};
  };
}

inline Row unary(std::string op, Domain d,
                 std::vector<std::pair<std::vector<double>, double>> known = {},
                 std::vector<DType> dtypes = kFloats, int order = 2, double slack = 1) {
  return {std::move(op), std::move(dtypes), unary_cases(d), {}, order, slack, std::move(known)};
}
inline Row binary(std::string op, Domain a, Domain b, std::vector<DType> dtypes, int order,
                  std::vector<std::pair<std::vector<double>, double>> known = {},
                  double slack = 1) {
  return {std::move(op), std::move(dtypes), binary_cases(a, b), {}, order, slack, std::move(known)};
}
inline Row logical(std::string op) {
  return {std::move(op), kBool, binary_cases({0, 1}, {0, 1}, Role::truth), {}, 0};
}

inline std::vector<Row> pointwise_rows() {
  std::vector<Row> rows{
      unary("Abs", {-3, 3}, {{{-2.5}, 2.5}}, kReals),
      unary("Acos", {-.9, .9}, {{{.5}, 1.0471975511965979}}, kComplex + kFloats),
      unary("Acosh", {1.1, 4}, {{{2}, 1.3169578969248167}}, kComplex + kFloats),
      unary("Asin", {-.9, .9}, {{{.5}, .52359877559829887}}, kComplex + kFloats),
      unary("Asinh", {-3, 3}, {{{2}, 1.4436354751788103}}, kComplex + kFloats),
      unary("Atan", {-3, 3}, {{{2}, 1.1071487177940906}}, kComplex + kFloats),
      unary("Atanh", {-.9, .9}, {{{.5}, .54930614433405484}}, kComplex + kFloats),
      unary("BitNot", {-5, 5}, {}, kInts, 0),
      unary("Ceil", {-3, 3}, {{{-1.5}, -1}}, kReals, 0),
      unary("Cos", {-4, 4}, {{{2}, -.41614683654714238}}, kComplex + kFloats),
      unary("Cosh", {-3, 3}, {{{2}, 3.7621956910836314}}, kComplex + kFloats),
      unary("Erf", {-3, 3}, {{{.5}, .52049987781304654}}),
      unary("Erfc", {-3, 3}, {{{.5}, .47950012218695346}, {{5}, 1.5374597944280349e-12}}),
      unary("Exp", {-3, 3}, {{{2}, 7.3890560989306502}}, kComplex + kFloats),
      unary("Expm1", {-2, 3}, {{{1e-5}, 1.0000050000166667e-05}}, kComplex + kFloats),
      unary("Floor", {-3, 3}, {{{-1.5}, -2}}, kReals, 0),
      unary("Gelu", {-3, 3}, {{{1}, .84134474606854293}, {{-2}, -.045500263896358414}}),
      unary("GeluSlope", {-3, 3}, {{{0}, .5}, {{1}, 1.0833154705876864}}),
      unary("HardSigmoid", {-5, 5}, {{{1}, 2. / 3}}),
      unary("HardSwish", {-5, 5}, {{{1}, 2. / 3}, {{4}, 4}}),
      unary("HardTanh", {-3, 3}, {{{2}, 1}}, kFloats + kSignedInts),
      unary("IsFinite", {-3, 3}, {}, kFloats, 0),
      unary("IsInf", {-3, 3}, {}, kFloats, 0),
      unary("IsNan", {-3, 3}, {}, kFloats, 0),
      unary("Log", {.1, 4}, {{{2}, .69314718055994531}}, kComplex + kFloats),
      unary("Log1p", {-.8, 4}, {{{1e-5}, 9.9999500003333308e-06}}, kComplex + kFloats),
      unary("LogSigmoid", {-5, 5}, {{{-800}, -800}, {{1}, -.31326168751822286}}),
      unary("Mish", {-4, 4}, {{{1}, .86509838826731034}}),
      unary("Neg", {-3, 3}, {}, kComplex + kReals),
      unary("Reciprocal", {.3, 3}, {{{4}, .25}}, kComplex + kReals),
      unary("Relu", {-3, 3}, {{{-1}, 0}}, kReals),
      unary("Relu6", {-3, 9}, {{{7}, 6}}, kReals),
      unary("Round", {-3, 3}, {{{.5}, 0}, {{1.5}, 2}, {{2.5}, 2}}, kReals, 0),
      unary("Rsqrt", {.2, 4}, {{{4}, .5}}, kComplex + kFloats),
      unary("Selu", {-3, 3}, {{{-1}, -1.1113307378125625}, {{2}, 2.101401974710961}}),
      unary("Sigmoid", {-5, 5}, {{{1}, .73105857863000488}}, kComplex + kFloats),
      unary("Sign", {-3, 3}, {{{-2}, -1}, {{0}, 0}}, kReals, 0),
      unary("Silu", {-5, 5}, {{{1}, .73105857863000488}}, kComplex + kFloats),
      unary("Sin", {-4, 4}, {{{2}, .90929742682568170}}, kComplex + kFloats),
      unary("Sinh", {-3, 3}, {{{2}, 3.6268604078470188}}, kComplex + kFloats),
      unary("Softplus", {-5, 5}, {{{800}, 800}, {{1}, 1.3132616875182228}}),
      unary("Softsign", {-3, 3}, {{{1}, .5}}),
      unary("Sqrt", {.2, 4}, {{{2}, 1.4142135623730951}}, kComplex + kFloats),
      unary("Square", {-3, 3}, {{{-3}, 9}}, kComplex + kReals),
      unary("Tan", {-1.2, 1.2}, {{{1}, 1.5574077246549023}}, kComplex + kFloats),
      unary("Tanh", {-3, 3}, {{{.5}, .46211715726000976}}, kComplex + kFloats),
      unary("Trunc", {-3, 3}, {{{-1.5}, -1}}, kReals, 0),

      binary("Add", {-3, 3}, {-3, 3}, kComplex + kReals, 2),
      binary("Atan2", {-3, 3}, {.2, 3}, kFloats, 2, {{{1, -1}, 2.3561944901923448}}),
      binary("BitAnd", {0, 9}, {0, 9}, kInts, 0, {{{12, 10}, 8}}),
      binary("BitOr", {0, 9}, {0, 9}, kInts, 0, {{{12, 10}, 14}}),
      binary("BitXor", {0, 9}, {0, 9}, kInts, 0, {{{12, 10}, 6}}),
      binary("Div", {-3, 3}, {.4, 3}, kComplex + kReals, 2),
      binary("Equal", {-2, 2}, {-2, 2}, kComplex + kReals_and_bool, 0),
      binary("FloorDiv", {-9, 9}, {1, 3}, kReals, 0, {{{-7, 2}, -4}}),
      binary("Greater", {-2, 2}, {-2, 2}, kReals, 0),
      binary("GreaterEqual", {-2, 2}, {-2, 2}, kReals, 0),
      binary("Less", {-2, 2}, {-2, 2}, kReals, 0),
      binary("LessEqual", {-2, 2}, {-2, 2}, kReals, 0),
      binary("Maximum", {-2, 2}, {-2, 2}, kReals, 2),
      binary("Minimum", {-2, 2}, {-2, 2}, kReals, 2),
      binary("Mod", {-9, 9}, {1, 3}, kReals, 2, {{{-7, 3}, 2}, {{7, -3}, -2}}, 8),
      binary("Mul", {-3, 3}, {-3, 3}, kComplex + kReals, 2),
      binary("NotEqual", {-2, 2}, {-2, 2}, kComplex + kReals_and_bool, 0),
      binary("Pow", {.3, 3}, {0, 3}, kComplex + kReals, 2,
             {{{2, .5}, 1.4142135623730951}, {{-2, 3}, -8}, {{0, 0}, 1}}, 4),
      binary("ShiftLeft", {0, 7}, {0, 3}, kInts, 0, {{{3, 2}, 12}}),
      binary("ShiftRight", {0, 90}, {0, 3}, kInts, 0, {{{13, 2}, 3}}),
      binary("SquaredDifference", {-3, 3}, {-3, 3}, kComplex + kReals, 2),
      binary("Sub", {-3, 3}, {-3, 3}, kComplex + kReals, 2),
      logical("LogicalAnd"),
      logical("LogicalOr"),
      logical("LogicalXor"),
      {"LogicalNot", kBool, {{{Draws(4).truths({})}, {}}, {{Draws(4).truths({2, 9})}, {}}}, {}, 0},
      {"Where", kComplex + kReals_and_bool, where_cases(), {}, 2},
  };
  for (Row& r : rows)
    // x / (1 + |x|) of integers is an integer too, if a dull one
    if (r.op == "Softsign") r.refuses_others = false;
  // The remainder with the sign of y, which fmod gets right where y is infinite too.
  for (Row& r : rows)
    if (r.op == "Mod")
      r.reference = [](const std::vector<Array>& x, const Attrs&) {
        return std::vector<Array>{tabulate(broadcast(x[0].shape, x[1].shape), [&](const Index& i) {
          double a = x[0].broadcast_at(i), b = x[1].broadcast_at(i), rest = std::fmod(a, b);
          return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        })};
      };
  rows.push_back({"Clip", kFloats, unary_cases({-3, 3}, Attrs{{"low", -1.0}, {"high", 1.5}}),
                  elementwise([](double x, const Attrs&) {
                    return std::isnan(x) ? x : std::fmin(std::fmax(x, -1), 1.5);
                  })});
  rows.back().refuses_others = false;  // integers are welcome where the limits are integers
  rows.push_back(
      {"Elu", kFloats, unary_cases({-3, 3}, Attrs{{"alpha", 0.7}}),
       elementwise([](double x, const Attrs&) { return x > 0 ? x : 0.7 * std::expm1(x); })});
  rows.push_back({"LeakyRelu", kFloats, unary_cases({-3, 3}, Attrs{{"alpha", 0.2}}),
                  elementwise([](double x, const Attrs&) { return x > 0 ? x : 0.2 * x; })});
  for (DType to :
       {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::u8, DType::boolean})
    rows.push_back({"Cast",
                    kReals_and_bool,
                    unary_cases({0, 9}, Attrs{{"dtype", to}}),
                    elementwise([](double x, const Attrs& a) {
                      DType t = a.get<DType>("dtype");
                      if (is_integer(t)) return std::trunc(x);
                      return t == DType::boolean ? double(x != 0) : Tensor::scalar_as(t, x).at(0);
                    }),
                    to == DType::f64 ? 2 : 0,
                    1,
                    {},
                    false});
  return rows;
}

}  // namespace troupe::test
