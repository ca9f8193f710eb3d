// Sharded variables over devices of one process, simulated devices and nodes: look-ups, gradients
// and optimizer steps against the whole table, the bytes that look-ups move, and refusals.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/sharded_variable.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(sharded_variable_test)

namespace {

constexpr std::int64_t kRows = 11, kColumns = 3;

struct Place {
  const char* name;
  std::vector<std::string> devices;
  int nodes;
};
const std::vector<Place> kPlaces{
    {"one process", {"cpu:0", "cpu:1", "cpu:2"}, 1},
    {"simulated devices", {"sim:0", "cpu:0", "sim:1"}, 1},
    {"nodes", {"/node:a/cpu:0", "/node:b/cpu:0", "/node:c/cpu:0"}, 3},
};
const std::vector<Partitioner> kPartitioners{Partitioner::range(), Partitioner::modulo(),
                                             Partitioner::range(4), Partitioner::modulo(5),
                                             Partitioner::fixed_size(2 * kColumns * 8)};

Tensor table_of(std::int64_t rows = kRows) {
  Tensor t = Tensor::zeros(DType::f64, {rows, kColumns});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<double>()[i] = 0.25 * static_cast<double>(i % 29) - 2;
  return t;
}

// The rows of the whole table that shard s has, in its order.
Tensor part_of(const Tensor& table, const ShardedVariable& v, std::size_t s, bool is_modulo) {
  const auto count = static_cast<std::int64_t>(v.shards().size());
  const std::int64_t most = (v.shape()[0] + count - 1) / count;
  Tensor part = Tensor::zeros(DType::f64, v.shards()[s].shape());
  for (std::int64_t r = 0; r < part.shape()[0]; ++r) {
    const auto at = static_cast<std::int64_t>(s);
    const std::int64_t row = is_modulo ? r * count + at : at * most + r;
    std::copy_n(table.data<double>() + row * kColumns, kColumns,
                part.mutable_data<double>() + r * kColumns);
  }
  return part;
}

// A graph with a sharded table and the same table whole, on an engine or on nodes.
struct Both {
  Both(const Place& place, Partitioner partitioner)
      : is_modulo(partitioner.kind() == Partitioner::Kind::modulo), group("servers", place.devices),
        sharded(g, "table", DType::f64, {kRows, kColumns}, Initializer::constant(0), group,
                partitioner),
        whole(g.variable("whole", table_of())) {
    if (place.nodes > 1) nodes = std::make_unique<Nodes>(place.nodes);
    else alone = std::make_unique<Engine>();
  }
  Engine& engine() { return nodes ? nodes->engine() : *alone; }
  void fill() {
    for (std::size_t s = 0; s < sharded.shards().size(); ++s)
      engine().set(sharded.shards()[s], part_of(table_of(), sharded, s, is_modulo));
  }
  std::vector<Tensor> run(const Feeds& feeds, const Exprs& fetches) {
    if (!is_filled) {
      // the states exist once a program of theirs was compiled
      const Function f = engine().compile(g, {}, {sharded.read(), whole.read()});
      f({});
      fill();
      is_filled = true;
    }
    return engine().run(g, feeds, fetches);
  }

  bool is_modulo, is_filled = false;
  Graph g;
  Group group;
  ShardedVariable sharded;
  Variable whole;
  std::unique_ptr<Nodes> nodes;
  std::unique_ptr<Engine> alone;
};

void for_all(const std::function<void(Both&)>& check) {
  for (const Place& place : kPlaces)
    for (const Partitioner& partitioner : kPartitioners) {
      BOOST_TEST_CONTEXT(place.name) {
        Both both(place, partitioner);
        check(both);
      }
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(lookup_yields_the_rows_of_the_whole_table) {
  for_all([](Both& b) {
    Expr ids = b.g.input("ids", DType::i64, {kAny}), grid = b.g.input("grid", DType::i32, {2, 2});
    const Exprs fetches{b.sharded.lookup(ids), gather(b.whole, ids), b.sharded.lookup(grid),
                        gather(b.whole, grid), b.sharded.read()};
    const Tensor square = Tensor::of<std::int32_t>({10, 0, 5, 5}, {2, 2});
    for (const std::vector<std::int64_t>& some : std::vector<std::vector<std::int64_t>>{
             {0, 10, 3, 3, 7, 0}, {4, 4, 4}, {}, {10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}}) {
      const auto n = static_cast<std::int64_t>(some.size());
      const std::vector<Tensor> out =
          b.run({{ids, Tensor::of<std::int64_t>(some, {n})}, {grid, square}}, fetches);
      BOOST_TEST(identical(out[0], out[1]));
      BOOST_TEST(identical(out[2], out[3]));
      BOOST_TEST(identical(out[4], table_of()));
    }
  });
}

// Rows that occur twice, and shards without a row of the call.
BOOST_AUTO_TEST_CASE(gradients_and_optimizers_change_the_rows_used) {
  for_all([](Both& b) {
    Expr ids = b.g.input("ids", DType::i64, {kAny});
    const auto loss = [&](const Expr& rows) { return sum(square(rows) * rows); };
    const Expr step = group(
        {Adagrad({.learning_rate = 0.5}).minimize(loss(b.sharded.lookup(ids)), b.sharded.shards()),
         Adagrad({.learning_rate = 0.5}).minimize(loss(gather(b.whole, ids)), {b.whole})});
    for (int i = 0; i < 3; ++i)
      b.run({{ids, Tensor::of<std::int64_t>({1, 4, 4, 10, 1}, {5})}}, {step});
    const std::vector<Tensor> out = b.run({}, {b.sharded.read(), b.whole.read()});
    BOOST_TEST(out[0].to_vector<double>() == out[1].to_vector<double>(),
               boost::test_tools::tolerance(1e-12) << boost::test_tools::per_element());
    BOOST_TEST(!identical(out[0], table_of()));
  });
}

BOOST_AUTO_TEST_CASE(scatter_add_adds_duplicates_up) {
  for_all([](Both& b) {
    Expr ids = b.g.input("ids", DType::i64, {kAny}),
         rows = b.g.input("rows", DType::f64, {kAny, kColumns});
    const Expr step = group({b.sharded.scatter_add(ids, rows), b.whole.scatter_add(ids, rows)});
    Tensor updates = Tensor::zeros(DType::f64, {4, kColumns});
    for (std::int64_t i = 0; i < updates.elements(); ++i)
      updates.mutable_data<double>()[i] = static_cast<double>(i);
    b.run({{ids, Tensor::of<std::int64_t>({9, 2, 9, 0}, {4})}, {rows, updates}}, {step});
    const std::vector<Tensor> out = b.run({}, {b.sharded.read(), b.whole.read()});
    BOOST_TEST(identical(out[0], out[1]));
  });
}

BOOST_AUTO_TEST_CASE(sampled_softmax_approaches_the_whole_one) {
  Graph g;
  const Group servers("servers", {"cpu:0", "cpu:1"});
  const ShardedVariable weights(g, "w", DType::f64, {5, 2}, Initializer::normal(0, 1, 3), servers),
      biases(g, "b", DType::f64, {5}, Initializer::normal(0, 1, 4), servers);
  Expr x = g.constant(Tensor::of<double>({1, 2, -1, 0.5, 0, -2}, {3, 2})),
       labels = g.constant(Tensor::of<std::int64_t>({0, 4, 2}, {3}));
  const Expr few = sampled_softmax(weights, biases, x, labels, 60'000);
  const Expr all = cross_entropy(matmul(x, transpose(weights.read())) + biases.read(), labels);
  Engine engine;
  const std::vector<Tensor> out = engine.run(g, {}, {few, all});
  for (std::int64_t i = 0; i < 3; ++i) BOOST_TEST(std::abs(out[0].at(i) - out[1].at(i)) < 0.03);
  // The gradient reaches rows of the shards.
  const Expr slope = gradients(sum(few), weights.shards()[0])[0];
  BOOST_TEST(slope.shape() == Shape({3, 2}));
}

BOOST_AUTO_TEST_CASE(refusals_name_table_and_number) {
  Graph g;
  const Group servers("servers", {"cpu:0", "cpu:1", "cpu:2"});
  const auto of = [&](const Shape& shape, Partitioner p, Initializer initial = {}) {
    return refusal([&] { ShardedVariable(g, "t", DType::f32, shape, initial, servers, p); },
                   Code::invalid_argument);
  };
  BOOST_TEST(of({2, 4}, Partitioner::range()) ==
             "the partitioner: 2 rows over 3 shards leave shard 2 without a row; use 2 or fewer");
  BOOST_TEST(of({9, 4}, Partitioner::range(7)) ==
             "the partitioner: 9 rows over 7 shards leave shard 5 without a row; use 5 or fewer");
  BOOST_TEST(of({9, 4}, Partitioner::fixed_size(8)) ==
             "the partitioner: a row has 16 bytes, more than the 8 of a shard");
  BOOST_TEST(of({}, Partitioner::range()).find("needs one row or more") != std::string::npos);
  BOOST_TEST(of({9, 4}, Partitioner::range(), Initializer::tensor(Tensor::scalar(1.f)))
                 .find("starts as a tensor") != std::string::npos);

  const ShardedVariable t(g, "table", DType::f32, {9, 4}, Initializer::constant(0), servers);
  Expr ids = g.input("ids", DType::i64, {kAny}), wrong = g.input("wrong", DType::f32, {kAny});
  BOOST_TEST(refusal([&] { t.lookup(wrong); }, Code::invalid_argument)
                 .find("the ids are f32; give i32 or i64") != std::string::npos);
  Engine engine;
  const Function f = engine.compile(g, {ids}, {t.lookup(ids)});
  for (const std::int64_t id : {-1, 9})
    BOOST_TEST(refusal(
                   [&] {
                     f({Tensor::of<std::int64_t>({0, id}, {2})});
                   },
                   Code::invalid_argument)
                   .find("the table 'table' has the rows 0 to 8") != std::string::npos);
  f({Tensor::of<std::int64_t>({0, 8}, {2})});
}

BOOST_AUTO_TEST_SUITE_END()
