#include <troupe/ops/graph/actor_node.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using troupe::test::refusal;

BOOST_AUTO_TEST_SUITE(user_actor_test)

namespace {

struct Counter : NodeActor {
  std::int64_t n = 0;
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    n += in[0].item<std::int64_t>();
    if (n == 13) throw std::runtime_error("thirteen is too much");
    out[0] = Tensor::scalar(n);
  }
};

Expr counter(Reader& r, const Expr& by, ActorOptions options = {}) {
  return actor_node<Counter>(r, "counter", {by}, {{DType::i64, Shape{}}}, options)[0];
}

std::int64_t value(const std::vector<Tensor>& out) { return out[0].item<std::int64_t>(); }

}  // namespace

BOOST_AUTO_TEST_CASE(its_state_outlives_runs) {
  for (bool blocks : {false, true}) {
    Graph g;
    Expr by = g.input("by", DType::i64, Shape{});
    Expr n = counter(g, by, {blocks, 3}) * 10;
    Engine engine;
    Function f = engine.compile(g, {by}, {n});
    for (std::int64_t i = 1; i <= 5; ++i)
      BOOST_TEST(value(f({Tensor::scalar(std::int64_t(2))})) == i * 20);
  }
}

BOOST_AUTO_TEST_CASE(a_failure_fails_its_run_and_a_fresh_actor_goes_on) {
  for (bool blocks : {false, true}) {
    Graph g;
    Expr by = g.input("by", DType::i64, Shape{});
    unsigned line = __LINE__ + 1;
    Expr n = actor_node<Counter>(g, "counter", {by}, {{DType::i64, Shape{}}}, {blocks, 2})[0];
    Engine engine;
    Function f = engine.compile(g, {by}, {n});
    auto add = [&](std::int64_t k) { return value(f({Tensor::scalar(k)})); };
    auto names_the_actor = [&](const Error& e) {
      std::string text = e.what();
      BOOST_TEST_MESSAGE(text);
      return text.find("actor 'counter': thirteen is too much") != std::string::npos &&
             text.find("user_actor_test.cpp:" + std::to_string(line)) != std::string::npos;
    };
    BOOST_TEST(add(5) == 5);
    BOOST_CHECK_EXCEPTION(add(8), Error, names_the_actor);
    BOOST_TEST(add(5) == 5);  // a fresh actor, counting from zero
    // Two restarts in a row are allowed; the third failure leaves it down.
    for (int i = 0; i < 3; ++i) BOOST_CHECK_EXCEPTION(add(i == 0 ? 8 : 13), Error, names_the_actor);
    BOOST_CHECK_EXCEPTION(add(1), Error, [](const Error& e) {
      return std::string(e.what()).find("is down") != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(waiting_firings_survive_a_failure) {
  Graph g;
  Expr by = g.input("by", DType::i64, Shape{});
  Engine engine;
  Function f = engine.compile(g, {by}, {counter(g, by)});
  std::vector<RunHandle> runs;
  for (int i = 0; i < 26; ++i) runs.push_back(f.start({Tensor::scalar(std::int64_t(1))}));
  int failed = 0, ended = 0;
  for (RunHandle& r : runs) {
    if (!r.wait().ok()) ++failed;
    ++ended;
  }
  BOOST_TEST(ended == 26);
  BOOST_TEST(failed == 2);  // the thirteenth of each life
}

BOOST_AUTO_TEST_CASE(a_lambda_is_an_actor_and_order_is_the_programs) {
  Graph g;
  std::vector<std::int64_t> said;
  auto say = [&](std::int64_t what) {
    return actor_node(g, "log", {g.constant(what)}, {{DType::boolean, Shape{}}},
                      [&said](std::span<const Tensor> in, std::span<Tensor> out) {
                        said.push_back(in[0].item<std::int64_t>());
                        out[0] = Tensor::scalar(true);
                      })[0];
  };
  Expr a = say(1), b = say(2);
  Engine engine;
  for (int i = 0; i < 20; ++i) engine.run(g, {}, {b, a});
  std::vector<std::int64_t> expected;
  for (int i = 0; i < 20; ++i) expected.insert(expected.end(), {1, 2});
  BOOST_TEST(said == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(wrong_outputs_are_named) {
  Graph g;
  Expr out = actor_node(
      g, "liar", {}, {{DType::f32, Shape{2}}},
      [](std::span<const Tensor>, std::span<Tensor> o) { o[0] = Tensor::scalar(1.f); })[0];
  Engine engine;
  BOOST_CHECK_EXCEPTION(engine.run(g, {}, {out}), Error, [](const Error& e) {
    return std::string(e.what()).find("output 0 must be f32[2], not f32[]") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(its_exception_is_reported_once_and_as_its_own) {
  const std::vector<ValueSpec> one{{DType::f32, Shape{}}};
  const auto once = [](const std::string& why, const std::string& part) {
    const auto at = why.find(part);
    BOOST_TEST((at != std::string::npos && why.find(part, at + 1) == std::string::npos), why);
  };
  const auto factory = [] { return std::unique_ptr<NodeActor>(); };
  const std::string here = "(user_actor_test.cpp:";
  for (bool blocks : {false, true}) {
    Graph g;
    Engine engine;
    const auto told = [&](Code code, const Exprs& y) {
      return refusal([&] { engine.run(g, {}, {y[0]}); }, code);
    };
    std::string why =
        told(Code::invalid_argument,
             actor_node(g, "none", {}, one, std::function<std::unique_ptr<NodeActor>()>(factory),
                        {.blocks = blocks}));
    once(why, "the factory of actor 'none' made none"), once(why, here);
    why = told(Code::invalid_argument,
               actor_node(g, "unset", {}, one, [](std::span<const Tensor>, std::span<Tensor>) {},
                          {.blocks = blocks}));
    once(why, "actor 'unset': output 0 must be f32[], not left unset"),
        once(why, "actor 'unset': ");
    why = told(Code::invalid_argument, actor_node(g, "throws", {}, one,
                                                  [](std::span<const Tensor>, std::span<Tensor>) {
                                                    throw std::runtime_error("mine");
                                                  },
                                                  {.blocks = blocks}));
    once(why, "actor 'throws': mine");
    why = told(Code::unavailable, actor_node(g, "says", {}, one,
                                             [](std::span<const Tensor>, std::span<Tensor>) {
                                               throw Error(Code::unavailable, "later");
                                             },
                                             {.blocks = blocks}));
    once(why, "actor 'says': later");
  }
  Eager e;
  once(refusal(
           [&] {
             actor_node(e, "none", {}, one, std::function<std::unique_ptr<NodeActor>()>(factory));
           },
           Code::invalid_argument),
       "the factory of actor 'none' made none");
  once(refusal(
           [&] {
             actor_node(e, "throws", {}, one, [](std::span<const Tensor>, std::span<Tensor>) {
               throw std::runtime_error("mine");
             });
           },
           Code::invalid_argument),
       "actor 'throws': mine");
}

BOOST_AUTO_TEST_CASE(a_wrong_definition_is_refused_at_its_line) {
  Graph g;
  const unsigned line = __LINE__ + 2;
  std::string why =
      refusal([&] { actor_node<Counter>(g, "counter", {}, {}, {.max_restarts = -1}); },
              Code::invalid_argument);
  BOOST_TEST(why.find("user_actor_test.cpp:" + std::to_string(line) +
                      ": actor 'counter' cannot be restarted -1 times") != std::string::npos,
             why);
  why = refusal(
      [&] { actor_node(g, "empty", {}, {}, std::function<std::unique_ptr<NodeActor>()>()); },
      Code::invalid_argument);
  BOOST_TEST(why.find("actor 'empty' has an empty factory") != std::string::npos, why);
  refusal([&] { register_actor("empty of user_actor_test", {}); }, Code::invalid_argument);
}

BOOST_AUTO_TEST_CASE(it_also_runs_eagerly) {
  Eager e;
  Expr n = counter(e, e.constant(std::int64_t(4)));
  n = counter(e, e.constant(std::int64_t(4)));
  BOOST_TEST(n.value().item<std::int64_t>() == 8);
}

BOOST_AUTO_TEST_SUITE_END()
