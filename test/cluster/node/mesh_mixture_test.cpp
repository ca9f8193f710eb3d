// Not under tsan: mesh_test runs the same threads.
// Mixtures of experts: against a plain loop over positions, against values and gradients that JAX
// computed in f64, and under layouts.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/mixture.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_mixture_test)

namespace {

struct Sizes {
  std::int64_t groups = 2, positions = 4, width = 3, experts = 4, inner = 5;
};

Tensor waves(const Shape& shape, double frequency, double phase, double scale = 1) {
  Tensor t = Tensor::zeros(DType::f64, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<double>()[i] = scale * std::sin(frequency * static_cast<double>(i) + phase);
  return t;
}

struct Values {
  Tensor x, gate, in, out;
  explicit Values(const Sizes& s)
      : x(waves({s.groups, s.positions, s.width}, 1.3, 0.2)),
        gate(waves({s.width, s.experts}, 2.1, 0.5, 1.5)),
        in(waves({s.experts, s.width, s.inner}, 0.7, 0.1)),
        out(waves({s.experts, s.inner, s.width}, 0.9, 0.3)) {}
};

// Fetches output, loss and load; with gradients also those of sum(sin(output)) + loss / 2 for x,
// gate, in and out.
MeshCase build(Graph& g, const Sizes& s, int chosen, double factor, bool with_gradients) {
  const Dim batch{"batch", s.groups}, length{"length", s.positions}, width{"width", s.width},
      experts{"experts", s.experts}, inner{"inner", s.inner};
  const Values v(s);
  MeshCase c;
  const Expr x = input(c, g, "x", v.x, {batch, length, width}),
             gate = input(c, g, "gate", v.gate, {width, experts}),
             in = input(c, g, "in", v.in, {experts, width, inner}),
             out = input(c, g, "out", v.out, {experts, inner, width});
  const mesh::Mixture m = mesh::mixture_of_experts(
      x, gate, in, out, {.experts = experts, .chosen = chosen, .capacity_factor = factor});
  c.fetches = {m.output, m.loss, m.load};
  if (!with_gradients) return c;
  const Exprs to = gradients(sum(sin(m.output)) + m.loss * 0.5, {x, gate, in, out});
  c.fetches.insert(c.fetches.end(), to.begin(), to.end());
  return c;
}

std::vector<Tensor> run_whole(const Sizes& s, int chosen, double factor, bool with_gradients) {
  Graph g;
  const MeshCase c = build(g, s, chosen, factor, with_gradients);
  Engine engine;
  return run(engine, g, c, std::nullopt);
}

// The mixture by loops over positions: first choices are placed before second ones.
struct Plain {
  std::vector<double> output, load;
  double loss = 0;
  int dropped = 0;

  Plain(const Sizes& s, const Values& v, int chosen, std::int64_t capacity)
      : output(static_cast<std::size_t>(v.x.elements())),
        load(static_cast<std::size_t>(s.experts)) {
    for (std::int64_t group = 0; group < s.groups; ++group) {
      std::vector<std::vector<double>> gates;
      std::vector<std::vector<std::int64_t>> ranked;
      for (std::int64_t p = 0; p < s.positions; ++p) {
        gates.push_back(softmax_of(s, v, group * s.positions + p));
        auto& order = ranked.emplace_back();
        for (std::int64_t e = 0; e < s.experts; ++e) order.push_back(e);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
          return at(gates.back(), a) > at(gates.back(), b);
        });
      }
      std::vector<std::int64_t> taken(static_cast<std::size_t>(s.experts));
      std::vector<double> busy(static_cast<std::size_t>(s.experts)), mean = busy;
      for (int choice = 0; choice < chosen; ++choice)
        for (std::int64_t p = 0; p < s.positions; ++p) {
          const auto& order = ranked[static_cast<std::size_t>(p)];
          const auto& gate = gates[static_cast<std::size_t>(p)];
          const std::int64_t e = order[static_cast<std::size_t>(choice)];
          if (choice == 0) busy[static_cast<std::size_t>(e)] += 1;
          if (taken[static_cast<std::size_t>(e)] >= capacity) {
            ++dropped;
            continue;
          }
          ++taken[static_cast<std::size_t>(e)];
          load[static_cast<std::size_t>(e)] += 1;
          const double both = chosen == 1 ? 1 : at(gate, order[0]) + at(gate, order[1]);
          add_expert(s, v, group * s.positions + p, e, at(gate, e) / both);
        }
      for (const auto& gate : gates)
        for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += gate[e];
      for (std::size_t e = 0; e < mean.size(); ++e)
        loss += busy[e] * mean[e] * static_cast<double>(s.experts) /
                static_cast<double>(s.positions * s.positions * s.groups);
    }
  }

 private:
  static double at(const std::vector<double>& v, std::int64_t i) {
    return v[static_cast<std::size_t>(i)];
  }
  static std::vector<double> softmax_of(const Sizes& s, const Values& v, std::int64_t row) {
    std::vector<double> gate;
    double total = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      double score = 0;
      for (std::int64_t w = 0; w < s.width; ++w)
        score += v.x.at(row * s.width + w) * v.gate.at(w * s.experts + e);
      gate.push_back(std::exp(score));
      total += gate.back();
    }
    for (double& g : gate) g /= total;
    return gate;
  }
  void add_expert(const Sizes& s, const Values& v, std::int64_t row, std::int64_t e,
                  double weight) {
    for (std::int64_t h = 0; h < s.inner; ++h) {
      double sum = 0;
      for (std::int64_t w = 0; w < s.width; ++w)
        sum += v.x.at(row * s.width + w) * v.in.at((e * s.width + w) * s.inner + h);
      sum = std::max(sum, 0.0);
      for (std::int64_t w = 0; w < s.width; ++w)
        output[static_cast<std::size_t>(row * s.width + w)] +=
            weight * sum * v.out.at((e * s.inner + h) * s.width + w);
    }
  }
};

double sum_of_sizes(const Tensor& t) {
  double sum = 0;
  for (std::int64_t i = 0; i < t.elements(); ++i) sum += std::abs(t.at(i));
  return sum;
}

Counts all_to_alls(int n, Counts others = {}) {
  others["MeshAllToAll"] = n;
  return others;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_mixture_equals_a_loop_over_positions) {
  int dropped = 0;
  for (const Sizes& s : {Sizes{}, Sizes{1, 9, 4, 3, 2}, Sizes{3, 8, 2, 5, 4}, Sizes{2, 5, 3, 2, 1}})
    for (const int chosen : {1, 2})
      for (const double factor : {0.25, 1.0, 1.25, 9.0}) {
        const auto places = std::clamp<std::int64_t>(
            static_cast<std::int64_t>(std::ceil(factor * chosen * static_cast<double>(s.positions) /
                                                static_cast<double>(s.experts))),
            1, s.positions);
        const Plain wanted(s, Values(s), chosen, places);
        const std::vector<Tensor> got = run_whole(s, chosen, factor, false);
        check_values(got[0], wanted.output, 1e-12);
        check_values(got[1], {wanted.loss}, 1e-12);
        check_values(got[2], wanted.load, 0);
        dropped += wanted.dropped;
        if (factor == 9.0) BOOST_TEST(wanted.dropped == 0);
      }
  BOOST_TEST(dropped > 50);
}

BOOST_AUTO_TEST_CASE(a_mixture_and_its_gradients_have_the_values_of_jax) {
  {
    const std::vector<Tensor> got = run_whole({}, 1, 1.0, true);  // one place an expert and group
    check_values(got[0],
                 {0.03383179849,
                  0.06663405497,
                  0.049008987102,
                  0,
                  0,
                  0,
                  0.120414710405,
                  0.134339475642,
                  0.046598803978,
                  0,
                  0,
                  0,
                  -0.113946041147,
                  0.032665422901,
                  0.154556346133,
                  -0.159342859151,
                  -0.098221569928,
                  0.037231845219,
                  0.106965176336,
                  0.264179832928,
                  0.221468458792,
                  0.09463090712,
                  0.067473383913,
                  -0.010746651053},
                 1e-11);
    check_values(got[1], {1.260647388359}, 1e-11);
    check_values(got[2], {1, 1, 2, 2}, 0);
    check_values(
        got[3], {-0.700240823284, 0.289317338295,  0.189235919224, -0.104020811554, 0.094670608816,
                 0.005698065482,  -0.200486875054, 0.403764942628, -0.530647958963, -0.040162613725,
                 0.023244158006,  0.016021758671,  0.230524150797, -0.056748896118, -0.181477073251,
                 -0.050074647835, -0.151564518362, 0.317322822746, -1.866252726085, 1.527480683247,
                 -0.827725984918, 0.120904305918,  0.014450696429, -0.108027715885},
        1e-11);
    check_values(got[4],
                 {-0.284958173842, 0.098461252937, -0.119915820175, 0.30641274108, -0.139247090648,
                  0.017131712671, 0.095502675102, 0.026612702874, 0.210461306567, -0.089295826793,
                  0.171009527616, -0.292175007389},
                 1e-11);
    BOOST_TEST(std::abs(sum_of_sizes(got[5]) - 15.985624847424583) < 1e-11);
    BOOST_TEST(std::abs(sum_of_sizes(got[6]) - 8.013302324086732) < 1e-11);
  }
  const std::vector<Tensor> got = run_whole({}, 2, 1.0, true);  // two places
  check_values(got[0],
               {0.046766954332,  0.098441491606,  0.075617470616, -0.04547941576, 0.049487174801,
                0.107002858075,  -0.017835787445, 0.015331515531, 0.036896233211, 0.005818737835,
                -0.00090148812,  -0.006939485838, -0.17637812253, 0.028131458344, 0.211351712387,
                -0.173415770443, -0.106896344862, 0.040520103367, 0.089268969661, 0.262301687105,
                0.236829717136,  -0.004806174806, 0.034841957683, 0.048122391225},
               1e-11);
  check_values(got[2], {4, 4, 3, 3}, 0);
  check_values(got[3],
               {-1.043189381549, 0.336430523952,  0.425226268909,  -0.339316128688, 0.184892284005,
                -0.036362244889, 0.101695706514,  -0.085472744407, 0.055285432781,  -0.108085560631,
                0.114530212926,  -0.083454771951, 0.27915962151,   0.091746700949,  -0.541137188503,
                -0.031677508599, -0.145149263104, 0.301366707181,  -1.715796744268, 1.411917813688,
                -0.721793840505, 0.454163079596,  -0.517206918177, 0.511959255753},
               1e-11);
  check_values(got[4],
               {-0.517625242781, 0.097180906867, -0.084081068453, 0.504525404367, -0.191275723886,
                -0.047500359351, 0.131278238732, 0.107497844506, 0.415293178613, -0.122593487839,
                0.154314618622, -0.447014309397},
               1e-11);
  BOOST_TEST(std::abs(sum_of_sizes(got[5]) - 31.131285522573016) < 1e-11);
  BOOST_TEST(std::abs(sum_of_sizes(got[6]) - 18.25038064667588) < 1e-11);
}

BOOST_AUTO_TEST_CASE(experts_and_positions_meet_by_all_to_alls) {
  for (const int chosen : {1, 2}) {
    const auto build_one = [&](bool with_gradients) {
      return [=](Graph& g) { return build(g, {4, 8, 4, 4, 4}, chosen, 1.0, with_gradients); };
    };
    // The gate's columns and the results are gathered; the loss and the load are sums.
    check(build_one(false), {{"p:2", "experts:p", {{"MeshAllGather", 2}}},
                             {"p:4", "experts:p", {{"MeshAllGather", 2}}},
                             {"p:2", "batch:p;experts/group:p", all_reduces(2)},
                             {"p:2", "batch:p;experts:p",
                              all_to_alls(2, {{"MeshAllReduce", 2}, {"MeshAllGather", 1}})},
                             {"p:4", "batch:p;experts:p",
                              all_to_alls(2, {{"MeshAllReduce", 2}, {"MeshAllGather", 1}})}});
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_a_mixture_are_equal_under_every_layout) {
  const Sizes s{4, 8, 4, 4, 4};
  for (const int chosen : {1, 2}) {
    const std::vector<Tensor> wanted = run_whole(s, chosen, 1.0, true);
    for (const Place& place : places()) {
      std::unique_ptr<Nodes> nodes;
      std::unique_ptr<Engine> alone;
      if (place.nodes > 1) nodes = std::make_unique<Nodes>(place.nodes);
      else alone = std::make_unique<Engine>();
      for (const auto& [axes, layout] :
           {std::pair("p:2", "experts:p"), std::pair("p:4", "batch:p;experts:p"),
            std::pair("p:2", "inner:p"), std::pair("p:4", "width:p"), std::pair("p:2", "length:p"),
            std::pair("r:2;c:2", "batch:r;experts:r;inner:c"),
            std::pair("r:2;c:2", "batch:r;experts:c;experts/group:r")}) {
        Graph g;
        const MeshCase c = build(g, s, chosen, 1.0, true);
        const std::vector<Tensor> got = run(nodes ? nodes->engine() : *alone, g, c,
                                            Partitioning{mesh_of(axes, place), Layout(layout)});
        for (std::size_t i = 0; i < wanted.size(); ++i)
          check_close(got[i], wanted[i], 1e-12,
                      place.name + ", mesh " + axes + ", layout '" + layout + "', fetch " +
                          std::to_string(i));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_goes_back_by_two_more_all_to_alls) {
  Graph g;
  const MeshCase c = build(g, {4, 8, 4, 4, 4}, 2, 1.0, true);
  const auto spmd =
      spmd_of(g, fed(c), c.fetches, {mesh_of("p:4", places()[0]), Layout("batch:p;experts:p")});
  Counts counts = counts_of(spmd);
  if (counts["MeshAllToAll"] != 4)
    for (const std::string& line : spmd.told) BOOST_TEST_MESSAGE(line);
  BOOST_TEST(counts["MeshAllToAll"] == 4);
}

// All positions choose the first of equal experts: more of them than bf16 can count.
BOOST_AUTO_TEST_CASE(places_are_counted_exactly_in_low_precision) {
  const Dim batch{"batch", 2}, length{"length", 600}, width{"width", 2}, experts{"experts", 2},
      inner{"inner", 2};
  Graph g;
  const auto filled = [&](const Dims& dims, double value) {
    Shape shape;
    for (const Dim& d : dims) shape.push_back(d.size);
    return mesh::named(cast(g.constant(counted(shape, 0, value)), DType::bf16), dims);
  };
  const mesh::Mixture m = mesh::mixture_of_experts(
      filled({batch, length, width}, 1), filled({width, experts}, 0),
      filled({experts, width, inner}, 1), filled({experts, inner, width}, 1),
      {.experts = experts, .chosen = 1, .capacity_factor = 2});
  BOOST_TEST((m.output.dtype() == DType::bf16));
  Engine engine;
  const std::vector<Tensor> got =
      engine.compile(g, {}, {m.load, m.loss, cast(m.output, DType::f64)})({});
  check_values(got[0], {1200, 0});
  check_values(got[1], {1});
  check_values(got[2], std::vector<double>(2400, 2));  // half of 4
}

BOOST_AUTO_TEST_CASE(a_large_capacity_factor_gives_a_place_to_each_position) {
  const Dim group{"group", 2}, width{"width", 2}, experts{"experts", 2};
  const auto capacity = [&](std::int64_t positions, double factor) {
    Graph g;
    const Dim here{"position", positions};
    const Expr x = mesh::named(g.constant(counted({2, positions, 2})), {group, here, width});
    const Expr gate = mesh::named(g.constant(counted({2, 2})), {width, experts});
    return mesh::route(x, gate, {.experts = experts, .chosen = 1, .capacity_factor = factor})
        .capacity.size;
  };
  BOOST_TEST(capacity(3, 1e300) == 3);
  BOOST_TEST(capacity(3, 1.25) == 2);
}

BOOST_AUTO_TEST_CASE(mixtures_that_do_not_fit_are_refused_with_the_line) {
  const Dim batch{"batch", 2}, length{"length", 4}, width{"width", 4}, experts{"experts", 2},
      inner{"inner", 4};
  Graph g;
  const auto made = [&](const char* name, const Dims& dims, DType dtype = DType::f32) {
    Shape shape;
    for (const Dim& d : dims) shape.push_back(d.size);
    return mesh::named(g.input(name, dtype, shape), dims);
  };
  const Expr x = made("x", {batch, length, width}), gate = made("gate", {width, experts}),
             in = made("in", {experts, width, inner}), out = made("out", {experts, inner, width});
  const auto call = [&](const Expr& a, const Expr& b, const Expr& c, const Expr& d,
                        mesh::MixtureOptions o) { mesh::mixture_of_experts(a, b, c, d, o); };
  const char* here = "mesh_mixture_test.cpp:";
  check_refused([&] { call(gate, gate, in, out, {experts}); }, {here, "needs three with names"});
  check_refused([&] { call(x, in, in, out, {experts}); },
                {here, "the gate has the dimensions", "needs width:4;experts:2"});
  check_refused([&] { call(x, gate, out, out, {experts}); }, {here, "`in` has the dimensions"});
  check_refused([&] { call(x, gate, in, in, {experts}); }, {here, "`out` has the dimensions"});
  check_refused([&] { call(x, gate, in, out, {experts, 3}); }, {here, "choose 1 or 2"});
  check_refused([&] { call(x, gate, in, out, {experts, 1, 0.0}); }, {here, "capacity factor is 0"});
  check_refused(
      [&] {
        call(made("i", {batch, length, width}, DType::i64), gate, in, out, {experts});
      },
      {here, "needs a floating dtype"});
}

BOOST_AUTO_TEST_SUITE_END()
