// The table of operations (table.hpp), checked for: values, gradients, what is not finite,
// refusals.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <complex>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/ops/bits.hpp>
#include <troupe/test/ops/tables/all_rows.hpp>
#include <troupe/test/ops/tables/elsewhere.hpp>
#include <troupe/test/ops/tables/places.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(op_table_test)

namespace {

/// How much inference gets of the inputs' shapes.
enum class Told { everything, rank, nothing };

Shape as_told(const Shape& s, Told told) {
  if (told == Told::nothing) return Shape::unknown();
  Shape out = s;
  if (told == Told::rank)
    for (int i = 0; i < s.rank(); ++i) out.set(i, kAny);
  return out;
}

Exprs apply(Graph& g, const std::string& op, const Exprs& xs, const Attrs& attrs) {
  if (xs.empty()) return g.bind(find_op(op), {}, attrs, Site());
  std::vector<Operand> operands;
  for (const Expr& x : xs) operands.push_back(Operand(x));
  return bind_op(op, operands, attrs, operands[0].site());
}

std::vector<Tensor> run(const Place& place, const std::string& op,
                        const std::vector<Tensor>& inputs, const Attrs& attrs,
                        Told told = Told::everything) {
  Graph g;
  Feeds feeds;
  Exprs xs;
  for (const Tensor& t : inputs) {
    xs.push_back(g.input(fmt::format("x{}", xs.size()), t.dtype(), as_told(t.shape(), told)));
    feeds.emplace_back(xs.back(), t);
  }
  return place.evaluate(g, feeds, apply(g, op, xs, attrs));
}

std::vector<Array> expected(const Row& row, const std::vector<Tensor>& inputs, const Attrs& attrs) {
  std::vector<Array> x;
  for (const Tensor& t : inputs) x.push_back(Array::of(t));
  if (row.reference) return row.reference(x, attrs);
  const OpDef& op = find_op(row.op);
  BOOST_REQUIRE_MESSAGE(op.reference, row.op << " needs a reference in the table");
  Shape shape = x[0].shape;
  for (const Array& a : x) shape = broadcast(shape, a.shape);
  return {tabulate(shape, [&](const Index& i) {
    std::vector<double> at;
    for (const Array& a : x) at.push_back(a.broadcast_at(i));
    return op.reference(at);
  })};
}

// The value an integer result has where the reference is no integer (devices/NOTES.md).
double as_result(double reference, DType t) {
  if (!is_integer(t)) return reference;
  if (!std::isfinite(reference)) return 0;
  bool wraps = !is_signed_integer(t) && reference < 0;
  return std::trunc(reference) + (wraps ? std::ldexp(1.0, static_cast<int>(8 * size_of(t))) : 0);
}

bool is_close(double value, double reference, double tolerance) {
  if (std::isnan(value) || std::isnan(reference)) return std::isnan(value) && std::isnan(reference);
  if (value == reference) return true;
  return std::abs(value - reference) <= tolerance * std::max(1.0, std::abs(reference));
}

void compare(const Row& row, const std::vector<Tensor>& got, const std::vector<Array>& wanted,
             DType dtype, const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    BOOST_REQUIRE_MESSAGE(
        got[k].shape() == wanted[k].shape,
        where << ": shape " << got[k].shape().text() << ", not " << wanted[k].shape.text());
    double tolerance = row.slack * std::max(tolerance_of(got[k].dtype()),
                                            is_floating(got[k].dtype()) ? tolerance_of(dtype) : 0);
    for (std::int64_t i = 0; i < got[k].elements(); ++i) {
      double value = got[k].at(i),
             reference = as_result(wanted[k].v[static_cast<std::size_t>(i)], got[k].dtype());
      BOOST_CHECK_MESSAGE(is_close(value, reference, tolerance), where << ": output " << k << "["
                                                                       << i << "] is " << value
                                                                       << ", not " << reference);
    }
  }
}

std::string title(const Row& row, const Case& c, DType dtype, const std::string& more) {
  std::string shapes;
  for (const Sample& s : c.inputs) shapes += s.array.shape.text();
  return fmt::format("{} {} {} {{{}}} ({})", row.op, name_of(dtype), shapes, c.attrs.text(), more);
}

// ASan tries a sixth of the ops a day, TSan a tenth.
bool is_due(const std::string& op) {
  return is_due_today(std::hash<std::string>()(op), kUnderTsan ? 10 : 6);
}
bool is_due(const Row& row) { return is_due(row.op); }

bool has(const std::vector<DType>& types, DType t) {
  return std::find(types.begin(), types.end(), t) != types.end();
}

std::vector<DType> all_dtypes() {
  std::vector<DType> out;
  for (int i = 0; i < kDTypes; ++i) out.push_back(static_cast<DType>(i));
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_op_has_a_row) {
  std::set<std::string> rows;
  for (const Row& r : all_rows()) rows.insert(r.op);
  for (const OpDef* op : all_ops()) {
    BOOST_CHECK_MESSAGE(rows.contains(op->name) || elsewhere().contains(op->name),
                        "op " << op->name << " has no row in test/ops/tables/table.hpp");
    BOOST_CHECK_MESSAGE(!op->doc.empty(), "op " << op->name << " has no doc line");
    bool has_inputs = op->max_inputs != 0;
    BOOST_CHECK_MESSAGE(!has_inputs || !op->differentiable || op->gradient || op->evaluate,
                        "op " << op->name << " counts as differentiable but has no gradient");
  }
  for (const std::string& name : rows) BOOST_CHECK_NO_THROW(find_op(name));
}

BOOST_AUTO_TEST_CASE(values_are_those_of_the_reference) {
  int runs = 0;
  const std::vector<Place> everywhere = places();
  for (const Row& row : all_rows())
    for (const Case& c : row.cases)
      for (DType dtype : row.dtypes) {
        if (is_complex(dtype) || !is_due(row)) continue;
        // A race does not depend on the dtype, nor a kernel's memory on where it runs. So
        // sanitizers run each row once a dtype (TSan one dtype), and the last dtype on the
        // simulated device too.
        const bool is_last = dtype == row.dtypes.back();
        if (kUnderTsan && !is_last) continue;
        std::vector<Tensor> inputs = tensors_of(c, dtype);
        std::vector<Array> wanted = expected(row, inputs, c.attrs);
        for (const Place& place : everywhere) {
          if (kShare > 1 && place.name != "engine" &&
              !(is_last && (place.name == "engine on sim" || place.name == "engine on a GPU")))
            continue;
          for (Told told : {Told::everything, Told::rank, Told::nothing}) {
            std::string where = title(row, c, dtype,
                                      fmt::format("{}, told {}", place.name,
                                                  told == Told::everything ? "everything"
                                                  : told == Told::rank     ? "the rank"
                                                                           : "nothing"));
            if (told != Told::everything && (c.inputs.empty() || dtype != row.dtypes.back()))
              continue;
            try {
              compare(row, run(place, row.op, inputs, c.attrs, told), wanted, dtype, where);
              ++runs;
            } catch (const Error& e) { BOOST_ERROR(where << " threw: " << e.what()); }
          }
        }
      }
  std::string where;
  for (const Place& p : everywhere) where += (where.empty() ? "" : ", ") + p.name;
  std::map<std::string, std::set<DType>> covered;
  for (const Row& r : all_rows()) covered[r.op].insert(r.dtypes.begin(), r.dtypes.end());
  std::size_t pairs = 0;
  std::string by_dtype, floats_only_wide, by_suite;
  for (const auto& [op, types] : covered) {
    pairs += types.size();
    if (types.contains(DType::f32) && !types.contains(DType::f16)) floats_only_wide += " " + op;
  }
  for (DType t : all_dtypes())
    by_dtype += fmt::format(" {} {}", name_of(t),
                            std::count_if(covered.begin(), covered.end(), [t](const auto& entry) {
                              return entry.second.contains(t);
                            }));
  std::map<std::string, int> suites;
  for (const auto& [op, suite] : elsewhere()) ++suites[suite];
  for (const auto& [suite, ops] : suites) by_suite += fmt::format(" {} {}", suite, ops);
  fmt::print("op table: {} rows of {} ops, {} op x dtype pairs, {} runs on: {}\n",
             all_rows().size(), covered.size(), pairs, runs, where);
  fmt::print(
      "op table: ops by dtype:{}; complex numbers in complex_arithmetic and "
      "special_functions_test\n",
      by_dtype);
  fmt::print("op table: f32 but not f16:{}\n",
             floats_only_wide.empty() ? " none" : floats_only_wide);
  fmt::print("op table: {} of {} ops stand in other suites:{}\n", elsewhere().size(),
             all_ops().size(), by_suite);
}

BOOST_AUTO_TEST_CASE(known_values) {
  for (const Row& row : all_rows())
    for (const auto& [arguments, value] : row.known)
      for (DType dtype : row.dtypes) {
        if (is_complex(dtype) || !is_due(row)) continue;
        bool fits = true;
        std::vector<Tensor> inputs;
        for (double a : arguments) {
          inputs.push_back(Tensor::scalar_as(dtype, a));
          fits = fits && inputs.back().at(0) == a;
        }
        if (!fits || (is_integer(dtype) && value != std::trunc(value)) ||
            (dtype >= DType::u8 && value < 0))
          continue;
        double got = run({"interpreter", evaluate_eagerly}, row.op, inputs, {})[0].at(0);
        BOOST_CHECK_MESSAGE(is_close(got, value, row.slack * tolerance_of(dtype)),
                            row.op << " " << name_of(dtype) << " at " << arguments[0] << " is "
                                   << got << ", not " << value);
      }
}

BOOST_AUTO_TEST_CASE(non_finite_values_pass_as_in_the_reference) {
  const double inf = INFINITY, nan = std::nan("");
  const std::vector<Place> everywhere = places();
  const std::vector<double> special{0.0, -0.0, 1, -1, 2, inf, -inf, nan};
  for (const Row& row : pointwise_rows()) {
    if (!is_due(row)) continue;
    const OpDef& op = find_op(row.op);
    for (DType dtype : {DType::f32, DType::f64}) {
      if (!has(row.dtypes, dtype) || row.op == "Cast") continue;
      int n = op.pointwise->arity();
      Array column{n == 1 ? Shape{8} : Shape{8, 1}, special}, line{Shape{8}, special};
      std::vector<Tensor> inputs;
      if (n == 1) inputs = {tensor_of(column, dtype)};
      if (n == 2) inputs = {tensor_of(column, dtype), tensor_of(line, dtype)};
      if (n == 3)
        inputs = {tensor_of({Shape{8, 1}, {1, 0, 1, 0, 1, 0, 1, 0}}, DType::boolean),
                  tensor_of(line, dtype), tensor_of(column, dtype)};
      for (const Place& place : everywhere)
        compare(
            row, run(place, row.op, inputs, row.cases[0].attrs),
            expected(row, inputs, row.cases[0].attrs), dtype,
            fmt::format("{} {} of what is not finite ({})", row.op, name_of(dtype), place.name));
    }
  }
}

BOOST_AUTO_TEST_CASE(other_dtypes_are_refused_naming_op_and_line) {
  for (const Row& row : all_rows()) {
    if (!row.refuses_others || !is_due(row)) continue;
    for (DType dtype : all_dtypes()) {
      if (has(row.dtypes, dtype)) continue;
      Graph g;
      std::vector<Operand> operands;
      unsigned line = 0;
      for (const Sample& s : row.cases[0].inputs) {
        bool is_fixed = s.role == Role::index || (s.role == Role::truth && row.dtypes != kBool);
        Expr x = g.input(fmt::format("x{}", operands.size()),
                         is_fixed ? dtype_of_role(s.role, dtype) : dtype, s.array.shape);
        line = __LINE__ + 1;
        operands.push_back(Operand(x));
      }
      std::string text = "nothing", place = fmt::format("op_table_test.cpp:{}", line);
      try {
        bind_op(row.op, operands, row.cases[0].attrs, operands[0].site());
      } catch (const Error& e) { text = e.what(); }
      bool names_both = text.find(row.op) == 0 && text.find(place) != std::string::npos;
      BOOST_CHECK_MESSAGE(names_both, row.op << " of " << name_of(dtype) << " said " << text);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_differences_and_with_their_transpose,
                     *boost::unit_test::label("one_thread")) {
  std::int64_t compared = 0;
  int rows = 0;
  for (const Row& row : all_rows()) {
    if (row.order == 0 || !is_due(row)) continue;
    ++rows;
    for (const Case& c : row.cases) {
      std::int64_t elements = 0;
      for (const Sample& s : c.inputs) elements += s.array.shape.elements();
      if (elements > 30 || c.order == 0) continue;  // long inputs are for the kernels' sake
      std::vector<Tensor> inputs = tensors_of(c, DType::f64);
      for (bool open : {false, true}) {
        Differentiable f = [&](Graph& g, const Exprs& xs) {
          Exprs ys = apply(g, row.op, xs, c.attrs), flat;
          if (ys.size() == 1) return ys[0];
          for (const Expr& y : ys)
            // positions have no gradient
            if (is_floating(y.dtype())) flat.push_back(reshape(y, Shape{kAny}));
          return flat.size() == 1 ? flat[0] : concat(flat, 0);
        };
        std::string where = title(row, c, DType::f64, open ? "open shapes" : "known shapes");
        try {
          CheckOptions options{
              .tolerance = 1e-6, .order = std::min(row.order, c.order), .open_shapes = open};
          CheckReport differences = check_gradients(f, inputs, options);
          BOOST_CHECK_MESSAGE(differences.ok(), where << ": " << differences.text);
          compared += differences.compared;
          if (row.order < 2 || c.order < 2) continue;
          options.tolerance = 1e-12;
          CheckReport transposed = check_dot_product(f, inputs, options);
          BOOST_CHECK_MESSAGE(transposed.ok(), where << ": " << transposed.text);
        } catch (const Error& e) { BOOST_ERROR(where << " threw: " << e.what()); }
      }
    }
  }
  fmt::print("op table: gradients of {} rows, {} numbers compared with differences\n", rows,
             compared);
}

BOOST_AUTO_TEST_CASE(complex_arithmetic) {
  using C = std::complex<double>;
  const std::map<std::string, Callable<C(C, C)>> references{
      {"Add", [](C x, C y) { return x + y; }},
      {"Sub", [](C x, C y) { return x - y; }},
      {"Mul", [](C x, C y) { return x * y; }},
      {"Div", [](C x, C y) { return x / y; }},
      {"Neg", [](C x, C) { return -x; }},
      {"Square", [](C x, C) { return x * x; }},
      {"Reciprocal", [](C x, C) { return 1.0 / x; }},
      {"SquaredDifference", [](C x, C y) { return (x - y) * (x - y); }},
      {"Exp", [](C x, C) { return std::exp(x); }},
      {"Log", [](C x, C) { return std::log(x); }},
      {"Sqrt", [](C x, C) { return std::sqrt(x); }},
      {"Rsqrt", [](C x, C) { return 1.0 / std::sqrt(x); }},
      {"Sin", [](C x, C) { return std::sin(x); }},
      {"Cos", [](C x, C) { return std::cos(x); }},
      {"Tan", [](C x, C) { return std::tan(x); }},
      {"Asin", [](C x, C) { return std::asin(x); }},
      {"Acos", [](C x, C) { return std::acos(x); }},
      {"Atan", [](C x, C) { return std::atan(x); }},
      {"Sinh", [](C x, C) { return std::sinh(x); }},
      {"Cosh", [](C x, C) { return std::cosh(x); }},
      {"Tanh", [](C x, C) { return std::tanh(x); }},
      {"Asinh", [](C x, C) { return std::asinh(x); }},
      {"Acosh", [](C x, C) { return std::acosh(x); }},
      {"Atanh", [](C x, C) { return std::atanh(x); }},
      {"Sigmoid", [](C x, C) { return 1.0 / (1.0 + std::exp(-x)); }},
      {"Silu", [](C x, C) { return x / (1.0 + std::exp(-x)); }},
      {"Pow", [](C x, C y) { return std::pow(x, y); }},
      {"Expm1", [](C x, C) { return std::exp(x) - 1.0; }},
      {"Log1p", [](C x, C) { return std::log(1.0 + x); }}};
  std::set<std::string> other{"Equal", "NotEqual", "Where"};  // yield or take bool
  for (const Row& row : pointwise_rows())
    if (std::count_if(row.dtypes.begin(), row.dtypes.end(), is_complex))
      BOOST_CHECK_MESSAGE(references.contains(row.op) || other.contains(row.op),
                          row.op << " of complex numbers is compared with nothing");
  const std::vector<Place> everywhere = places();
  std::vector<C> x{{1, 2}, {-.5, .25}, {3, 0}}, y{{.5, -1}, {2, 2}, {0, 1}};
  for (const auto& [op, f] : references) {
    if (!is_due(op)) continue;
    std::vector<std::complex<float>> few(x.begin(), x.end()), others(y.begin(), y.end());
    std::vector<Tensor> narrow{Tensor::of(few, Shape{3}), Tensor::of(others, Shape{3})};
    if (find_op(op).max_inputs == 1) narrow.pop_back();
    std::vector<std::complex<float>> rough =
        run(everywhere[0], op, narrow, {})[0].to_vector<std::complex<float>>();
    for (std::size_t i = 0; i < 3; ++i)
      BOOST_CHECK_MESSAGE(
          std::abs(C(rough[i]) - f(x[i], y[i])) < 2e-6 * std::max(1.0, std::abs(f(x[i], y[i]))),
          op << " of c64");
    std::vector<Tensor> inputs{Tensor::of(x, Shape{3}), Tensor::of(y, Shape{3})};
    if (find_op(op).max_inputs == 1) inputs.pop_back();
    for (const Place& place : everywhere) {
      std::vector<C> got = run(place, op, inputs, {})[0].to_vector<C>();
      for (std::size_t i = 0; i < 3; ++i)
        BOOST_CHECK_MESSAGE(std::abs(got[i] - f(x[i], y[i])) < 1e-13,
                            op << " of complex numbers on " << place.name);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
