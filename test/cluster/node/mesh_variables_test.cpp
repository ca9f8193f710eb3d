// Variables that are stored in pieces over a mesh: values, collectives, and what an engine's caller
// sees of them.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/engine/laid_variables.hpp>
#include <troupe/actors/engine/saved.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/mesh/join_all_reduces.hpp>
#include <troupe/test/support/cluster/mesh_networks.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_variables_test)

namespace {

const Dim batch{"batch", 8}, in{"in", 8};

struct Network : TwoLayers {
  explicit Network(const Optimizer& optimizer) : TwoLayers({8, 8, 4, 2}, optimizer) {}
  mesh::detail::SpmdProgram spmd(const Partitioning& p) {
    return spmd_of(g, {x, t}, {loss, step}, p);
  }
};

std::vector<double> train(const Function& f, int steps) {
  return losses_of(f, steps, counted({8, 8}, 0.03, -0.7), counted({8, 2}, -0.1, 0.8));
}

int count(const mesh::detail::SpmdProgram& spmd, const std::string& op) {
  int n = 0;
  for (const auto& node : spmd.program.graph.nodes()) n += node.op->name == op;
  return n;
}

void check_losses(const std::vector<double>& got, const std::vector<double>& wanted,
                  const std::string& what) {
  BOOST_REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    BOOST_TEST(std::abs(got[i] - wanted[i]) <= 1e-12 * wanted[i],
               what << ": step " << i << " has loss " << got[i] << " in place of " << wanted[i]);
}

const std::vector<std::pair<const char*, const char*>> kCuts{
    {"p:4", "batch:p"},
    {"p:4", "hidden:p"},
    {"r:2;c:2", "batch:r;hidden:c"},
    {"p:4", "batch:p;slots/in:p"},
    {"r:2;c:2", "batch:r;hidden:c;slots/in:r"}};

std::shared_ptr<Optimizer> optimizer(int which) {
  if (which == 0) return std::make_shared<Momentum>(MomentumOptions{.learning_rate = 0.2});
  return std::make_shared<Adam>(AdamOptions{.learning_rate = 0.05});
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_layout_trains_equally_and_returns_whole_variables) {
  for (int which = 0; which < 2; ++which) {
    Engine whole;
    Network alone(*optimizer(which));
    const std::vector<double> wanted = train(alone.compile(whole, std::nullopt), 4);
    for (const Place& place : places()) {
      if (which == 1 && place.nodes > 1) continue;
      for (const auto& [axes, layout] : kCuts) {
        const std::string what = place.name + ", " + layout;
        std::unique_ptr<Nodes> nodes;
        std::unique_ptr<Engine> own;
        if (place.nodes > 1) nodes = std::make_unique<Nodes>(place.nodes);
        else own = std::make_unique<Engine>();
        Engine& engine = nodes ? nodes->engine() : *own;
        Network network(*optimizer(which));
        const Function f =
            network.compile(engine, Partitioning{mesh_of(axes, place), Layout(layout)});
        check_losses(train(f, 4), wanted, what);
        BOOST_TEST(engine.variables() == whole.variables(), boost::test_tools::per_element());
        for (const std::string& name : whole.variables())
          check_close(engine.get(name), whole.get(name), 1e-12, what + ", " + name);
        check_close(engine.get(network.a), whole.get(alone.a), 1e-12, what);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(instances_update_pieces_with_the_bits_of_copies) {
  for (const Place& place : places()) {
    if (place.nodes > 1) continue;
    for (const auto& [axes, layout] : kCuts) {
      const Partitioning p{mesh_of(axes, place), Layout(layout)};
      Network by_instances(Adam({.learning_rate = 0.05})), by_copies(Adam({.learning_rate = 0.05}));
      Engine one, other;
      CompileOptions options;
      options.mesh = p;
      const Function f = by_instances.compile(one, p);
      options.skip_passes = kCopies;
      const Function g = other.compile(by_copies.g, {by_copies.x, by_copies.t},
                                       {by_copies.loss, by_copies.step}, options);
      BOOST_TEST(train(f, 3) == train(g, 3), boost::test_tools::per_element());
      for (const std::string& name : other.variables())
        BOOST_TEST(identical(one.get(name), other.get(name)), place.name << ", " << name);
    }
  }
}

BOOST_AUTO_TEST_CASE(values_are_cut_when_a_program_runs_or_a_piece_is_read) {
  const Partitioning p{mesh_of("p:4", places()[0]), Layout("hidden:p")};
  Engine engine, other;
  Network network(Sgd({.learning_rate = 0.2})), alone(Sgd({.learning_rate = 0.2}));
  const Function f = network.compile(engine, p), wanted = alone.compile(other, std::nullopt);
  const Tensor given = counted({8, 4}, 0.01);
  engine.set("a", given);  // before anything has cut the first value
  other.set("a", given);
  check_close(engine.get(network.a), given, 0, "a");
  check_close(
      engine.get("a@mesh/3"),
      [&] {
        Tensor column = Tensor::zeros(DType::f64, {8, 1});
        for (std::int64_t i = 0; i < 8; ++i) column.mutable_data<double>()[i] = given.at(4 * i + 3);
        return column;
      }(),
      0, "the last piece");
  check_losses(train(f, 2), train(wanted, 2), "after it was cut");
  check_close(engine.get("b"), other.get("b"), 1e-12, "b");
}

BOOST_AUTO_TEST_CASE(pieces_are_read_and_updated_where_they_are) {
  const Place here = places()[0];
  {
    Network network(Momentum({.learning_rate = 0.2}));
    const auto spmd = network.spmd({mesh_of("p:4", here), Layout("batch:p")});
    // three gradients and the loss; the loss alone leaves the devices
    BOOST_TEST((counts_of(spmd) == all_reduces(4)));
    BOOST_TEST(count(spmd, "MeshExport") == 1);
    BOOST_TEST(spmd.pieces.size() == 6u);  // three variables, each with a slot
    const auto joined = mesh::detail::join_all_reduces(spmd);
    BOOST_TEST((counts_of(joined) == all_reduces(1)));
    BOOST_TEST(joined.told.back().find("4 all-reduces of 45 elements in all are one") !=
               std::string::npos);
  }
  Network network(Momentum({.learning_rate = 0.2}));
  Engine engine;
  const Function f = network.compile(
      engine, Partitioning{mesh_of("r:2;c:2", here), Layout("batch:r;hidden:c;slots/in:r")});
  BOOST_TEST((engine.get("a@mesh/0").shape() == Shape{8, 2}));
  BOOST_TEST((engine.get("a/momentum/velocity@mesh/3").shape() == Shape{4, 2}));
  BOOST_TEST((engine.get("b@mesh/3").shape() == Shape{2}));
  train(f, 1);
  const Tensor a = engine.get("a"), piece = engine.get("a@mesh/3");
  for (std::int64_t i = 0; i < 8; ++i)
    for (std::int64_t j = 0; j < 2; ++j) BOOST_TEST(piece.at(2 * i + j) == a.at(4 * i + 2 + j));
}

BOOST_AUTO_TEST_CASE(optimizers_are_split_further_by_a_rule_alone) {  // ZeRO
  for (int which = 0; which < 2; ++which) {
    Network network(*optimizer(which));
    const auto spmd = network.spmd({mesh_of("p:4", places()[0]), Layout("batch:p;slots/in:p")});
    // The gradient of `a` is scattered, its update gathered; b, v and the loss are reduced.
    const Counts wanted{{"MeshAllGather", 1}, {"MeshAllReduce", 3}, {"MeshReduceScatter", 1}};
    if (counts_of(spmd) != wanted)
      for (const std::string& line : spmd.told) BOOST_TEST_MESSAGE(line);
    BOOST_TEST((counts_of(spmd) == wanted));
    check_refused(
        [&] {
          network.spmd({mesh_of("p:4", places()[0]), Layout("slots/in:p;slots/hidden:p")});
        },
        {"mesh_networks.hpp:", "'in' and 'hidden'", "mesh axis 'p'"});
    BOOST_TEST(spmd.warnings.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_is_restored_under_another_layout) {  // V13
  const Place here = places()[0];
  Engine whole;
  Network alone(Adam({.learning_rate = 0.05}));
  const Function steps = alone.compile(whole, std::nullopt);
  train(steps, 3);
  const std::vector<double> wanted = train(steps, 3);
  const Folder folder;
  const std::string path = folder.path() + "/model.safetensors";
  {
    Engine engine;
    Network network(Adam({.learning_rate = 0.05}));
    train(network.compile(engine, Partitioning{mesh_of("p:4", here), Layout("hidden:p")}), 3);
    save(engine, path);
  }
  for (const auto& [axes, layout] : kCuts)
    for (const bool before : {true, false}) {
      Engine engine;
      Network network(Adam({.learning_rate = 0.05}));
      if (before) BOOST_TEST(load(engine, network.g, path).is_complete());
      const Function f = network.compile(engine, Partitioning{mesh_of(axes, here), Layout(layout)});
      if (!before) BOOST_TEST(load(engine, path).is_complete());
      BOOST_TEST((engine.get("b@mesh/0").shape().rank() == 1));
      check_losses(train(f, 3), wanted, layout);
    }
}

BOOST_AUTO_TEST_CASE(callers_set_and_initialize_whole_variables) {
  Network network(Momentum({.learning_rate = 0.2}));
  Engine engine;
  const Function f = network.compile(
      engine, Partitioning{mesh_of("r:2;c:2", places()[0]), Layout("batch:r;hidden:c")});
  const Tensor start = engine.get(network.a), given = counted({8, 4}, 0.01);
  const std::vector<double> first = train(f, 2);
  engine.set("a", given);
  check_close(engine.get(network.a), given, 0, "a");
  for (const Variable& v : {network.a, network.b, network.v}) {
    engine.initialize(v);
    const Variable slot = network.g.find_variable(v.name() + "/momentum/velocity");
    engine.initialize(slot);
  }
  check_close(engine.get("a"), start, 0, "a");
  check_losses(train(f, 2), first, "again");
  check_refused(
      [&] {
        engine.set("a", counted({4, 8}));
      },
      {"variable 'a'", "f64[8, 4]", "f64[4, 8]"});
}

BOOST_AUTO_TEST_CASE(programs_without_the_layout_join_the_pieces) {
  Network network(Momentum({.learning_rate = 0.2}));
  Engine engine;
  const Function f = network.compile(
      engine, Partitioning{mesh_of("r:2;c:2", places()[0]), Layout("batch:r;hidden:c")});
  train(f, 1);
  Graph g;
  const Variable a = g.variable("a", DType::f64, {8, 4}, Initializer::normal(0, 0.5, 1));
  const Expr doubled = a.read() * 2.0;
  const Tensor before = engine.get("a");
  const std::vector<Tensor> got = engine.compile(g, {}, {doubled})({});
  for (std::int64_t i = 0; i < 32; ++i) BOOST_TEST(got[0].at(i) == 2 * before.at(i));
  const Expr assigned = a.assign_sub(g.constant(Tensor::of<double>({1, 2, 3, 4}, {4})));
  const Tensor made = engine.compile(g, {}, {assigned})({})[0];
  check_close(made, engine.get("a"), 0, "assign_sub");
  for (std::int64_t i = 0; i < 32; ++i)
    BOOST_TEST(engine.get("a").at(i) == before.at(i) - static_cast<double>(1 + i % 4));
  for (int device : {0, 1})  // the other two have the same pieces
    check_close(engine.get("a@mesh/" + std::to_string(device + 2)),
                engine.get("a@mesh/" + std::to_string(device)), 0, "replica");
  // Another layout over the same devices: joined, and cut again.
  Network other(Momentum({.learning_rate = 0.2}));
  const Function of_other =
      other.compile(engine, Partitioning{mesh_of("p:4", places()[0]), Layout("hidden:p")});
  const Tensor now = engine.get("a");
  const double loss = train(of_other, 1)[0];
  engine.set("a", now);
  for (const char* name : {"a", "b", "v"})
    BOOST_TEST((engine.get(std::string(name) + "/momentum/velocity").has_value()));
  BOOST_TEST(loss > 0);
  // Inside a loop there is no place for it.
  const Expr i = for_loop(
      0, 3, [&](Expr, Expr s) { return s + sum(a.read()); }, g.constant(Tensor::scalar(0.0)));
  BOOST_CHECK_EXCEPTION(engine.compile(g, {}, {i}), Error, [](const Error& e) {
    return e.code() == Code::failed_precondition &&
           std::string(e.what()).find("variable 'a'") != std::string::npos &&
           std::string(e.what()).find("mesh_variables_test.cpp:") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(replicas_are_updated_whatever_is_fetched) {
  for (const bool fetches_sum : {false, true}) {
    Graph g;
    const Expr x = g.input("x", DType::f64, {8, 8});
    const Variable w = g.variable("w", DType::f64, {8}, Initializer::constant(0.5));
    const Expr read = mesh::named(w.read(), {in});
    const Expr loss = mean(square(mesh::einsum({mesh::named(x, {batch, in}), read}, {batch})));
    const Expr made = w.assign_sub(0.1 * gradients(loss, {read})[0]);
    const Exprs fetches{loss, fetches_sum ? sum(made) : made};
    CompileOptions options;
    Engine whole, cut;
    const Function wanted = whole.compile(g, {x}, fetches, options);
    options.mesh = Partitioning{mesh_of("p:4", places()[0]), Layout("batch:p")};
    const Function f = cut.compile(g, {x}, fetches, options);
    const Tensor value = counted({8, 8}, 0.03, -0.7);
    for (int i = 0; i < 3; ++i) {
      const std::vector<Tensor> got = f({value}), all = wanted({value});
      for (std::size_t k = 0; k < 2; ++k) check_close(got[k], all[k], 1e-12, "step");
    }
    for (int device = 1; device < 4; ++device)
      check_close(cut.get("w@mesh/" + std::to_string(device)), cut.get("w@mesh/0"), 0, "replica");
  }
}

BOOST_AUTO_TEST_CASE(a_variable_in_pieces_has_one_shape) {
  Network network(Momentum({.learning_rate = 0.2}));
  Engine engine;
  const Partitioning p{mesh_of("p:4", places()[0]), Layout("hidden:p")};
  network.compile(engine, p);
  Graph g;
  const Variable b = g.variable("b", DType::f64, {8}, Initializer::constant(0));
  const Expr read = mesh::named(b.read(), {{"hidden", 8}});
  for (const std::optional<Partitioning>& of : {std::optional<Partitioning>(), std::optional(p)}) {
    CompileOptions options;
    options.mesh = of;
    BOOST_CHECK_EXCEPTION(engine.compile(g, {}, {read}, options), Error, [](const Error& e) {
      return e.code() == Code::already_exists &&
             std::string(e.what()).find("variable 'b'") != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(programs_that_are_compiled_at_once_agree_on_an_arrangement) {
  Graph g;
  const Variable w = g.variable("w", DType::f64, {8}, Initializer::constant(0));
  const Expr read = w.read();
  const detail::Program whole = detail::prune(g, {}, edges({read}));
  mesh::detail::LaidVariable pieces;
  pieces.whole = whole.graph.states()[0];
  const auto laid = std::make_shared<const mesh::detail::LaidVariable>(std::move(pieces));
  const auto is_new = [](const detail::StateSpec&) { return true; };
  {
    // No store has the variable yet: the program that uses it whole is still being compiled.
    LaidVariables all;
    BOOST_TEST(all.note_used(whole.graph));
    BOOST_TEST(!all.homes(is_new).may_lay_out(laid->whole));
    BOOST_TEST(!all.begin(laid));
  }
  LaidVariables all;
  BOOST_TEST(all.begin(laid));
  BOOST_TEST(!all.note_used(whole.graph));
  BOOST_TEST(!all.find("w"));  // the pieces have no values yet
  all.add(laid);
  BOOST_TEST((all.find("w") == laid));
}

BOOST_AUTO_TEST_CASE(a_variable_that_a_program_uses_whole_stays_whole) {
  Network network(Momentum({.learning_rate = 0.2}));
  Engine engine, wanted;
  const Function whole = network.compile(engine, std::nullopt);
  train(whole, 1);
  const Function f =
      network.compile(engine, Partitioning{mesh_of("p:4", places()[0]), Layout("batch:p")});
  Network alone(Momentum({.learning_rate = 0.2}));
  const std::vector<double> all = train(alone.compile(wanted, std::nullopt), 3);
  check_losses(train(f, 1), {all[1]}, "cut");
  check_losses(train(whole, 1), {all[2]}, "whole again");
}

BOOST_AUTO_TEST_CASE(rows_of_a_split_table_are_updated_where_they_are) {
  const Dim vocabulary{"vocabulary", 8}, depth{"depth", 2};
  const auto build = [&](Graph& g, Expr& ids, Exprs& fetches) {
    ids = g.input("ids", DType::i64, {3});
    const Variable table = g.variable("table", DType::f64, {8, 2}, Initializer::normal(0, 1, 3));
    const Expr rows = gather(mesh::named(table.read(), {vocabulary, depth}), ids);
    const Expr loss = sum(square(rows));
    fetches = {loss, Sgd({.learning_rate = 0.1}).minimize(loss, {table})};
  };
  const auto run_on = [&](Engine& engine, const std::optional<Partitioning>& p) {
    Graph g;
    Expr ids;
    Exprs fetches;
    build(g, ids, fetches);
    CompileOptions options;
    options.mesh = p;
    const Function f = engine.compile(g, {ids}, fetches, options);
    for (int i = 0; i < 3; ++i) f({Tensor::of<std::int64_t>({0, 7, 7}, {3})});
    return engine.get("table");
  };
  Engine whole;
  const Tensor wanted = run_on(whole, std::nullopt);
  for (const char* layout : {"vocabulary:p", "depth:p", ""}) {
    Engine engine;
    const Partitioning p{mesh_of("p:2", places()[0]), Layout(layout)};
    check_close(run_on(engine, p), wanted, 1e-12, layout);
    BOOST_TEST((engine.get("table@mesh/1").elements() == (*layout ? 8 : 16)));
  }
}

BOOST_AUTO_TEST_SUITE_END()
