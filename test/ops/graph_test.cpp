// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Building graphs: inferred types, refusals and their texts, literals, names, scopes.
#include <boost/test/unit_test.hpp>

#include <limits>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/variable.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(graph_test, TROUPE_ONE_THREAD)

namespace {

template <class F>
void refused(F f, Code code, std::initializer_list<std::string> parts) {
  try {
    f();
  } catch (const Error& e) {
    std::string text = e.what();
    BOOST_TEST((e.code() == code), text);
    for (const std::string& p : parts)
      BOOST_CHECK_MESSAGE(text.find(p) != std::string::npos, "'" << p << "' is not in: " << text);
    return;
  }
  BOOST_ERROR("nothing was thrown");
}
std::string here(int line) { return fmt::format("graph_test.cpp:{}", line); }

}  // namespace

BOOST_AUTO_TEST_CASE(wrong_shapes_and_dtypes_name_op_and_line) {
  Graph g;
  Expr a = g.input("a", DType::f32, {2, 3}), b = g.input("b", DType::f32, {4}),
       i = g.input("i", DType::i32, {3});
  const int line = __LINE__ + 1;
  refused([&] { return a + b; }, Code::invalid_argument,
          {"Add", "f32[2, 3]", "f32[4]", here(line)});
  refused([&] { return a * i; }, Code::invalid_argument,
          {"Mul", "i32[3]", "cast one of them", here(line + 2)});
  refused([&] { return matmul(a, a); }, Code::invalid_argument,
          {"MatMul", "inner extents 3 and 2 differ", here(line + 4)});
  refused([&] { return sin(i); }, Code::invalid_argument, {"Sin", here(line + 6)});
  refused([&] { return sum(a, {2}); }, Code::out_of_range, {"Sum", "axis 2", here(line + 7)});
  refused([&] { return gather(a, b); }, Code::invalid_argument,
          {"Gather", "indices must be i32 or i64", here(line + 8)});
  refused([&] { return concat({a, b}, 0); }, Code::invalid_argument, {"Concat", here(line + 10)});
  refused([&] { return reshape(a, {4}); }, Code::invalid_argument,
          {"Reshape", "6 elements", here(line + 11)});
  refused([&] { return slice(a, {1, 0}, {2, 1}); }, Code::out_of_range, {"Slice", here(line + 13)});
  refused(
      [&] {
        return transpose(a, {0, 0});
      },
      Code::invalid_argument, {"Transpose", here(line + 16)});
  refused([&] { return one_hot(a, 3); }, Code::invalid_argument, {"OneHot", here(line + 19)});
  refused([&] { return where(a, a, a); }, Code::invalid_argument,
          {"Where", "the condition must be bool", here(line + 20)});
  refused([&] { return group({}); }, Code::invalid_argument, {"Group", here(line + 22)});
  refused([&] { return squeeze(a, 0); }, Code::invalid_argument, {"Squeeze", here(line + 23)});
  refused([&] { return hard_sigmoid(i); }, Code::invalid_argument,
          {"HardSigmoid", "i32", here(line + 24)});
  const std::int64_t huge = std::int64_t{1} << 40;
  refused(
      [&] {
        return g.zeros(DType::f32, {huge, huge});
      },
      Code::invalid_argument, {"more elements than 64 bits count", here(line + 29)});
  refused(
      [&] {
        return g.zeros(DType::f64, {huge, huge >> 18});
      },
      Code::invalid_argument, {"more bytes than 64 bits count", here(line + 34)});
}

// The line of the shape, which is refused before there is an op.
BOOST_AUTO_TEST_CASE(shapes_that_are_none_name_their_line) {
  Graph g;
  const int line = __LINE__ + 1;
  refused(
      [&] {
        return g.input("x", DType::f32, {3, -2});
      },
      Code::invalid_argument, {"-2 is no extent", here(line + 2)});
  refused([&] { return g.random_uniform({-7}); }, Code::invalid_argument,
          {"-7 is no extent", here(line + 5)});
  refused(
      [&] {
        return g.input("y", DType::f32, {1, 1, 1, 1, 1, 1, 1, 1, 1});
      },
      Code::invalid_argument, {"at most 8 dimensions, not 9", here(line + 9)});
}

BOOST_AUTO_TEST_CASE(unknown_extents_are_inferred_as_far_as_they_go) {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, 3}), any = g.input("any", DType::f32, Shape::unknown());
  BOOST_TEST((x + g.input("y", DType::f32, {5, 1})).shape().text() == "[5, 3]");
  BOOST_TEST((x + g.input("z", DType::f32, {kAny, kAny})).shape().text() == "[?, 3]");
  BOOST_TEST(matmul(x, g.input("w", DType::f32, {3, 4})).shape().text() == "[?, 4]");
  BOOST_TEST(sum(x, {1}).shape().text() == "[?]");
  BOOST_TEST(sum(any).shape().text() == "[]");
  BOOST_TEST(sum(any, {0}).shape().text() == "[...]");
  BOOST_TEST((any * 2.0).shape().text() == "[...]");
  BOOST_TEST(reshape(x, {kAny, 6}).shape().text() == "[?, 6]");
  BOOST_TEST(concat({x, x}, 1).shape().text() == "[?, 6]");
  BOOST_TEST(concat({x, g.input("v", DType::f32, {2, kAny})}, 0).shape().text() == "[?, 3]");
  BOOST_TEST(one_hot(g.input("i", DType::i64, {kAny}), 7).shape().text() == "[?, 7]");
  BOOST_TEST(transpose(x).shape().text() == "[3, ?]");
  BOOST_TEST(pad(x, {1, 0}, {0, 2}).shape().text() == "[?, 5]");
  refused([&] { return transpose(any); }, Code::invalid_argument, {"Transpose", "rank"});
  refused([&] { return unstack(x); }, Code::invalid_argument,
          {"unstack at ", "needs the extent of operand 0 along axis 0"});
}

BOOST_AUTO_TEST_CASE(literals_take_the_dtype_they_meet) {
  Graph g;
  Expr f = g.input("f", DType::f16, {2}), i = g.input("i", DType::u8, {2}),
       b = g.input("b", DType::boolean, {2});
  BOOST_TEST(((f * 2).dtype() == DType::f16));
  BOOST_TEST(((1.5 - f).dtype() == DType::f16));
  BOOST_TEST(((i + 255).dtype() == DType::u8));
  BOOST_TEST((where(b, 1.0, 0.0).dtype() == DType::f32));
  BOOST_TEST((where(b, 1, 0).dtype() == DType::i64));
  BOOST_TEST((where(b, f, 0).dtype() == DType::f16));
  BOOST_TEST((logical_and(b, true).dtype() == DType::boolean));
  refused([&] { return i + 0.5; }, Code::invalid_argument, {"0.5 is no u8"});
  refused([&] { return i + 256; }, Code::invalid_argument, {"256 is no u8"});
  refused([&] { return i + -1; }, Code::invalid_argument, {"-1 is no u8"});
  // Integers to the last digit, which doubles do not have.
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(),
                         odd = (std::int64_t{1} << 53) + 1;
  constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  Eager e;
  BOOST_TEST((e.constant(Tensor::scalar(std::int64_t{0})) + odd).value().item<std::int64_t>() ==
             odd);
  BOOST_TEST((e.constant(Tensor::scalar(std::int64_t{0})) + most).value().item<std::int64_t>() ==
             most);
  BOOST_TEST((e.constant(Tensor::scalar(std::uint64_t{0})) + all).value().item<std::uint64_t>() ==
             all);
  BOOST_TEST(
      e.variable("v", Tensor::scalar(std::int64_t{0})).assign(odd).value().item<std::int64_t>() ==
      odd);
  refused([&] { return g.input("l", DType::i64, {}) + all; }, Code::invalid_argument,
          {"18446744073709551615 is no i64"});
  refused([&] { return g.variable("small", Tensor::scalar(std::uint8_t{0})).assign(300); },
          Code::invalid_argument, {"graph_test.cpp", "300 is no u8"});
  refused([&] { return Operand(1.0) + 2.0; }, Code::invalid_argument,
          {"none of the operands is an expression"});
  // A tensor keeps its own dtype.
  refused(
      [&] {
        return f + Tensor::of<float>({1, 2});
      },
      Code::invalid_argument, {"Add", "f16 and f32"});
  refused(
      [&] {
        return Tensor::of<float>({1, 2}) - f;
      },
      Code::invalid_argument, {"Sub", "f16 and f32"});
}

BOOST_AUTO_TEST_CASE(names) {
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  Expr y = g.named(tanh(x), "y");
  BOOST_TEST((g.find("y").edge() == y.edge()));
  BOOST_TEST(g.name_of(y.edge().node) == "y");
  const int line = __LINE__ + 1;
  Expr z = exp(y);
  BOOST_TEST(g.describe(z.edge().node) ==
             fmt::format("Exp 'Exp_{}' ({})", z.edge().node, here(line)));
  refused([&] { return g.named(z, "y"); }, Code::already_exists, {"'y'", "Tanh"});
  refused([&] { return g.input("x", DType::f32, {}); }, Code::already_exists,
          {"'x'", fmt::format("graph_test.cpp:{}", __LINE__ - 1)});
  Expr count = g.input("count", DType::i32, {2}), three = g.input("three", DType::f32, {3}),
       two = g.input("two", DType::f32, {2});
  refused(
      [&] {
        return stack({two, count});
      },
      Code::invalid_argument, {"stack at graph_test.cpp", "i32[2]", "f32[2]"});
  refused(
      [&] {
        return stack({two, three});
      },
      Code::invalid_argument, {"stack at graph_test.cpp", "f32[3]", "f32[2]"});
  refused([&] { return g.find("nobody"); }, Code::not_found, {"'nobody'"});
  BOOST_CHECK_NO_THROW(g.named(y, "y"));  // again with the name it has
}

// An inner scope replaces the parts of the constraint that it names: places, or the device.
BOOST_AUTO_TEST_CASE(device_scopes_merge_their_parts) {
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  const auto merged = [&](const char* outer, const char* inner) {
    auto around = g.on_device(outer);
    auto here = g.on_device(inner);
    return g.node(exp(x).edge().node).device;
  };
  BOOST_TEST(merged("/node:a/label:x=1/cpu:0", "cpu:1") == "/node:a/label:x=1/cpu:1");
  BOOST_TEST(merged("/node:a/label:x=1/cpu:0", "/node:b") == "/node:b/cpu:0");
  BOOST_TEST(merged("/node:a", "/label:x=1") == "/label:x=1");
  BOOST_TEST(merged("/node:a/cpu:0", "/label:x/label:y/gpu:*") == "/label:x/label:y/gpu:*");
  BOOST_TEST(merged("cpu:0", "/node:b") == "/node:b/cpu:0");
  BOOST_TEST(merged("/node:a/cpu:0", "with:7") == "with:7");
}

BOOST_AUTO_TEST_CASE(scopes_nest_and_end) {
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  Expr inner, outer, plain, first = exp(x), later;
  {
    auto a = g.scope("a");
    auto here_too = g.on_device("cpu:1");
    {
      auto b = g.scope("b");
      auto there = g.on_device("cpu:2");
      inner = exp(x);
    }
    outer = g.named(exp(x), "outer");
  }
  plain = exp(x);
  {
    auto order = g.after({first});
    later = exp(x);
  }
  auto node = [&](const Expr& e) { return g.node(e.edge().node); };
  BOOST_TEST(g.name_of(inner.edge().node) == fmt::format("a/b/Exp_{}", inner.edge().node));
  BOOST_TEST(node(inner).device == "cpu:2");
  BOOST_TEST(g.name_of(outer.edge().node) == "a/outer");
  BOOST_TEST(node(outer).device == "cpu:1");
  BOOST_TEST(g.name_of(plain.edge().node) == fmt::format("Exp_{}", plain.edge().node));
  BOOST_TEST(node(plain).device == "");
  BOOST_TEST(node(plain).controls.empty());
  BOOST_TEST(node(later).controls == (std::vector<std::int32_t>{first.edge().node}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(names_survive_passes) {
  Graph g;
  Expr x = g.input("x", DType::f32, {}), unused = exp(x);
  auto s = g.scope("s");
  Expr y = tanh(x);
  Program p = prune(g, {x.edge()}, {y.edge()});
  BOOST_TEST(p.graph.name_of(p.fetches[0].node) == g.name_of(y.edge().node));
  (void)unused;
}

BOOST_AUTO_TEST_CASE(constants_and_readers_meet) {
  Graph g, other;
  Eager e;
  Expr x = g.input("x", DType::f64, {2}), alien = other.input("x", DType::f64, {2});
  // An eager value becomes a constant of the graph it meets.
  Expr y = x + e.constant(Tensor::of<double>({10, 20}));
  std::vector<Tensor> out = Eager().run(g, {{x, Tensor::of<double>({1, 2})}},
                                        {y, g.ones(DType::f64, {2}), g.constant(2.5)});
  BOOST_TEST(out[0].to_vector<double>() == (std::vector<double>{11, 22}),
             boost::test_tools::per_element());
  BOOST_TEST(out[1].to_vector<double>() == (std::vector<double>{1, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(out[2].item<double>() == 2.5);
  refused([&] { return x + alien; }, Code::invalid_argument, {"two graphs meet", here(__LINE__)});
  refused([&] { return x.value(); }, Code::failed_precondition,
          {"no value while the graph is built"});
  refused([&] { return tanh(Expr()); }, Code::invalid_argument, {"Tanh"});
}

BOOST_AUTO_TEST_CASE(unknown_ops_suggest_a_name) {
  refused([] { find_op("MatMull"); }, Code::not_found, {"'MatMull'", "did you mean 'MatMul'"});
  Graph g;
  Expr x = g.input("x", DType::f32, {});
  refused(
      [&] {
        bind1("Sum", {x}, Attrs{{"axis", std::int64_t{0}}});
      },
      Code::invalid_argument, {"no attribute 'axis'"});
  refused([&] { bind1("Reshape", {x}); }, Code::invalid_argument, {"needs the attribute 'shape'"});
  refused([&] { bind1("Add", {x}); }, Code::invalid_argument, {"takes 2 inputs, not 1"});
}

BOOST_AUTO_TEST_CASE(feeding) {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, 2});
  Expr inner = x * 2.0, y = inner + 1.0;
  Eager run;
  refused([&] { run.run(g, {}, {y}); }, Code::invalid_argument, {"'x'", "not fed"});
  refused(
      [&] {
        run.run(g, {{x, Tensor::scalar(1.f)}}, {y});
      },
      Code::invalid_argument, {"'x'", "f32[?, 2]", "f32[]"});
  refused(
      [&] {
        run.run(g, {{x, Tensor::of<double>({1, 2}, {1, 2})}}, {y});
      },
      Code::invalid_argument, {"f64"});
  // Feeding an inner value cuts off what lies behind it.
  Tensor out = run.run(g, {{inner, Tensor::of<float>({1, 2}, {1, 2})}}, {y})[0];
  BOOST_TEST(out.to_vector<float>() == (std::vector<float>{2, 3}),
             boost::test_tools::per_element());
  refused(
      [&] {
        run.run(g, {{inner, out}, {inner, out}}, {y});
      },
      Code::invalid_argument, {"fed twice"});
}

BOOST_AUTO_TEST_CASE(errors_of_a_run_name_node_and_line) {
  Graph g;
  Expr x = g.input("x", DType::f64, {3}), i = g.input("i", DType::i64, {1});
  const int line = __LINE__ + 1;
  Expr y = g.named(gather(x, i), "pick");
  refused(
      [&] {
        Eager().run(g, {{x, Tensor::of<double>({1, 2, 3})}, {i, Tensor::of<std::int64_t>({5})}},
                    {y});
      },
      Code::out_of_range, {"Gather", "'pick'", here(line)});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
