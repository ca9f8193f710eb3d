// Not under asan and tsan: it searches; mesh_test runs what it builds.
// Layouts that are chosen: by hand-made expectations, and against all layouts of small programs.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/automatic.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_automatic_test)

namespace {

std::vector<std::string> cpus(int n) {
  std::vector<std::string> all;
  for (int i = 0; i < n; ++i) all.push_back("cpu:" + std::to_string(i));
  return all;
}

const Dim a{"a", 10}, b{"b", 5}, c{"c", 20};

struct Product {
  Graph g;
  Expr x, y;
  Exprs z;
  explicit Product(int times = 1) {
    x = g.input("x", DType::f32, {10, 5});
    y = g.input("y", DType::f32, {5, 20});
    for (int i = 0; i < times; ++i)
      z.push_back(mesh::einsum(
          {mesh::named(x, {a, b}) * static_cast<double>(i + 1), mesh::named(y, {b, c})}, {a, c}));
  }
};

std::set<mesh::Layout::Rule> rules(const Layout& layout) {
  return {layout.rules().begin(), layout.rules().end()};
}

// Products take long, so that even small ones are worth splitting.
const mesh::LayoutOptions kSlow{.flops_per_ns = 1e-3};

const std::set<mesh::Layout::Rule> kBest{{"a", "m2"}, {"c", "m1"}};

}  // namespace

BOOST_AUTO_TEST_CASE(a_product_is_split_as_far_as_sizes_divide) {  // L1
  const Product p;
  const Mesh mesh("m1:4;m2:2", cpus(8));
  const mesh::LayoutChoice best = mesh::automatic_layout(p.g, {p.x, p.y}, p.z, mesh, kSlow);
  BOOST_TEST((rules(best.layout) == kBest));
  const auto cost = [&](const char* layout) {
    return mesh::predict(p.g, {p.x, p.y}, p.z, {mesh, Layout(layout)}, kSlow).ns();
  };
  for (const char* other : {"", "a:m2", "c:m1", "c:m2", "a:m2;b:m1"}) {
    if (std::string(other).find("b:") == std::string::npos)
      BOOST_TEST(best.cost.ns() <= cost(other), other);
    else BOOST_CHECK_THROW(cost(other), Error);  // 4 does not divide 5
  }
  BOOST_TEST(best.cost.ns() == cost("c:m1;a:m2"));
  BOOST_TEST(best.text().find("next '") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(repetition_does_not_make_the_search_larger) {  // L4
  const Product p(100);
  const mesh::LayoutChoice best =
      mesh::automatic_layout(p.g, {p.x, p.y}, p.z, Mesh("m1:4;m2:2", cpus(8)), kSlow);
  BOOST_TEST((rules(best.layout) == kBest));
  BOOST_TEST(best.variables <= 50);
  BOOST_TEST(p.g.size() >= 50);
}

BOOST_AUTO_TEST_CASE(the_mesh_is_chosen_too) {  // L5
  const Product p;
  const mesh::LayoutChoice best = mesh::automatic_layout(p.g, {p.x, p.y}, p.z, cpus(8), kSlow);
  BOOST_TEST((best.mesh.axes() == Dims{{"axis0", 4}, {"axis1", 2}}));
  BOOST_TEST((rules(best.layout) == std::set<mesh::Layout::Rule>{{"a", "axis1"}, {"c", "axis0"}}));
  mesh::LayoutOptions one_axis = kSlow;
  one_axis.max_axes = 1;
  const mesh::LayoutChoice one = mesh::automatic_layout(p.g, {p.x, p.y}, p.z, cpus(8), one_axis);
  BOOST_TEST((one.mesh.axes() == Dims{{"axis0", 8}}));
  BOOST_TEST(one.layout.rules().empty());
}

BOOST_AUTO_TEST_CASE(rules_are_possible_where_sizes_divide) {  // L7
  Graph g;
  const Dim small{"a", 5}, large{"b", 10};
  const Expr x = mesh::named(g.input("x", DType::f32, {5, 10, 15}), {small, large, {"left", 15}});
  const Expr y = mesh::named(g.input("y", DType::f32, {5, 10, 21}), {small, large, {"right", 21}});
  const Expr both = concat({x, y}, 2);
  BOOST_TEST((mesh::dims_of(both)[0] == small));
  const auto possible = mesh::possible_rules(g, Mesh("m1:4;m2:2", cpus(8)));
  BOOST_TEST((possible == std::vector<mesh::Layout::Rule>{{"b", "m2"}}));
}

BOOST_AUTO_TEST_CASE(no_layout_has_two_dimensions_on_one_axis) {  // L9
  const auto all = mesh::layouts_of({"s1", "s2", "s3"}, Mesh("m1:4;m2:2", cpus(8)));
  BOOST_TEST(all.size() == 13u);
  std::set<std::string> texts;
  for (const Layout& layout : all) {
    std::set<std::string> axes;
    for (const auto& rule : layout.rules()) BOOST_TEST(axes.insert(rule.second).second);
    texts.insert(layout.text());
  }
  BOOST_TEST(texts.size() == 13u);
}

BOOST_AUTO_TEST_CASE(a_final_value_is_made_late) {  // L11
  using mesh::detail::ScheduledOp;
  const std::vector<std::size_t> late{1, 2, 0}, early{0, 1, 2};
  BOOST_TEST(mesh::detail::schedule({{{}, 4, true}, {{}, 3, false}, {{1}, 6, false}}) == late,
             boost::test_tools::per_element());
  BOOST_TEST(mesh::detail::schedule({{{}, 4, false}, {{}, 3, false}, {{1}, 6, false}}) == early,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_search_finds_the_best_of_all_layouts) {
  std::mt19937 random(7);
  for (int round = 0; round < 6; ++round) {
    const auto draw = [&](std::initializer_list<std::int64_t> of) {
      return *(of.begin() + random() % of.size());
    };
    const Dim batch{"batch", draw({8, 64})}, in{"in", draw({16, 256})},
        hidden{"hidden", draw({32, 512})}, out{"out", draw({8, 128})};
    Graph g;
    const Expr x = g.input("x", DType::f32, {batch.size, in.size}),
               w = g.input("w", DType::f32, {in.size, hidden.size}),
               v = g.input("v", DType::f32, {hidden.size, out.size});
    const Expr h = relu(
        mesh::einsum({mesh::named(x, {batch, in}), mesh::named(w, {in, hidden})}, {batch, hidden}));
    const Expr y = mesh::einsum({h, mesh::named(v, {hidden, out})}, {batch, out});
    Exprs fetches = gradients(sum(y * y), {w, v});
    const Mesh mesh("m1:4;m2:2", cpus(8));
    const Exprs feeds{x, w, v};
    const mesh::LayoutChoice best = mesh::automatic_layout(g, feeds, fetches, mesh);
    BOOST_TEST(best.is_exhaustive);
    // All maps of the four dimensions to an axis or none.
    double least = 0;
    int legal = 0;
    for (int code = 0; code < 81; ++code) {
      std::vector<mesh::Layout::Rule> all;
      int rest = code;
      for (const char* dim : {"batch", "in", "hidden", "out"}) {
        if (rest % 3) all.emplace_back(dim, rest % 3 == 1 ? "m1" : "m2");
        rest /= 3;
      }
      try {
        const double ns = mesh::predict(g, feeds, fetches, {mesh, Layout(all)}).ns();
        if (legal++ == 0 || ns < least) least = ns;
      } catch (const Error& e) { BOOST_REQUIRE(e.code() == Code::invalid_argument); }
    }
    BOOST_TEST(best.cost.ns() == least, "round " << round << ": " << best.text());
    BOOST_TEST(best.tried <= legal);
    // Half of the memory that the fastest one needs: another one, or none.
    mesh::LayoutOptions tight{.memory = best.cost.peak_bytes - 1};
    try {
      const mesh::LayoutChoice other = mesh::automatic_layout(g, feeds, fetches, mesh, tight);
      BOOST_TEST(other.cost.peak_bytes < best.cost.peak_bytes);
      BOOST_TEST(other.cost.ns() >= best.cost.ns());
    } catch (const Error& e) { BOOST_TEST((e.code() == Code::resource_exhausted)); }
  }
}

namespace {

// Products x_i[d_i, d_i+1] in a row; `outer`: sums of their outer products, which have no names of
// their own.
struct Chain {
  Graph g;
  Exprs feeds;
  Expr total;
  Chain(int length, bool outer) {
    const auto dim = [](int i) { return Dim{"d" + std::to_string(i), 4}; };
    Expr last;
    Exprs sums;
    for (int i = 0; i < length; ++i) {
      feeds.push_back(g.input("x" + std::to_string(i), DType::f32, outer ? Shape{4} : Shape{4, 4}));
      const Expr x = mesh::named(feeds.back(), outer ? Dims{dim(i)} : Dims{dim(i), dim(i + 1)});
      if (i > 0 && outer) sums.push_back(sum(expand_dims(last, 1) * expand_dims(x, 0)));
      last = i > 0 && !outer ? mesh::einsum({last, x}, {dim(0), dim(i + 1)}) : x;
    }
    total = sum(last);
    for (const Expr& s : sums) total = total + s;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(layouts_that_no_value_allows_are_not_tried) {
  const Mesh mesh("m:2", cpus(2));
  {
    // 2^11 maps of dimensions to the axis or none, of which few have no neighbours on the axis.
    const Chain chain(10, false);
    const mesh::LayoutChoice best =
        mesh::automatic_layout(chain.g, chain.feeds, {chain.total}, mesh, {.max_tried = 400});
    BOOST_TEST(best.is_exhaustive);
  }
  // Layouts that are refused late count, too; then there is still the layout without rules.
  const Chain chain(10, true);
  mesh::LayoutOptions few{.max_tried = 3};
  const mesh::LayoutChoice best =
      mesh::automatic_layout(chain.g, chain.feeds, {chain.total}, mesh, few);
  BOOST_TEST(!best.is_exhaustive);
  BOOST_TEST(best.layout.rules().empty());
  few.memory = 1;
  BOOST_CHECK_EXCEPTION(mesh::automatic_layout(chain.g, chain.feeds, {chain.total}, mesh, few),
                        Error, [](const Error& e) {
                          return e.code() == Code::resource_exhausted &&
                                 std::string(e.what()).find("max_tried, 3, ended the search") !=
                                     std::string::npos;
                        });
}

// A convolution's time falls faster than the parts of its channels rise. The two vectors are better
// whole; their layouts come last, after two with split channels.
BOOST_AUTO_TEST_CASE(a_convolution_of_split_channels_does_not_end_the_search) {
  Graph g;
  const Dim channels{"channels", 64};
  const Expr x = g.input("x", DType::f32, {3, 5, 5, 64}),
             w = g.input("w", DType::f32, {3, 3, 64, 3}), y = g.input("y", DType::f32, {8}),
             z = g.input("z", DType::f32, {8});
  const Expr made = conv(mesh::named(x, {{"b", 3}, {"h", 5}, {"v", 5}, channels}),
                         mesh::named(w, {{"i", 3}, {"j", 3}, channels, {"f", 3}}));
  const Exprs fetches{made, tanh(mesh::named(y, {{"y", 8}})), tanh(mesh::named(z, {{"z", 8}}))};
  const mesh::LayoutChoice best =
      mesh::automatic_layout(g, {x, w, y, z}, fetches, Mesh("m:4", cpus(4)), kSlow);
  BOOST_TEST((rules(best.layout) == std::set<mesh::Layout::Rule>{{"channels", "m"}}));
}

BOOST_AUTO_TEST_SUITE_END()
