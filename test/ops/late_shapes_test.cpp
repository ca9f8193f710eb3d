// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Functions of the DSL whose extents are known when a program runs: they are held to what is
// checked while it is built where they are known.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/ops/tables/samples.hpp>
#include <troupe/test/ops/tables/with_slope.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(late_shapes_test)

BOOST_AUTO_TEST_CASE(shapes_known_late_are_held_to_the_same) {
  const Tensor six = doubles({3, 2}, {1, 2, 3, 4, 5, 6}), row = doubles({1, 2}, {1, 0});
  const auto refused = [&](const Function& f, const std::vector<Tensor>& xs,
                           std::initializer_list<const char*> why,
                           Code late = Code::invalid_argument) {
    says(refusal([&] { with_slope(f, xs); }, Code::invalid_argument), why);
    const std::string text = refusal([&] { with_slope(f, xs, false); }, late);
    says(text, why);
    says(text, {"late_shapes_test.cpp"});
  };
  refused([](const Exprs& e) { return mse_loss(e[0], e[1]); }, {six, row},
          {"mse_loss", "[3, 2] and [1, 2] differ in shape"});
  refused([](const Exprs& e) { return huber_loss(e[0], e[1]); }, {six, row},
          {"huber_loss", "differ in shape"});
  refused([](const Exprs& e) { return binary_cross_entropy(e[0], e[1]); }, {six, row},
          {"binary_cross_entropy", "differ in shape"});
  refused([](const Exprs& e) { return einsum("ij,ij->ij", e); },
          {six, doubles({2, 2}, {1, 2, 3, 4})},
          {"einsum", "axis i is 3 in one place and 2 in another"});
  refused([](const Exprs& e) { return einsum("ii->i", e); }, {six},
          {"einsum", "axis i is 3 in one place and 2 in another"});
  // A channel is not taken for many, nor a parameter of one for that of all.
  const Tensor image_of_one = doubles({2, 3, 1}, {1, 2, 3, 4, 5, 6}),
               three = doubles({3}, {1, 2, 3}), one = doubles({1}, {1}),
               image_of_three = doubles({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3});
  for (const auto& [image, parameter] :
       {std::pair{image_of_one, three}, std::pair{image_of_three, one}}) {
    const Function norms[] = {
        [](const Exprs& e) { return batch_norm(e[0], e[1], 0.0)[0]; },
        [](const Exprs& e) { return batch_norm(e[0], 1.0, e[1])[0]; },
        [](const Exprs& e) { return instance_norm(e[0], e[1], 0.0); },
        [](const Exprs& e) { return batch_norm_with(e[0], 1.0, 0.0, e[1], 1.0); },
        [](const Exprs& e) { return batch_norm_with(e[0], 1.0, 0.0, 0.0, e[1]); }};
    for (const Function& f : norms) {
      says(refusal(
               [&] {
                 with_slope(f, {image, parameter});
               },
               Code::invalid_argument),
           {"_norm", "parameters are of shape [", "late_shapes_test.cpp"});
      says(refusal(
               [&] {
                 with_slope(f, {image, parameter}, false);
               },
               Code::invalid_argument),
           {"_norm", "the number of channels is ", " in one place and ", "late_shapes_test.cpp"});
    }
  }
  // A value broadcast to all stays one value, and equal extents pass.
  for (bool known : {true, false}) {
    BOOST_TEST(with_slope([](const Exprs& e) { return mse_loss(e[0], 1.0); }, {six}, known)[0].at(
                   0) == 55.0 / 6);
    BOOST_TEST(
        with_slope([](const Exprs& e) { return mse_loss(e[0], e[1]); }, {six, six}, known)[0].at(
            0) == 0);
  }
  // Extents that a run says give what those known give, and the slopes.
  Draws draws(91);
  const Tensor image = tensor_of(draws.values({2, 5, 3, 4})),
               table = tensor_of(draws.values({4, 3})), square = tensor_of(draws.values({3, 3}));
  const Tensor ids = Tensor::of<std::int64_t>({2, 0, 2, 1}, {4});
  auto segment_of = [](auto f) {
    return [f](const Exprs& e) { return f(e[0], cast(e[1], DType::i64), 3); };
  };
  const std::vector<std::pair<Function, std::vector<Tensor>>> same_either_way{
      {[](const Exprs& e) {
         return adaptive_avg_pool(e[0], {2, 1});
       },
       {image}},
      {[](const Exprs& e) {
         return adaptive_avg_pool(e[0], {7, 2});
       },
       {image}},
      {[](const Exprs& e) {
         return adaptive_max_pool(e[0], {3, 2});
       },
       {image}},
      {[](const Exprs& e) {
         return resize_nearest(e[0], {3, 7});
       },
       {image}},
      {[](const Exprs& e) {
         return resize_linear(e[0], {8, 2});
       },
       {image}},
      {[](const Exprs& e) { return batch_norm(e[0], e[1], e[1])[0]; },
       {image, tensor_of(draws.values({4}))}},
      {[](const Exprs& e) { return instance_norm(e[0], e[1], 0.5); },
       {image, tensor_of(draws.values({4}))}},
      {[](const Exprs& e) { return batch_norm_with(e[0], e[1], e[1], e[1], abs(e[1])); },
       {image, tensor_of(draws.values({4}))}},
      {[](const Exprs& e) { return roll(e[0], 2, 1); }, {image}},
      {[](const Exprs& e) { return roll(e[0], -7, -2); }, {image}},
      {[](const Exprs& e) { return diagonal_matrix(e[0]); }, {table}},
      {segment_of(
           [](const Expr& x, const Expr& i, std::int64_t n) { return segment_sum(x, i, n); }),
       {table, ids}},
      {segment_of(
           [](const Expr& x, const Expr& i, std::int64_t n) { return segment_mean(x, i, n); }),
       {table, ids}},
      {segment_of(
           [](const Expr& x, const Expr& i, std::int64_t n) { return segment_product(x, i, n); }),
       {table, ids}},
      {segment_of(
           [](const Expr& x, const Expr& i, std::int64_t n) { return segment_max(x, i, n); }),
       {table, ids}},
      {[](const Exprs& e) { return repeat(e[0], 3, -2); }, {image}},
      {[](const Exprs& e) { return kronecker(e[0], e[1]); }, {table, square}},
      {[](const Exprs& e) { return einsum("ii->i", e); }, {square}},
      {[](const Exprs& e) { return einsum("bhwc,cd,ef->dhefbw", e); },
       {image, tensor_of(draws.values({4, 3})), square}},
      {[](const Exprs& e) { return einsum("bsd,dhk->bshk", e); },
       {tensor_of(draws.values({2, 5, 3})), tensor_of(draws.values({3, 2, 2}))}},
      {[](const Exprs& e) { return einsum("bshk,hkd->bsd", e); },
       {image, tensor_of(draws.values({3, 4, 2}))}},
      {[](const Exprs& e) { return einsum("ij,jk", e); }, {table, square}},
      {[](const Exprs& e) { return softmax(e[0], 1); }, {image}},
      {[](const Exprs& e) { return log_softmax(e[0], -3); }, {image}},
      {[](const Exprs& e) { return cross_entropy(e[0], cast(e[1], DType::i64)); },
       {tensor_of(draws.values({2, 2, 5})), Tensor::of<std::int64_t>({2, 0, 4, 1}, {2, 2})}},
      {[](const Exprs& e) { return smoothed_cross_entropy(e[0], cast(e[1], DType::i64), 0.1); },
       {tensor_of(draws.values({2, 2, 5})), Tensor::of<std::int64_t>({2, -100, 4, 1}, {2, 2})}},
      {[](const Exprs& e) { return weighted_nll_loss(e[0], cast(e[1], DType::i64)); },
       {tensor_of(draws.values({2, 2, 5})), Tensor::of<std::int64_t>({2, 0, 4, -100}, {2, 2})}},
      {[](const Exprs& e) { return cosine_similarity(e[0], e[1], 0); },
       {table, tensor_of(draws.values({4, 3}))}},
      {[](const Exprs& e) { return binary_cross_entropy(e[0], 0.5, e[1]); },
       {table, tensor_of(draws.values({3}))}},
      {[](const Exprs& e) {
         return pad_reflect(e[0], {1, 4, 0, 2}, {0, 2, 2, 3});
       },
       {image}},
      {[](const Exprs& e) {
         return pad_edge(e[0], {1, 6, 0, 2}, {0, 2, 2, 3});
       },
       {image}},
      {[](const Exprs& e) {
         return pad_circular(e[0], {1, 5, 0, 2}, {0, 2, 2, 3});
       },
       {image}},
      {[](const Exprs& e) { return quantile(e[0], 0.3, 1); }, {image}},
      {[](const Exprs& e) { return median(e[0], 0, true); }, {table}},
      {[](const Exprs& e) { return diff(e[0], 1); }, {image}},
      {[](const Exprs& e) {
         return broadcast_to(e[0], {3, kAny, kAny});
       },
       {table}},
      {[](const Exprs& e) {
         return squeeze(e[0], {-1, 0});
       },
       {tensor_of(draws.values({1, 4, 1}))}},
  };
  for (std::size_t n = 0; n < same_either_way.size(); ++n) {
    const auto& [f, xs] = same_either_way[n];
    const std::vector<Tensor> known = with_slope(f, xs), unknown = with_slope(f, xs, false);
    for (std::size_t i = 0; i < known.size(); ++i) {
      BOOST_TEST((known[i].shape() == unknown[i].shape()),
                 "function " << n << ": " << unknown[i].shape().text());
      for (std::int64_t k = 0; k < known[i].elements(); ++k)
        BOOST_TEST(std::abs(known[i].at(k) - unknown[i].at(k)) < 1e-12,
                   "function " << n << ", output " << i);
    }
  }
  Graph g;
  Expr x = g.input("x", DType::f64, {kAny, kAny, kAny, 4});
  Expr known = group_norm(g.constant(image), 2, 1.0, 0.0), y = group_norm(x, 2, 1.0, 0.0);
  std::vector<Tensor> both = Engine({.workers = 1}).run(g, {{x, image}}, {known, y});
  for (std::int64_t k = 0; k < image.elements(); ++k)
    BOOST_TEST(std::abs(both[0].at(k) - both[1].at(k)) < 1e-12);
  // Splits.
  const std::vector<std::pair<std::vector<std::int64_t>, const char*>> splits{
      {{-5, 2, 4}, "splits hold -5 at index 0, which must be 0"},
      {{0, 3, 2, 4}, "splits hold 2 at index 2, which must be in [3, 4]"},
      {{0, 2, 100}, "splits hold 100 at index 2, which must be in [2, 4]"},
      {{0, 2}, "splits hold 2 at index 1, which must be 4, as many as there are rows"}};
  for (const auto& [of, why] : splits) {
    Eager e;
    says(refusal(
             [&] {
               ragged_ids(e.constant(Tensor::of(of, {static_cast<std::int64_t>(of.size())})),
                          e.constant(table));
             },
             Code::out_of_range),
         {"RaggedIds", "late_shapes_test.cpp", why});
  }
  Eager e;
  BOOST_TEST(
      (ragged_ids(e.constant(Tensor::of<std::int64_t>({0, 1, 4}, {3})), e.zeros(DType::f32, {4, 0}))
           .value()
           .to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 1, 1}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
