// Replaying programs on readers: eager scopes, graphs, and a reader of a test's own.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <optional>

#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(replay_test)

namespace {

// Records the names of ops and computes on an eager scope, as a gradient tape does.
class Recording final : public Reader {
 public:
  explicit Recording(Eager& inner) : Reader(2), inner_(inner) {}
  Exprs bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
             int state) override {
    ops.push_back(op.name);
    const Replayed* const again = take_replayed();
    std::optional<Replaying> passed_on;
    if (again) passed_on.emplace(inner_, *again);
    Exprs values;
    for (const Expr& e : inputs) values.emplace_back(&inner_, e.held());
    Exprs out;
    for (const Expr& e : inner_.bind(op, values, std::move(attrs), site, state))
      out.emplace_back(this, e.held());
    return out;
  }
  Expr adopt(const Expr& foreign, const Site&) override { return Expr(this, foreign.held()); }
  ValueSpec spec_of(const Expr& e) const override { return spec_of_value(e.held()); }
  int declare(const StateSpec& spec, const Site& site) override {
    return inner_.declare(spec, site);
  }
  const StateSpec& state_spec(int state) const override { return inner_.state_spec(state); }

  std::vector<std::string> ops;

 private:
  Eager& inner_;
};

bool equal_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(),
                     static_cast<std::size_t>(a.elements()) * size_of(a.dtype())) == 0;
}

std::vector<Tensor> values_of(const Exprs& all) {
  std::vector<Tensor> out;
  for (const Expr& e : all) out.push_back(e.value());
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(program_on_an_eager_scope_is_computed) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {kAny});
  const Expr y = relu(x * 2.0 + 1.0), z = sum(y);
  Eager eager;
  const Expr in = eager.constant(Tensor::of<float>({1, -3, 2}));
  const Exprs out = replay(g, eager, {x}, std::vector{in}, {y, z});
  BOOST_TEST((out[0].value().to_vector<float>() == std::vector<float>{3, 0, 5}));
  BOOST_TEST((out[1] + in).value().at(0) == 9);  // they are values like others of the scope
}

BOOST_AUTO_TEST_CASE(reader_of_ones_own_replays_a_program) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  const Variable v = g.variable("v", Tensor::scalar(3.f));
  const Expr scaled = x * v;
  const Expr y = scaled + g.random_uniform({2});
  const Tensor tx = Tensor::of<float>({1, 2});
  Eager inner;
  Recording recording(inner);
  const Exprs out = replay(g, recording, {x}, std::vector{inner.constant(tx)}, {y});
  BOOST_TEST(
      (recording.ops == std::vector<std::string>{"ReadVariable", "Mul", "RandomUniform", "Add"}));
  BOOST_TEST(&out[0].reader() == &recording);
  BOOST_TEST(equal_bytes(out[0].value(), Eager().run(g, {{x, tx}}, {y})[0]));
}

BOOST_AUTO_TEST_CASE(inlined_nodes_keep_name_device_site_and_controls) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  Expr first, last;
  {
    auto scope = g.scope("layer");
    auto there = g.on_device("cpu:0");
    first = g.named(tanh(x), "first");
    auto after = g.after({first});
    last = exp(x);
  }
  Graph h;
  Expr in = h.input("in", DType::f32, {2}), out;
  {
    auto scope = h.scope("copy");
    out = replay(g, h, {x}, std::vector{in}, {first, last})[1];
  }
  const Node& node = h.node(out.edge().node);
  const Expr named = h.find("copy/layer/first");
  BOOST_TEST(named.edge().node != out.edge().node);
  BOOST_TEST((node.controls == std::vector{named.edge().node}));
  BOOST_TEST(node.device == "cpu:0");
  BOOST_TEST(node.site.line == g.node(last.edge().node).site.line);
  BOOST_TEST(node.origin == g.node(last.edge().node).origin);
  BOOST_TEST(h.name_of(out.edge().node).starts_with("copy/layer/Exp_"));
}

BOOST_AUTO_TEST_CASE(colocation_follows_the_origins_of_a_second_copy) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {});
  const Expr a = tanh(x);
  auto company = g.colocate_with(a);
  const Expr b = exp(a);
  Graph h;
  const Expr in = h.input("in", DType::f32, {});
  for (int copy = 0; copy < 2; ++copy) {
    const Exprs out = replay(g, h, {x}, std::vector{in}, {a, b});
    const Node& joined = h.node(out[0].edge().node);
    const std::string with = "with:" + std::to_string(joined.origin);
    BOOST_TEST(joined.device == with);
    BOOST_TEST(h.node(out[1].edge().node).device == with);
    BOOST_TEST(joined.origin == g.node(a.edge().node).origin + (copy ? h.node(2).origin : 0u));
  }
}

BOOST_AUTO_TEST_CASE(inlined_draws_have_the_bits_of_the_program) {
  Graph g;
  const Expr a = g.random_normal({4}), b = g.random_normal({4});
  Graph h;
  const Exprs copy = replay(g, h, {}, {}, {a, b}), second = replay(g, h, {}, {}, {a, b});
  const std::vector<Tensor> wanted = Eager().run(g, {}, {a, b});
  const std::vector<Tensor> got =
      Engine().run(h, {}, {copy[0], copy[1], second[0], second[1], h.random_normal({4})});
  BOOST_TEST(equal_bytes(got[0], wanted[0]));
  BOOST_TEST(equal_bytes(got[1], wanted[1]));
  for (std::size_t i = 0; i < got.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) BOOST_TEST(!equal_bytes(got[i], got[k]));
  Eager eager;
  const std::vector<Tensor> here = values_of(replay(g, eager, {}, {}, {a, b}));
  BOOST_TEST(equal_bytes(here[0], wanted[0]));
  BOOST_TEST(equal_bytes(here[1], wanted[1]));
}

BOOST_AUTO_TEST_CASE(replayed_states_are_known_by_name) {
  Graph g;
  const Variable v = g.variable("v", Tensor::scalar(1.f));
  const Expr up = v.assign_add(2.0);
  Eager eager;
  const Variable unused = eager.variable("unused", Tensor::scalar(0.f));
  const Variable mine = eager.variable("v", Tensor::scalar(1.f));
  replay(g, eager, {}, {}, {up});
  BOOST_TEST(mine.read().value().item<float>() == 3.f);
  BOOST_TEST(eager.get(g, "v").item<float>() == 3.f);
  BOOST_TEST(unused.read().value().item<float>() == 0.f);

  Graph h;
  h.variable("unused", Tensor::scalar(0.f));
  const Exprs copy = replay(g, h, {}, {}, {up});
  const Variable theirs = h.variable("v", Tensor::scalar(1.f));
  Engine engine;
  engine.run(h, {}, copy);
  BOOST_TEST(engine.get(theirs).item<float>() == 3.f);
}

BOOST_AUTO_TEST_CASE(arguments_that_do_not_fit_are_refused) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  const Expr y = tanh(x);
  Eager eager;
  const auto with = [&](const Exprs& arguments) {
    return refusal([&] { replay(g, eager, {x}, arguments, {y}); }, Code::invalid_argument);
  };
  says(with({}), {"0 values were fed to 1 inputs"});
  says(with({eager.constant(1.0)}), {"Input 'x'", "takes f32[2], not f64[]"});
  BOOST_TEST(eager.run(g, {{x, Tensor::of<float>({0, 0})}}, {y})[0].at(0) == 0);
}

BOOST_AUTO_TEST_CASE(error_of_a_replayed_node_names_it) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {kAny, kAny});
  const Expr y = g.named(matmul(x, x), "square");
  Eager eager;
  const Expr in = eager.zeros(DType::f32, {2, 3});
  says(refusal([&] { replay(g, eager, {x}, std::vector{in}, {y}); }, Code::invalid_argument),
       {"MatMul 'square'", "replay_test.cpp:"});
  // a value that is bound later is no repetition
  BOOST_TEST(tanh(in).value().at(0) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
