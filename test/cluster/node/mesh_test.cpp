// Programs with named dimensions, cut by layouts over meshes of one process, of simulated devices
// and of nodes: values equal those of the program as it is, and collectives are those that the
// layout asks for. Row marks (V1, N2, ...) are those of the rows below.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/functions.hpp>
#include <troupe/ops/mesh/mesh.hpp>
#include <troupe/ops/mesh/spmd.hpp>
#include <troupe/test/support/cluster/mesh_networks.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_test)

// ---- names and layouts

BOOST_AUTO_TEST_CASE(dimensions_are_read_with_any_separator) {  // N2
  const Dims wanted{{"x", 4}, {"y", 8}};
  for (const char* text : {"x:4;y:8", "x:4.y:8", "x:4 y:8", "x:4,y:8"})
    BOOST_TEST((mesh::parse_dims(text) == wanted));
  BOOST_TEST(mesh::parse_dims("").empty());
  check_refused([] { mesh::parse_dims("x;4"); }, {"'x;4'", "'x' is not NAME:SIZE"});
  check_refused([] { mesh::parse_dims("x:four"); }, {"the size 'four' of 'x'"});
  check_refused([] { mesh::parse_dims("x:0"); }, {"the size '0' of 'x'"});
  check_refused([] { mesh::parse_dims("x:2;x:3"); }, {"names 'x' twice"});
}

BOOST_AUTO_TEST_CASE(rules_are_read_with_any_separator) {  // N3
  const Layout wanted({{"d_ff", "model"}, {"heads", "model"}});
  for (const char* text : {"d_ff:model;heads:model", "d_ff:model.heads:model",
                           "d_ff:model heads:model", "d_ff:model,heads:model"})
    BOOST_TEST((Layout(text) == wanted));
  check_refused([] { Layout("d_ff;heads"); }, {"'d_ff' is not NAME:AXIS"});
  check_refused([] { Layout("a:m;a:n"); }, {"names 'a' twice"});
}

BOOST_AUTO_TEST_CASE(a_layout_maps_dimensions_to_axes) {  // N4, N5
  std::vector<std::string> devices;
  for (int i = 0; i < 32; ++i) devices.push_back("cpu:" + std::to_string(i));
  const Mesh mesh("batch:4;model:8", devices);
  const Layout layout("batch:batch;d_ff:model;heads:model");
  BOOST_TEST((layout.axes_of({{"batch", 128}, {"length", 500}, {"d_ff", 2048}}, mesh) ==
              std::vector<int>{0, -1, 1}));
  BOOST_TEST(mesh.size() == 32);
  BOOST_TEST(mesh.coordinate(17, 0) == 2);
  BOOST_TEST(mesh.coordinate(17, 1) == 1);
  BOOST_TEST((mesh.line(17, 0) == std::vector<int>{1, 9, 17, 25}));
  BOOST_TEST((mesh.line(17, 1) == std::vector<int>{16, 17, 18, 19, 20, 21, 22, 23}));
  check_refused(
      [&] {
        layout.axes_of({{"d_ff", 12}}, mesh);
      },
      {"axis 'model' of 8 devices does not divide dimension 'd_ff' of size 12"});
  check_refused(
      [&] {
        layout.axes_of({{"d_ff", 16}, {"heads", 8}}, mesh);
      },
      {"'d_ff' and 'heads'", "axis 'model'"});
  check_refused(
      [&] {
        Layout("a:rows").axes_of({{"a", 2}}, mesh);
      },
      {"axis 'rows', which mesh batch:4;model:8 lacks"});
  check_refused([] { Mesh("r:2;c:2", {"cpu:0", "cpu:1"}); }, {"4 places and got 2 devices"});
  check_refused([] { Mesh("r:2", {"cpu:0", "cpu:0"}); }, {"names 'cpu:0' twice"});
}

BOOST_AUTO_TEST_CASE(names_pass_through_operations) {
  const Dim batch{"batch", 4}, length{"length", 6}, heads{"heads", 2}, depth{"depth", 3};
  Graph g;
  const Expr x = mesh::named(g.input("x", DType::f32, {4, 6, 2, 3}), {batch, length, heads, depth});
  BOOST_TEST((mesh::dims_of(relu(x) * 2.0) == Dims{batch, length, heads, depth}));
  BOOST_TEST((mesh::dims_of(transpose(x, {2, 0, 1, 3})) == Dims{heads, batch, length, depth}));
  BOOST_TEST((mesh::dims_of(sum(x, {1})) == Dims{batch, heads, depth}));
  const Expr joined = reshape(x, {24, 6});
  BOOST_TEST((mesh::dims_of(joined) == Dims{{"batch*length", 24}, {"heads*depth", 6}}));
  BOOST_TEST(
      (mesh::dims_of(reshape(joined, {4, 6, 6})) == Dims{batch, length, {"heads*depth", 6}}));
  BOOST_TEST((mesh::dims_of(reshape(x, {9, 16})) == Dims{{"", 9}, {"", 16}}));
  const Expr w = mesh::named(g.input("w", DType::f32, {3, 2, 5}), {depth, heads, {"out", 5}});
  BOOST_TEST((mesh::dims_of(mesh::einsum({x, w}, {length, batch, {"out", 5}})) ==
              Dims{length, batch, {"out", 5}}));
  const Expr b = mesh::named(g.input("b", DType::f32, {6}), {length});
  BOOST_TEST((mesh::dims_of(x + b) == Dims{batch, length, heads, depth}));
  BOOST_TEST(
      (mesh::dims_of(x + mesh::aligned(b, mesh::dims_of(x))) == Dims{batch, length, heads, depth}));
}

BOOST_AUTO_TEST_CASE(names_that_do_not_fit_are_refused_with_lines) {
  const Dim a{"a", 4}, b{"b", 4};
  {
    Graph g;
    const Expr x = mesh::named(g.input("x", DType::f32, {4, 4}), {a, b});
    const Expr y = mesh::named(g.input("y", DType::f32, {4, 4}), {a, b});
    check_refused([&] { mesh::dims_of(matmul(x, y)); },
                  {"MatMul", "mesh_test.cpp:", "axis 1", "'b'", "axis 0", "'a'", "rename one"});
  }
  Graph g;
  const Expr x = g.input("x", DType::f32, {4, 2});
  check_refused([&] { mesh::named(x, {a}); }, {"mesh::named at", "a:4", "f32[4, 2]"});
  check_refused([&] { mesh::named(x, {a, {"c:d", 2}}); }, {"'c:d' is no name"});
  const Expr n = mesh::named(x, {a, {"c", 2}});
  check_refused([&] { mesh::sum(n, {b}); }, {"no dimension 'b' of size 4; it has a, c"});
  check_refused([&] { mesh::einsum({n}, {b}); }, {"no operand has the dimension 'b'"});
  check_refused([&] { mesh::reshape(n, {{"d", 9}}); }, {"has 8 elements, and d:9 has 9"});
  check_refused(
      [&] {
        mesh::named(g.input("z", DType::f32, {3}), {{"a", 3}});
      },
      {"'a' has size 4 at mesh_test.cpp:", "and 3 at mesh_test.cpp:"});
}

// ---- values and collectives

BOOST_AUTO_TEST_CASE(a_product_is_reduced_only_where_its_inner_dimension_is_split) {  // V1
  const Dim m{"m", 2}, k{"k", 4}, n{"n", 3};
  const std::vector<Tensor> got = check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({2, 4}), {m, k});
        const Expr w = input(c, g, "w", counted({4, 3}, 0.1), {k, n});
        c.fetches = {mesh::einsum({x, w}, {m, n})};
        return c;
      },
      {{"r:1", "m:r", kNone},
       {"r:2", "m:r", kNone},
       {"r:2", "k:r", all_reduces(1)},
       {"r:2;c:2", "m:r;k:c", all_reduces(1)},
       {"r:2;c:2", "m:r", kNone}});
  check_values(got[0], {4.2, 4.8, 5.4, 11.4, 13.6, 15.8});
}

BOOST_AUTO_TEST_CASE(a_network_of_two_layers_and_its_gradients) {  // V2, V3
  const Dim batch{"batch", 2}, in{"in", 4}, hidden{"hidden", 4}, out{"out", 3};
  const auto build = [&](bool with_gradients) {
    return [=](Graph& g) {
      MeshCase c;
      const Expr x = input(c, g, "x", counted({2, 4}), {batch, in});
      const Expr a = input(c, g, "a", counted({4, 4}, 0.1, -0.7), {in, hidden});
      const Expr v = input(c, g, "v", counted({4, 3}, 0.1, -0.5), {hidden, out});
      const Expr h = relu(mesh::einsum({x, a}, {batch, hidden}));
      const Expr y = mesh::einsum({h, v}, {batch, out});
      const Expr loss = sum(y * y) * 0.5;
      if (with_gradients) {
        c.fetches = gradients(loss, {a, v});
        c.fetches.insert(c.fetches.begin(), {h, y, loss});
      } else c.fetches = {y};
      return c;
    };
  };
  check(build(false), {{"r:2", "hidden:r", all_reduces(1)}, {"r:2", "batch:r", kNone}});
  const std::vector<Tensor> got =
      check(build(true), {{"r:1", "batch:r", kNone},
                          // y for the loss and its gradient
                          {"r:2", "hidden:r", all_reduces(1)},
                          // the loss, and a gradient of each matrix
                          {"r:2", "batch:r", all_reduces(3)},
                          {"r:2;c:2", "batch:r;hidden:c", all_reduces(4)},
                          {"p:4", "hidden:p", all_reduces(1)}});
  check_values(got[0], {1.4, 2, 2.6, 3.2, 0, 2, 4.2, 6.4});
  check_values(got[1], {.44, 1.36, 2.28, 2.58, 3.84, 5.1});
  check_values(got[2], {27.3268});
  check_values(got[3], {0, -3.6, 10.224, 24.048, -1.448, -4.724, 13.78, 32.284, -2.896, -5.848,
                        17.336, 40.52, -4.344, -6.972, 20.892, 48.756});
  check_values(got[4], {.616, 1.904, 3.192, 6.04, 10.4, 14.76, 11.98, 19.664, 27.348, 17.92, 28.928,
                        39.936});
}

BOOST_AUTO_TEST_CASE(softmax_over_a_split_dimension_takes_two_all_reduces) {  // V4
  const Dim b{"b", 2}, n{"n", 4};
  const std::vector<Tensor> got = check(
      [&](Graph& g) {
        MeshCase c;
        const Tensor values = Tensor::of<double>({0, 1, 2, 3, 3, 1, 0, 2}, {2, 4});
        const Expr x = input(c, g, "x", values, {b, n});
        c.fetches = {mesh::softmax(x, n), log_softmax(x)};
        return c;
      },
      {{"r:2", "b:r", kNone},
       {"r:2", "n:r", all_reduces(4)},
       {"r:2;c:2", "b:r;n:c", all_reduces(4)},
       {"p:4", "n:p", all_reduces(4)}});
  check_values(got[0], {.032059, .087144, .236883, .643914, .643914, .087144, .032059, .236883});
}

BOOST_AUTO_TEST_CASE(softmax_over_a_split_dimension_has_its_gradient) {
  const Dim b{"b", 2}, n{"n", 4};
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({2, 4}, 0.3), {b, n});
        const Expr w = input(c, g, "w", counted({2, 4}, 0.7, -1), {b, n});
        c.fetches = gradients(sum(mesh::softmax(x, n) * w), {x});
        return c;
      },
      {{"r:2", "n:r", all_reduces(3)}, {"r:2", "b:r", kNone}});
}

BOOST_AUTO_TEST_CASE(a_renamed_dimension_moves_to_its_new_axis) {  // V6
  const Dim a{"a", 4}, b{"b", 8}, a2{"a2", 4}, b2{"b2", 8};
  const auto rename = [&](Graph& g) {
    MeshCase c;
    const Expr x = input(c, g, "x", counted({4, 8}), {a, b});
    c.fetches = {mesh::named(x * 2.0, {a2, b2})};
    return c;
  };
  check(rename, {{"p:2;q:2", "a:p;a2:q", {{"MeshAllGather", 1}}},
                 {"p:4", "a:p", {{"MeshAllGather", 1}}},
                 {"p:4", "a:p;b2:p", {{"MeshAllToAll", 1}}},
                 {"p:2;q:2", "a:p;b:q;a2:q;b2:p", {{"MeshAllGather", 1}, {"MeshAllToAll", 1}}},
                 {"p:4", "b2:p", kNone},
                 {"p:4", "a:p;a2:p", kNone}});
}

BOOST_AUTO_TEST_CASE(joined_and_parted_dimensions_keep_their_splits) {
  const Dim a{"a", 4}, b{"b", 6}, c{"c", 2};
  check(
      [&](Graph& g) {
        MeshCase k;
        const Expr x = input(k, g, "x", counted({4, 6, 2}), {a, b, c});
        k.fetches = {reshape(reshape(x, {24, 2}) + 1.0, {4, 12}), reshape(x, {8, 6})};
        return k;
      },
      // [8, 6] cuts through `b`, so that its pieces are joined first.
      {{"r:2", "a:r", {{"MeshAllGather", 1}}},
       {"r:2", "b:r", {{"MeshAllGather", 1}}},
       {"r:2;s:2", "a:r;b:s", {{"MeshAllGather", 2}}}});
}

BOOST_AUTO_TEST_CASE(reductions_over_split_dimensions) {
  const Dim a{"a", 4}, b{"b", 6};
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({4, 6}, 0.25, -2), {a, b});
        c.fetches = {mesh::sum(x, {a}),        mesh::mean(x, {a}),    mesh::reduce_max(x, {a}),
                     mesh::reduce_min(x, {a}), product(x + 3.5, {0}), sum(x)};
        return c;
      },
      {{"r:2", "a:r", all_reduces(6)},
       {"r:2", "b:r", all_reduces(1)},
       {"r:2;s:2", "a:r;b:s", all_reduces(7)}});
}

BOOST_AUTO_TEST_CASE(sums_are_added_before_they_are_reduced) {
  const Dim b{"b", 2}, k{"k", 4}, n{"n", 3};
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({2, 4}), {b, k});
        const Expr y = input(c, g, "y", counted({2, 4}, -1), {b, k});
        const Expr w = input(c, g, "w", counted({4, 3}, 0.1), {k, n});
        const Expr both = mesh::einsum({x, w}, {b, n}) + mesh::einsum({y * y, w}, {b, n}) * 0.5;
        c.fetches = {tanh(both)};
        return c;
      },
      {{"r:2", "k:r", all_reduces(1)}});
}

BOOST_AUTO_TEST_CASE(operations_without_a_rule_run_on_whole_values) {  // S16
  const Dim a{"a", 4}, b{"b", 6};
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({4, 6}, -0.5, 3), {a, b});
        c.fetches = {sort(x)[0], cumsum(x, 0), concat({x, x}, 1), slice(x, {0, 2}, {4, 3})};
        return c;
      },
      {{"r:2", "b:r", {{"MeshAllGather", 1}}}, {"r:2", "a:r", {{"MeshAllGather", 1}}}});
}

BOOST_AUTO_TEST_CASE(pointwise_operations_align_operands_by_name) {  // S3
  const Dim a{"a", 2}, b{"b", 3}, c{"c", 4};
  const auto build = [&](Graph& g) {
    MeshCase k;
    const Expr x = input(k, g, "x", counted({2, 3}), {a, b});
    const Expr y = input(k, g, "y", counted({2, 4}, 0.5), {a, c});
    const Expr z = input(k, g, "z", counted({3, 2}, 10), {b, a});
    const Expr all = x * y;
    BOOST_TEST((mesh::dims_of(all) == Dims{a, b, c}));
    BOOST_TEST((mesh::dims_of(x + z) == Dims{a, b}));
    Exprs fed;
    for (const auto& [e, value] : k.feeds) fed.push_back(e);
    k.fetches = gradients(sum(all * all) + sum((x + z) * x), fed);
    k.fetches.push_back(all);
    k.fetches.push_back(x + z);
    return k;
  };
  const std::vector<Tensor> got = check(build, {{"r:2", "a:r", kNone},
                                                {"r:2", "c:r", all_reduces(1)},
                                                {"r:2;s:2", "a:r;c:s", all_reduces(1)}});
  check_values(got[4], {0, 21, 42, 13, 34, 55});
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t k = 0; k < 4; ++k)
        BOOST_TEST(got[3].at((i * 3 + j) * 4 + k) ==
                   static_cast<double>(3 * i + j) * 0.5 * static_cast<double>(4 * i + k));
}

BOOST_AUTO_TEST_CASE(a_split_table_stays_where_it_is) {  // V10
  const Dim vocabulary{"vocabulary", 8}, depth{"depth", 2}, ids{"ids", 3};
  const Tensor rows = Tensor::of<std::int32_t>({0, 7, 3}, {3});
  const auto table = [] {
    Tensor t = counted({8, 2});
    for (std::int64_t i = 0; i < 8; ++i) {
      t.mutable_data<double>()[2 * i] = static_cast<double>(i);
      t.mutable_data<double>()[2 * i + 1] = static_cast<double>(2 * i);
    }
    return t;
  }();
  const std::vector<double> wanted{0, 0, 7, 14, 3, 6};
  check_values(check(
                   [&](Graph& g) {
                     MeshCase c;
                     const Expr t = input(c, g, "table", table, {vocabulary, depth});
                     const Expr i = input(c, g, "ids", rows, {ids});
                     c.fetches = {gather(t, i)};
                     return c;
                   },
                   {{"r:2", "vocabulary:r", all_reduces(1)},
                    {"p:4", "vocabulary:p", all_reduces(1)},
                    {"r:2", "depth:r", kNone},
                    {"r:2;s:2", "vocabulary:r;depth:s", all_reduces(1)}})[0],
               wanted);
  check_values(check(
                   [&](Graph& g) {
                     MeshCase c;
                     const Expr t = input(c, g, "table", table, {vocabulary, depth});
                     const Expr i = input(c, g, "ids", rows, {ids});
                     const Expr hot = mesh::named(one_hot(i, 8, DType::f64), {ids, vocabulary});
                     c.fetches = {mesh::einsum({hot, t}, {ids, depth})};
                     return c;
                   },
                   {{"r:2", "vocabulary:r", all_reduces(1)}})[0],
               wanted);
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr t = input(c, g, "table", table, {vocabulary, depth});
        const Expr i = input(c, g, "ids", Tensor::of<std::int64_t>({5, 5, 2, 0}, {4}), {{"n", 4}});
        c.fetches = gradients(sum(tanh(gather(t, i) * 0.1)), {t});
        return c;
      },
      // the rows, for tanh, and none for the gradient
      {{"r:2", "vocabulary:r", all_reduces(1)}});
}

BOOST_AUTO_TEST_CASE(rows_are_added_to_a_table_that_is_not_split) {
  const Dim ids{"ids", 4};
  const std::vector<Tensor> got = check(
      [&](Graph& g) {
        MeshCase c;
        const Expr i = input(c, g, "ids", Tensor::of<std::int64_t>({1, 1, 1, 3}, {4}), {ids});
        const Expr t = g.input("table", DType::f64, {4, 2});
        c.feeds.emplace_back(t, counted({4, 2}, 0.1));
        c.fetches = {bincount(i, 4), gradients(sum(tanh(gather(t, i))), {t})[0]};
        return c;
      },
      {{"r:2", "ids:r", all_reduces(2)}});
  check_values(got[0], {0, 3, 0, 1});
}

BOOST_AUTO_TEST_CASE(an_index_outside_a_split_table_is_refused) {
  const Dim vocabulary{"vocabulary", 8}, depth{"depth", 2};
  for (const std::int64_t bad : {8, -1})
    for (const char* layout : {"", "vocabulary:r"}) {
      Graph g;
      MeshCase c;
      const Expr t = input(c, g, "table", counted({8, 2}), {vocabulary, depth});
      const Expr i = input(c, g, "ids", Tensor::of<std::int64_t>({0, bad, 5}, {3}), {{"ids", 3}});
      const Expr added =
          scatter_add(t, i, mesh::named(g.constant(counted({3, 2})), {{"ids", 3}, depth}));
      for (const Expr& fetched : {gather(t, i), added}) {
        c.fetches = {fetched};
        Engine engine;
        BOOST_CHECK_EXCEPTION(
            run(engine, g, c, Partitioning{mesh_of("r:2", places()[0]), Layout(layout)}), Error,
            [&](const Error& e) {
              return e.code() == Code::out_of_range &&
                     std::string(e.what()).find(std::to_string(bad)) != std::string::npos;
            });
      }
    }
}

BOOST_AUTO_TEST_CASE(an_integer_quotient_has_a_whole_dividend) {
  const std::vector<Tensor> got = check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", Tensor::of<std::int32_t>({3, 3}, {2}), {{"k", 2}});
        c.fetches = {sum(x) / 2};
        return c;
      },
      {{"r:2", "k:r", all_reduces(1)}});
  check_values(got[0], {3});
}

BOOST_AUTO_TEST_CASE(layers_run_on_pieces) {  // O18
  const Dim batch{"batch", 4}, length{"length", 3}, heads{"heads", 2}, depth{"depth", 4},
      model{"model", 6}, classes{"classes", 5};
  // Normalisation and a loss, with gradients of all parameters.
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x = input(c, g, "x", counted({4, 3, 6}, 0.07, -1), {batch, length, model});
        const Expr scale = input(c, g, "scale", counted({6}, 0.1, 0.5), {model});
        const Expr bias = input(c, g, "bias", counted({6}, -0.05), {model});
        const Expr w = input(c, g, "w", counted({6, 5}, 0.03, -0.4), {model, classes});
        const Expr t =
            input(c, g, "t", Tensor::of<std::int32_t>({0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}, {4, 3}),
                  {batch, length});
        const Expr n = layer_norm(square(x), scale, bias);
        const Expr r = rms_norm(n, scale);
        const Expr y = mesh::einsum({r, w}, {batch, length, classes});
        const Expr loss = mean(cross_entropy(y, t));
        c.fetches = gradients(loss, {scale, bias, w});
        c.fetches.push_back(loss);
        return c;
      },
      // three gradients and the loss
      {{"r:2", "batch:r", all_reduces(4)}, {"p:4", "batch:p", all_reduces(4)}});
  // Attention by heads and batches.
  check(
      [&](Graph& g) {
        MeshCase c;
        Exprs qkv;
        for (const char* name : {"q", "k", "v"})
          qkv.push_back(input(c, g, name, counted({4, 2, 3, 4}, 0.0001 * name[0], -1),
                              {batch, heads, length, depth}));
        Tensor may_look = Tensor::zeros(DType::f64, {4, 3, 3});
        for (std::int64_t i = 0; i < 36; ++i) may_look.mutable_data<double>()[i] = i % 5 ? 0 : -0.5;
        const Expr mask = input(c, g, "mask", may_look, {batch, length, {"keys", 3}});
        const Expr y = attention(qkv[0], qkv[1], qkv[2], true) +
                       masked_attention(qkv[0], qkv[1], qkv[2], mask);
        c.fetches = gradients(sum(y * y), qkv);
        c.fetches.push_back(y);
        return c;
      },
      {{"r:2", "batch:r", kNone},
       {"r:2;s:2", "batch:r;heads:s", kNone},
       {"r:2", "depth:r", {{"MeshAllGather", 4}}}});
}

BOOST_AUTO_TEST_CASE(convolutions_run_on_pieces) {  // S10
  const Dim batch{"batch", 4}, height{"height", 6}, width{"width", 5}, in{"in", 2}, out{"out", 4},
      fh{"fh", 3}, fw{"fw", 2};
  check(
      [&](Graph& g) {
        MeshCase c;
        const Expr x =
            input(c, g, "x", counted({4, 6, 5, 2}, 0.01, -1), {batch, height, width, in});
        const Expr w = input(c, g, "w", counted({3, 2, 2, 4}, 0.02, -0.5), {fh, fw, in, out});
        const Expr y = conv(x, w);
        c.fetches = gradients(sum(y * y), {x, w});
        c.fetches.push_back(y);
        return c;
      },
      // one for the gradient of the filter; the output; the gradient of the input
      {{"r:2", "batch:r", all_reduces(1)},
       {"r:2", "in:r", all_reduces(1)},
       {"r:2", "out:r", all_reduces(1)}});
}

BOOST_AUTO_TEST_CASE(draws_agree_under_every_layout) {
  const Dim a{"a", 4}, b{"b", 6};
  // A draw's step counts the runs of its engine: each layout gets a new one.
  for (const Cut& cut : {Cut{"r:2", "a:r", kNone}, Cut{"r:2;c:2", "a:r;b:c", kNone}})
    check(
        [&](Graph& g) {
          MeshCase c;
          const Expr x = input(c, g, "x", counted({4, 6}), {a, b});
          c.fetches = {x * mesh::named(g.random_uniform({4, 6}, DType::f64), {a, b})};
          return c;
        },
        {cut});
}

BOOST_AUTO_TEST_CASE(layouts_that_do_not_fit_are_refused_with_the_line) {  // V14
  const Dim a{"a", 5}, b{"b", 4}, n{"n", 4};
  Graph g;
  MeshCase c;
  const Expr x = input(c, g, "x", counted({5, 4}), {a, b});
  const Expr w = input(c, g, "w", counted({4, 4}), {b, n});
  c.fetches = {mesh::einsum({x, w}, {a, n})};
  const Place here = places()[0];
  const auto refuses = [&](const char* axes, const char* layout,
                           std::initializer_list<const char*> parts) {
    Engine engine;
    const Partitioning p{mesh_of(axes, here), Layout(layout)};
    check_refused([&] { run(engine, g, c, p); }, parts);
  };
  refuses("r:2", "a:r", {"mesh_test.cpp:", "axis 'r' of 2 devices", "dimension 'a' of size 5"});
  refuses("r:2", "b:r;n:r", {"mesh_test.cpp:", "'b' and 'n'", "mesh axis 'r'"});
  refuses("r:2", "b:cols", {"axis 'cols', which mesh r:2 lacks"});
}

BOOST_AUTO_TEST_CASE(compile_warns_of_a_rule_for_a_dimension_that_no_tensor_has) {
  const Dim batch{"batch", 4}, hidden{"hidden", 6};
  Graph g;
  MeshCase c;
  c.fetches = {tanh(input(c, g, "x", counted({4, 6}), {batch, hidden}))};
  Engine engine;
  CompileOptions options;
  options.mesh = Partitioning{mesh_of("r:2", places()[0]), Layout("batch:r;hiden:r;z:r")};
  const Function f = engine.compile(g, fed(c), c.fetches, options);
  const std::vector<std::string> warned{
      "layout 'batch:r;hiden:r;z:r': no tensor has a dimension 'hiden'; did you mean 'hidden'?",
      "layout 'batch:r;hiden:r;z:r': no tensor has a dimension 'z'"};
  BOOST_TEST(f.warnings() == warned, boost::test_tools::per_element());
}

// ---- instances of one program

namespace {

// A product whose inner dimension is split, of rows that are looked up: `ids` may be wrong.
struct LookUp {
  Graph g;
  MeshCase c;
  explicit LookUp(const std::vector<std::int64_t>& ids) {
    const Dim batch{"batch", 4}, row{"row", 3}, k{"k", 4};
    const Expr at = g.input("ids", DType::i64, {4});
    c.feeds.emplace_back(at, Tensor::of(ids, {4}));
    const Expr table = input(c, g, "table", counted({3, 4}), {row, k});
    const Expr rows = mesh::named(gather(table, mesh::named(at, {batch})), {batch, k});
    c.fetches = {mesh::sum(rows * rows, {batch, k})};
  }
};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_plan_has_one_size_for_all_meshes) {
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> partitions;
  for (const int devices : {2, 8, 64, 512}) {
    const Dim batch{"batch", 512}, in{"in", 4}, out{"out", 2};
    Graph g;
    const Expr x = g.input("x", DType::f32, {512, 4});
    const Variable w = g.variable("w", DType::f32, {4, 2}, Initializer::constant(0.5));
    const Expr loss = mean(square(mesh::einsum(
        {mesh::named(x, {batch, in}), mesh::named(w.read(), {in, out})}, {batch, out})));
    const Expr step = Sgd({.learning_rate = 0.1}).minimize(loss, {w});
    std::vector<std::string> names;
    for (int i = 0; i < devices; ++i) names.push_back("cpu:" + std::to_string(i));
    CompileOptions options;
    options.mesh = Partitioning{Mesh("p:" + std::to_string(devices), names), Layout("batch:p")};
    Engine engine;
    const auto compiled = engine.impl().compile(g, {x.edge()}, {loss.edge(), step.edge()}, options);
    const detail::Plan& plan = *compiled->troupe.plan;
    std::size_t nodes = 0;
    for (const detail::PartitionPlan& p : plan.partitions)
      for (const detail::FramePlan& f : p.frames) nodes += f.nodes.size();
    sizes.push_back(nodes);
    partitions.push_back(plan.partitions.size());
    BOOST_TEST(compiled->troupe.partitions.empty());
    if (devices > 64) continue;
    const auto running = engine.impl().current(compiled);
    BOOST_TEST(running->troupe.partitions.size() ==
               plan.partitions.size() - 1 + static_cast<std::size_t>(devices));
    BOOST_TEST(engine.impl().current(compiled) == running);
  }
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    BOOST_TEST(sizes[i] == sizes[0]);
    BOOST_TEST(partitions[i] == partitions[0]);
  }
}

BOOST_AUTO_TEST_CASE(explain_states_whether_devices_run_instances) {
  LookUp of({0, 1, 2, 0});
  Engine engine;
  CompileOptions options;
  options.mesh = Partitioning{mesh_of("p:4", places()[0]), Layout("batch:p")};
  const auto explained = [&] {
    return engine.compile(of.g, fed(of.c), of.c.fetches, options).explain();
  };
  BOOST_TEST(count(explained(), "4 devices run instances of one program") == 1);
  options.skip_passes = kCopies;
  BOOST_TEST(count(explained(), "instances") == 0);
  options.skip_passes.clear();
  of.c.fetches.push_back(of.c.feeds[0].first);
  BOOST_TEST(
      count(explained(), "nodes are copied to 4 devices, because a feed is fetched as it is") == 1);
}

BOOST_AUTO_TEST_CASE(an_error_of_an_instance_names_its_device_and_line) {
  for (const Place& place : places()) {
    if (place.nodes > 1) continue;
    Engine engine;
    const Partitioning p{mesh_of("p:4", place), Layout("batch:p")};
    LookUp wrong({0, 1, 7, 0}), right({0, 1, 2, 0});
    // The others wait for the sum of the third one.
    BOOST_CHECK_EXCEPTION(run(engine, wrong.g, wrong.c, p), Error, [&](const Error& e) {
      const std::string text = e.what();
      BOOST_TEST_MESSAGE(text);
      return text.find("mesh_test.cpp:") != std::string::npos &&
             text.find(" on " + place.devices[2]) != std::string::npos && count(text, "7") > 0;
    });
    BOOST_TEST(run(engine, right.g, right.c, p)[0].at(0) == 14 + 126 + 366 + 14.0);
  }
}

BOOST_AUTO_TEST_CASE(instances_that_wait_end_when_their_run_is_cancelled) {
  Engine engine;
  check_cancelled_members_end(engine, {mesh_of("p:4", places()[0]), Layout("batch:p")});
}

// ---- training

namespace {

// The losses of ten steps of momentum.
std::vector<double> losses(Engine& engine, const std::optional<Partitioning>& p) {
  TwoLayers network({8, 6, 4, 2}, Momentum({.learning_rate = 0.2}));
  return losses_of(network.compile(engine, p), 10, counted({8, 6}, 0.03, -0.7),
                   counted({8, 2}, -0.1, 0.8));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_network_learns_the_same_under_every_layout) {
  Engine whole;
  const std::vector<double> wanted = losses(whole, std::nullopt);
  BOOST_TEST(wanted.back() < 0.5 * wanted.front());
  for (const Place& place : places())
    for (const auto& [axes, layout] : {std::pair("p:4", "batch:p"), std::pair("p:4", "hidden:p"),
                                       std::pair("r:2;c:2", "batch:r;hidden:c")}) {
      std::unique_ptr<Nodes> nodes;
      std::unique_ptr<Engine> alone;
      if (place.nodes > 1) nodes = std::make_unique<Nodes>(place.nodes);
      else alone = std::make_unique<Engine>();
      const std::vector<double> got = losses(nodes ? nodes->engine() : *alone,
                                             Partitioning{mesh_of(axes, place), Layout(layout)});
      for (std::size_t i = 0; i < wanted.size(); ++i)
        BOOST_TEST(std::abs(got[i] - wanted[i]) <= 1e-12 * wanted[i],
                   place.name << ", " << layout << ": step " << i << " has loss " << got[i]
                              << " in place of " << wanted[i]);
    }
}

BOOST_AUTO_TEST_SUITE_END()
