// Not under asan and tsan: op_table_test runs the same kernels.
// Every function that users call, given operands that it does not take: the error names that
// function, or the op that has its name, and the user's line; so does the error of an index that
// only a run sees. functions_test and limits_test have what else the errors say.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <troupe/autodiff/check.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/function_text.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(refused_calls_test, TROUPE_ONE_THREAD)

namespace {

using Call = Callable<void(const Exprs&)>;

/// A function, operands that it takes, and the call.
struct Builder {
  std::string name;
  std::vector<ValueSpec> operands;
  Call call;
};

/// The ops of functions that have another name than theirs: operators, and reductions whose names
/// the standard library has.
const std::map<std::string, std::vector<std::string>> kOps{
    {"operator+", {"Add"}},
    {"operator-", {"Sub", "Neg"}},
    {"operator*", {"Mul"}},
    {"operator/", {"Div"}},
    {"operator%", {"Mod"}},
    {"operator&&", {"LogicalAnd"}},
    {"operator||", {"LogicalOr"}},
    {"operator!", {"LogicalNot"}},
    {"operator<", {"Less"}},
    {"operator<=", {"LessEqual"}},
    {"operator>", {"Greater"}},
    {"operator>=", {"GreaterEqual"}},
    {"operator==", {"Equal", "StringEqual"}},
    {"reduce_max", {"Max"}},
    {"reduce_min", {"Min"}},
    {"argmax", {"ArgMax"}},
    {"argmin", {"ArgMin"}},
    {"operator!=", {"NotEqual", "StringEqual"}},
    {"cumsum", {"CumSum"}},
    {"cumprod", {"CumProd"}},
    {"logsumexp", {"LogSumExp"}},
    {"nonzero", {"NonZero"}},
    {"masked_attention", {"Attention"}},
    {"matmul", {"MatMul"}},
    {"int8_matmul", {"Int8MatMul"}}};

std::vector<std::string> ops_of(const std::string& function) {
  if (const auto other = kOps.find(function); other != kOps.end()) return other->second;
  std::string op;
  bool is_first = true;
  for (char c : function) {
    if (c != '_') op += is_first ? static_cast<char>(std::toupper(c)) : c;
    is_first = c == '_';
  }
  return {op};
}

/// Does the error begin with the function, or with an op of its name, or say within which function
/// an op refused?
bool names(const std::string& said, const std::string& function) {
  if (said.starts_with(function + " at ") ||
      said.find(" in " + function + " at ") != std::string::npos)
    return true;
  const std::vector<std::string> ops = ops_of(function);
  return std::any_of(ops.begin(), ops.end(), [&](const std::string& op) {
    return said.starts_with(op + "(") || said.starts_with(op + " at ");
  });
}

std::vector<Builder> builders() {
  const ValueSpec f{DType::f32, {2, 3}}, row{DType::f32, {3}}, i{DType::i64, {2, 3}},
      indices{DType::i64, {2}}, b{DType::boolean, {2, 3}}, matrix{DType::f32, {3, 3}},
      image{DType::f32, {1, 4, 4, 2}}, filter{DType::f32, {2, 2, 2, 3}}, one{DType::f32, {}},
      heads{DType::f32, {1, 2, 3, 4}}, count{DType::i64, {}}, z{DType::c64, {2, 3}},
      byte{DType::i8, {2, 3}};
  std::vector<Builder> out;
  const auto add = [&](std::string name, std::vector<ValueSpec> operands, Call call) {
    out.push_back({std::move(name), std::move(operands), std::move(call)});
  };
  // clang-format off
#define TROUPE_ONE(name) add(#name, {f}, [](const Exprs& e) { name(e[0]); });
  TROUPE_ONE(abs) TROUPE_ONE(acos) TROUPE_ONE(acosh) TROUPE_ONE(gelu_tanh) TROUPE_ONE(celu)
  TROUPE_ONE(soft_shrink) TROUPE_ONE(hard_shrink) TROUPE_ONE(asin)
  TROUPE_ONE(asinh) TROUPE_ONE(atan) TROUPE_ONE(atanh) TROUPE_ONE(ceil) TROUPE_ONE(cos)
  TROUPE_ONE(cosh) TROUPE_ONE(cumprod) TROUPE_ONE(cumsum) TROUPE_ONE(elu)
  TROUPE_ONE(erf) TROUPE_ONE(exp) TROUPE_ONE(expm1) TROUPE_ONE(floor) TROUPE_ONE(gelu)
  TROUPE_ONE(hard_sigmoid) TROUPE_ONE(hard_swish) TROUPE_ONE(hard_tanh) TROUPE_ONE(is_finite)
  TROUPE_ONE(is_inf) TROUPE_ONE(is_nan) TROUPE_ONE(leaky_relu) TROUPE_ONE(log) TROUPE_ONE(log1p)
  TROUPE_ONE(log_sigmoid) TROUPE_ONE(log_softmax) TROUPE_ONE(log2) TROUPE_ONE(log10)
  TROUPE_ONE(exp2) TROUPE_ONE(logit) TROUPE_ONE(mish) TROUPE_ONE(reciprocal) TROUPE_ONE(relu)
  TROUPE_ONE(relu6) TROUPE_ONE(round) TROUPE_ONE(rsqrt) TROUPE_ONE(selu)
  TROUPE_ONE(sigmoid) TROUPE_ONE(sign) TROUPE_ONE(silu) TROUPE_ONE(sin) TROUPE_ONE(sinh)
  TROUPE_ONE(softmax) TROUPE_ONE(softplus) TROUPE_ONE(softsign) TROUPE_ONE(sqrt) TROUPE_ONE(square)
  TROUPE_ONE(tan) TROUPE_ONE(tanh) TROUPE_ONE(trunc) TROUPE_ONE(erf_inverse) TROUPE_ONE(erfc)
  TROUPE_ONE(log_gamma) TROUPE_ONE(digamma) TROUPE_ONE(glu)
  TROUPE_ONE(nan_to_num) TROUPE_ONE(diff) TROUPE_ONE(cummax) TROUPE_ONE(cummin) TROUPE_ONE(median)
  TROUPE_ONE(random_uniform_like) TROUPE_ONE(random_normal_like)
  TROUPE_ONE(random_truncated_normal_like) TROUPE_ONE(bernoulli) TROUPE_ONE(categorical)
  TROUPE_ONE(random_exponential_like) TROUPE_ONE(random_gamma) TROUPE_ONE(random_poisson)
  TROUPE_ONE(random_permutation_like) TROUPE_ONE(shuffle)
  TROUPE_ONE(sum) TROUPE_ONE(mean) TROUPE_ONE(product) TROUPE_ONE(reduce_max)
  TROUPE_ONE(reduce_min) TROUPE_ONE(logsumexp) TROUPE_ONE(argmax) TROUPE_ONE(argmin)
  TROUPE_ONE(variance)
  TROUPE_ONE(standard_deviation) TROUPE_ONE(norm) TROUPE_ONE(any) TROUPE_ONE(all) TROUPE_ONE(sort)
  TROUPE_ONE(argsort) TROUPE_ONE(unique) TROUPE_ONE(nonzero) TROUPE_ONE(tril) TROUPE_ONE(triu)
  TROUPE_ONE(diagonal) TROUPE_ONE(diagonal_matrix) TROUPE_ONE(trace) TROUPE_ONE(conjugate)
  TROUPE_ONE(quantization_of) TROUPE_ONE(qr) TROUPE_ONE(svd) TROUPE_ONE(zeros_like)
  TROUPE_ONE(ones_like)
#undef TROUPE_ONE
#define TROUPE_OF(spec, name) add(#name, {spec}, [](const Exprs& e) { name(e[0]); });
  TROUPE_OF(i, bit_not) TROUPE_OF(b, logical_not) TROUPE_OF(z, real) TROUPE_OF(z, imaginary)
  TROUPE_OF(z, magnitude) TROUPE_OF(z, angle)
  TROUPE_OF(matrix, cholesky) TROUPE_OF(matrix, determinant) TROUPE_OF(matrix, log_determinant)
  TROUPE_OF(matrix, inverse) TROUPE_OF(matrix, eigh) TROUPE_OF(image, global_avg_pool)
  TROUPE_OF(image, global_max_pool)
#undef TROUPE_OF
#define TROUPE_TWO(x, y, name) add(#name, {x, y}, [](const Exprs& e) { name(e[0], e[1]); });
  TROUPE_TWO(f, f, atan2) TROUPE_TWO(i, i, bit_and) TROUPE_TWO(i, i, bit_or)
  TROUPE_TWO(i, i, bit_xor) TROUPE_TWO(i, i, shift_left) TROUPE_TWO(i, i, shift_right)
  TROUPE_TWO(b, b, logical_and)
  TROUPE_TWO(b, b, logical_or) TROUPE_TWO(b, b, logical_xor) TROUPE_TWO(f, f, maximum)
  TROUPE_TWO(f, f, minimum) TROUPE_TWO(f, f, mod) TROUPE_TWO(f, f, pow) TROUPE_TWO(f, f, floor_div)
  TROUPE_TWO(f, f, squared_difference) TROUPE_TWO(f, f, hypot) TROUPE_TWO(f, f, log_add_exp)
  TROUPE_TWO(f, f, x_log_y) TROUPE_TWO(f, row, prelu) TROUPE_TWO(f, f, complex)
  TROUPE_TWO(f, matrix, matmul) TROUPE_TWO(row, f, broadcast_like) TROUPE_TWO(f, f, reshape_like)
  TROUPE_TWO(f, row, sum_to) TROUPE_TWO(f, indices, cross_entropy) TROUPE_TWO(f, indices, nll_loss)
  TROUPE_TWO(f, f, mse_loss) TROUPE_TWO(f, f, huber_loss) TROUPE_TWO(f, f, smooth_l1_loss)
  TROUPE_TWO(f, f, binary_cross_entropy) TROUPE_TWO(f, f, soft_cross_entropy)
  TROUPE_TWO(f, indices, weighted_nll_loss) TROUPE_TWO(f, indices, smoothed_cross_entropy)
  TROUPE_TWO(row, indices, label_weights) TROUPE_TWO(f, indices, gather)
  TROUPE_TWO(f, i, take_along)
  TROUPE_TWO(f, f, search_sorted) TROUPE_TWO(f, f, random_beta) TROUPE_TWO(f, b, boolean_mask)
  TROUPE_TWO(matrix, matrix, solve) TROUPE_TWO(matrix, matrix, triangular_solve)
  TROUPE_TWO(row, row, outer)
  TROUPE_TWO(f, f, kronecker) TROUPE_TWO(f, f, linear_scan) TROUPE_TWO(f, row, rms_norm)
  TROUPE_TWO(image, filter, conv) TROUPE_TWO(indices, f, last_position)
  TROUPE_TWO(indices, f, ragged_ids) TROUPE_TWO(f, f, fmod) TROUPE_TWO(f, f, copysign)
  TROUPE_TWO(f, f, is_close) TROUPE_TWO(f, f, hinge_loss) TROUPE_TWO(f, f, kl_divergence)
  TROUPE_TWO(f, f, cosine_similarity)
#undef TROUPE_TWO
#define TROUPE_OPERATOR(sign) \
  add("operator" #sign, {f, f}, [](const Exprs& e) { (void)(e[0] sign e[1]); });
  TROUPE_OPERATOR(+) TROUPE_OPERATOR(-) TROUPE_OPERATOR(*) TROUPE_OPERATOR(/) TROUPE_OPERATOR(%)
  TROUPE_OPERATOR(==) TROUPE_OPERATOR(!=) TROUPE_OPERATOR(<) TROUPE_OPERATOR(<=) TROUPE_OPERATOR(>)
  TROUPE_OPERATOR(>=)
#undef TROUPE_OPERATOR
  add("operator&&", {b, b}, [](const Exprs& e) { (void)(e[0] && e[1]); });
  add("operator||", {b, b}, [](const Exprs& e) { (void)(e[0] || e[1]); });
  add("operator!", {b}, [](const Exprs& e) { (void)!e[0]; });
  // clang-format on
  add("operator-", {f}, [](const Exprs& e) { -e[0]; });
  add("adaptive_avg_pool", {image}, [](const Exprs& e) { adaptive_avg_pool(e[0], {2, 2}); });
  add("adaptive_max_pool", {image}, [](const Exprs& e) { adaptive_max_pool(e[0], {2, 2}); });
  add("avg_pool", {image}, [](const Exprs& e) { avg_pool(e[0], {2, 2}); });
  add("max_pool", {image}, [](const Exprs& e) { max_pool(e[0], {2, 2}); });
  add("resize_nearest", {image}, [](const Exprs& e) { resize_nearest(e[0], {2, 2}); });
  add("resize_linear", {image}, [](const Exprs& e) { resize_linear(e[0], {2, 2}); });
  add("resize_cubic", {image}, [](const Exprs& e) { resize_cubic(e[0], {2, 2}); });
  add("conv_transpose", {image, {DType::f32, {2, 2, 3, 2}}},
      [](const Exprs& e) { conv_transpose(e[0], e[1]); });
  add("flip", {f}, [](const Exprs& e) { flip(e[0], {1}); });
  add("roll", {f}, [](const Exprs& e) { roll(e[0], 1, 1); });
  add("tile", {f}, [](const Exprs& e) { tile(e[0], {2, 2}); });
  add("reshape_to", {f, indices}, [](const Exprs& e) { reshape_to(e[0], e[1], {kAny, kAny}); });
  add("repeat", {f}, [](const Exprs& e) { repeat(e[0], 2, 1); });
  add("meshgrid", {row, row}, [](const Exprs& e) { meshgrid({e[0], e[1]}); });
  add("concat", {f, f}, [](const Exprs& e) { concat({e[0], e[1]}, 1); });
  add("stack", {f, f}, [](const Exprs& e) { stack({e[0], e[1]}); });
  add("einsum", {f, matrix}, [](const Exprs& e) { einsum("ij,jk->ik", {e[0], e[1]}); });
  add("unstack", {f}, [](const Exprs& e) { unstack(e[0], 1); });
  add("split", {f}, [](const Exprs& e) { split(e[0], {1, 2}, 1); });
  add("squeeze", {{DType::f32, {2, 1}}}, [](const Exprs& e) { squeeze(e[0], 1); });
  add("squeeze", {{DType::f32, {1, 2, 1}}}, [](const Exprs& e) { squeeze(e[0], {0, -1}); });
  add("softmax", {f}, [](const Exprs& e) { softmax(e[0], 0); });
  add("log_softmax", {f}, [](const Exprs& e) { log_softmax(e[0], 0); });
  add("binary_cross_entropy", {f, f, row},
      [](const Exprs& e) { binary_cross_entropy(e[0], e[1], e[2]); });
  add("cross_entropy", {{DType::f32, {2, 3, 5}}, i},
      [](const Exprs& e) { cross_entropy(e[0], e[1]); });
  add("nll_loss", {{DType::f32, {2, 3, 5}}, i}, [](const Exprs& e) { nll_loss(e[0], e[1]); });
  add("weighted_nll_loss", {{DType::f32, {2, 3, 5}}, i},
      [](const Exprs& e) { weighted_nll_loss(e[0], e[1]); });
  add("smoothed_cross_entropy", {{DType::f32, {2, 3, 5}}, i},
      [](const Exprs& e) { smoothed_cross_entropy(e[0], e[1], 0.1); });
  add("lerp", {f, f, row}, [](const Exprs& e) { lerp(e[0], e[1], e[2]); });
  add("quantile", {f}, [](const Exprs& e) { quantile(e[0], 0.25); });
  add("strided_slice", {f}, [](const Exprs& e) { strided_slice(e[0], {0, 0}, {-1, -1}, {1, 2}); });
  add("broadcast_to", {row}, [](const Exprs& e) { broadcast_to(e[0], {2, 3}); });
  add("pad_reflect", {f}, [](const Exprs& e) { pad_reflect(e[0], {0, 1}, {1, 1}); });
  add("pad_edge", {f}, [](const Exprs& e) { pad_edge(e[0], {0, 1}, {1, 1}); });
  add("pad_circular", {f}, [](const Exprs& e) { pad_circular(e[0], {0, 1}, {1, 1}); });
  add("pixel_shuffle", {{DType::f32, {1, 2, 2, 4}}},
      [](const Exprs& e) { pixel_shuffle(e[0], 2); });
  add("pixel_unshuffle", {image}, [](const Exprs& e) { pixel_unshuffle(e[0], 2); });
  add("expand_dims", {f}, [](const Exprs& e) { expand_dims(e[0], 2); });
  add("transpose", {f}, [](const Exprs& e) { transpose(e[0], {1, 0}); });
  add("reshape", {f}, [](const Exprs& e) { reshape(e[0], {3, 2}); });
  add("reshape", {f, count}, [](const Exprs& e) { reshape(e[0], {e[1], 2}); });
  add("broadcast_to", {row, count}, [](const Exprs& e) { broadcast_to(e[0], {e[1], kAny}); });
  add("slice", {f}, [](const Exprs& e) { slice(e[0], {0, 1}, {1, 1}); });
  add("slice", {f, count}, [](const Exprs& e) { slice(e[0], {e[1], 1}, {1, 1}); });
  add("arange", {count}, [](const Exprs& e) { arange(e[0]); });
  add("arange", {count, count}, [](const Exprs& e) { arange(e[0], e[1], 2); });
  add("pad", {f}, [](const Exprs& e) { pad(e[0], {0, 1}, {1, 1}); });
  add("positions_along", {f}, [](const Exprs& e) { positions_along(e[0], 1); });
  add("top_k", {f}, [](const Exprs& e) { top_k(e[0], 2); });
  add("bincount", {indices}, [](const Exprs& e) { bincount(e[0], 2); });
  add("histogram", {f}, [](const Exprs& e) { histogram(e[0], 0, 1, 2); });
  add("clip", {f}, [](const Exprs& e) { clip(e[0], 0, 1); });
  add("fill_like", {f}, [](const Exprs& e) { fill_like(e[0], 1.5); });
  add("cast", {f}, [](const Exprs& e) { cast(e[0], DType::i32); });
  add("polygamma", {f}, [](const Exprs& e) { polygamma(e[0], 1); });
  add("dropout", {f}, [](const Exprs& e) { dropout(e[0], 0.5); });
  add("random_integers_like", {f}, [](const Exprs& e) { random_integers_like(e[0], 0, 5); });
  add("multinomial", {f}, [](const Exprs& e) { multinomial(e[0], 5); });
  add("one_hot", {indices}, [](const Exprs& e) { one_hot(e[0], 5); });
  add("where", {b, f, f}, [](const Exprs& e) { where(e[0], e[1], e[2]); });
  add("attention", {heads, heads, heads}, [](const Exprs& e) { attention(e[0], e[1], e[2]); });
  add("masked_attention", {heads, heads, heads, {DType::boolean, {3, 3}}},
      [](const Exprs& e) { masked_attention(e[0], e[1], e[2], e[3]); });
  add("ctc_loss",
      {{DType::f32, {1, 6, 3}}, {DType::i64, {1, 2}}, {DType::i64, {1}}, {DType::i64, {1}}},
      [](const Exprs& e) { ctc_loss(e[0], e[1], e[2], e[3]); });
  add("gather_nd", {f, i}, [](const Exprs& e) { gather_nd(e[0], e[1]); });
  add("batched_gather", {f, i}, [](const Exprs& e) { batched_gather(e[0], e[1]); });
  add("layer_norm", {f, row, row}, [](const Exprs& e) { layer_norm(e[0], e[1], e[2]); });
  add("batch_norm", {f, row, row}, [](const Exprs& e) { batch_norm(e[0], e[1], e[2]); });
  add("batch_norm_with", {f, row, row, row, row},
      [](const Exprs& e) { batch_norm_with(e[0], e[1], e[2], e[3], e[4]); });
  add("group_norm", {image, {DType::f32, {2}}, {DType::f32, {2}}},
      [](const Exprs& e) { group_norm(e[0], 2, e[1], e[2]); });
  add("instance_norm", {image, {DType::f32, {2}}, {DType::f32, {2}}},
      [](const Exprs& e) { instance_norm(e[0], e[1], e[2]); });
  add("quantize", {f, one, {DType::i32, {}}}, [](const Exprs& e) { quantize(e[0], e[1], e[2]); });
  add("fake_quantize", {f, one, {DType::i32, {}}},
      [](const Exprs& e) { fake_quantize(e[0], e[1], e[2]); });
  add("dequantize", {byte, one, {DType::i32, {}}},
      [](const Exprs& e) { dequantize(e[0], e[1], e[2]); });
  add("int8_matmul", {byte, {DType::i8, {3, 2}}}, [](const Exprs& e) { int8_matmul(e[0], e[1]); });
  add("scatter_add", {f, indices, f}, [](const Exprs& e) { scatter_add(e[0], e[1], e[2]); });
  add("scatter", {f, indices, f}, [](const Exprs& e) { scatter(e[0], e[1], e[2]); });
  add("scatter_nd", {f, {DType::i64, {2, 1}}, f},
      [](const Exprs& e) { scatter_nd(e[0], e[1], e[2]); });
  add("put_along", {f, i, f}, [](const Exprs& e) { put_along(e[0], e[1], e[2]); });
  add("segment_sum", {f, indices}, [](const Exprs& e) { segment_sum(e[0], e[1], 2); });
  add("segment_mean", {f, indices}, [](const Exprs& e) { segment_mean(e[0], e[1], 2); });
  add("segment_max", {f, indices}, [](const Exprs& e) { segment_max(e[0], e[1], 2); });
  add("segment_min", {f, indices}, [](const Exprs& e) { segment_min(e[0], e[1], 2); });
  add("segment_product", {f, indices}, [](const Exprs& e) { segment_product(e[0], e[1], 2); });
  add("segment_sqrt_n", {f, indices}, [](const Exprs& e) { segment_sqrt_n(e[0], e[1], 2); });
  add("sampled_softmax_with", {f, {DType::f32, {5, 3}}, {DType::f32, {5}}, indices, indices},
      [](const Exprs& e) { sampled_softmax_with(e[0], e[1], e[2], e[3], e[4]); });
  add("sampled_softmax", {f, {DType::f32, {5, 3}}, {DType::f32, {5}}, indices},
      [](const Exprs& e) { sampled_softmax(e[0], e[1], e[2], e[3], 2); });
  // Whose operands may be anything: attributes that make no sense.
  add("cast", {f}, [](const Exprs& e) { cast(e[0], DType::string); });
  add("identity", {f}, [](const Exprs& e) { identity(Expr()), (void)e; });
  add("edge_as_bf16", {f}, [](const Exprs& e) { edge_as_bf16(Expr()), (void)e; });
  add("stop_gradient", {f}, [](const Exprs& e) { stop_gradient(Expr()), (void)e; });
  add("shape_of", {f}, [](const Exprs& e) { shape_of(Expr()), (void)e; });
  add("size_of", {f}, [](const Exprs& e) { size_of(Expr()), (void)e; });
  add("group", {f}, [](const Exprs& e) { group({}), (void)e; });
  add("arange", {f}, [](const Exprs& e) { arange(e[0].reader(), 0, 5, 0); });
  add("arange", {f}, [](const Exprs& e) { arange(e[0].reader(), 0, 5, 1, DType::boolean); });
  add("linspace", {f}, [](const Exprs& e) { linspace(e[0].reader(), 0, 5, -1); });
  add("linspace", {f}, [](const Exprs& e) { linspace(e[0].reader(), 0, 5, 3, DType::i32); });
  add("eye", {f}, [](const Exprs& e) { eye(e[0].reader(), -1, 5); });
  add("eye", {f}, [](const Exprs& e) { eye(e[0].reader(), 2, 2, DType::string); });
  add("log_uniform", {f}, [](const Exprs& e) { log_uniform(e[0].reader(), -1, 5); });
  return out;
}

/// The names in <troupe/functions.hpp>.
std::set<std::string> all_functions() {
  std::set<std::string> out;
  std::string_view text = kFunctionText;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t bracket = line.find('(');
    if (line.starts_with("///") || bracket == std::string_view::npos) continue;
    const std::size_t before = line.rfind(' ', bracket);
    out.emplace(line.substr(before + 1, bracket - before - 1));
  }
  return out;
}

/// Returns the error of a refused call; nothing if it succeeds.
std::string said_by(const Builder& b, const std::vector<ValueSpec>& operands) {
  Graph g;
  Exprs e;
  for (const ValueSpec& s : operands)
    e.push_back(g.input(fmt::format("x{}", e.size()), s.dtype, s.shape));
  try {
    b.call(e);
  } catch (const Error& error) {
    BOOST_TEST((error.code() == Code::invalid_argument || error.code() == Code::out_of_range),
               error.what());
    return error.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_refusal_names_the_function_that_was_called) {
  const Shape ranks[] = {{}, {7}, {2, 7}, {3, 2, 2}, {2, 3, 2, 2, 2}};
  std::map<std::string, int> refused;
  int calls = 0;
  for (const Builder& b : builders()) {
    refused[b.name];
    std::set<std::string> told;
    auto call = [&](const std::vector<ValueSpec>& operands) {
      ++calls;
      const std::string said = said_by(b, operands);
      if (said.empty()) return;
      ++refused[b.name];
      const bool is_right = names(said, b.name) &&
                            said.find("refused_calls_test.cpp:") != std::string::npos &&
                            said.find('\n') == std::string::npos;
      // One of a kind is enough to see.
      if (!is_right && told.insert(said.substr(0, said.find('('))).second)
        BOOST_ERROR(b.name << " said: " << said);
    };
    call(b.operands);
    for (std::size_t k = 0; k <= b.operands.size(); ++k) {  // one operand, or all
      const auto with = [&](const Callable<void(ValueSpec&)>& change) {
        std::vector<ValueSpec> operands = b.operands;
        for (std::size_t j = 0; j < operands.size(); ++j)
          if (j == k || k == b.operands.size()) change(operands[j]);
        call(operands);
      };
      for (DType t : {DType::string, DType::boolean, DType::u8, DType::i32, DType::i64, DType::f16,
                      DType::f32, DType::f64, DType::c64})
        with([t](ValueSpec& s) { s.dtype = t; });
      for (const Shape& shape : ranks) with([&](ValueSpec& s) { s.shape = shape; });
      with([](ValueSpec& s) { s.shape = Shape::unknown(), s.dtype = DType::string; });
    }
  }
  int all = 0;
  for (const auto& [name, n] : refused) {
    BOOST_TEST(n > 0, name << " refused nothing");
    all += n;
  }
  for (const std::string& name : all_functions())
    BOOST_TEST(refused.contains(name), name << " is not in the table above");
  fmt::print("refused calls: {} functions, {} calls, {} refused\n", refused.size(), calls, all);
}

// An index that building could not see is named by position and bound, within the function that was
// called, eagerly and in a graph.
BOOST_AUTO_TEST_CASE(an_index_outside_names_the_function_that_was_called) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}),
               row = Tensor::of<float>({1, 2, 3}, {3}), ids = Tensor::of<std::int64_t>({1, 9}, {2}),
               many = Tensor::of<std::int64_t>({0, 1, 2, 0, 9, 1}, {2, 3}),
               pairs = Tensor::of<std::int64_t>({0, 9}, {1, 2}),
               column = Tensor::of<std::int32_t>({0, -1}, {2, 1}),
               table = Tensor::of<float>(std::vector<float>(15, 0.5f), {5, 3}),
               bias = Tensor::of<float>(std::vector<float>(5, 0.0f), {5}),
               good = Tensor::of<std::int64_t>({1, 2}, {2});
  // The last operand holds what is outside.
  const std::vector<std::tuple<std::string, std::vector<Tensor>, Callable<Expr(const Exprs&)>>>
      rows{
          {"gather", {x, ids}, [](const Exprs& e) { return gather(e[0], e[1]); }},
          {"take_along", {x, many}, [](const Exprs& e) { return take_along(e[0], e[1]); }},
          {"gather_nd", {x, pairs}, [](const Exprs& e) { return gather_nd(e[0], e[1]); }},
          {"batched_gather", {x, many}, [](const Exprs& e) { return batched_gather(e[0], e[1]); }},
          {"scatter_add",
           {x, x, ids},
           [](const Exprs& e) { return scatter_add(e[0], e[2], e[1]); }},
          {"scatter", {x, x, ids}, [](const Exprs& e) { return scatter(e[0], e[2], e[1]); }},
          {"scatter_nd",
           {x, x, column},
           [](const Exprs& e) { return scatter_nd(e[0], e[2], e[1]); }},
          {"put_along", {x, x, many}, [](const Exprs& e) { return put_along(e[0], e[2], e[1]); }},
          {"segment_sum", {x, ids}, [](const Exprs& e) { return segment_sum(e[0], e[1], 2); }},
          {"segment_mean", {x, ids}, [](const Exprs& e) { return segment_mean(e[0], e[1], 2); }},
          {"segment_max", {x, ids}, [](const Exprs& e) { return segment_max(e[0], e[1], 2); }},
          {"segment_min", {x, ids}, [](const Exprs& e) { return segment_min(e[0], e[1], 2); }},
          {"segment_product",
           {x, ids},
           [](const Exprs& e) { return segment_product(e[0], e[1], 2); }},
          {"segment_sqrt_n",
           {x, ids},
           [](const Exprs& e) { return segment_sqrt_n(e[0], e[1], 2); }},
          {"bincount", {ids}, [](const Exprs& e) { return bincount(e[0], 2); }},
          {"cross_entropy", {x, ids}, [](const Exprs& e) { return cross_entropy(e[0], e[1]); }},
          {"nll_loss", {x, ids}, [](const Exprs& e) { return nll_loss(e[0], e[1]); }},
          {"weighted_nll_loss",
           {x, row, ids},
           [](const Exprs& e) { return weighted_nll_loss(e[0], e[2], e[1]); }},
          {"smoothed_cross_entropy",
           {x, ids},
           [](const Exprs& e) { return smoothed_cross_entropy(e[0], e[1], 0.1); }},
          {"label_weights", {row, ids}, [](const Exprs& e) { return label_weights(e[0], e[1]); }},
          {"sampled_softmax_with",
           {x, table, bias, good, ids},
           [](const Exprs& e) { return sampled_softmax_with(e[0], e[1], e[2], e[3], e[4]); }},
          {"ragged_ids",
           {x, Tensor::of<std::int64_t>({0, 9}, {2})},
           [](const Exprs& e) { return ragged_ids(e[1], e[0]); }},
      };
  for (const auto& [name, operands, call] : rows)
    for (const bool eagerly : {true, false}) {
      std::string said;
      try {
        if (eagerly) {
          Eager now;
          Exprs e;
          for (const Tensor& t : operands) e.push_back(now.constant(t));
          call(e);
        } else {
          Graph g;
          Exprs e;
          Feeds feeds;
          for (const Tensor& t : operands) {
            e.push_back(g.input(fmt::format("x{}", e.size()), t.dtype(), t.shape()));
            feeds.emplace_back(e.back(), t);
          }
          evaluate_eagerly(g, feeds, {call(e)});
        }
      } catch (const Error& error) {
        said = error.what();
        BOOST_TEST((error.code() == Code::out_of_range), said);
      }
      const bool names_it = eagerly ? names(said, name)
                                    : said.starts_with(ops_of(name)[0] + " '") ||
                                          said.find(" in " + name + " (") != std::string::npos;
      BOOST_TEST(names_it, name << " said: " << said);
      BOOST_TEST(said.find("refused_calls_test.cpp:") != std::string::npos,
                 name << " said: " << said);
      // after op and line, whose number may have a 9
      const std::string what = said.substr(said.find(": ") + 2);
      BOOST_TEST((what.find("index ") != std::string::npos &&
                  (what.find("9") != std::string::npos || what.find("-1") != std::string::npos)),
                 name << " said: " << said);
      BOOST_TEST((said.find("scatter: ") == std::string::npos &&
                  said.find("scatter_nd: ") == std::string::npos &&
                  said.find("gather: ") == std::string::npos),
                 name << " said: " << said);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
