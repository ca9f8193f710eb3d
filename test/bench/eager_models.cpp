// Models as C++ code at once and staged by a traced function, on one worker: the sampler of example
// 12 and the sampler of a character model for 1, 10 and 200 chains, a chain of matrix products, and
// a training step of a residual block. `value` is staged, `peer_value` the same code at once; for
// the sampler also a graph built by hand.
//
// Results are compared, but for those of random draws.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/apps/examples/traced/sampler.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace {

using namespace troupe;

/// Numbers of the one reported row.
struct Row {
  std::string name;
  int calls;  // a repetition
  double budget = 0, budget_us = 0;
  bool draws = false;
};

int repetitions = 7;

void require_near(const Exprs& staged, const Exprs& at_once, const std::string& name) {
  for (std::size_t k = 0; k < staged.size(); ++k) {
    const Tensor a = staged[k].value(), b = at_once[k].value();
    for (std::int64_t i = 0; i < a.elements(); ++i) {
      if (std::abs(a.at(i) - b.at(i)) <= 1e-3 * std::max(1.0, std::abs(b.at(i)))) continue;
      std::fprintf(stderr, "%s: staged %.9g, at once %.9g\n", name.c_str(), a.at(i), b.at(i));
      std::exit(1);
    }
  }
}

// `code` yields a vector of values.
template <class Code>
void measure(const Row& row, const Exprs& given, Code code) {
  auto staged = function(row.name, code);
  const Exprs first = code(given), second = staged(given);
  if (!row.draws) require_near(second, first, row.name);
  bench::Comparison c{.name = row.name,
                      .unit = "us a call",
                      .peer = "the same code at once",
                      .budget = row.budget,
                      .budget_value = row.budget_us};
  const auto us_a_call = [&](const auto& of) {
    const double start = bench::now_ns();
    for (int i = 0; i < row.calls; ++i) of(given)[0].value();
    return (bench::now_ns() - start) / row.calls / 1e3;
  };
  for (int i = 0; i < repetitions; ++i) {
    c.ours.push_back(us_a_call(staged));
    c.theirs.push_back(us_a_call(code));
  }
  c.print();
}

// The moves of a sampler as a graph that was built by hand, over variables of its own.
class MovesByHand {
 public:
  MovesByHand(Graph& g, const sampling::Sampler& of)
      : first_(g.constant(Tensor::of<float>({1, 0}, {1, 2}))) {
    for (const Variable& w : of.variables())
      weights_.push_back(g.variable("by_hand/" + w.name(), w.read().value()));
  }

  Exprs run(Expr x, Expr v) const {
    using namespace sampling;
    Expr log_scale = sum(x, {1}) * 0.0;
    for (int i = 0; i < kLeapfrogSteps; ++i) {
      const double time = static_cast<double>(i) / kLeapfrogSteps;
      const auto half_kick = [&] {
        const Expr slope = gradients(sum(energy(x)), {x})[0];
        const Exprs n = network(0, x, slope, time);
        const Expr scale = n[0] * (kStep / 2);
        v = v * exp(scale) - (kStep / 2) * (slope * exp(kStep * n[2]) + n[1]);
        log_scale = log_scale + sum(scale, {1});
      };
      half_kick();
      for (const Expr& mask : {first_, 1.0 - first_}) {
        const Exprs n = network(2, v, x * mask, time);
        const Expr scale = n[0] * kStep * (1.0 - mask);
        const Expr moved = x * exp(scale) + kStep * (v * exp(kStep * n[2]) + n[1]);
        x = mask * x + (1.0 - mask) * moved;
        log_scale = log_scale + sum(scale, {1});
      }
      half_kick();
    }
    return {x, v, log_scale};
  }

 private:
  // The scale, the shift and the gate.
  Exprs network(std::size_t weights, const Expr& a, const Expr& b, double time) const {
    const Expr when = expand_dims(fill_like(gather(a, 0, 1), time), 1);
    const Expr hidden = tanh(matmul(concat({a, b, when}, 1), weights_[weights]));
    const Exprs parts = split(matmul(hidden, weights_[weights + 1]), {2, 2, 2}, 1);
    return {tanh(parts[0]), parts[1], tanh(parts[2])};
  }

  std::vector<Variable> weights_;
  const Expr first_;  // 1 for the first coordinate
};

// `value` is staged, `peer_value` a run of the graph that was built by hand.
void measure_by_hand(Engine& engine, const std::string& name, const sampling::Sampler& sampler,
                     const Exprs& given) {
  constexpr int kCalls = 100;
  Graph g;
  const Shape shape = given[0].shape();
  const Expr x = g.input("x", DType::f32, shape), v = g.input("v", DType::f32, shape);
  const Function by_hand = engine.compile(g, {x, v}, MovesByHand(g, sampler).run(x, v));
  auto staged = function(name + "_again", [&](const Exprs& in) {
    const sampling::Moved moved = sampler.move(in[0], in[1]);
    return Exprs{moved.x, moved.v, moved.log_scale};
  });
  const std::vector<Tensor> fed{given[0].value(), given[1].value()};
  const std::vector<Tensor> wanted = by_hand(fed);
  Exprs expected;
  for (const Tensor& t : wanted) expected.push_back(given[0].reader().constant(t));
  require_near(staged(given), expected, name);
  bench::Comparison c{.name = name + "_by_hand",
                      .unit = "us a call",
                      .peer = "the same graph built by hand",
                      .budget = 1.05};
  const auto us_a_call = [&](const auto& call) {
    const double start = bench::now_ns();
    for (int i = 0; i < kCalls; ++i) call();
    return (bench::now_ns() - start) / kCalls / 1e3;
  };
  for (int i = 0; i < repetitions; ++i) {
    c.ours.push_back(us_a_call([&] { staged(given)[0].value(); }));
    c.theirs.push_back(us_a_call([&] { by_hand(fed); }));
  }
  c.print();
}

void measure_sampler(Engine& engine, Eager& e, std::int64_t chains) {
  const std::string name = "sampler_" + std::to_string(chains);
  const sampling::Sampler sampler(e, name);
  const Exprs given{e.constant(bench::pattern({chains, 2}, 1, 1)),
                    e.constant(bench::pattern({chains, 2}, 2, 2))};
  measure({.name = name, .calls = 20, .budget_us = chains == 1 ? 100.0 : 0}, given,
          [&](const Exprs& in) {
            const sampling::Moved moved = sampler.move(in[0], in[1]);
            return Exprs{moved.x, moved.v, moved.log_scale};
          });
  measure_by_hand(engine, name, sampler, given);
}

// One character: a cell of 64 units over 64 characters, and a draw.
void measure_characters(Eager& e, std::int64_t chains) {
  constexpr std::int64_t kCharacters = 64, kUnits = 64;
  const std::string name = "char_sampler_" + std::to_string(chains);
  const auto weight = [&](const char* what, const Shape& shape, std::uint32_t seed) {
    return e.variable(name + "/" + what, bench::pattern(shape, 0.2, seed));
  };
  const Variable wx = weight("wx", {kCharacters, 4 * kUnits}, 1),
                 wh = weight("wh", {kUnits, 4 * kUnits}, 2), b = weight("b", {4 * kUnits}, 3),
                 wy = weight("wy", {kUnits, kCharacters}, 4);
  measure({.name = name, .calls = 100, .draws = true},
          {e.constant(bench::labels(chains, kCharacters, 5)),
           e.constant(bench::pattern({chains, kUnits}, 1, 6)),
           e.constant(bench::pattern({chains, kUnits}, 1, 7))},
          [&](const Exprs& in) {
            const Expr gates = gather(wx.read(), in[0]) + matmul(in[1], wh) + b;
            const Exprs parts = split(gates, {kUnits, kUnits, kUnits, kUnits}, 1);
            const Expr c = sigmoid(parts[0]) * in[2] + sigmoid(parts[1]) * tanh(parts[2]);
            const Expr h = sigmoid(parts[3]) * tanh(c);
            return Exprs{categorical(matmul(h, wy) / 0.7), h, c};
          });
}

void measure_products(Eager& e, std::int64_t side) {
  measure({.name = "matmul_chain_" + std::to_string(side), .calls = 1, .budget = 1.03},
          {e.constant(bench::pattern({side, side}, 0.1, 1)),
           e.constant(bench::pattern({side, side}, 0.1, 2))},
          [](const Exprs& in) {
            Expr x = in[0];
            for (int i = 0; i < 4; ++i) x = matmul(x, in[1]);
            return Exprs{x};
          });
}

// Two convolutions of 3x3 with normalisation over the batch, and a step of SGD.
void measure_block(Eager& e) {
  constexpr std::int64_t kBatch = 8, kSide = 16, kChannels = 64;
  std::vector<Variable> weights;
  const auto weight = [&](const Tensor& start) {
    weights.push_back(e.variable("block/" + std::to_string(weights.size()), start));
    return weights.back();
  };
  struct Layer {
    Variable kernel, scale, bias;
  };
  std::vector<Layer> layers;
  for (std::uint32_t k = 0; k < 2; ++k)
    layers.push_back({weight(bench::pattern({3, 3, kChannels, kChannels}, 0.1, k)),
                      weight(bench::ones({kChannels})),
                      weight(Tensor::zeros(DType::f32, {kChannels}))});
  const auto layer = [&](const Expr& x, const Layer& l) {
    return batch_norm(conv(x, l.kernel, {.padding = Padding::of({1, 1})}), l.scale, l.bias)[0];
  };
  measure({.name = "residual_block_step", .calls = 2, .budget = 1.03, .draws = true},
          {e.constant(bench::pattern({kBatch, kSide, kSide, kChannels}, 1, 9))},
          [&](const Exprs& in) {
            GradientTape tape;
            const Expr out = relu(layer(relu(layer(in[0], layers[0])), layers[1]) + in[0]);
            const Expr loss = mean(square(out - 1.0));
            Sgd({.learning_rate = 0.001}).apply(tape.gradient(loss, weights), weights);
            return Exprs{loss};
          });
}

}  // namespace

int main(int argc, char** argv) {
  // so small that it only shows that all of it runs
  const bool is_quick = argc > 1 && std::strcmp(argv[1], "quick") == 0;
  if (is_quick) repetitions = 1;
  Engine engine({.workers = 1});
  Eager e(engine);
  for (const std::int64_t chains : {1, 10, 200}) measure_sampler(engine, e, chains);
  for (const std::int64_t chains : {1, 10, 200}) measure_characters(e, chains);
  measure_products(e, is_quick ? 128 : 1024);
  measure_block(e);
}
