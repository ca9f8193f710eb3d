// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Attributes of functions of the DSL that make no sense, and the function that an error names.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/ops/tables/samples.hpp>
#include <troupe/test/ops/tables/with_slope.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(refused_attributes_test)

BOOST_AUTO_TEST_CASE(attributes_that_make_no_sense_are_refused) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 3, 4}), u = g.input("u", DType::u8, {2}),
       i = g.input("i", DType::i32, {2}), none = g.input("n", DType::f32, {2, 0, 3});
  Expr q = g.input("q", DType::f32, {1, 2, 3, 4}), z = g.input("z", DType::c128, {2, 2});
  const auto refused = [](const char* what, const Callable<void()>& f, const char* why) {
    try {
      f();
      BOOST_ERROR(std::string("not refused: ") + what);
    } catch (const Error& e) { says(e.what(), {what, why, "refused_attributes_test.cpp"}); }
  };
  for (double epsilon : {-1.0, double(NAN), double(INFINITY)}) {
    refused(
        "LayerNorm", [&] { layer_norm(x, 1.0, 0.0, epsilon); }, "epsilon must be");
    refused(
        "RmsNorm", [&] { rms_norm(x, 1.0, epsilon); }, "epsilon must be");
    refused(
        "batch_norm", [&] { batch_norm(x, 1.0, 0.0, epsilon); }, "epsilon must be");
    refused(
        "group_norm", [&] { group_norm(x, 2, 1.0, 0.0, epsilon); }, "epsilon must be");
  }
  refused(
      "Attention", [&] { attention(q, q, q, false, NAN); }, "scale must be finite");
  refused(
      "clip", [&] { clip(x, 1, -1); }, "low must not be above high");
  refused(
      "clip", [&] { clip(x, NAN, 1); }, "NaN");
  refused(
      "FillLike", [&] { fill_like(u, 300); }, "the value is 300, which no u8 is");
  refused(
      "FillLike", [&] { fill_like(u, -1); }, "no u8");
  refused(
      "OneHot", [&] { one_hot(i, 3, DType::u8, 300); }, "on is 300, which no u8 is");
  refused(
      "Pad", [&] { pad(i, {1}, {1}, .5); }, "the value is 0.5, which no i32 is");
  refused(
      "Range", [&] { arange(g, 0, 1000, 1, DType::u8); }, "the last number is 999, which no u8 is");
  refused(
      "quantize", [&] { quantize(x, 0.0, 0); }, "scale must be above 0");
  refused(
      "quantize", [&] { quantize(x, 0.5, 200); }, "zero must be a whole number in [-128, 127]");
  refused(
      "dequantize", [&] { dequantize(u, -1.0, 0); }, "scale must be above 0");
  refused(
      "Sum",
      [&] {
        sum(x, {1, -2});
      },
      "axis -2 is named twice");
  refused(
      "flip",
      [&] {
        flip(x, {0, 0});
      },
      "axis 0 is named twice");
  refused(
      "Max", [&] { reduce_max(none, {1}); }, "none among no elements");
  refused(
      "ArgMin", [&] { argmin(none, 1); }, "none among no elements");
  refused(
      "global_max_pool", [&] { global_max_pool(none); }, "there is no position in [2, 0, 3]");
  refused(
      "categorical",
      [&] {
        categorical(slice(none, {0, 0, 0}, {-1, -1, 0}));
      },
      "no classes");
  refused(
      "multinomial",
      [&] {
        multinomial(g.zeros(DType::f32, {2, 0}), 3);
      },
      "no classes");
  refused(
      "Slice",
      [&] {
        slice(x, {0, 0, 0}, {1, -7, 1});
      },
      "there is no extent -7");
  BOOST_CHECK_NO_THROW(reduce_max(g.zeros(DType::f32, {0, 3}), {1}));  // no rows have no maxima
  BOOST_CHECK_NO_THROW(fill_like(g.zeros(DType::i64, {1}), -0x1p63));
  refused(
      "FillLike", [&] { fill_like(g.zeros(DType::i64, {1}), 0x1p63); }, "no i64");
  // A dtype that an op refuses is named as it was given: f16, though it is computed with in f32.
  Expr h = g.input("h", DType::f16, {2, 3}), truth = g.input("t", DType::boolean, {2, 3});
  refused(
      "BitAnd", [&] { bit_and(h, h); }, "is not defined for f16");
  refused(
      "BitNot", [&] { bit_not(cast(h, DType::bf16)); }, "is not defined for bf16");
  refused(
      "ShiftLeft", [&] { shift_left(x, x); }, "is not defined for f32");
  refused(
      "Sin", [&] { sin(i); }, "is not defined for i32");
  refused(
      "Softmax", [&] { softmax(i); }, "needs a floating dtype, not i32");
  refused(
      "Mean", [&] { mean(i); }, "needs a floating dtype, not i32");
  refused(
      "LayerNorm", [&] { layer_norm(u, 1, 0); }, "needs a floating dtype, not u8");
  refused(
      "batch_norm",
      [&] {
        batch_norm(g.zeros(DType::i32, {2, 2}), 1, 0);
      },
      "needs a floating dtype, not i32");
  refused(
      "variance", [&] { variance(truth); }, "needs a floating dtype, not bool");
  refused(
      "CrossEntropy",
      [&] {
        cross_entropy(g.zeros(DType::i64, {2, 2}), i);
      },
      "logits must be floating, not i64");
  // The error names the start as it was given.
  says(refusal(
           [&] {
             slice(x, {0, -7, 0}, {1, 2, 4});
           },
           Code::out_of_range),
       {"Slice", "refused_attributes_test.cpp",
        "axis 1: 2 elements from -7 on are not among its 3"});
  says(refusal(
           [&] {
             slice(x, {0, 0, 9}, {1, 2, -1});
           },
           Code::out_of_range),
       {"Slice", "refused_attributes_test.cpp",
        "axis 2: the elements from 9 on are not among its 4"});
  refused(
      "Max", [&] { reduce_max(z); }, "c128 cannot be reduced so");
  // More than fits anywhere.
  const std::int64_t huge = std::int64_t{1} << 40, most = std::numeric_limits<std::int64_t>::max();
  refused(
      "tile",
      [&] {
        tile(x, {huge, huge, 1});
      },
      "nowhere");
  refused(
      "repeat", [&] { repeat(x, most); }, "at most 2^28");
  refused(
      "repeat", [&] { repeat(g.input("open", DType::f32, {kAny}), huge); }, "at most 2^28");
  refused(
      "resize_linear",
      [&] {
        resize_linear(q, {huge, 2});
      },
      "fits nowhere");
  refused(
      "resize_nearest",
      [&] {
        resize_nearest(q, {huge, 2});
      },
      "fits nowhere");
  refused(
      "adaptive_avg_pool",
      [&] {
        adaptive_avg_pool(q, {huge, 2});
      },
      "at most 4096");
  refused(
      "Cholesky", [&] { cholesky(z); }, "linear algebra is for f32 and f64, not c128");
  Eager e;
  const Tensor ones = e.ones(DType::f32, {2, 2}).value();
  BOOST_TEST(
      identical(tril(e.constant(ones), std::numeric_limits<std::int64_t>::max()).value(), ones));
  BOOST_TEST(
      identical(triu(e.constant(ones), std::numeric_limits<std::int64_t>::min()).value(), ones));
  const Expr bits = e.constant(Tensor::of(std::vector<bool>{true, true, true, true}, {2, 2}));
  BOOST_TEST(identical(tril(bits).value(),
                       Tensor::of(std::vector<bool>{true, false, true, true}, {2, 2})));
  BOOST_TEST(identical(triu(bits, 1).value(),
                       Tensor::of(std::vector<bool>{false, true, false, false}, {2, 2})));
  BOOST_TEST((tile(e.constant(Tensor::of<float>({1, 2}, {2})), {5}).value().to_vector<float>() ==
              std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}));
  // A default-constructed value.
  refused(
      "Add", [&] { x + Tensor(); }, "operand 1 holds nothing");
  refused(
      "Relu", [&] { relu(Expr()); }, "operand 0 holds nothing");
  refused(
      "norm", [&] { norm(Expr()); }, "operand 0 holds nothing");
  refused(
      "Concat", [&] { concat({}, 0); }, "there are no operands");
  refused(
      "Group", [&] { group({}); }, "there are no operands");
  refused(
      "MatMul(f32[2, 3], f32[2, 3])",
      [&] {
        matmul(e.zeros(DType::f32, {2, 3}), e.zeros(DType::f32, {2, 3}));
      },
      "2");
  // A pass that is asked for where passes are left out.
  Engine engine({.workers = 1});
  says(refusal(
           [&] {
             engine.compile(g, {x}, {x * 2.0}, {.optimize = false, .mixed_precision = DType::f16});
           },
           Code::invalid_argument),
       {"mixed_precision", "optimize"});
}

// The op that refuses is one that the user did not write.
BOOST_AUTO_TEST_CASE(errors_name_the_function_that_was_called) {
  const Tensor p = doubles({2, 3}, Floats(6, -1)), bad = Tensor::of<std::int64_t>({1, 3}, {2});
  const Function loss = [](const Exprs& x) { return nll_loss(x[0], cast(x[1], DType::i64)); };
  says(refusal(
           [&] {
             with_slope(loss, {p, bad});
           },
           Code::out_of_range),
       {"TakeAlong",
        " in nll_loss (refused_attributes_test.cpp:", "index 3 at position 1 is outside [0, 3)"});
  Eager e;
  says(refusal([&] { nll_loss(e.constant(p), e.constant(bad)); }, Code::out_of_range),
       {"TakeAlong(f64[2, 3], i64[2, 1]) in nll_loss at refused_attributes_test.cpp:"});
  says(refusal(
           [&] {
             inverse(e.constant(doubles({2, 2}, {1, 2, 2, 4})));
           },
           Code::invalid_argument),
       {"Solve", " in inverse at refused_attributes_test.cpp:"});
  says(refusal([&] { bincount(e.constant(bad), 2); }, Code::out_of_range),
       {"ScatterAdd", " in bincount at refused_attributes_test.cpp:"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
