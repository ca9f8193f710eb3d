// States as named tensors and back: variables, queues, actors that can be saved and others.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/checkpoint/saved_states.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/saved_actor.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(saved_states_test)

namespace {

struct Counter final : SavedActor {
  std::int64_t next = 0;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    out[0] = Tensor::scalar(next++);
  }
  SavedValues save() const override { return {{"next", Tensor::scalar(next)}}; }
  void load(const SavedValues& values) override { next = values.at("next").item<std::int64_t>(); }
};

struct Forgetful final : NodeActor {
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    out[0] = Tensor::scalar<std::int64_t>(7);
  }
};

NamedTensors saved(Engine& engine, const std::vector<std::string>& names) {
  std::promise<NamedTensors> values;
  save_states(engine.impl().own_states(), names, [&](const Status& status, NamedTensors all) {
    try {
      status.throw_if_error();
      values.set_value(std::move(all));
    } catch (...) { values.set_exception(std::current_exception()); }
  });
  return values.get_future().get();
}

void load(Engine& engine, const NamedTensors& values) {
  std::promise<void> done;
  load_states(engine.impl().own_states(), values, [&](const Status& status) {
    try {
      status.throw_if_error();
      done.set_value();
    } catch (...) { done.set_exception(std::current_exception()); }
  });
  done.get_future().get();
}

bool names(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(actors_queues_and_variables_go_on_where_they_were) {
  for (const bool blocks : {false, true}) {
    Engine engine;
    Graph g;
    const Expr n =
        actor_node<Counter>(g, "counter", {}, {{DType::i64, Shape{}}}, {.blocks = blocks})[0];
    Variable v = g.variable("v", DType::f32, {2}, Initializer::constant(1));
    Queue q = g.fifo_queue("q", {{DType::i64, Shape{}}}, 10);
    Function count = engine.compile(g, {}, {n});
    Function put = engine.compile(g, {}, {q.enqueue({n})});
    Function take = engine.compile(g, {}, {q.dequeue()[0]});
    for (int i = 0; i < 3; ++i) put({});
    BOOST_TEST(engine.get(v).at(0) == 1);  // made on first use
    const NamedTensors values = saved(engine, {"counter", "v", "q"});
    // Saving changes nothing.
    BOOST_TEST(take({})[0].at(0) == 0);
    BOOST_TEST(count({})[0].at(0) == 3);
    put({});
    engine.set(v, Tensor::of<float>({8, 9}, {2}));
    load(engine, values);
    BOOST_TEST(engine.get(v).at(0) == 1);
    for (int i = 0; i < 3; ++i) BOOST_TEST(take({})[0].at(0) == i);
    BOOST_TEST(count({})[0].at(0) == 3);
  }
}

BOOST_AUTO_TEST_CASE(elements_that_wait_for_room_keep_their_place) {
  Engine engine;
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::i64, Shape{}}}, 2);
  Expr x = g.input("x", DType::i64, Shape());
  Function put = engine.compile(g, {x}, {q.enqueue({x})});
  Function take = engine.compile(g, {}, {q.dequeue()[0]});
  for (const std::int64_t i : {0, 1}) put({Tensor::scalar(i)});
  const Ref<State> state = engine.impl().own_states()->find("q");
  RunInfo run;
  run.id = 1'000'000;
  int put_in = 0;
  for (const std::int64_t i : {2, 3, 4})
    dynamic_cast<QueueState&>(*state).enqueue(
        run, {Value(Tensor::scalar(i))},
        [&](const Status& status, const std::vector<Value>&) { put_in += status.ok(); });
  BOOST_TEST(put_in == 0);
  const NamedTensors values = saved(engine, {"q"});
  BOOST_TEST(values.size() == 6u);
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto saved_i = std::find_if(values.begin(), values.end(), [&](const auto& value) {
      return value.first == "q#" + std::to_string(i) + ".0";
    });
    BOOST_REQUIRE((saved_i != values.end()));
    BOOST_TEST(saved_i->second.at(0) == i);
    BOOST_TEST(take({})[0].at(0) == i);
  }
  BOOST_TEST(put_in == 3);
  load(engine, values);
  for (int i = 0; i < 5; ++i) BOOST_TEST(take({})[0].at(0) == i);
}

BOOST_AUTO_TEST_CASE(an_actor_that_cannot_be_saved_is_named) {
  Engine engine;
  Graph g;
  const Expr n = actor_node<Forgetful>(g, "forgetful", {}, {{DType::i64, Shape{}}})[0];
  BOOST_TEST(engine.compile(g, {}, {n})({})[0].at(0) == 7);
  const std::string why = refusal([&] { saved(engine, {"forgetful"}); }, Code::failed_precondition);
  BOOST_TEST((names(why, "actor 'forgetful'") && names(why, "SavedActor")), why);
  // It is none the worse for it.
  BOOST_TEST(engine.compile(g, {}, {n})({})[0].at(0) == 7);
  refusal([&] { saved(engine, {"absent"}); }, Code::not_found);
}

BOOST_AUTO_TEST_CASE(a_shuffling_queue_has_to_be_empty) {
  Engine engine;
  Graph g;
  Queue q = g.shuffling_queue("q", {{DType::i64, Shape{}}}, 10, 0, 3);
  Function put = engine.compile(g, {}, {q.enqueue({g.constant<std::int64_t>(5)})});
  Function take = engine.compile(g, {}, {q.dequeue()[0]});
  put({});
  BOOST_TEST(names(refusal([&] { saved(engine, {"q"}); }, Code::failed_precondition), "'q'"));
  take({});
  const NamedTensors values = saved(engine, {"q"});
  BOOST_TEST(values.size() == 1u);
  load(engine, values);
  put({});
  refusal([&] { load(engine, values); }, Code::failed_precondition);
}

BOOST_AUTO_TEST_CASE(values_that_do_not_fit_are_refused) {
  Engine engine;
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::i64, Shape{}}}, 2);
  engine.compile(g, {}, {q.enqueue({g.constant<std::int64_t>(5)})})({});
  const Tensor one = Tensor::scalar<std::uint8_t>(1), five = Tensor::scalar<std::int64_t>(5);
  refusal([&] { load(engine, {{"q#", one}, {"q#x", five}}); }, Code::data_loss);
  refusal([&] { load(engine, {{"q#", one}, {"q#1.0", five}}); }, Code::data_loss);
  refusal([&] { load(engine, {{"q#", one}, {"q#0.0", one}}); }, Code::invalid_argument);
  refusal([&] { load(engine, {{"r#", one}}); }, Code::not_found);
}

BOOST_AUTO_TEST_SUITE_END()
