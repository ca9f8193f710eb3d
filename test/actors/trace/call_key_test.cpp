// The key of a traced function: which calls share a graph, by the structure of tensors, by host
// arguments and by device scopes.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test::keys {

struct Pair {
  Expr a, b;
  auto members() { return std::tie(a, b); }
};

// Two vectors, so that it is taken apart by its value.
struct Layers {
  Exprs weights, biases;
  double rate = 1;
  auto members() { return std::tie(weights, biases); }
};

struct Hashed {
  int value = 0;
  bool operator==(const Hashed&) const = default;
};

// By identity.
struct Plain {
  double value = 0;
};

}  // namespace troupe::test::keys

template <>
struct std::hash<troupe::test::keys::Hashed> {
  std::size_t operator()(const troupe::test::keys::Hashed&) const { return 7; }
};

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(call_key_test)

using keys::Hashed;
using keys::Layers;
using keys::Pair;
using keys::Plain;

BOOST_AUTO_TEST_CASE(the_structure_of_tensors_is_a_part_of_the_key) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0), y = e.constant(2.0), z = e.constant(4.0);
    auto f = function("f", [](const Exprs& a, const Exprs& b) {
      Expr s = 0.0 * a[0];
      for (const Expr& v : a) s = s + v;
      for (const Expr& v : b) s = s + 10.0 * v;
      return s;
    });
    BOOST_TEST(number(f(Exprs{x, y}, Exprs{z})) == 43);
    BOOST_TEST(number(f(Exprs{x}, Exprs{y, z})) == 61);
    BOOST_TEST(number(f(Exprs{x, y}, Exprs{z})) == 43);
    BOOST_TEST(f.traces() == 2);

    int tuples = 0, structs = 0, pairs = 0;
    auto g = function("g", [&](const auto& a) {
      using T = std::decay_t<decltype(a)>;
      if constexpr (std::is_same_v<T, Pair>) {
        ++structs;
        return a.a - a.b;
      } else {
        (std::is_same_v<T, std::pair<Expr, Expr>> ? pairs : tuples) += 1;
        return std::get<0>(a) + std::get<1>(a);
      }
    });
    BOOST_TEST(number(g(Pair{x, y})) == -1);
    BOOST_TEST(number(g(std::tuple{x, y})) == 3);
    BOOST_TEST(number(g(std::pair{x, y})) == 3);
    BOOST_TEST(number(g(Pair{x, y})) == -1);
    BOOST_TEST((structs == 1 && tuples == 1 && pairs == 1));
    // the code is given an expression in each case
    auto h = function("h", [](Expr a) { return a * 2.0; });
    BOOST_TEST(number(h(x)) == 2);
    BOOST_TEST(number(h(Tensor::scalar(3.0))) == 6);
    BOOST_TEST(h.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(vectors_of_vectors_are_tensors) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0), y = e.constant(2.0), z = e.constant(4.0);
    auto f = function("f", [](const std::vector<Exprs>& rows) {
      Expr s = 0.0 * rows[0][0];
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (const Expr& v : rows[i]) s = s + std::pow(10.0, i) * v;
      return s;
    });
    BOOST_TEST(number(f(std::vector<Exprs>{{x, y}, {z}})) == 43);
    BOOST_TEST(number(f(std::vector<Exprs>{{x}, {y, z}})) == 61);
    BOOST_TEST(number(f(std::vector<Exprs>{{z}, {y, x}})) == 34);
    BOOST_TEST(f.traces() == 2);
  });
}

BOOST_AUTO_TEST_CASE(other_members_of_a_struct_stay_out_of_the_graph) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0), y = e.constant(2.0), z = e.constant(4.0);
    auto f = function(
        "f", [](const Layers& l) { return l.weights[0] * l.rate + l.biases[0] + l.biases[1]; });
    // 3 is no part of the key, and so of no graph
    BOOST_TEST(number(f(Layers{{x}, {y, z}, 3})) == 7);
    BOOST_TEST(number(f(Layers{{z}, {y, z}, 5})) == 10);
    BOOST_TEST(f.traces() == 1);
  });
}

BOOST_AUTO_TEST_CASE(host_arguments_are_told_apart_by_type_and_value) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0);
    auto f = function("f", [](Expr v, auto n) { return v * static_cast<double>(n); });
    BOOST_TEST(number(f(x, -1)) == -1);
    BOOST_TEST(number(f(x, 4294967295U)) == 4294967295.0);
    BOOST_TEST(number(f(x, 2.5L)) == 2.5);
    BOOST_TEST(number(f(x, 2.5L)) == 2.5);
    BOOST_TEST(f.traces() == 3);
    auto text = function(
        "text", [](Expr v, std::string_view s) { return v * static_cast<double>(s.size()); });
    BOOST_TEST(number(text(x, std::string_view("ab"))) == 2);
    BOOST_TEST(number(text(x, std::string_view("abc"))) == 3);
    auto shaped = function("shaped", [](Expr v, const Shape& s) { return broadcast_to(v, s); });
    BOOST_TEST(numbers(shaped(x, Shape{2})) == (Numbers{1, 1}));
    BOOST_TEST(numbers(shaped(x, Shape{3})) == (Numbers{1, 1, 1}));
    auto complex = function(
        "complex", [](Expr v, std::complex<double> c) { return v * (c.real() + 10 * c.imag()); });
    BOOST_TEST(number(complex(x, std::complex<double>(1, 2))) == 21);
    BOOST_TEST(number(complex(x, std::complex<double>(2, 1))) == 12);
  });
}

BOOST_AUTO_TEST_CASE(pointers_and_what_holds_values_count_by_value) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0);
    const Plain two{2}, three{3};
    auto by_pointer = function("by_pointer", [](Expr v, const Plain* p) { return v * p->value; });
    BOOST_TEST(number(by_pointer(x, &two)) == 2);
    BOOST_TEST(number(by_pointer(x, &three)) == 3);
    BOOST_TEST(number(by_pointer(x, &two)) == 2);
    BOOST_TEST(by_pointer.traces() == 2);

    const auto first = std::make_shared<Plain>(two), second = std::make_shared<Plain>(three);
    auto by_shared =
        function("by_shared", [](Expr v, const std::shared_ptr<Plain>& p) { return v * p->value; });
    for (int again = 0; again < 2; ++again) {
      // copies, at one address of the stack
      BOOST_TEST(number(by_shared(x, std::shared_ptr<Plain>(first))) == 2);
      BOOST_TEST(number(by_shared(x, std::shared_ptr<Plain>(second))) == 3);
    }
    BOOST_TEST(by_shared.traces() == 2);

    auto of_pair = function(
        "of_pair", [](Expr v, std::pair<int, double> p) { return v * (p.first + 10 * p.second); });
    BOOST_TEST(number(of_pair(x, std::pair<int, double>(1, 2))) == 21);
    BOOST_TEST(number(of_pair(x, std::pair<int, double>(2, 1))) == 12);
    auto of_tuple = function("of_tuple", [](Expr v, std::tuple<int, std::string> t) {
      return v * static_cast<double>(std::get<1>(t).size() + std::get<0>(t));
    });
    BOOST_TEST(number(of_tuple(x, std::tuple<int, std::string>(1, "a"))) == 2);
    BOOST_TEST(number(of_tuple(x, std::tuple<int, std::string>(1, "ab"))) == 3);
    auto of_optional = function(
        "of_optional", [](Expr v, std::optional<int> n) { return v * double(n.value_or(7)); });
    BOOST_TEST(number(of_optional(x, std::optional<int>())) == 7);
    BOOST_TEST(number(of_optional(x, std::optional<int>(0))) == 0);
    BOOST_TEST(number(of_optional(x, std::optional<int>(3))) == 3);
    auto of_map = function("of_map", [](Expr v, const std::map<std::string, int>& m) {
      return v * double(m.begin()->second);
    });
    BOOST_TEST(number(of_map(x, std::map<std::string, int>{{"a", 1}})) == 1);
    BOOST_TEST(number(of_map(x, std::map<std::string, int>{{"a", 2}})) == 2);
    auto of_pairs = function("of_pairs", [](Expr v, const std::vector<std::pair<int, int>>& p) {
      return v * double(p[0].second);
    });
    BOOST_TEST(number(of_pairs(x, std::vector<std::pair<int, int>>{{1, 2}})) == 2);
    BOOST_TEST(number(of_pairs(x, std::vector<std::pair<int, int>>{{1, 3}})) == 3);
    auto of_flags = function(
        "of_flags", [](Expr v, const std::vector<bool>& b) { return v * (b[1] ? 2.0 : 1.0); });
    BOOST_TEST(number(of_flags(x, std::vector<bool>{true, false})) == 1);
    BOOST_TEST(number(of_flags(x, std::vector<bool>{true, true})) == 2);
  });
}

BOOST_AUTO_TEST_CASE(hashed_values_are_compared_and_others_by_their_address) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(1.0);
    // all of one hash
    auto hashed = function("hashed", [](Expr v, const Hashed& h) { return v * double(h.value); });
    BOOST_TEST(number(hashed(x, Hashed{2})) == 2);
    BOOST_TEST(number(hashed(x, Hashed{3})) == 3);
    BOOST_TEST(number(hashed(x, Hashed{2})) == 2);
    BOOST_TEST(hashed.traces() == 2);
    auto many = function(
        "many", [](Expr v, const std::vector<Hashed>& h) { return v * double(h[0].value); });
    BOOST_TEST(number(many(x, std::vector<Hashed>{{2}})) == 2);
    BOOST_TEST(number(many(x, std::vector<Hashed>{{3}})) == 3);

    const Plain a{2}, b{2};
    auto plain = function("plain", [](Expr v, const Plain& p) { return v * p.value; });
    BOOST_TEST(number(plain(x, a)) == 2);
    BOOST_TEST(number(plain(x, b)) == 2);
    BOOST_TEST(number(plain(x, a)) == 2);
    BOOST_TEST(plain.traces() == 2);
    static_assert(detail::is_by_address<Plain>);
    static_assert(detail::is_by_address<std::vector<Plain>>);
    static_assert(detail::is_by_address<std::optional<Plain>>);
    static_assert(!detail::is_by_address<std::vector<Plain*>>);
    static_assert(!detail::is_by_address<Hashed>);
  });
}

BOOST_AUTO_TEST_CASE(variables_are_known_by_host_and_name) {
  auto f = function("f", [](Variable v) { return v.read() * 2.0; });
  for (const double value : {1.0, 2.0}) {
    Eager e;  // perhaps where the one before it was
    Variable other = e.variable(value == 1 ? "v" : "w", Tensor::scalar(value));
    BOOST_TEST(number(f(other)) == 2 * value);
  }
  Engine engine({.workers = 1});
  Eager a(engine), b(engine);
  Variable v = a.variable("v", Tensor::scalar(5.0));
  const int before = f.traces();
  BOOST_TEST(number(f(v)) == 10);
  BOOST_TEST(number(f(b.find_variable("v"))) == 10);  // one variable of two scopes
  BOOST_TEST(f.traces() == before + 1);
}

BOOST_AUTO_TEST_CASE(a_call_runs_on_the_device_of_its_scope) {
  Engine engine({.workers = 1});
  Eager e(engine);
  const Expr x = e.constant(Tensor::of<double>({1, 2}));
  Variable v = e.variable("v", Tensor::of<double>({1, 1}));
  auto f = function("f", [&](Expr a) {
    v.assign_add(a);
    return matmul(reshape(a, Shape{1, 2}), reshape(v.read(), Shape{2, 1}));
  });
  const auto devices_of = [&](auto& of) { return of.explain(x); };
  BOOST_TEST(number(f(x)) == 8);
  BOOST_TEST(devices_of(f).find("sim:0") == std::string::npos);
  {
    const auto there = e.on_device("sim:0");
    BOOST_TEST(number(f(x)) == 13);
    BOOST_TEST(devices_of(f).find("sim:0") != std::string::npos);
    BOOST_TEST(f.traces() == 2);
  }
  BOOST_TEST(number(f(x)) == 18);
  BOOST_TEST(f.traces() == 2);
  BOOST_TEST(numbers(v.read()) == (Numbers{4, 7}));  // it stays where it is

  // a function that a scope inside of another one's code calls
  auto product = function("product", [](Expr a) {
    return matmul(reshape(a, Shape{1, 2}), reshape(a, Shape{2, 1}));
  });
  auto outer = function("outer", [&](Expr a) {
    Expr here = product(a);
    const auto there = e.on_device("sim:0");
    return here + product(a);
  });
  BOOST_TEST(number(outer(x)) == 10);
  BOOST_TEST(product.traces() == 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
