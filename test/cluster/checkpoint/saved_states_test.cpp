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
#include <troupe/devices/list/list.hpp>
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

// The promises are shared: the thread that fulfils one may be the last to use it.
NamedTensors saved(Engine& engine, const std::vector<std::string>& names) {
  const auto done = std::make_shared<std::promise<std::pair<Status, NamedTensors>>>();
  save_states(engine.impl().own_states(), names, [done](const Status& status, NamedTensors all) {
    done->set_value({status, std::move(all)});
  });
  auto [status, all] = done->get_future().get();
  status.throw_if_error();
  return std::move(all);
}

void load(Engine& engine, const NamedTensors& values) {
  const auto done = std::make_shared<std::promise<Status>>();
  load_states(engine.impl().own_states(), values,
              [done](const Status& status) { done->set_value(status); });
  done->get_future().get().throw_if_error();
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

BOOST_AUTO_TEST_CASE(a_queue_of_lists_goes_on_where_it_was) {
  const auto of = [](Engine& engine) {
    Graph g;
    const Queue q = g.fifo_queue("q", {{DType::i64, Shape{}}, {DType::f32, Shape{kAny}, 2}}, 4);
    BOOST_TEST(engine.compile(g, {}, {q.size()})({})[0].at(0) == 0);  // makes it
    return engine.impl().own_states()->find("q");
  };
  Engine engine;
  const Ref<State> state = of(engine);
  List inner(DType::f32, Shape{kAny}), outer(DType::f32, Shape{kAny}, 2);
  inner.push(Tensor::of<float>({1, 2}, {2}));
  inner.push(Tensor::of<float>({3}, {1}));
  outer.push(inner);
  outer.grow(3);  // its second element is not written
  outer.write(2, List(DType::f32, Shape{kAny}));
  const RunInfo run;
  for (const std::int64_t i : {7, 8})
    dynamic_cast<QueueState&>(*state).enqueue(
        run, {Value(Tensor::scalar(i)), i == 7 ? Value(outer) : Value(List(DType::f32, {kAny}, 2))},
        [](const Status& status, const std::vector<Value>&) { status.throw_if_error(); });
  const NamedTensors values = saved(engine, {"q"});
  Engine another;
  const Ref<State> there = of(another);
  load(another, values);
  std::vector<std::vector<Value>> got;
  for (int i = 0; i < 2; ++i)
    dynamic_cast<QueueState&>(*there).dequeue(
        run, [&](const Status& status, std::vector<Value> element) {
          status.throw_if_error();
          got.push_back(std::move(element));
        });
  BOOST_REQUIRE(got.size() == 2u);
  BOOST_TEST(got[0][0].tensor().at(0) == 7);
  const List& list = got[0][1].list();
  BOOST_REQUIRE(list.length() == 3);
  BOOST_TEST(!list.read(1).has_value());
  BOOST_TEST(list.read(2).list().length() == 0);
  const Value first = list.read(0);
  BOOST_REQUIRE(first.list().length() == 2);
  BOOST_TEST(identical(first.list().read(0).tensor(), Tensor::of<float>({1, 2}, {2})));
  BOOST_TEST(identical(first.list().read(1).tensor(), Tensor::of<float>({3}, {1})));
  BOOST_TEST(got[1][1].list().length() == 0);
  // A head that describes no list, and an element of no list, are refused.
  NamedTensors wrong = values;
  for (auto& [name, value] : wrong)
    if (name == "q#0.1/") value = Tensor::of<std::int64_t>({3, 2, 99, 1, -1}, {5});
  BOOST_TEST(names(refusal([&] { load(another, wrong); }, Code::data_loss), "'0.1'"));
  wrong = values;
  std::erase_if(wrong, [](const auto& value) { return value.first == "q#0.1/0/"; });
  BOOST_TEST(names(refusal([&] { load(another, wrong); }, Code::data_loss), "'0.1/0/"));
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

BOOST_AUTO_TEST_CASE(a_shuffling_queue_goes_on_with_the_same_choices) {
  const auto rest_of = [](bool restores, std::int64_t waiting) {
    Engine engine({.seed = 9});
    Graph g;
    Queue q = g.shuffling_queue("q", {{DType::i64, Shape{}}}, 10, 2, 3);
    const Expr x = g.input("x", DType::i64, Shape());
    const Function put = engine.compile(g, {x}, {q.enqueue({x})});
    const Function take = engine.compile(g, {}, {q.dequeue()[0]});
    for (std::int64_t i = 0; i < 8; ++i) put({Tensor::scalar(i)});
    std::vector<double> all;
    for (int i = 0; i < 3; ++i) all.push_back(take({})[0].at(0));
    if (restores) {
      const NamedTensors values = saved(engine, {"q"});
      for (int i = 0; i < 3; ++i) take({});
      put({Tensor::scalar<std::int64_t>(99)});
      load(engine, values);
    }
    for (std::int64_t i = 0; i < waiting; ++i) put({Tensor::scalar(20 + i)});
    for (std::int64_t i = 0; i < 3 + waiting; ++i) all.push_back(take({})[0].at(0));
    return all;
  };
  for (const std::int64_t more : {0, 4})
    BOOST_TEST(rest_of(true, more) == rest_of(false, more), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_closed_queue_is_closed_after_a_load) {
  Engine engine;
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::i64, Shape{}}}, 4);
  const Function put = engine.compile(g, {}, {q.enqueue({g.constant<std::int64_t>(5)})});
  const Function take = engine.compile(g, {}, {q.dequeue()[0]});
  put({});
  const NamedTensors open = saved(engine, {"q"});
  engine.compile(g, {}, {q.close()})({});
  const NamedTensors closed = saved(engine, {"q"});
  load(engine, open);
  put({});
  load(engine, closed);
  refusal([&] { put({}); }, Code::failed_precondition);
  BOOST_TEST(take({})[0].at(0) == 5);
  refusal([&] { take({}); }, Code::out_of_range);
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
  refusal([&] { load(engine, {{"q#", one}, {"q#draws", one}}); }, Code::data_loss);
  refusal([&] { load(engine, {{"r#", one}}); }, Code::not_found);
  // a refused load changes nothing
  BOOST_TEST(saved(engine, {"q"}).size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()
