// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Recurrent layers against plain loops over doubles: every way to run, lengths, both directions,
// extents that are unknown while the graph is built, as a loop and fused into one op; and their
// gradients against differences.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(recurrent_test)

namespace {

constexpr std::int64_t kTime = 4, kBatch = 3, kFeatures = 2, kUnits = 5;

// Numbers between -scale and scale, the same every time.
std::vector<double> pattern(std::int64_t n, double scale, int seed) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(scale * std::sin(1.7 * static_cast<double>(i) + seed));
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
  double& operator()(std::int64_t i, std::int64_t j) {
    return v[static_cast<std::size_t>(i * columns + j)];
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return v[static_cast<std::size_t>(i * columns + j)];
  }
};

struct Case {
  int gates;
  std::int64_t time = kTime;
  bool reverse = false;
  std::vector<std::int64_t> lengths = {};
  bool initial = false;
  bool fused = false;
  Matrix input{kFeatures, gates* kUnits, pattern(kFeatures* gates* kUnits, 0.8, 1)};
  Matrix recurrent{kUnits, gates* kUnits, pattern(kUnits* gates* kUnits, 0.5, 2)};
  std::vector<double> bias = pattern(gates * kUnits, 0.3, 3);
  std::vector<double> x = pattern(time * kBatch * kFeatures, 1.0, 4);
  std::vector<double> h0 = pattern(kBatch * kUnits, initial ? 0.4 : 0.0, 5),
                      c0 = pattern(kBatch * kUnits, initial ? 0.7 : 0.0, 6);
};

struct Reference {
  std::vector<double> outputs, h, c;
};

// One example after the other, one element after the other.
Reference plain(const Case& k) {
  Reference r{std::vector<double>(static_cast<std::size_t>(k.time * kBatch * kUnits), 0.0), k.h0,
              k.c0};
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const std::int64_t length =
        k.lengths.empty() ? k.time : std::min(k.time, k.lengths[static_cast<std::size_t>(b)]);
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t t = k.reverse ? length - 1 - step : step;
      auto at = [&](std::int64_t u) { return static_cast<std::size_t>(b * kUnits + u); };
      auto of_input = [&](std::int64_t column) {
        double s = k.bias[static_cast<std::size_t>(column)];
        for (std::int64_t f = 0; f < kFeatures; ++f)
          s += k.x[static_cast<std::size_t>((t * kBatch + b) * kFeatures + f)] * k.input(f, column);
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
        } else if (k.gates == 1) {
          r.h[at(u)] = std::tanh(gate(0));
        } else {
          const double update = logistic(gate(1)),
                       candidate = std::tanh(of_input(2 * kUnits + u) +
                                             logistic(gate(0)) * of_state(2 * kUnits + u));
          r.h[at(u)] = update * before[at(u)] + (1 - update) * candidate;
        }
        r.outputs[static_cast<std::size_t>((t * kBatch + b) * kUnits + u)] = r.h[at(u)];
      }
    }
  }
  return r;
}

// Builds the layer as a graph. `open`: neither time nor batch is known while it is built.
Scenario built(Graph& g, const Case& k, bool open, DType lengths_dtype = DType::i64) {
  Expr x = g.input("x", DType::f32,
                   open ? Shape{kAny, kAny, kFeatures} : Shape{k.time, kBatch, kFeatures});
  Scenario s{{{x, f32(k.x, {k.time, kBatch, kFeatures})}}, {}};
  RnnOptions options{.name = "layer", .reverse = k.reverse, .fused = k.fused};
  if (!k.lengths.empty()) {
    options.lengths = g.input("lengths", lengths_dtype, open ? Shape{kAny} : Shape{kBatch});
    std::vector<std::int32_t> narrow(k.lengths.begin(), k.lengths.end());
    s.feeds.push_back({options.lengths, lengths_dtype == DType::i64
                                            ? Tensor::of(k.lengths, Shape{kBatch})
                                            : Tensor::of(narrow, Shape{kBatch})});
  }
  Variable wx = g.variable("wx", f32(k.input.v, {kFeatures, k.gates * kUnits})),
           wh = g.variable("wh", f32(k.recurrent.v, {kUnits, k.gates * kUnits}));
  Variable b = g.variable("b", f32(k.bias, {k.gates * kUnits}));
  LstmState first{g.constant(f32(k.h0, {kBatch, kUnits})), g.constant(f32(k.c0, {kBatch, kUnits}))};
  if (k.gates == 4) {
    auto [outputs, last] =
        k.initial ? lstm(x, {wx, wh, b}, first, options) : lstm(x, {wx, wh, b}, options);
    s.fetches = {outputs, last.h, last.c};
  } else if (k.gates == 1) {
    auto [outputs, last] = k.initial ? rnn(x, {wx, wh, b}, first.h, RnnActivation::tanh, options)
                                     : rnn(x, {wx, wh, b}, RnnActivation::tanh, options);
    s.fetches = {outputs, last};
  } else {
    auto [outputs, last] =
        k.initial ? gru(x, {wx, wh, b}, first.h, options) : gru(x, {wx, wh, b}, options);
    s.fetches = {outputs, last};
  }
  return s;
}

// As a loop, and fused.
void agrees(Case k, DType lengths_dtype = DType::i64,
            std::initializer_list<bool> open_or_not = {false, true}) {
  const Reference r = plain(k);
  std::vector<std::vector<double>> expected{r.outputs, r.h};
  if (k.gates == 4) expected.push_back(r.c);
  for (const bool fused : {false, true}) {
    k.fused = fused;
    for (bool open : open_or_not)
      run_all_configurations([&](Graph& g) { return built(g, k, open, lengths_dtype); }, expected);
  }
}

// A layer and what it is differentiated with respect to: x, weights and initial state; all that it
// puts out in a row.
struct Layer {
  int gates;  // 0: of max(0, x)
  bool reverse = false, with_lengths = false, fused = false;
  std::int64_t time = 3, batch = 2, features = kFeatures, units = 2;

  std::vector<Tensor> inputs(DType dtype = DType::f64) const {
    const std::int64_t columns = std::max(1, gates) * units;
    const double scale = std::sqrt(0.5 / static_cast<double>(units));
    auto tensor = [&](const Shape& shape, double most, int seed) {
      const std::vector<double> v = pattern(shape.elements(), most, seed);
      return dtype == DType::f64 ? Tensor::of(v, shape) : f32(v, shape);
    };
    return {tensor({time, batch, features}, 1, 4), tensor({features, columns}, 0.8, 1),
            tensor({units, columns}, scale, 2),    tensor({columns}, 0.3, 3),
            tensor({batch, units}, 0.4, 5),        tensor({batch, units}, 0.7, 6)};
  }
  Expr operator()(Graph& g, const Exprs& in) const {
    RnnOptions options{.reverse = reverse, .fused = fused};
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < batch; ++b) lengths.push_back(time - b % (time + 1));
    if (with_lengths) options.lengths = g.constant(Tensor::of(lengths, Shape{batch}));
    auto flat = [](const Expr& e) { return reshape(e, {kAny}); };
    const RecurrentWeights w{in[1], in[2], in[3]};
    if (gates == 4) {
      auto [outputs, last] = lstm(in[0], w, LstmState{in[4], in[5]}, options);
      return concat({flat(outputs), flat(last.h * last.c)}, 0);
    }
    auto [outputs, last] =
        gates == 3
            ? gru(in[0], w, in[4], options)
            : rnn(in[0], w, in[4], gates == 1 ? RnnActivation::tanh : RnnActivation::relu, options);
    return concat({flat(outputs), flat(last * in[5])}, 0);
  }
};

void differentiates(const Layer& layer) {
  const bool second = !layer.with_lengths && !layer.fused;
  const std::vector<Tensor> xs = layer.inputs();
  CheckReport r = check_gradients(layer, xs, {.order = second ? 2 : 1});
  BOOST_TEST(r.ok(), r.text);
  BOOST_TEST(r.compared > 0);
  if (layer.fused) return;  // the check goes backwards twice
  r = check_dot_product(layer, xs);
  BOOST_TEST(r.ok(), r.text);
}

/// Returns the layer's outputs, then the gradients of its weighted sum, so that two layers of one
/// kind can be compared.
std::vector<Tensor> with_gradients(const Layer& layer, DType dtype = DType::f64, int workers = 1) {
  Graph g;
  Exprs in;
  Feeds feeds;
  for (const Tensor& t : layer.inputs(dtype)) {
    in.push_back(g.input("x" + std::to_string(in.size()), dtype, t.shape()));
    feeds.emplace_back(in.back(), t);
  }
  const Expr y = layer(g, in);
  Exprs fetches{y};
  for (const Expr& d : gradients(sum(y * sin(cumsum(ones_like(y), 0))), in)) fetches.push_back(d);
  EngineOptions options;
  options.workers = workers;
  Engine engine(options);
  return engine.run(g, feeds, fetches);
}

void close(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double tolerance,
           const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    double largest = 1, worst = 0;
    BOOST_REQUIRE_EQUAL(got[k].elements(), wanted[k].elements());
    for (std::int64_t i = 0; i < got[k].elements(); ++i) {
      largest = std::max(largest, std::abs(wanted[k].at(i)));
      const double off = std::abs(got[k].at(i) - wanted[k].at(i));
      worst = off >= 0 ? std::max(worst, off) : INFINITY;
    }
    BOOST_TEST(worst <= tolerance * largest,
               where << ", value " << k << ": off by " << worst << " of " << largest);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_lstm_equals_its_formulas) {
  agrees({.gates = 4});
  agrees({.gates = 4, .initial = true});
  agrees({.gates = 4, .reverse = true, .initial = true});
}

BOOST_AUTO_TEST_CASE(a_gru_equals_its_formulas) {
  agrees({.gates = 3});
  agrees({.gates = 3, .reverse = true, .initial = true});
}

BOOST_AUTO_TEST_CASE(a_plain_layer_equals_its_formula) {
  agrees({.gates = 1});
  agrees({.gates = 1, .reverse = true, .lengths = {1, 9, 0}, .initial = true});
}

BOOST_AUTO_TEST_CASE(each_example_as_long_as_it_is) {
  agrees({.gates = 4, .lengths = {2, 4, 0}, .initial = true});
  agrees({.gates = 4, .reverse = true, .lengths = {1, 9, 3}, .initial = true}, DType::i32);
  agrees({.gates = 3, .lengths = {3, 0, 1}, .initial = true});
}

BOOST_AUTO_TEST_CASE(
    no_time_at_all_leaves_the_state) {  // nothing tells the outputs' shape then but the graph
  agrees({.gates = 4, .time = 0, .initial = true}, DType::i64, {false});
  agrees({.gates = 4, .time = 0}, DType::i64, {false});
  agrees({.gates = 4, .time = 0, .reverse = true, .lengths = {0, 1, 2}}, DType::i64, {false});
}

BOOST_AUTO_TEST_CASE(one_graph_takes_sequences_of_any_length) {
  for (const bool fused : {false, true}) {
    Graph g;
    Scenario s = built(g, {.gates = 4, .fused = fused}, true);
    Engine engine;
    Function run = engine.compile(g, {s.feeds[0].first}, s.fetches);
    for (std::int64_t time : {4, 1, 7}) {
      const Case k{.gates = 4, .time = time};
      const Reference r = plain(k);
      compare(run({f32(k.x, {time, kBatch, kFeatures})}), {r.outputs, r.h, r.c},
              "time " + std::to_string(time));
    }
  }
}

BOOST_AUTO_TEST_CASE(cells_alone) {
  const Case l{.gates = 4, .time = 1, .initial = true}, u{.gates = 3, .time = 1, .initial = true},
      v{.gates = 1, .time = 1, .initial = true};
  run_all_configurations(
      [&](Graph& g) -> Scenario {
        auto cell_of = [&](const Case& k) {
          return RecurrentWeights{f32(k.input.v, {kFeatures, k.gates * kUnits}),
                                  f32(k.recurrent.v, {kUnits, k.gates * kUnits}),
                                  f32(k.bias, {k.gates * kUnits})};
        };
        Expr x = g.constant(f32(l.x, {kBatch, kFeatures})),
             h = g.constant(f32(l.h0, {kBatch, kUnits})),
             c = g.constant(f32(l.c0, {kBatch, kUnits}));
        LstmState next = lstm_cell(x, {h, c}, cell_of(l));
        return {{}, {next.h, next.c, gru_cell(x, h, cell_of(u)), rnn_cell(x, h, cell_of(v))}};
      },
      {plain(l).h, plain(l).c, plain(u).h, plain(v).h});
}

// The results of torch 2.15 for these numbers with LSTMCell, GRUCell and RNNCell (no bias of the
// product with the state), and the derivatives by differences.
BOOST_AUTO_TEST_CASE(cells_are_those_of_torch) {
  constexpr std::int64_t batch = 2, features = 3, units = 2;
  // The new state (h, c), then the gradients of its weighted sum with respect to x, h and the
  // recurrent weights.
  const std::pair<std::string, std::vector<std::vector<double>>> cells[] = {
      {"lstm",
       {{-0.306908269447663, 0.1746154469806653, -0.02059880416542724, -0.01910112599807037},
        {-0.3949346407459727, 0.3763850305510636, -0.04099159706466449, -0.04836070184187177},
        {-0.06240115510830391, -0.0821830076421409, -0.02170559113627873, -0.4094065241720575,
         0.1097760823663855, 0.5217522434175493},
        {-0.0518330279348108, -0.01529678979878841, 0.05718356242898717, 0.3220656260845043},
        {0.08817672434622929, 0.001655614852611471, 0.01282938330934285, -0.01972666642374707,
         -0.2024427841630756, -0.1919341522706788, 0.01704389597918634, -0.02106449625159412,
         -0.04106044176015186, 0.005728150507272137, -0.004853508886527034, -0.002775785028475249,
         0.1403805267474802, 0.1135155617960692, -0.008092020888639551, 0.008344238266071427}}},
      {"gru",
       {{-0.3756037421157948, -0.08161829628254269, 0.5767800607086446, -0.3886669289995963},
        {0.1891405269697903, -0.1804699189430518, 0.06866640168051971, -0.3062210489987869,
         0.2304965744295163, -0.02305052305108232},
        {0.4300170684958717, 0.4585026723874981, -0.3232227469972183, -0.3207631679175256},
        {0.0008140577906996817, 0.0004918773181499809, 0.01845671109092209, -0.06188105159200354,
         -0.1454275601409729, -0.0120021151596809, 0.0001845721758294472, -0.0006178748952179408,
         -0.01316769385288128, 0.03078335261828543, 0.08940852975540679, 0.007405520104411039}}},
      {"tanh",
       {{0.4078753534380731, -0.3556274135379197, 0.8345544944499996, -0.2218753852604164},
        {0.5666957787089141, -0.5013410226455873, 0.4026954104104705, -0.3153109921387466,
         0.2535816216781809, -0.1750135148809211},
        {0.09558587309577476, -0.0005358772938725553, -0.0009798113365326044, -0.05873872587432355},
        {-0.2959677459305686, -0.3682745040451462, 0.1515150297670876, 0.2006732099400952}}},
      {"relu",
       {{0.4330599205327376, 0, 1.202957539851041, 0},
        {0.4422681281835918, -0.5001518478867352, 0.5248236769207543, -0.5572735633532391,
         0.6302091078420348, -0.6612964894643486},
        {0.2986981118369758, -0.253847956145038, -0.3763702390988873, 0.3198574485841287},
        {-0.5349839976827975, 0, 0.3133724002158175, 0}}},
  };
  for (const auto& [cell, wanted] : cells) {
    const std::int64_t gates = cell == "lstm" ? 4 : cell == "gru" ? 3 : 1;
    const std::vector<Tensor> in{
        Tensor::of(pattern(batch * features, 1, 4), {batch, features}),
        Tensor::of(pattern(batch * units, 0.4, 5), {batch, units}),
        Tensor::of(pattern(units * gates * units, 0.5, 2), {units, gates * units}),
        Tensor::of(pattern(batch * units, 0.7, 6), {batch, units}),
        Tensor::of(pattern(features * gates * units, 0.8, 1), {features, gates * units}),
        Tensor::of(pattern(gates * units, 0.3, 3), {gates * units})};
    const auto next = [&, &kind = cell](const Exprs& e) {
      const RecurrentWeights weights{e[4], e[2], e[5]};
      if (kind == "lstm") {
        const LstmState made = lstm_cell(e[0], {e[1], e[3]}, weights);
        return Exprs{made.h, made.c};
      }
      if (kind == "gru") return Exprs{gru_cell(e[0], e[1], weights)};
      return Exprs{rnn_cell(e[0], e[1], weights,
                            kind == "tanh" ? RnnActivation::tanh : RnnActivation::relu)};
    };
    Graph g;
    Exprs e;
    Feeds feeds;
    for (const Tensor& t : in) {
      e.push_back(g.input("x" + std::to_string(e.size()), DType::f64, t.shape()));
      feeds.emplace_back(e.back(), t);
    }
    Exprs all = next(e);
    Expr total;
    for (const Expr& state : all) {
      const Expr weighted = sum(state * Tensor::of(pattern(batch * units, 1, 7), {batch, units}));
      total = total.is_empty() ? weighted : total + weighted;
    }
    for (const Expr& d : gradients(total, Exprs{e[0], e[1], e[2]})) all.push_back(d);
    const std::vector<Tensor> got = evaluate_eagerly(g, feeds, all);
    BOOST_REQUIRE(got.size() == wanted.size());
    for (std::size_t k = 0; k < got.size(); ++k)
      for (std::size_t i = 0; i < wanted[k].size(); ++i)
        BOOST_TEST(std::abs(got[k].at(static_cast<std::int64_t>(i)) - wanted[k][i]) < 1e-14,
                   cell << ", output " << k << ", element " << i);
    const CheckReport r = check_gradients(
        [&](Graph&, const Exprs& xs) {
          const Exprs made = next(xs);
          return made.size() == 1 ? made[0] : concat(made, 0);
        },
        in, {.tolerance = 2e-6, .order = cell == "relu" ? 1 : 2});
    BOOST_TEST(r.ok(), r.text);
  }
}

BOOST_AUTO_TEST_CASE(a_cell_of_ones_own) {
  // h' = h + sum of the element, c' = 2 c: two parts of unlike rank, a structure of elements.
  for (bool reverse : {false, true})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr a = g.constant(f32({1, 2, 3, 4, 5, 6}, {3, 2, 1})),
               b = g.constant(f32({10, 20, 30, 40, 50, 60}, {3, 2}));
          auto [outputs, last] = dynamic_rnn(
              [](std::tuple<Expr, Expr> s, std::tuple<Expr, Expr> e) {
                return std::tuple{std::get<0>(s) + std::get<0>(e) + expand_dims(std::get<1>(e), 1),
                                  std::get<1>(s) * 2.0};
              },
              std::tuple{a, b}, std::tuple{g.zeros(DType::f32, {2, 1}), g.ones(DType::f32, {2})},
              {.lengths = g.constant(Tensor::of<std::int64_t>({3, 1}, {2})), .reverse = reverse});
          return {{}, {outputs, std::get<0>(last), std::get<1>(last)}};
        },
        reverse ? std::vector<std::vector<double>>{{99, 22, 88, 0, 55, 0}, {99, 22}, {8, 2}}
                : std::vector<std::vector<double>>{{11, 22, 44, 0, 99, 0}, {99, 22}, {8, 2}});
}

BOOST_AUTO_TEST_CASE(eager) {
  const Case k{.gates = 4, .lengths = {2, 4, 1}};
  const Reference r = plain(k);
  Eager e;
  RecurrentWeights w{f32(k.input.v, {kFeatures, 4 * kUnits}),
                     f32(k.recurrent.v, {kUnits, 4 * kUnits}), f32(k.bias, {4 * kUnits})};
  auto [outputs, last] = lstm(e.constant(f32(k.x, {kTime, kBatch, kFeatures})), w,
                              {.lengths = e.constant(Tensor::of(k.lengths, Shape{kBatch}))});
  compare({outputs.value(), last.h.value(), last.c.value()}, {r.outputs, r.h, r.c}, "eager");
  auto none = lstm(e.zeros(DType::f32, {0, kBatch, kFeatures}), w);
  BOOST_TEST(none.outputs.shape().text() == "[0, 3, 5]");
  BOOST_TEST(none.state.h.shape().text() == "[3, 5]");
}

BOOST_AUTO_TEST_CASE(gradients_are_those_of_differences) {
  for (const bool fused : {false, true}) {
    for (bool reverse : {false, true})
      for (bool with_lengths : {false, true}) differentiates({4, reverse, with_lengths, fused});
    differentiates({3, false, false, fused});
    differentiates({3, true, true, fused});
    differentiates({1, false, true, fused});
    differentiates({1, true, false, fused});
    differentiates({0, true, true, fused});
  }
}

// <J v, w> by differences in one direction, and <v, J^T w>, of more numbers than can be differed
// one by one.
BOOST_AUTO_TEST_CASE(fused_gradients_are_the_transpose) {
  for (const int gates : {4, 3, 1})
    for (const bool reverse : {false, true}) {
      const Layer layer{gates, reverse, reverse, true, 6, 21, 5, 19};
      const std::vector<Tensor> xs = layer.inputs();
      auto weighted = [&](double by, bool differentiate) {
        Graph g;
        Exprs in, moved;
        Feeds feeds;
        for (const Tensor& t : xs) {
          in.push_back(g.input("x" + std::to_string(in.size()), DType::f64, t.shape()));
          feeds.emplace_back(in.back(), t);
          Expr direction = g.constant(
              Tensor::of(pattern(t.elements(), 1, static_cast<int>(in.size()) + 10), t.shape()));
          moved.push_back(in.back() + direction * by);
        }
        const Expr y = layer(g, moved), total = sum(y * sin(cumsum(ones_like(y), 0)));
        if (!differentiate) return evaluate_eagerly(g, feeds, {total})[0].item<double>();
        double along = 0;
        const std::vector<Tensor> d = evaluate_eagerly(g, feeds, gradients(total, in));
        for (std::size_t k = 0; k < d.size(); ++k) {
          const std::vector<double> v = pattern(d[k].elements(), 1, static_cast<int>(k) + 11);
          for (std::int64_t i = 0; i < d[k].elements(); ++i)
            along += v[static_cast<std::size_t>(i)] * d[k].at(i);
        }
        return along;
      };
      const double step = 1e-5,
                   quotient = (weighted(step, false) - weighted(-step, false)) / (2 * step),
                   along = weighted(0, true);
      BOOST_TEST(std::abs(quotient - along) < 1e-7 * std::max(1.0, std::abs(along)),
                 gates << " gates: " << quotient << " and " << along);
    }
}

BOOST_AUTO_TEST_CASE(fused_is_the_same_as_the_loop) {
  for (const int gates : {4, 3, 1, 0})
    for (const std::int64_t units : {1, 16, 33, 70})
      for (const std::int64_t batch : {1, 7, 37}) {
        Layer layer{gates, batch == 7, batch > 1, false, 5, batch, 3, units};
        const std::string where = std::to_string(gates) + " gates, " + std::to_string(units) +
                                  " units, batch " + std::to_string(batch);
        const std::vector<Tensor> loop = with_gradients(layer);
        layer.fused = true;
        close(with_gradients(layer), loop, 1e-12, where);
        close(with_gradients(layer, DType::f32), loop, 1e-5, where + ", f32");
      }
}

BOOST_AUTO_TEST_CASE(fused_gives_the_same_bits_on_any_number_of_workers) {
  for (const int gates : {4, 3, 1})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Layer layer{gates, false, gates == 3, true, 9, 70, 8, 48};
      const std::vector<Tensor> one = with_gradients(layer, dtype);
      for (const int workers : {2, 3}) {
        const std::vector<Tensor> more = with_gradients(layer, dtype, workers);
        for (std::size_t k = 0; k < one.size(); ++k)
          BOOST_TEST(identical(one[k], more[k]),
                     gates << " gates, " << workers << " workers, value " << k);
      }
    }
}

BOOST_AUTO_TEST_CASE(fused_without_time_batch_or_units) {
  for (const int gates : {4, 3, 1})
    for (const auto& [time, batch, units] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{0, 3, 4}, {3, 0, 4}, {3, 2, 0}}) {
      const Layer layer{gates, false, batch > 0 && time > 0, true, time, batch, 3, units};
      for (const DType dtype : {DType::f32, DType::f64}) {
        const std::vector<Tensor> all = with_gradients(layer, dtype);
        if (time > 0) continue;
        for (const std::size_t weights : {2u, 3u, 4u})
          for (std::int64_t i = 0; i < all[weights].elements(); ++i)
            BOOST_TEST(all[weights].at(i) == 0);
      }
    }
}

// A NaN stays in its example, and has no effect past a length.
BOOST_AUTO_TEST_CASE(fused_shows_nan_where_it_is) {
  for (const bool relu : {false, true})
    for (const int gates : {4, 3, 1}) {
      const std::int64_t time = 3, batch = 18, units = 5, columns = gates * units;
      std::vector<double> x = pattern(time * batch * 2, 1, 4);
      x[static_cast<std::size_t>((1 * batch + 2) * 2)] = NAN;       // example 2, from time 1 on
      x[static_cast<std::size_t>((2 * batch + 4) * 2)] = INFINITY;  // example 4, past its length
      std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch), time);
      lengths[4] = 2;
      Graph g;
      RecurrentWeights w{g.constant(f32(pattern(2 * columns, 0.8, 1), {2, columns})),
                         g.constant(f32(pattern(units * columns, 0.5, 2), {units, columns})),
                         g.constant(f32(pattern(columns, 0.3, 3), {columns}))};
      const RnnOptions options{.lengths = g.constant(Tensor::of(lengths, Shape{batch})),
                               .fused = true};
      Expr in = g.constant(f32(x, {time, batch, 2}));
      Expr outputs =
          gates == 4 ? lstm(in, w, options).outputs
          : gates == 3
              ? gru(in, w, options).outputs
              : rnn(in, w, relu ? RnnActivation::relu : RnnActivation::tanh, options).outputs;
      const Tensor y = evaluate_eagerly(g, {}, {outputs})[0];
      for (std::int64_t i = 0; i < y.elements(); ++i) {
        const std::int64_t t = i / units / batch, b = i / units % batch;
        BOOST_TEST(std::isnan(y.at(i)) == (b == 2 && t >= 1),
                   gates << " gates, time " << t << ", example " << b << ": " << y.at(i));
      }
    }
}

BOOST_AUTO_TEST_CASE(both_ways_and_layers) {
  for (const bool fused : {false, true}) {
    Graph g;
    auto weights = [&](std::int64_t features, int gates, int seed) {
      return RecurrentWeights{
          g.constant(f32(pattern(features * gates * 3, 0.8, seed), {features, gates * 3})),
          g.constant(f32(pattern(3 * gates * 3, 0.5, seed + 1), {3, gates * 3})),
          g.constant(f32(pattern(gates * 3, 0.3, seed + 2), {gates * 3}))};
    };
    const Expr x = g.constant(f32(pattern(4 * 2 * 2, 1, 7), {4, 2, 2})),
               lengths = g.constant(Tensor::of<std::int64_t>({4, 2}, {2}));
    const RnnOptions options{.name = "enc", .lengths = lengths, .fused = fused};
    const RnnOptions forward{.lengths = lengths}, backward{.lengths = lengths, .reverse = true};
    const RecurrentWeights a = weights(2, 4, 1), b = weights(2, 4, 11), above = weights(3, 4, 21),
                           c = weights(2, 3, 31), d = weights(2, 3, 41), top = weights(3, 3, 51);
    auto [both, states] = bidirectional_lstm(x, a, b, options);
    auto one = lstm(x, a, forward), other = lstm(x, b, backward);
    auto [gated, gated_states] = bidirectional_gru(x, c, d, options);
    auto gone = gru(x, c, forward), gother = gru(x, d, backward);
    auto [stacked, all] = lstm_layers(x, {a, above}, options);
    auto second = lstm(one.outputs, above, forward);
    auto [gru_stacked, gru_all] = gru_layers(x, {c, top}, options);
    auto gru_second = gru(gone.outputs, top, forward);
    const Exprs got{both,    states[0].h, states[1].c, gated,       gated_states[1],
                    stacked, all[0].c,    all[1].h,    gru_stacked, gru_all[0]};
    const Exprs wanted{concat({one.outputs, other.outputs}, 2),
                       one.state.h,
                       other.state.c,
                       concat({gone.outputs, gother.outputs}, 2),
                       gother.state,
                       second.outputs,
                       one.state.c,
                       second.state.h,
                       gru_second.outputs,
                       gone.state};
    close(evaluate_eagerly(g, {}, got), evaluate_eagerly(g, {}, wanted), 1e-6,
          fused ? "fused" : "loops");
    BOOST_TEST(says(refused([&] { bidirectional_lstm(x, a, b, {.reverse = true}); }),
                    {"bidirectional_lstm (recurrent_test.cpp:", "leave 'reverse' out"}));
    BOOST_TEST(says(refused([&] { gru_layers(x, {}, {.name = "deep"}); }),
                    {"gru_layers 'deep' (recurrent_test.cpp:", "there is no layer"}));
  }
}

BOOST_AUTO_TEST_CASE(recurrent_refuses_operands_of_wrong_shapes) {
  Graph g;
  auto in = [&](const char* name, const Shape& s, DType t = DType::f32) {
    return g.input(name, t, s);
  };
  Expr x = in("x", {kAny, 3, 2}), wx = in("wx", {2, 20}), wh = in("wh", {5, 20}), b = in("b", {20}),
       h = in("h", {3, 5});
  BOOST_TEST(
      says(refused([&] {
             lstm(in("flat", {3, 2}), {wx, wh, b});
           }),
           {"lstm (recurrent_test.cpp:", "'x' must be [time, batch, features], not [3, 2]"}));
  BOOST_TEST(says(
      refused([&] {
        lstm(in("wide", {kAny, 3, 4}), {wx, wh, b}, {.name = "enc"});
      }),
      {"lstm 'enc' (recurrent_test.cpp:", "'x' is [?, 3, 4]: 4 features, but 'input' is [2, 20]"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, wh, in("b2", {24})});
                  }),
                  {"'bias' is [24], which makes 6 units, but 'input' makes 5"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, in("wh2", {5, 18}), b});
                  }),
                  {"'recurrent' is [5, 18]", "no multiple of the 4 gates"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, wh, b}, {h, in("c", {3, 4})});
                  }),
                  {"lstm (", "'initial.c' is [3, 4], which makes 4 units"}));
  BOOST_TEST(says(refused([&] {
                    gru(x, {wx, wh, b});
                  }),
                  {"gru (recurrent_test.cpp:", "20", "3 gates"}));
  Expr open = in("open", Shape{kAny, kAny});
  BOOST_TEST(says(refused([&] {
                    lstm(x, {open, open, in("b3", {kAny})});
                  }),
                  {"lstm (", "the number of units is not known", "'recurrent'"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, wh, b}, {.lengths = h});
                  }),
                  {"lstm (", "'lengths' must be i32 or i64, [batch], not f32[3, 5]"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, wh, b}, {.name = "enc", .lengths = in("four", {4}, DType::i64)});
                  }),
                  {"lstm 'enc' (recurrent_test.cpp:", "'lengths' is i64[4]", "a batch of 3"}));
  BOOST_TEST(says(refused([&] {
                    lstm_cell(h, {h, h}, {wx, wh, b});
                  }),
                  {"lstm_cell (recurrent_test.cpp:", "5 features"}));
  BOOST_TEST(says(refused([&] {
                    dynamic_rnn([](Expr s, Expr e) { return s + e; }, x, in("s", Shape::unknown()),
                                {.lengths = in("n", {3}, DType::i64)});
                  }),
                  {"dynamic_rnn (recurrent_test.cpp:", "known rank"}));
  BOOST_TEST(says(refused([&] {
                    rnn(x, {wx, wh, b});
                  }),
                  {"rnn (recurrent_test.cpp:",
                   "'recurrent' is [5, 20], which makes 20 units, but 'recurrent' makes 5"}));
  BOOST_TEST(
      says(refused([&] {
             lstm(x, {wx, wh, b}, {.lengths = h, .fused = true});
           }),
           {"lstm (recurrent_test.cpp:", "'lengths' must be i32 or i64, [batch], not f32[3, 5]"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, wh, b}, {in("h4", {4, 5}), in("c4", {4, 5})}, {.fused = true});
                  }),
                  {"RecurrentLayer(f32[?, 3, 20]", "at recurrent_test.cpp:",
                   "'h0' is [4, 5]: its axis 0 makes 4 examples, other inputs 3"}));
  BOOST_TEST(says(refused([&] {
                    lstm(x, {wx, wh, b}, {.lengths = in("n4", {4}, DType::i64), .fused = true});
                  }),
                  {"RecurrentLayer(f32[?, 3, 20]", "at recurrent_test.cpp:", "'lengths' is [4]"}));
  BOOST_TEST(says(
      refused([&] {
        Expr first = gradients(sum(square(lstm(x, {wx, wh, b}, {.fused = true}).outputs)), {wx})[0];
        gradients(sum(square(first)), {wx});
      }),
      {"recurrent_test.cpp:", "a fused recurrent layer has no second derivative", "loop"}));
}

// Columns and lengths that a run makes known: 1 is not taken for as many as are needed.
BOOST_AUTO_TEST_CASE(recurrent_refuses_wrong_shapes_known_at_run_time) {
  for (const auto& [columns, bias, lengths, why] :
       {std::tuple{20, 20, 3, ""},
        std::tuple{1, 20, 3,
                   "the number of columns of 'input' is 20 in one place and 1 in another"},
        std::tuple{20, 1, 3, "the length of 'bias' is 20 in one place and 1 in another"},
        std::tuple{20, 20, 1, "the batch is 3 in one place and 1 in another"}}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {kAny, kAny, 2}), wx = g.input("wx", DType::f32, {2, kAny}),
         b = g.input("b", DType::f32, {kAny}), n = g.input("n", DType::i64, {kAny});
    Expr wh = g.constant(Tensor::zeros(DType::f32, {5, 20}));
    Expr y = lstm(x, {wx, wh, b}, {.lengths = n}).outputs;
    const auto run = [&] {
      return evaluate_eagerly(
          g,
          {{x, Tensor::zeros(DType::f32, {2, 3, 2})},
           {wx, Tensor::zeros(DType::f32, {2, columns})},
           {b, Tensor::zeros(DType::f32, {bias})},
           {n, Tensor::of(std::vector<std::int64_t>(static_cast<std::size_t>(lengths), 1),
                          {lengths})}},
          {y});
    };
    if (std::string_view(why).empty()) BOOST_TEST((run()[0].shape() == Shape{2, 3, 5}));
    else
      BOOST_TEST(says(refusal([&] { run(); }, Code::invalid_argument),
                      {"lstm", why, "recurrent_test.cpp"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
