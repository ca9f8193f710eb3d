// Whatever is ready fires, however long a loop beside it goes on.
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/functions.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(give_way_test)

namespace {

struct Setting {
  int workers;
  Granularity granularity;
  bool deterministic;
};
std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.workers << " workers, granularity " << int(s.granularity)
             << (s.deterministic ? ", deterministic" : "");
}
const std::vector<Setting> kSettings{{1, Granularity::partition, false},
                                     {2, Granularity::automatic, false},
                                     {2, Granularity::op, false},
                                     {1, Granularity::partition, true},
                                     {1, Granularity::automatic, true}};

Expr count_to(Graph& g, Expr end) {
  return while_loop([=](Expr i) { return i < end; }, [](Expr i) { return i + 1; },
                    g.constant(std::int64_t{0}));
}

/// Lets the run go on until `is_so`. There is no bound: it is under test that it comes to that.
template <class Is>
void goes_on_until(Engine& engine, const RunHandle& run, const Is& is_so) {
  while (!is_so()) {
    BOOST_REQUIRE(!run.is_done());
    if (!engine.take_step()) std::this_thread::yield();  // with threads it takes none
  }
}

}  // namespace

BOOST_DATA_TEST_CASE(ready_nodes_beside_a_loop_fire, boost::unit_test::data::make(kSettings),
                     setting) {
  EngineOptions o;
  o.workers = setting.workers, o.granularity = setting.granularity,
  o.deterministic = setting.deterministic;
  Engine engine(o);
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  std::vector<Variable> done;
  std::vector<Expr> fetches;
  // Whichever becomes ready first: some lie below the loops, some above, and what they make ready
  // in turn.
  for (int i = 0; i < 6; ++i) {
    if (i == 2 || i == 4) fetches.push_back(count_to(g, n));
    done.push_back(
        g.variable("done" + std::to_string(i), DType::i64, Shape{}, Initializer::constant(0)));
    Expr once = done.back().assign_add(std::int64_t{1});
    auto after = g.after({once});
    fetches.push_back(done.back().assign_add(std::int64_t{1}));
  }
  RunHandle run = engine.compile(g, {n}, fetches)
                      .start({Tensor::scalar(std::numeric_limits<std::int64_t>::max())});
  for (const Variable& v : done)
    goes_on_until(engine, run, [&] { return engine.get(v).item<std::int64_t>() == 2; });
  run.cancel();
  while (engine.take_step()) {}
  BOOST_TEST((run.wait().code() == Code::cancelled));
}

// On a device with a stream elements are taken out of lists when nothing else is ready. Beside a
// loop that would be never.
BOOST_DATA_TEST_CASE(elements_are_taken_out_of_lists_beside_a_loop,
                     boost::unit_test::data::make(kSettings), setting) {
  EngineOptions o;
  o.workers = setting.workers, o.granularity = setting.granularity,
  o.deterministic = setting.deterministic;
  o.default_device = "sim:0";
  Engine engine(o);
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{}), x = g.input("x", DType::f32, {4});
  Variable sums = g.variable("sums", DType::f32, {4}, Initializer::constant(0));
  auto [i, list] = while_loop([](Expr k, Expr) { return k < 20; },
                              [&](Expr k, Expr all) {
                                return std::tuple{k + 1, list_push(all, x + cast(k, DType::f32))};
                              },
                              std::tuple{g.constant(0), list_empty(g, {DType::f32, {4}})});
  Expr all = list;
  auto [k, sum] = while_loop([](Expr j, Expr) { return j < 20; },
                             [&](Expr j, Expr v) {
                               return std::tuple{j + 1, v + list_read(all, j)};
                             },
                             std::tuple{g.constant(0), x});
  RunHandle run = engine.compile(g, {n, x}, {count_to(g, n), sums.assign(sum)})
                      .start({Tensor::scalar(std::numeric_limits<std::int64_t>::max()),
                              Tensor::of<float>({1, 1, 1, 1})});
  goes_on_until(engine, run,
                [&] { return engine.get(sums).to_vector<float>() == std::vector<float>(4, 211); });
  run.cancel();
  while (engine.take_step()) {}
  BOOST_TEST((run.wait().code() == Code::cancelled));
}

// Heavy kernels wait until nothing light is ready, so that light ones can enable more of them.
// Beside a loop that would be never.
BOOST_AUTO_TEST_CASE(heavy_kernels_begin_beside_a_loop) {
  Engine engine({.workers = 2});
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{}), a = g.input("a", DType::f32, {384, 384});
  std::vector<Variable> sums;
  std::vector<Expr> fetches;
  for (int i = 0; i < 3; ++i) {
    sums.push_back(
        g.variable("sum" + std::to_string(i), DType::f32, Shape{}, Initializer::constant(0)));
    fetches.push_back(sums.back().assign_add(sum(matmul(a, a + static_cast<double>(i)))));
  }
  fetches.push_back(count_to(g, n));
  Function f = engine.compile(g, {n, a}, fetches);
  const Tensor ones = Tensor::of<float>(std::vector<float>(384 * 384, 1), {384, 384});
  // it learns what is heavy
  for (int i = 0; i < 5; ++i) f({Tensor::scalar(std::int64_t{10}), ones});
  std::vector<float> before;
  for (const Variable& v : sums) before.push_back(engine.get(v).item<float>());
  RunHandle run = f.start({Tensor::scalar(std::numeric_limits<std::int64_t>::max()), ones});
  for (std::size_t i = 0; i < sums.size(); ++i)
    goes_on_until(engine, run, [&] { return engine.get(sums[i]).item<float>() != before[i]; });
  run.cancel();
  BOOST_TEST((run.wait().code() == Code::cancelled));
}

BOOST_AUTO_TEST_SUITE_END()
