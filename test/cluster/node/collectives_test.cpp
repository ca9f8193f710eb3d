// Collectives over devices of one process, over simulated devices, over a GPU where there is one,
// and over nodes: values against loops, gradients against differences, refusals with both lines.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/gpu.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(collectives_test)

namespace {

// A place for a group: an engine, and three device names.
struct Where {
  std::string name;
  std::vector<std::string> devices;
  int nodes = 1;
};

std::vector<Where> everywhere_in_threes() {
  std::vector<Where> all{{"one process", {"cpu:0", "cpu:1", "cpu:2"}},
                         {"simulated devices", {"sim:0", "cpu:0", "sim:1"}},
                         {"nodes", {"/node:a/cpu:0", "/node:b/cpu:0", "/node:c/cpu:0"}, 3}};
  if (has_gpu()) all.push_back({"a GPU and CPUs", {"gpu:0", "cpu:0", "cpu:1"}});
  return all;
}

// Runs `build` at each place on x[i] = start + i * step of the shape, and compares the member's
// results with `wanted`.
using Build = std::function<Exprs(const Group&, const Exprs&)>;
using Values = std::vector<std::vector<double>>;

std::vector<Tensor> inputs_of(const Shape& shape) {
  std::vector<Tensor> in;
  for (int member = 0; member < 3; ++member) {
    Tensor t = Tensor::zeros(DType::f64, shape);
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<double>()[i] = 0.5 + 10 * member + static_cast<double>(i % 97);
    in.push_back(std::move(t));
  }
  return in;
}

std::vector<double> numbers_of(const Tensor& t) { return t.to_vector<double>(); }

void check_everywhere(const Shape& shape, const Build& build,
                      const std::function<Values(const std::vector<Tensor>&)>& wanted) {
  const std::vector<Tensor> in = inputs_of(shape);
  const Values expected = wanted(in);
  for (const Where& where : everywhere_in_threes()) {
    Graph g;
    const Group group("members", where.devices);
    Exprs xs;
    Feeds feeds;
    for (int i = 0; i < 3; ++i) {
      xs.push_back(g.input("x" + std::to_string(i), DType::f64, shape));
      feeds.emplace_back(xs.back(), in[static_cast<std::size_t>(i)]);
    }
    const Exprs out = build(group, xs);
    BOOST_REQUIRE(out.size() == expected.size());
    std::unique_ptr<Nodes> nodes;
    std::unique_ptr<Engine> alone;
    if (where.nodes > 1) nodes = std::make_unique<Nodes>(where.nodes);
    else alone = std::make_unique<Engine>();
    const std::vector<Tensor> got = (nodes ? nodes->engine() : *alone).run(g, feeds, out);
    for (std::size_t i = 0; i < got.size(); ++i)
      BOOST_TEST(numbers_of(got[i]) == expected[i], boost::test_tools::per_element());
  }
}

double combined(Combine how, const std::vector<double>& x) {
  double all = x[0];
  for (std::size_t i = 1; i < x.size(); ++i)
    all = how == Combine::min       ? std::min(all, x[i])
          : how == Combine::max     ? std::max(all, x[i])
          : how == Combine::product ? all * x[i]
                                    : all + x[i];
  return how == Combine::mean ? all * (1.0 / 3) : all;
}

std::vector<double> combination(Combine how, const std::vector<Tensor>& in) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < in[0].elements(); ++i)
    out.push_back(combined(how, {in[0].at(i), in[1].at(i), in[2].at(i)}));
  return out;
}

constexpr Combine kAll[] = {Combine::sum, Combine::mean, Combine::min, Combine::max,
                            Combine::product};

}  // namespace

BOOST_AUTO_TEST_CASE(all_reduce_gives_each_member_the_combination_of_all) {
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{150, 100}})
    for (Combine how : kAll)
      check_everywhere(
          shape, [&](const Group& g, const Exprs& x) { return all_reduce(g, x, how); },
          [&](const auto& in) { return Values(3, combination(how, in)); });
}

BOOST_AUTO_TEST_CASE(reduce_gives_the_root_the_combination) {
  check_everywhere(
      Shape{4}, [](const Group& g, const Exprs& x) { return Exprs{reduce(g, x, 2)}; },
      [](const auto& in) { return Values{combination(Combine::sum, in)}; });
}

BOOST_AUTO_TEST_CASE(broadcast_gives_each_member_one_value) {
  check_everywhere(
      Shape{4}, [](const Group& g, const Exprs& x) { return broadcast(g, x[1]); },
      [](const auto& in) { return Values(3, numbers_of(in[1])); });
}

BOOST_AUTO_TEST_CASE(reduce_scatter_gives_each_member_its_piece) {
  check_everywhere(
      Shape{2, 6}, [](const Group& g, const Exprs& x) { return reduce_scatter(g, x, -1); },
      [](const auto& in) {
        const std::vector<double> sum = combination(Combine::sum, in);
        Values out;
        for (std::size_t j = 0; j < 3; ++j)
          out.push_back({sum[2 * j], sum[2 * j + 1], sum[6 + 2 * j], sum[6 + 2 * j + 1]});
        return out;
      });
}

BOOST_AUTO_TEST_CASE(all_gather_joins_the_members_in_order) {
  check_everywhere(
      Shape{2, 2}, [](const Group& g, const Exprs& x) { return all_gather(g, x); },
      [](const auto& in) {
        std::vector<double> joined;
        for (const Tensor& t : in)
          for (double v : numbers_of(t)) joined.push_back(v);
        return Values(3, joined);
      });
}

BOOST_AUTO_TEST_CASE(all_to_all_exchanges_pieces) {
  check_everywhere(
      Shape{3, 2}, [](const Group& g, const Exprs& x) { return all_to_all(g, x, 0, 1); },
      [](const auto& in) {
        Values out;
        for (std::int64_t j = 0; j < 3; ++j) {
          std::vector<double> row;
          for (const Tensor& t : in) row.insert(row.end(), {t.at(2 * j), t.at(2 * j + 1)});
          out.push_back(row);
        }
        return out;
      });
}

BOOST_AUTO_TEST_CASE(shift_passes_values_to_neighbours) {
  for (int by : {1, -1, 5})
    check_everywhere(
        Shape{2}, [&](const Group& g, const Exprs& x) { return shift(g, x, by); },
        [&](const auto& in) {
          Values out;
          for (int i = 0; i < 3; ++i)
            out.push_back(numbers_of(in[static_cast<std::size_t>(((i - by) % 3 + 3) % 3)]));
          return out;
        });
}

BOOST_AUTO_TEST_CASE(barrier_changes_no_value) {
  check_everywhere(
      Shape{2}, [](const Group& g, const Exprs& x) { return barrier(g, x); },
      [](const auto& in) {
        return Values{numbers_of(in[0]), numbers_of(in[1]), numbers_of(in[2])};
      });
}

// y_i = all_reduce(x)_i, loss = sum of c_i * y_i: each x has the sum of all c as its gradient.
BOOST_AUTO_TEST_CASE(gradients_pass_through_collectives) {
  for (const Shape& shape : {Shape{3}, Shape{150, 100}})
    check_everywhere(
        shape,
        [](const Group& g, const Exprs& x) {
          const Exprs y = all_reduce(g, x);
          return gradients(sum(y[0]) * 2.0 + sum(y[1]) * 3.0 + sum(y[2]) * 5.0, x);
        },
        [](const auto& in) {
          return Values(3, std::vector<double>(static_cast<std::size_t>(in[0].elements()), 10));
        });
  check_everywhere(
      Shape{3, 2},
      [](const Group& g, const Exprs& x) {
        const Exprs y = all_to_all(g, x, 0, 0);
        return gradients(sum(y[0] * y[0]) + sum(y[1]) * 3.0 + sum(y[2]) * 0.0, x);
      },
      [](const auto& in) {
        Values out;
        for (const Tensor& t : in) out.push_back({2 * t.at(0), 2 * t.at(1), 3, 3, 0, 0});
        return out;
      });
}

// Cotangents whose sum depends on its order.
BOOST_AUTO_TEST_CASE(gradients_of_many_members_have_the_bits_of_each_place) {
  for (const int members : {2, 8, 9})
    for (const Combine how : {Combine::sum, Combine::product}) {
      std::vector<std::vector<Tensor>> got;
      for (const char* kind : {"cpu", "sim"}) {
        std::vector<std::string> devices;
        for (int m = 0; m < members; ++m) devices.push_back(kind + (":" + std::to_string(m)));
        Graph g;
        Exprs xs;
        for (int m = 0; m < members; ++m)
          xs.push_back(
              g.constant(Tensor::of<float>(
                  std::vector<float>(25'600, 1.0f + 0.01f * static_cast<float>(m)), {25'600})) *
              1.0);
        const Exprs y = all_reduce(Group("members", devices), xs, how);
        Expr loss = g.constant(0.0f);
        for (int m = 0; m < members; ++m)
          loss = loss + sum(y[static_cast<std::size_t>(m)]) * (1.0 / (3 * m + 1));
        Engine engine;
        got.push_back(engine.run(g, {}, gradients(loss, xs)));
      }
      for (std::size_t m = 0; m < got[0].size(); ++m)
        BOOST_TEST(identical(got[0][m], got[1][m]), members << " members, member " << m);
    }
}

BOOST_AUTO_TEST_CASE(collectives_run_in_loops) {
  check_everywhere(
      Shape{2},
      [](const Group& g, const Exprs& x) {
        const auto [n, p, q, r] =
            while_loop([](Expr i, Expr, Expr, Expr) { return i < 4; },
                       [&](Expr i, Expr a, Expr b, Expr c) {
                         const Exprs next = all_reduce(g, {a, b, c}, Combine::mean);
                         return std::tuple(i + 1, next[0] + 1.0, next[1], next[2] - 1.0);
                       },
                       std::tuple(x[0].reader().current().constant(0), x[0], x[1], x[2]));
        return Exprs{p, q, r};
      },
      [](const auto& in) {
        std::vector<double> a = numbers_of(in[0]), b = numbers_of(in[1]), c = numbers_of(in[2]);
        for (int i = 0; i < 4; ++i)
          for (std::size_t k = 0; k < a.size(); ++k) {
            const double mean = combined(Combine::mean, {a[k], b[k], c[k]});
            a[k] = mean + 1, b[k] = mean, c[k] = mean - 1;
          }
        return Values{a, b, c};
      });
}

BOOST_AUTO_TEST_CASE(calls_that_do_not_fit_are_refused_with_both_lines) {
  Graph g;
  const Group group("replicas", {"cpu:0", "cpu:1"});
  const Expr a = g.input("a", DType::f32, {2}) + 1.0;
  const Expr b = g.input("b", DType::f32, {3}) + 1.0;
  const auto refuses = [](const auto& f, std::initializer_list<const char*> parts) {
    BOOST_CHECK_EXCEPTION(f(), Error, [&](const Error& e) {
      bool says = e.code() == Code::invalid_argument;
      for (const char* part : parts)
        says = says && std::string(e.what()).find(part) != std::string::npos;
      if (!says) BOOST_TEST_MESSAGE(e.what());
      return says;
    });
  };
  refuses(
      [&] {
        all_reduce(group, {a, b});
      },
      {"all_reduce over group 'replicas'", "collectives_test.cpp:", "member 1 on cpu:1", "f32[3]",
       "f32[2]"});
  refuses([&] { all_reduce(group, {a}); }, {"2 members and got 1"});
  refuses([&] { reduce_scatter(group, {b, b}); }, {"2 members do not divide the extent 3"});
  refuses([&] { all_gather(group, {a, a}, 3); }, {"there is no axis 3"});
  refuses([&] { reduce(group, {a, a}, 2); }, {"there is no member 2"});
  refuses(
      [&] {
        all_reduce(group, {cast(a, DType::i32), cast(a, DType::i32)}, Combine::mean);
      },
      {"a mean of i32"});
  refuses([] { Group("one", {"cpu:0"}); },
          {"group 'one' (", "collectives_test.cpp:", "a collective needs two or more"});
  refuses(
      [] {
        Group("twice", {"cpu:0", "cpu:0"});
      },
      {"group 'twice' (", "collectives_test.cpp:", "the device cpu:0 twice"});
}

// Four members on two nodes: a node's two are combined there, and one value crosses each way.
BOOST_AUTO_TEST_CASE(all_reduce_sends_one_value_of_a_node) {
  // The results of member 0 and the gradient of member 3; also the bytes to each node in a run.
  const auto run_on = [](const std::vector<std::string>& devices, const Shape& shape, Combine how,
                         std::vector<std::uint64_t>* crossed) {
    std::unique_ptr<Nodes> nodes;
    std::unique_ptr<Engine> alone;
    if (crossed) nodes = std::make_unique<Nodes>(2);
    else alone = std::make_unique<Engine>();
    Engine& engine = nodes ? nodes->engine() : *alone;
    Graph g;
    const Group group("members", devices);
    const auto on_each = [&](const auto& f) {
      Exprs all;
      for (int i = 0; i < 4; ++i) {
        const auto there = g.on_device(group.device(i));
        all.push_back(f(i));
      }
      return all;
    };
    const Expr scale = g.input("scale", DType::f32, {});
    const Exprs xs = on_each([&](int i) {
      Tensor t = Tensor::zeros(DType::f32, shape);
      for (std::int64_t j = 0; j < t.elements(); ++j)
        t.mutable_data<float>()[j] = 0.7f + static_cast<float>((j * 37 + i * 11) % 23) / 23;
      return g.constant(t) * scale;
    });
    const Exprs all = all_reduce(group, xs, how);
    const Exprs sums =
        on_each([&](int i) { return sum(all[static_cast<std::size_t>(i)] * (i + 0.3)); });
    const Exprs slopes = gradients(sums[0] + sums[1] + sums[2] + sums[3], xs);
    const Function forward = engine.compile(g, {scale}, sums);
    const std::vector<Tensor> one{Tensor::scalar(1.f)};
    forward(one);
    for (int node = 0; crossed && node < 2; ++node)
      crossed->push_back((*nodes)[node].counters().bytes_in);
    forward(one);
    for (int node = 0; crossed && node < 2; ++node)
      (*crossed)[static_cast<std::size_t>(node)] =
          (*nodes)[node].counters().bytes_in - (*crossed)[static_cast<std::size_t>(node)];
    return engine.compile(g, {scale}, {all[0], slopes[3]})(one);
  };
  for (const Shape& shape : {Shape{2000}, Shape{200, 300}})
    for (const Combine how : kAll) {
      std::vector<std::uint64_t> crossed;
      const auto near = run_on({"cpu:0", "cpu:1", "cpu:2", "cpu:3"}, shape, how, nullptr);
      const auto far = run_on({"/node:a/cpu:0", "/node:a/cpu:1", "/node:b/cpu:0", "/node:b/cpu:1"},
                              shape, how, &crossed);
      for (std::size_t i = 0; i < near.size(); ++i)
        BOOST_TEST(near[i].to_vector<float>() == far[i].to_vector<float>(),
                   boost::test_tools::per_element());
      const auto bytes = static_cast<std::uint64_t>(shape.elements()) * sizeof(float);
      for (const std::uint64_t of_node : crossed) {
        BOOST_TEST(of_node >= bytes / 2);
        BOOST_TEST(of_node < bytes + 8192);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
