// Data-parallel steps over devices of one process, simulated devices and nodes, against one step on
// the batch of all replicas; buckets, mirrored variables, global batch normalisation; refusals.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/batch_norm.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(data_parallel_test)

namespace {

namespace tools = boost::test_tools;
constexpr int kReplicas = 3;
constexpr std::int64_t kRows = 4, kColumns = 3;

struct Where {
  const char* name;
  std::vector<std::string> devices;
  int nodes;
};
const std::vector<Where> kPlaces{
    {"one process", {"cpu:0", "cpu:1", "cpu:2"}, 1},
    {"simulated devices", {"sim:0", "cpu:0", "sim:1"}, 1},
    {"nodes", {"/node:a/cpu:0", "/node:b/cpu:0", "/node:c/cpu:0"}, 3},
};

// A graph over a place, and the engine that runs it.
struct Program {
  explicit Program(const Where& place) : group("replicas", place.devices) {
    if (place.nodes > 1) nodes = std::make_unique<Nodes>(place.nodes);
    else alone = std::make_unique<Engine>();
  }
  Engine& engine() { return nodes ? nodes->engine() : *alone; }
  auto on(int r) { return g.on_device(group.device(r)); }

  Graph g;
  Group group;
  std::unique_ptr<Nodes> nodes;
  std::unique_ptr<Engine> alone;
};

// Errors, `explain` and the page show these lines, which must be the caller's.
void check_lines(const Graph& g) {
  for (std::int32_t id = 0; id < g.size(); ++id)
    BOOST_TEST(std::string_view(g.node(id).site.file).ends_with("data_parallel_test.cpp"),
               g.describe(id));
}

Tensor numbers(std::int64_t rows, std::int64_t columns, int salt) {
  Tensor t = Tensor::zeros(DType::f64, {rows, columns});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<double>()[i] = static_cast<double>((i * 37 + salt * 11) % 23) / 23 - 0.4;
  return t;
}

// A network of two layers and a table of rows.
struct Weights {
  Variable w, v, table;
};
const Initializer kInitial[] = {Initializer::tensor(numbers(kColumns, 5, 1)),
                                Initializer::tensor(numbers(5, 1, 2)),
                                Initializer::tensor(numbers(7, kColumns, 3))};
const Shape kShapes[] = {{kColumns, 5}, {5, 1}, {7, kColumns}};
const char* const kNames[] = {"w", "v", "table"};

Expr loss_of(const Weights& of, const Expr& x, const Expr& ids) {
  return mean(square(matmul(tanh(matmul(x + gather(of.table, ids), of.w)), of.v) - 0.7));
}
Tensor ids_of(int r) { return Tensor::of<std::int64_t>({r, 6 - r, r, 2}, {kRows}); }

// Values of w, v and table after three steps by `step`.
using MakeStep = std::function<data_parallel::Step(Program&, const Exprs& losses,
                                                   const std::vector<Variable>& shared,
                                                   const std::vector<MirroredVariable>& mirrored)>;

std::vector<Tensor> trained(const Where& place, bool is_mirrored, const MakeStep& make,
                            int copy = 0) {
  Program p(place);
  std::vector<Variable> shared;
  std::vector<MirroredVariable> mirrored;
  for (int i = 0; i < 3; ++i)
    if (is_mirrored)
      mirrored.emplace_back(p.g, kNames[i], DType::f64, kShapes[i], kInitial[i], p.group);
    else shared.push_back(p.g.variable(kNames[i], DType::f64, kShapes[i], kInitial[i]));
  Exprs losses;
  for (int r = 0; r < kReplicas; ++r) {
    const auto there = p.on(r);
    const Weights of = is_mirrored ? Weights{mirrored[0][r], mirrored[1][r], mirrored[2][r]}
                                   : Weights{shared[0], shared[1], shared[2]};
    losses.push_back(
        loss_of(of, p.g.constant(numbers(kRows, kColumns, 10 + r)), p.g.constant(ids_of(r))));
  }
  const data_parallel::Step step = make(p, losses, shared, mirrored);
  check_lines(p.g);
  const Function train = p.engine().compile(p.g, {}, {step.loss, step.train});
  if (is_mirrored) p.engine().run(p.g, {}, {MirroredVariable::start(mirrored)});
  for (int i = 0; i < 3; ++i) train({});
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < 3; ++i)
    out.push_back(p.engine().get(is_mirrored ? mirrored[i][copy] : shared[i]));
  return out;
}

// The values of one replica that has all rows, at one device.
std::vector<Tensor> on_the_whole_batch(const Optimizer& optimizer, double clip_norm = 0) {
  Graph g;
  Engine engine;
  std::vector<Variable> all;
  for (int i = 0; i < 3; ++i)
    all.push_back(g.variable(kNames[i], DType::f64, kShapes[i], kInitial[i]));
  Exprs xs, ids;
  for (int r = 0; r < kReplicas; ++r) {
    xs.push_back(g.constant(numbers(kRows, kColumns, 10 + r)));
    ids.push_back(g.constant(ids_of(r)));
  }
  const Expr loss = loss_of({all[0], all[1], all[2]}, concat(xs, 0), concat(ids, 0));
  std::vector<Cotangent> slopes = cotangents(loss, all);
  if (clip_norm > 0) slopes = clip_by_global_norm(slopes, clip_norm);
  const Function train = engine.compile(g, {}, {optimizer.apply(slopes, all)});
  for (int i = 0; i < 3; ++i) train({});
  std::vector<Tensor> out;
  for (const Variable& v : all) out.push_back(engine.get(v));
  return out;
}

void check_near(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  BOOST_REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    BOOST_TEST(got[i].to_vector<double>() == wanted[i].to_vector<double>(),
               tools::tolerance(1e-9) << tools::per_element());
}
void check_identical(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  BOOST_REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(identical(got[i], wanted[i]), kNames[i]);
}

MakeStep synchronous_by(const Optimizer& o, const data_parallel::Options& options = {}) {
  return [&o, options](Program& p, const Exprs& losses, const auto& shared, const auto&) {
    return data_parallel::synchronous(p.group, losses, shared, o, options);
  };
}
MakeStep collectives_by(const Optimizer& o, const data_parallel::Options& options = {}) {
  return [&o, options](Program& p, const Exprs& losses, const auto&, const auto& mirrored) {
    return data_parallel::by_collectives(p.group, losses, mirrored, o, options);
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(synchronous_step_is_that_of_the_whole_batch) {
  const Adagrad optimizer({.learning_rate = 0.1});
  const auto wanted = on_the_whole_batch(optimizer);
  const auto first = trained(kPlaces[0], false, synchronous_by(optimizer));
  check_near(first, wanted);
  BOOST_TEST(!identical(first[2], numbers(7, kColumns, 3)));
  for (const Where& place : kPlaces) BOOST_TEST_CONTEXT(place.name)
  check_identical(trained(place, false, synchronous_by(optimizer)), first);
}

BOOST_AUTO_TEST_CASE(step_by_collectives_has_the_bits_of_the_synchronous_one) {
  const Adagrad optimizer({.learning_rate = 0.1});
  const auto wanted = trained(kPlaces[0], false, synchronous_by(optimizer));
  for (const Where& place : kPlaces)
    for (const std::int64_t bytes : {0, 64, 1 << 20})
      for (int copy = 0; copy < kReplicas; ++copy)
        BOOST_TEST_CONTEXT(place.name << ", buckets of " << bytes << " bytes, copy " << copy)
  check_identical(
      trained(place, true, collectives_by(optimizer, {.buckets = {.bytes = bytes}}), copy), wanted);
}

BOOST_AUTO_TEST_CASE(clipping_is_by_the_norm_of_all_replicas) {
  const Sgd optimizer({.learning_rate = 0.5});
  const auto wanted = on_the_whole_batch(optimizer, 0.05);
  BOOST_TEST(!identical(wanted[0], on_the_whole_batch(optimizer)[0]));
  for (const Where& place : kPlaces) BOOST_TEST_CONTEXT(place.name) {
      check_near(trained(place, false, synchronous_by(optimizer, {.clip_norm = 0.05})), wanted);
      check_near(trained(place, true, collectives_by(optimizer, {.clip_norm = 0.05})), wanted);
    }
}

// Values are made in the order 3, 2, 1, 0, as a backward pass makes those of layers: two fit into a
// bucket, which waits for no other value.
BOOST_AUTO_TEST_CASE(bucket_holds_consecutive_values_and_waits_for_no_others) {
  Graph g;
  const Group group("replicas", {"/node:a/cpu:0", "/node:b/cpu:0"});
  const Expr x = g.input("x", DType::f32, {2});
  std::vector<Exprs> values(4);
  for (std::size_t i = 4; i-- > 0;)
    for (int r = 0; r < 2; ++r) values[i].push_back(x * static_cast<double>(i + 1));
  const std::vector<Exprs> out = all_reduce(group, values, Combine::sum, {.bytes = 16});
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<bool> is_behind(static_cast<std::size_t>(g.size()));
    is_behind[static_cast<std::size_t>(out[i][0].edge().node)] = true;
    for (std::int32_t id = g.size(); id-- > 0;)
      if (is_behind[static_cast<std::size_t>(id)])
        for (const Edge& e : g.node(id).inputs) is_behind[static_cast<std::size_t>(e.node)] = true;
    for (std::size_t k = 0; k < 4; ++k)
      BOOST_TEST(is_behind[static_cast<std::size_t>(values[k][1].edge().node)] == (i / 2 == k / 2),
                 "value " << k << " behind value " << i);
  }
  Engine engine;
  const std::vector<Exprs> here =
      all_reduce(Group("here", {"cpu:0", "cpu:1"}), values, Combine::sum, {.bytes = 16});
  const std::vector<Tensor> got = engine.run(g, {{x, Tensor::of<float>({1, 3}, {2})}},
                                             {here[0][0], here[1][1], here[2][0], here[3][1]});
  for (std::size_t i = 0; i < 4; ++i) {
    const float n = 2 * static_cast<float>(i + 1);
    BOOST_TEST(got[i].to_vector<float>() == (std::vector<float>{n, 3 * n}), tools::per_element());
  }
}

// loss_r = (w - c_r)^2 / 2 has the gradient w - c_r: the oracle is a loop over doubles.
BOOST_AUTO_TEST_CASE(local_sgd_averages_copies_after_each_few_steps) {
  const double targets[] = {1, 2, 6};
  for (const int every : {1, 2, 3})
    for (const Where& place : kPlaces) {
      double w[] = {0, 0, 0};
      for (int step = 1; step <= 4; ++step) {
        for (int r = 0; r < kReplicas; ++r) w[r] -= 0.25 * (w[r] - targets[r]);
        if (step % every == 0) w[0] = w[1] = w[2] = (w[0] + w[1] + w[2]) / 3;
      }
      Program p(place);
      const MirroredVariable v(p.g, "w", DType::f64, {2}, Initializer::constant(0), p.group);
      Exprs losses;
      for (int r = 0; r < kReplicas; ++r) {
        const auto there = p.on(r);
        losses.push_back(sum(square(v[r].read() - targets[r])) * 0.5);
      }
      const data_parallel::Step step =
          data_parallel::local_sgd(p.group, losses, {v}, Sgd({.learning_rate = 0.25}), every);
      check_lines(p.g);
      const Function train = p.engine().compile(p.g, {}, {step.loss, step.train});
      for (int i = 0; i < 4; ++i) train({});
      for (int r = 0; r < kReplicas; ++r)
        BOOST_TEST(p.engine().get(v[r]).to_vector<double>() == (std::vector<double>{w[r], w[r]}),
                   tools::tolerance(1e-12) << tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(mirrored_copies_start_as_the_first) {
  for (const Where& place : kPlaces) {
    Program p(place);
    const MirroredVariable v(p.g, "w", DType::f32, {4, 2}, Initializer::normal(0, 1, 3), p.group);
    p.engine().run(p.g, {}, {MirroredVariable::start({v})});
    for (int r = 1; r < kReplicas; ++r)
      BOOST_TEST(identical(p.engine().get(v[r]), p.engine().get(v[0])));
  }
}

// Members have 2, 3 and 4 rows, far from 0.
BOOST_AUTO_TEST_CASE(global_batch_norm_is_that_of_all_rows) {
  Tensor scale = numbers(1, kColumns, 5).reshaped({kColumns}),
         bias = numbers(1, kColumns, 6).reshaped({kColumns});
  const auto rows_of = [](int r) {
    Tensor t = numbers(2 + r, kColumns, 20 + r);
    for (std::int64_t i = 0; i < t.elements(); ++i) t.mutable_data<double>()[i] += 1000;
    return t;
  };
  for (const Where& place : kPlaces) {
    Program p(place);
    Exprs xs, ys, scales, biases, all;
    for (int r = 0; r < kReplicas; ++r) {
      const auto there = p.on(r);
      xs.push_back(p.g.constant(rows_of(r)) * 1.0);
      scales.push_back(p.g.constant(scale));
      biases.push_back(p.g.constant(bias));
    }
    const Expr joined = concat(xs, 0), weights = p.g.constant(numbers(9, kColumns, 7));
    const Exprs whole = batch_norm(joined, scales[0], biases[0]);
    const BatchNorm n = collective::batch_norm(p.group, xs, scales, biases);
    const Expr y = concat(n.y, 0);
    const std::vector<Tensor> out = p.engine().run(
        p.g, {},
        {y, whole[0], n.mean[2], whole[1], n.variance[1], whole[2],
         gradients(sum(y * weights), xs[1])[0], gradients(sum(whole[0] * weights), xs[1])[0]});
    for (std::size_t i = 0; i < out.size(); i += 2)
      BOOST_TEST(out[i].to_vector<double>() == out[i + 1].to_vector<double>(),
                 tools::tolerance(1e-6) << tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(members_without_rows_count_for_nothing_in_global_batch_norm) {
  Program p(kPlaces[0]);
  Exprs xs, scales, biases;
  for (int r = 0; r < kReplicas; ++r) {
    const auto there = p.on(r);
    xs.push_back(p.g.constant(numbers(r == 1 ? 0 : 4, kColumns, 20 + r)) * 1.0);
    scales.push_back(p.g.constant(Tensor::of<double>({1, 2, 3}, {kColumns})));
    biases.push_back(p.g.constant(Tensor::of<double>({4, 5, 6}, {kColumns})));
  }
  const Exprs whole = batch_norm(concat({xs[0], xs[2]}, 0), scales[0], biases[0]);
  const Expr first_rows = p.g.constant(Tensor::of<double>({1, 1, 1, 1, 0, 0, 0, 0}, {8, 1}));
  const BatchNorm n = collective::batch_norm(p.group, xs, scales, biases);
  const std::vector<Tensor> out =
      p.engine().run(p.g, {},
                     {n.mean[1], whole[1], n.variance[1], whole[2], concat({n.y[0], n.y[2]}, 0),
                      whole[0], gradients(sum(square(n.y[0]) * n.y[0]), xs[2])[0],
                      gradients(sum(square(whole[0]) * whole[0] * first_rows), xs[2])[0]});
  for (std::size_t i = 0; i < out.size(); i += 2)
    BOOST_TEST(out[i].to_vector<double>() == out[i + 1].to_vector<double>(),
               tools::tolerance(1e-6) << tools::per_element());
}

// Each replica's loss depends on the copies of all, by the moments.
BOOST_AUTO_TEST_CASE(collective_step_equals_synchronous_with_shared_moments) {
  const Sgd optimizer({.learning_rate = 0.5});
  std::vector<std::vector<double>> got;
  for (const bool is_mirrored : {false, true})
    for (int copy = 0; copy < (is_mirrored ? kReplicas : 1); ++copy) {
      Program p(kPlaces[0]);
      const MirroredVariable mirrored(p.g, "w", DType::f64, kShapes[0], kInitial[0], p.group);
      const Variable shared = p.g.variable("shared", DType::f64, kShapes[0], kInitial[0]);
      Exprs hidden, scales, biases, losses;
      for (int r = 0; r < kReplicas; ++r) {
        const auto there = p.on(r);
        const Variable& w = is_mirrored ? mirrored[r] : shared;
        hidden.push_back(matmul(p.g.constant(numbers(kRows, kColumns, 10 + 3 * r)), w.read()));
        scales.push_back(p.g.constant(Tensor::of<double>({1, 2, 3, 4, 5}, {5})));
        biases.push_back(p.g.constant(Tensor::zeros(DType::f64, {5})));
      }
      const BatchNorm n = collective::batch_norm(p.group, hidden, scales, biases);
      for (int r = 0; r < kReplicas; ++r) {
        const auto there = p.on(r);
        losses.push_back(
            mean(square(n.y[static_cast<std::size_t>(r)] - 0.3 * static_cast<double>(r + 1))));
      }
      const data_parallel::Step step =
          is_mirrored ? data_parallel::by_collectives(p.group, losses, {mirrored}, optimizer)
                      : data_parallel::synchronous(p.group, losses, {shared}, optimizer);
      const Function train = p.engine().compile(p.g, {}, {step.loss, step.train});
      if (is_mirrored) p.engine().run(p.g, {}, {MirroredVariable::start({mirrored})});
      for (int i = 0; i < 3; ++i) train({});
      got.push_back(p.engine().get(is_mirrored ? mirrored[copy] : shared).to_vector<double>());
    }
  BOOST_TEST(got[0] != numbers(kColumns, 5, 1).to_vector<double>());
  for (std::size_t i = 1; i < got.size(); ++i)
    BOOST_TEST(got[i] == got[0], tools::tolerance(1e-9) << tools::per_element());
}

BOOST_AUTO_TEST_CASE(nodes_of_collectives_carry_the_line_of_the_call) {
  for (const int members : {2, 3, 8, 9}) {
    std::vector<std::string> devices;
    for (int i = 0; i < members; ++i) devices.push_back(fmt::format("cpu:{}", i));
    const Group group("all", devices);
    for (const std::int64_t rows : {1, 64 * 1024}) {
      Graph g;
      Exprs xs;
      for (int i = 0; i < members; ++i)
        xs.push_back(g.input(fmt::format("x{}", i), DType::f32, {members * rows, members}));
      all_reduce(group, xs);
      all_reduce(group, {xs, xs}, Combine::mean);
      reduce(group, xs, 1, Combine::max);
      reduce_scatter(group, xs, 0);
      all_gather(group, xs, 0);
      all_to_all(group, xs, 0, 1);
      barrier(group, shift(group, broadcast(group, xs[0]), 1));
      check_lines(g);
    }
  }
}

BOOST_AUTO_TEST_CASE(all_reduces_of_many_members_have_one_order) {
  for (const int members : {2, 4, 5, 8, 11})
    for (const std::int64_t n : {std::int64_t{3}, std::int64_t{100'000}}) {
      std::vector<Tensor> first;
      for (const char* kind : {"cpu", "sim"}) {
        std::vector<std::string> devices;
        for (int m = 0; m < members; ++m) devices.push_back(kind + (":" + std::to_string(m)));
        const Group group("members", devices);
        Graph g;
        Exprs xs;
        for (int m = 0; m < members; ++m) {
          const auto there = g.on_device(group.device(m));
          xs.push_back(
              g.constant(Tensor::of<float>(std::vector<float>(static_cast<std::size_t>(n),
                                                              1.0f / static_cast<float>(3 * m + 1)),
                                           {n})) *
              1.0);
        }
        Engine engine;
        const std::vector<Tensor> out = engine.run(g, {}, all_reduce(group, xs, Combine::mean));
        if (first.empty()) first = out;
        double sum = 0;
        for (int m = 0; m < members; ++m) sum += 1.0 / (3 * m + 1);
        for (const Tensor& t : out) {
          BOOST_TEST(identical(t, first[0]));
          BOOST_TEST(t.at(n - 1) == sum / members, tools::tolerance(1e-6));
        }
      }
    }
}

// A predicate of one member decides for all: a collective in a branch runs on all members or none.
BOOST_AUTO_TEST_CASE(a_collective_in_a_branch_runs_on_all_members_or_on_none) {
  for (const Where& place : kPlaces) {
    Program p(place);
    Exprs xs;
    const Expr wanted = p.g.input("wanted", DType::i64, Shape());
    for (int r = 0; r < kReplicas; ++r) {
      const auto there = p.on(r);
      xs.push_back(p.g.constant(static_cast<double>(r + 1)) * 1.0);
    }
    Exprs out;
    for (int r = 0; r < kReplicas; ++r) {
      const auto there = p.on(r);
      out.push_back(cond(
          wanted == static_cast<std::int64_t>(r),
          [&] { return all_reduce(p.group, xs)[static_cast<std::size_t>(r)]; },
          [&] { return xs[static_cast<std::size_t>(r)]; }));
    }
    const Function f = p.engine().compile(p.g, {wanted}, out);
    for (std::int64_t taken = 0; taken < 4; ++taken) {
      const std::vector<Tensor> got = f({Tensor::scalar(taken)});
      for (std::int64_t r = 0; r < kReplicas; ++r)
        BOOST_TEST(got[static_cast<std::size_t>(r)].item<double>() ==
                   (r == taken ? 6.0 : static_cast<double>(r + 1)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_value_that_only_a_branch_has_is_no_operand_of_a_collective) {
  Graph g;
  const Group group("replicas", {"cpu:0", "cpu:1"});
  const Expr x = g.input("x", DType::f32, {2}), holds = g.input("holds", DType::boolean, Shape());
  Expr inside;
  cond(
      holds,
      [&] {
        inside = x + 1.0;
        return inside;
      },
      [&] { return x; });
  const std::string text = refusal(
      [&] {
        all_reduce(group, {inside, x * 2.0});
      },
      Code::invalid_argument);
  BOOST_TEST(text.find("data_parallel_test.cpp:") != std::string::npos, text);
}

// A member whose value never comes holds up the others: the cause is named, with its line.
BOOST_AUTO_TEST_CASE(diagnose_names_the_cause_of_a_collective_that_waits,
                     *boost::unit_test::label("one_thread")) {
  for (const bool is_update : {false, true}) {
    Nodes nodes(2, stepped(3), Between::simulation);
    Graph g;
    const Group group("replicas", {"/node:a/cpu:0", "/node:b/cpu:0"});
    Exprs fetches;
    Feeds feeds;
    if (is_update) {
      const Variable w = g.variable("w", DType::f32, {2}, Initializer::constant(0));
      const Exprs losses(2, sum(square(w.read() - 1.0)));
      const ArrivalStep step = data_parallel::asynchronous(group, losses, {w}, Sgd());
      fetches = {step.train};
      feeds = {{step.ticket, Tensor::zeros(DType::i64, {2})}};
    } else {
      Exprs xs;
      for (int r = 0; r < 2; ++r) {
        const auto there = g.on_device(group.device(r));
        Queue q = g.fifo_queue("values-" + std::to_string(r), {{DType::f32, Shape{2}}}, 1);
        const Expr zeros = g.constant(Tensor::zeros(DType::f32, {2}));
        if (r == 0) nodes.engine().run(g, {}, {q.enqueue({zeros})});
        xs.push_back(q.dequeue()[0]);
      }
      fetches = all_reduce(group, xs);
    }
    RunHandle run = nodes.engine().start(g, feeds, fetches);
    for (int i = 0; i < 5000; ++i) nodes.step();
    const Time began = nodes.network().now();
    const std::vector<Diagnosis> all = nodes[0].diagnose();
    BOOST_TEST((nodes.network().now() - began <= std::chrono::seconds(2)));
    BOOST_REQUIRE(all.size() == 1u);
    for (const char* part : {is_update ? "at queue 'replicas/arrivals'" : "at queue 'values-1'",
                             "data_parallel_test.cpp:"})
      BOOST_TEST((all[0].text + all[0].actor).find(part) != std::string::npos, all[0].text);
    run.cancel();
    for (int i = 0; i < 5000; ++i) nodes.step();
  }
}

BOOST_AUTO_TEST_CASE(refusals_name_the_function_and_the_line) {
  Graph g;
  const Group group("replicas", {"cpu:0", "cpu:1", "cpu:2"});
  Variable w = g.variable("w", DType::f32, {2}, Initializer::constant(0)),
           other = g.variable("other", DType::f32, {2}, Initializer::constant(0));
  const Group pair("pair", {"cpu:0", "cpu:1"});
  const MirroredVariable two(g, "two", DType::f32, {2}, Initializer::constant(0), pair);
  Exprs losses;
  for (int r = 0; r < kReplicas; ++r) losses.push_back(sum(square(w.read() - 1.0)));
  const auto text_of = [](const auto& f) {
    const std::string text = refusal(f, Code::invalid_argument);
    BOOST_TEST(text.find("data_parallel_test.cpp:") != std::string::npos, text);
    return text;
  };
  const auto has = [](const std::string& text, const char* part) {
    BOOST_TEST(text.find(part) != std::string::npos, text);
  };
  using namespace data_parallel;
  const Sgd sgd;
  has(text_of([&] { synchronous(group, {losses[0]}, {w}, sgd); }),
      "there are 1 losses for 3 replicas; give one of each replica");
  has(text_of([&] {
        synchronous(group, losses, {w, other}, sgd);
      }),
      "the loss of replica 0 does not depend on the variable 'other'");
  has(text_of([&] { synchronous(group, losses, {w}, sgd, {.clip_norm = -1}); }),
      "clip_norm must be 0 or more, not -1");
  has(text_of([&] {
        synchronous(group, {w.read(), w.read(), w.read()}, {w}, sgd);
      }),
      "a loss must be one number");
  has(text_of([&] { synchronous(group, losses, {}, sgd); }), "there is no variable");
  has(text_of([&] { by_collectives(group, losses, {two}, sgd); }),
      "the variable 'two' has 2 copies for 3 replicas");
  has(text_of([&] { local_sgd(group, losses, {two}, sgd, 0); }), "every 0 steps; give 1 or more");
  has(text_of([&] { with_backups(group, losses, {w}, sgd, 4); }),
      "4 of 3 replicas are backups, so that an update awaits -1 gradients; give 0 to 2 backups");
  has(text_of([&] { with_backups(group, losses, {w}, sgd, 3); }), "awaits 0 gradients");
  has(text_of([&] { with_backups(group, losses, {w}, sgd, -1); }), "-1 of 3 replicas");
  has(text_of([&] { MirroredVariable::start({}); }), "there is no mirrored variable");
  has(text_of([&] {
        collective::batch_norm(pair, {w.read(), w.read()}, {w.read()}, {w.read()});
      }),
      "x must be [..., channels], not f32[2]");
  has(text_of([&] {
        all_reduce(pair, std::vector<Exprs>{{w.read(), w.read()}, {w.read()}});
      }),
      "value 1 has 1 expressions for 2 members; give one of each member");
  has(text_of([&] {
        all_reduce(pair, std::vector<Exprs>{{w.read(), cast(w.read(), DType::f64)}});
      }),
      "value 0 is f64[2] on member 1 and f32[2] on member 0");
}

BOOST_AUTO_TEST_SUITE_END()
