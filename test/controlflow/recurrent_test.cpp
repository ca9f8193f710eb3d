// Recurrent layers against plain loops over doubles: every way to run, lengths, both directions,
// extents that are unknown while the graph is built; and their gradients against differences.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/test/controlflow/everywhere.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

constexpr std::int64_t kTime = 4, kBatch = 3, kFeatures = 2, kUnits = 5;

// Numbers between -scale and scale, the same every time.
std::vector<double> pattern(std::int64_t n, double scale, int seed) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(scale * std::sin(1.7 * static_cast<double>(i) + seed));
  return out;
}
Tensor f32(const std::vector<double>& v, const Shape& shape) {
  std::vector<float> out(v.begin(), v.end());
  return Tensor::of<float>(out, shape);
}
double logistic(double v) { return 1 / (1 + std::exp(-v)); }

// Row-major [rows, columns].
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> v;
  double& operator()(std::int64_t i, std::int64_t j) { return v[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return v[static_cast<std::size_t>(i * columns + j)]; }
};

struct Case {
  int gates;
  std::int64_t time = kTime;
  bool reverse = false;
  std::vector<std::int64_t> lengths = {};
  bool initial = false;
  Matrix input{kFeatures, gates * kUnits, pattern(kFeatures * gates * kUnits, 0.8, 1)};
  Matrix recurrent{kUnits, gates * kUnits, pattern(kUnits * gates * kUnits, 0.5, 2)};
  std::vector<double> bias = pattern(gates * kUnits, 0.3, 3);
  std::vector<double> x = pattern(time * kBatch * kFeatures, 1.0, 4);
  std::vector<double> h0 = pattern(kBatch * kUnits, initial ? 0.4 : 0.0, 5), c0 = pattern(kBatch * kUnits, initial ? 0.7 : 0.0, 6);
};

struct Reference {
  std::vector<double> outputs, h, c;
};

// One example after the other, one element after the other.
Reference plain(const Case& k) {
  Reference r{std::vector<double>(static_cast<std::size_t>(k.time * kBatch * kUnits), 0.0), k.h0, k.c0};
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const std::int64_t length = k.lengths.empty() ? k.time : std::min(k.time, k.lengths[static_cast<std::size_t>(b)]);
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t t = k.reverse ? length - 1 - step : step;
      auto at = [&](std::int64_t u) { return static_cast<std::size_t>(b * kUnits + u); };
      auto of_input = [&](std::int64_t column) {
        double s = k.bias[static_cast<std::size_t>(column)];
        for (std::int64_t f = 0; f < kFeatures; ++f) s += k.x[static_cast<std::size_t>((t * kBatch + b) * kFeatures + f)] * k.input(f, column);
        return s;
      };
      const std::vector<double> before = r.h;
      auto of_state = [&](std::int64_t column) {
        double s = 0;
        for (std::int64_t u = 0; u < kUnits; ++u) s += before[at(u)] * k.recurrent(u, column);
        return s;
      };
      for (std::int64_t u = 0; u < kUnits; ++u) {
        auto gate = [&](int g) { return of_input(g * kUnits + u) + of_state(g * kUnits + u); };
        if (k.gates == 4) {
          r.c[at(u)] = logistic(gate(1)) * r.c[at(u)] + logistic(gate(0)) * std::tanh(gate(2));
          r.h[at(u)] = logistic(gate(3)) * std::tanh(r.c[at(u)]);
        } else {
          const double update = logistic(gate(1)), candidate = std::tanh(of_input(2 * kUnits + u) + logistic(gate(0)) * of_state(2 * kUnits + u));
          r.h[at(u)] = update * before[at(u)] + (1 - update) * candidate;
        }
        r.outputs[static_cast<std::size_t>((t * kBatch + b) * kUnits + u)] = r.h[at(u)];
      }
    }
  }
  return r;
}

// The same as a graph. `open`: neither time nor batch is known while it is built.
Scenario built(Graph& g, const Case& k, bool open, DType lengths_dtype = DType::i64) {
  Expr x = g.input("x", DType::f32, open ? Shape{kAny, kAny, kFeatures} : Shape{k.time, kBatch, kFeatures});
  Scenario s{{{x, f32(k.x, {k.time, kBatch, kFeatures})}}, {}};
  RnnOptions options{.name = "layer", .reverse = k.reverse};
  if (!k.lengths.empty()) {
    options.lengths = g.input("lengths", lengths_dtype, open ? Shape{kAny} : Shape{kBatch});
    std::vector<std::int32_t> narrow(k.lengths.begin(), k.lengths.end());
    s.feeds.push_back({options.lengths, lengths_dtype == DType::i64 ? Tensor::of(k.lengths, Shape{kBatch}) : Tensor::of(narrow, Shape{kBatch})});
  }
  Variable wx = g.variable("wx", f32(k.input.v, {kFeatures, k.gates * kUnits})), wh = g.variable("wh", f32(k.recurrent.v, {kUnits, k.gates * kUnits}));
  Variable b = g.variable("b", f32(k.bias, {k.gates * kUnits}));
  LstmState first{g.constant(f32(k.h0, {kBatch, kUnits})), g.constant(f32(k.c0, {kBatch, kUnits}))};
  if (k.gates == 4) {
    auto [outputs, last] = k.initial ? lstm(x, {wx, wh, b}, first, options) : lstm(x, {wx, wh, b}, options);
    s.fetches = {outputs, last.h, last.c};
  } else {
    auto [outputs, last] = k.initial ? gru(x, {wx, wh, b}, first.h, options) : gru(x, {wx, wh, b}, options);
    s.fetches = {outputs, last};
  }
  return s;
}

void agrees(const Case& k, DType lengths_dtype = DType::i64, std::initializer_list<bool> open_or_not = {false, true}) {
  const Reference r = plain(k);
  std::vector<std::vector<double>> expected{r.outputs, r.h};
  if (k.gates == 4) expected.push_back(r.c);
  for (bool open : open_or_not) everywhere([&](Graph& g) { return built(g, k, open, lengths_dtype); }, expected);
}

// Differentiated with respect to x, the weights and the initial state.
void differentiates(int gates, bool reverse, bool with_lengths) {
  auto tensor = [](const std::vector<double>& v, const Shape& shape) { return Tensor::of<double>(v, shape); };
  const Case k{.gates = gates, .time = 3, .initial = true};
  const std::int64_t units = 2, columns = gates * units;
  std::vector<Tensor> xs{tensor(pattern(3 * 2 * kFeatures, 1, 4), {3, 2, kFeatures}), tensor(pattern(kFeatures * columns, 0.8, 1), {kFeatures, columns}),
                         tensor(pattern(units * columns, 0.5, 2), {units, columns}), tensor(pattern(columns, 0.3, 3), {columns}),
                         tensor(pattern(2 * units, 0.4, 5), {2, units}), tensor(pattern(2 * units, 0.7, 6), {2, units})};
  auto f = [&](Graph& g, const Exprs& in) {
    RnnOptions options{.reverse = reverse};
    if (with_lengths) options.lengths = g.constant(Tensor::of<std::int64_t>({2, 3}, {2}));
    if (gates == 3) {
      auto [outputs, last] = gru(in[0], {in[1], in[2], in[3]}, in[4], options);
      return concat({reshape(outputs, {kAny}), reshape(last * in[5], {kAny})}, 0);
    }
    auto [outputs, last] = lstm(in[0], {in[1], in[2], in[3]}, LstmState{in[4], in[5]}, options);
    return concat({reshape(outputs, {kAny}), reshape(last.h * last.c, {kAny})}, 0);
  };
  CheckReport r = check_gradients(f, xs, {.order = with_lengths ? 1 : 2});
  BOOST_TEST(r.ok(), r.text);
  BOOST_TEST(r.compared > 0);
  r = check_dot_product(f, xs);
  BOOST_TEST(r.ok(), r.text);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recurrent_test)

BOOST_AUTO_TEST_CASE(an_lstm_is_what_its_formulas_say) {
  agrees({.gates = 4});
  agrees({.gates = 4, .initial = true});
  agrees({.gates = 4, .reverse = true, .initial = true});
}

BOOST_AUTO_TEST_CASE(a_gru_is_what_its_formulas_say) {
  agrees({.gates = 3});
  agrees({.gates = 3, .reverse = true, .initial = true});
}

BOOST_AUTO_TEST_CASE(each_example_as_long_as_it_is) {
  agrees({.gates = 4, .lengths = {2, 4, 0}, .initial = true});
  agrees({.gates = 4, .reverse = true, .lengths = {1, 9, 3}, .initial = true}, DType::i32);
  agrees({.gates = 3, .lengths = {3, 0, 1}, .initial = true});
}

BOOST_AUTO_TEST_CASE(no_time_at_all_leaves_the_state) {  // nothing tells the outputs' shape then but the graph
  agrees({.gates = 4, .time = 0, .initial = true}, DType::i64, {false});
  agrees({.gates = 4, .time = 0}, DType::i64, {false});
  agrees({.gates = 4, .time = 0, .reverse = true, .lengths = {0, 1, 2}}, DType::i64, {false});
}

BOOST_AUTO_TEST_CASE(one_graph_takes_sequences_of_any_length) {
  Graph g;
  Scenario s = built(g, {.gates = 4}, true);
  Engine engine;
  Function run = engine.compile(g, {s.feeds[0].first}, s.fetches);
  for (std::int64_t time : {4, 1, 7}) {
    const Case k{.gates = 4, .time = time};
    const Reference r = plain(k);
    compare(run({f32(k.x, {time, kBatch, kFeatures})}), {r.outputs, r.h, r.c}, "time " + std::to_string(time));
  }
}

BOOST_AUTO_TEST_CASE(cells_alone) {
  const Case l{.gates = 4, .time = 1, .initial = true}, u{.gates = 3, .time = 1, .initial = true};
  everywhere([&](Graph& g) -> Scenario {
    auto cell_of = [&](const Case& k) {
      return RecurrentWeights{f32(k.input.v, {kFeatures, k.gates * kUnits}), f32(k.recurrent.v, {kUnits, k.gates * kUnits}), f32(k.bias, {k.gates * kUnits})};
    };
    Expr x = g.constant(f32(l.x, {kBatch, kFeatures})), h = g.constant(f32(l.h0, {kBatch, kUnits})), c = g.constant(f32(l.c0, {kBatch, kUnits}));
    LstmState next = lstm_cell(x, {h, c}, cell_of(l));
    return {{}, {next.h, next.c, gru_cell(x, h, cell_of(u))}};
  }, {plain(l).h, plain(l).c, plain(u).h});
}

BOOST_AUTO_TEST_CASE(a_cell_of_ones_own) {
  // h' = h + sum of the element, c' = 2 c: two parts of unlike rank, a structure of elements.
  for (bool reverse : {false, true})
    everywhere([&](Graph& g) -> Scenario {
      Expr a = g.constant(f32({1, 2, 3, 4, 5, 6}, {3, 2, 1})), b = g.constant(f32({10, 20, 30, 40, 50, 60}, {3, 2}));
      auto [outputs, last] = dynamic_rnn([](std::tuple<Expr, Expr> s, std::tuple<Expr, Expr> e) {
        return std::tuple{std::get<0>(s) + std::get<0>(e) + expand_dims(std::get<1>(e), 1), std::get<1>(s) * 2.0};
      }, std::tuple{a, b}, std::tuple{g.zeros(DType::f32, {2, 1}), g.ones(DType::f32, {2})},
          {.lengths = g.constant(Tensor::of<std::int64_t>({3, 1}, {2})), .reverse = reverse});
      return {{}, {outputs, std::get<0>(last), std::get<1>(last)}};
    }, reverse ? std::vector<std::vector<double>>{{99, 22, 88, 0, 55, 0}, {99, 22}, {8, 2}}
               : std::vector<std::vector<double>>{{11, 22, 44, 0, 99, 0}, {99, 22}, {8, 2}});
}

BOOST_AUTO_TEST_CASE(eager) {
  const Case k{.gates = 4, .lengths = {2, 4, 1}};
  const Reference r = plain(k);
  Eager e;
  RecurrentWeights w{f32(k.input.v, {kFeatures, 4 * kUnits}), f32(k.recurrent.v, {kUnits, 4 * kUnits}), f32(k.bias, {4 * kUnits})};
  auto [outputs, last] = lstm(e.constant(f32(k.x, {kTime, kBatch, kFeatures})), w, {.lengths = e.constant(Tensor::of(k.lengths, Shape{kBatch}))});
  compare({outputs.value(), last.h.value(), last.c.value()}, {r.outputs, r.h, r.c}, "eager");
  auto none = lstm(e.zeros(DType::f32, {0, kBatch, kFeatures}), w);
  BOOST_TEST(none.outputs.shape().text() == "[0, 3, 5]");
  BOOST_TEST(none.state.h.shape().text() == "[3, 5]");
}

BOOST_AUTO_TEST_CASE(gradients_are_those_of_differences) {
  for (bool reverse : {false, true})
    for (bool with_lengths : {false, true}) differentiates(4, reverse, with_lengths);
  differentiates(3, false, false);
  differentiates(3, true, true);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  Graph g;
  auto in = [&](const char* name, const Shape& s, DType t = DType::f32) { return g.input(name, t, s); };
  Expr x = in("x", {kAny, 3, 2}), wx = in("wx", {2, 20}), wh = in("wh", {5, 20}), b = in("b", {20}), h = in("h", {3, 5});
  BOOST_TEST(says(refused([&] { lstm(in("flat", {3, 2}), {wx, wh, b}); }), {"lstm (recurrent_test.cpp:", "'x' must be [time, batch, features], not [3, 2]"}));
  BOOST_TEST(says(refused([&] { lstm(in("wide", {kAny, 3, 4}), {wx, wh, b}, {.name = "enc"}); }), {"lstm 'enc' (recurrent_test.cpp:", "'x' is [?, 3, 4]: 4 features, but 'input' is [2, 20]"}));
  BOOST_TEST(says(refused([&] { lstm(x, {wx, wh, in("b2", {24})}); }), {"'bias' is [24], which makes 6 units, but 'input' makes 5"}));
  BOOST_TEST(says(refused([&] { lstm(x, {wx, in("wh2", {5, 18}), b}); }), {"'recurrent' is [5, 18]", "no multiple of the 4 gates"}));
  BOOST_TEST(says(refused([&] { lstm(x, {wx, wh, b}, {h, in("c", {3, 4})}); }), {"lstm (", "'initial.c' is [3, 4], which makes 4 units"}));
  BOOST_TEST(says(refused([&] { gru(x, {wx, wh, b}); }), {"gru (recurrent_test.cpp:", "20", "3 gates"}));
  Expr open = in("open", Shape{kAny, kAny});
  BOOST_TEST(says(refused([&] { lstm(x, {open, open, in("b3", {kAny})}); }), {"lstm (", "the number of units is not known", "'recurrent'"}));
  BOOST_TEST(says(refused([&] { lstm(x, {wx, wh, b}, {.lengths = h}); }), {"lstm (", "'lengths' must be i32 or i64, [batch], not f32[3, 5]"}));
  BOOST_TEST(says(refused([&] { lstm(x, {wx, wh, b}, {.name = "enc", .lengths = in("four", {4}, DType::i64)}); }),
                  {"lstm 'enc' (recurrent_test.cpp:", "'lengths' is i64[4]", "a batch of 3"}));
  BOOST_TEST(says(refused([&] { lstm_cell(h, {h, h}, {wx, wh, b}); }), {"lstm_cell (recurrent_test.cpp:", "5 features"}));
  BOOST_TEST(says(refused([&] { dynamic_rnn([](Expr s, Expr e) { return s + e; }, x, in("s", Shape::unknown()), {.lengths = in("n", {3}, DType::i64)}); }),
                  {"dynamic_rnn (recurrent_test.cpp:", "known rank"}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
