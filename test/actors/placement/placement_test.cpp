// Not under tsan: it makes plans on one thread.
// Placement of nodes: constraints and colocation, transfers between devices, and the text of a
// plan.
#include <boost/test/unit_test.hpp>

#include <troupe/actors/plan/explain.hpp>
#include <troupe/test/support/placed.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(placement_test)

using namespace placed;

BOOST_AUTO_TEST_CASE(a_constraint_names_a_device_or_what_it_is_like) {
  const std::pair<const char*, std::string> cases[] = {
      {"cpu:0", kA},
      {"cpu:7", "/node:a/cpu:7"},
      {"/node:b", kB},
      {"/node:b/sim:1", "/node:b/sim:1"},
      {"/cpu:*", kA},
      {"/cpu:0", kA},
      {"/node:c/cpu:*", kC},
      {"/label:gpu", kB},
      {"/label:gpu=yes", kB},
      {"/label:gpu=no/cpu:*", kC},
      {"/label:room=3", kB},
      {"/label:room=3/label:gpu=no", kC},
      {"/node:c/label:room=3/cpu:0", kC},
  };
  for (const auto& [constraint, expected] : cases) {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    Expr y = [&] {
      auto there = g.on_device(constraint);
      return exp(x);
    }();
    is(devices_of(place(lowered(g, {x}, {y}), three_nodes()), "Exp"), {expected}, constraint);
  }
}

BOOST_AUTO_TEST_CASE(nonsense_is_refused_with_the_users_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"gpu", "has a part 'gpu', which means nothing"},
      {"cpu:", "has a part 'cpu:'"},
      {"cpu:one", "has a part 'cpu:one'"},
      {"/nod:b", "has a part 'nod:b'"},
      {"node:b", "has a part 'node:b'"},
      {"/node:", "does not name the node"},
      {"/label:/cpu:0", "does not name the label"},
      {"/node:b/", "'/node:b/' ends with '/'"},
      {"/", "ends with '/'"},
      {"/node:a/node:b", "names two nodes, a and b"},
      {"/cpu:0/node:b", "goes on after its device, cpu:0"},
      {"/label:cold",
       "no device is what '/label:cold' asks for; there are /node:a/cpu:0, /node:b/cpu:0, "
       "/node:c/cpu:0"},
      {"/label:gpu=maybe", "no device is what '/label:gpu=maybe' asks for"},
      {"/node:b/label:gpu=no", "no device is what"},
      {"/sim:*", "no device is what '/sim:*' asks for"},
  };
  for (const auto& [constraint, why] : cases) {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    unsigned line = 0;
    Expr y = [&] {
      auto there = g.on_device(constraint);
      line = __LINE__ + 1;
      return exp(x);
    }();
    const std::string text =
        refusal([&] { place(lowered(g, {x}, {y}), three_nodes()); }, Code::invalid_argument);
    BOOST_TEST(says(text, {why, "Exp '", "placement_test.cpp:" + std::to_string(line)}),
               constraint << ": " << text);
  }
}

// A short-lived client such as `troupe clear`, which lends the cluster no device.
BOOST_AUTO_TEST_CASE(a_node_that_gets_only_what_names_it) {
  PlacementOptions o = three_nodes();
  o.nodes = {
      {"a", "placement=named"}, {"b", "room=3 placement=named"}, {"c", "room=3 placement=often"}};
  BOOST_TEST(devices_to_choose_from(o) == (std::vector<std::string>{kA, kC}),
             boost::test_tools::per_element());
  for (const auto& [constraint, expected] : {std::pair<const char*, std::string>{"/node:b", kB},
                                             {"/node:b/cpu:*", kB},
                                             {"/node:b/label:room=3/cpu:0", kB},
                                             {"/label:room=3", kC},
                                             {"/cpu:*", kA}}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    Expr y = [&] {
      auto there = g.on_device(constraint);
      return exp(x);
    }();
    is(devices_of(place(lowered(g, {x}, {y}), o), "Exp"), {expected}, constraint);
  }
  for (const char* nowhere : {"/label:placement=named/label:room=3", "/node:b/label:room=4"}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    auto there = g.on_device(nowhere);
    Expr y = exp(x);
    refusal([&] { place(lowered(g, {x}, {y}), o); }, Code::invalid_argument);
  }
  // Two chains that take milliseconds each, and ways that take none: without b they are a's and
  // c's.
  for (const bool is_named : {true, false}) {
    PlacementOptions free = three_nodes(Placement::automatic);
    free.nodes = {{"a", ""}, {"b", is_named ? "placement=named" : ""}};
    free.costs.between_nodes = {.latency_ns = 1, .bytes_per_ns = 1000};
    Graph g;
    Expr x = g.input("x", DType::f32, {256, 256});
    const Devices found =
        devices_of(place(lowered(g, {x}, {chain(x, 3), chain(exp(x), 3)}), free), "MatMul");
    BOOST_TEST((found.count(kB) == 0) == is_named);
  }
}

BOOST_AUTO_TEST_CASE(devices_to_choose_from_may_be_given) {
  PlacementOptions o = three_nodes();
  o.devices = {"/node:b/sim:2", "sim:1", "cpu:0"};
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Expr y = [&] {
    auto there = g.on_device("/sim:*");
    return exp(x);
  }();
  Expr z = [&] {
    auto there = g.on_device("/node:a/sim:*");
    return tanh(y);
  }();
  const Placed placed = place(lowered(g, {x}, {z}), o);
  is(devices_of(placed, "Exp"), {"/node:b/sim:2"}, "the first that is given");
  is(devices_of(placed, "Tanh"), {"/node:a/sim:1"}, "of a node");
}

BOOST_AUTO_TEST_CASE(colocated_nodes_go_together) {
  for (const Placement policy : {Placement::constraints, Placement::automatic}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {8, 8}), free = exp(x);
    Expr bound = [&] {
      auto there = g.on_device("/label:gpu=yes");
      return tanh(x);
    }();
    Expr with_bound = [&] {
      auto there = g.colocate_with(bound);
      return transpose(x);
    }();
    Expr with_that = [&] {
      auto there = g.colocate_with(with_bound);
      return matmul(with_bound, x);
    }();
    Expr with_free = [&] {
      auto there = g.colocate_with(free);
      return sqrt(x);
    }();
    const Placed placed =
        place(lowered(g, {x}, {with_that, with_free, free, bound}), three_nodes(policy));
    for (const char* op : {"Tanh", "Transpose", "MatMul"}) is(devices_of(placed, op), {kB}, op);
    BOOST_TEST(devices_of(placed, "Sqrt") == devices_of(placed, "Exp"));
  }
}

BOOST_AUTO_TEST_CASE(a_name_may_hold_what_colocation_is_written_with) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4}), there, with_it;
  {
    auto scope = g.on_device("/label:with:=1");
    there = exp(x);
  }
  {
    auto scope = g.colocate_with(there);
    with_it = sum(x);
  }
  PlacementOptions o = three_nodes();
  o.nodes[1].labels = "with:=1";
  const Placed placed = place(lowered(g, {x}, {there, with_it}), o);
  for (const char* op : {"Exp", "Sum"}) is(devices_of(placed, op), {kC}, op);
}

BOOST_AUTO_TEST_CASE(nodes_colocated_with_a_variable_follow_its_constraint) {
  Graph g;
  Variable v;
  {
    auto there = g.on_device("/label:gpu=no");
    v = g.variable("v", Tensor::of<float>({1, 2}));
  }
  Expr read = v.read();
  Expr y = [&] {
    auto there = g.colocate_with(read);
    return exp(g.constant(Tensor::of<float>({1, 2})) + read);
  }();
  const Placed placed = place(lowered(g, {}, {y}), three_nodes());
  is(devices_of(placed, "ReadVariable"), {kC}, "the state");
  is(devices_of(placed, "Fused"), {kC}, "what is with it");
  BOOST_TEST(placed.program.graph.states()[0].device == kC);
}

BOOST_AUTO_TEST_CASE(contradictions_name_both) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Expr y = [&] {
    auto there = g.on_device("/node:b");
    return exp(x);
  }();
  Variable v;
  {
    auto there = g.on_device("/node:c");
    v = g.variable("v", Tensor::of<float>({1, 2}));
  }
  Expr z = [&] {
    auto there = g.colocate_with(y);
    return v.assign_add(y);
  }();
  const std::string why =
      refusal([&] { place(lowered(g, {x}, {z}), three_nodes()); }, Code::invalid_argument);
  BOOST_TEST(says(why, {"AssignAdd '", "it can be on /node:c/cpu:0, and Exp '",
                        "with which it is colocated, on /node:b/cpu:0"}),
             why);
  Graph other;
  Expr foreign = other.input("x", DType::f32, {2});
  const std::string stranger =
      refusal([&] { auto there = g.colocate_with(foreign); }, Code::invalid_argument);
  BOOST_TEST(says(stranger, {"colocate_with at ", "placement_test.cpp", "is of another graph"}),
             stranger);
}

// As nested scopes of TensorFlow do.
BOOST_AUTO_TEST_CASE(nested_devices_merge) {
  const std::tuple<const char*, const char*, std::string> cases[] = {
      {"/node:b", "cpu:1", "/node:b/cpu:1"},  {"/node:b/cpu:1", "/node:c", "/node:c/cpu:1"},
      {"cpu:1", "/node:c", "/node:c/cpu:1"},  {"/node:b/cpu:1", "cpu:2", "/node:b/cpu:2"},
      {"/node:b/cpu:1", "/node:c/cpu:0", kC}, {"/label:gpu=no", "/node:b", kB},
      {"/label:gpu=no", "/cpu:*", kC},        {"cpu:1", "cpu:2", "/node:a/cpu:2"},
  };
  for (const auto& [outer, inner, expected] : cases) {
    Graph g;
    Expr x = g.input("x", DType::f32, {2});
    Expr y = [&] {
      auto around = g.on_device(outer);
      auto there = g.on_device(inner);
      return exp(x);
    }();
    is(devices_of(place(lowered(g, {x}, {y}), three_nodes()), "Exp"), {expected},
       std::string(outer) + ", in it " + inner);
  }
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  Expr on_b = [&] {
    auto there = g.on_device("/node:b");
    return exp(x);
  }();
  Expr with_b = [&] {
    auto there = g.on_device("/node:c");
    auto company = g.colocate_with(on_b);
    return softmax(on_b);
  }();
  is(devices_of(place(lowered(g, {x}, {with_b}), three_nodes()), "Softmax"), {kB},
     "colocation counts more than what is around it");
  Expr torn = [&] {
    auto company = g.colocate_with(on_b);
    auto there = g.on_device("/node:c");
    return sqrt(on_b);
  }();
  const std::string why =
      refusal([&] { place(lowered(g, {x}, {torn}), three_nodes()); }, Code::invalid_argument);
  BOOST_TEST(says(why, {"Sqrt '", "placement_test.cpp", "it can be on /node:c/cpu:0",
                        "with which it is colocated, on /node:b/cpu:0"}),
             why);
}

BOOST_AUTO_TEST_CASE(devices_of_nowhere_are_refused) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2}), y = exp(x);
  PlacementOptions o = three_nodes();
  o.devices = {"cpu:0", "/node:bb/cpu:0"};
  const std::string why = refusal([&] { place(lowered(g, {x}, {y}), o); }, Code::not_found);
  BOOST_TEST(says(why, {"EngineOptions::devices", "no node 'bb'", "did you mean 'b'?"}), why);
}

// All calls of a function are on one device: so is what is colocated with one of them.
BOOST_AUTO_TEST_CASE(nodes_colocated_with_a_call_move_with_it) {
  const auto build = [](Graph& g, const char* there, const char* constrained) {
    GraphFunction<Expr(Expr)> deep(g, "deep", {{DType::f32, {4}}}, {{DType::f32, {4}}});
    deep.define([&](Expr v) {
      return cond(
          sum(v) < 100.0, [&] { return deep(v * 2.0); },
          [&] {
            if (!there) return v + 1.0;
            auto d = g.on_device(there);
            return v + 1.0;
          });
    });
    Expr x = g.input("x", DType::f32, {4}), anchor = [&] {
      auto d = g.on_device(constrained ? constrained : "");
      return tanh(x);
    }();
    Expr called = [&] {
      auto together = g.colocate_with(anchor);
      return deep(x);
    }();
    return std::pair{x, exp(called) + anchor};
  };
  for (const Placement policy : {Placement::constraints, Placement::automatic}) {
    Graph g;
    auto [x, beside] = build(g, "/node:b", nullptr);
    is(devices_of(place(lowered(g, {x}, {beside}), three_nodes(policy)), "Tanh"), {kB},
       "where the body is");
    Graph h;
    auto [y, there] = build(h, nullptr, "/node:c");
    is(devices_of(place(lowered(h, {y}, {there}), three_nodes(policy)), "Call"), {kC, kC},
       "where another of the group is");
    Graph k;
    auto [z, apart] = build(k, "/node:b", "/node:c");
    const std::string why = refusal([&] { place(lowered(k, {z}, {apart}), three_nodes(policy)); },
                                    Code::invalid_argument);
    BOOST_TEST(
        says(why, {"/node:c/cpu:0", "colocated", "'deep'", "/node:b/cpu:0", "placement_test.cpp"}),
        why);
  }
}

// ---- cut edges

BOOST_AUTO_TEST_CASE(a_value_is_sent_once_to_a_device) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 4});
  Expr y = exp(x);
  std::vector<Expr> users;
  for (const char* there : {"cpu:1", "cpu:1", "cpu:1", "cpu:2", "cpu:2"}) {
    auto scope = g.on_device(there);
    users.push_back(users.size() % 2 ? sin(y) * static_cast<double>(users.size())
                                     : tanh(y) + static_cast<double>(users.size()));
  }
  Engine engine;
  Function f = engine.compile(g, {x}, users, {.optimize = false});
  const std::string text = f.explain();
  BOOST_TEST(says(text, {"\n2 cut edges, 128 B a run\n", "cpu:0 -> cpu:1: Exp '",
                         "cpu:0 -> cpu:2: Exp '"}),
             text);
}

// A training step is a Group of updates, which yield the new values of their variables.
BOOST_AUTO_TEST_CASE(a_group_gets_one_boolean_from_each_other_device) {
  Graph g;
  std::vector<Expr> updates;
  for (const char* there : {"/node:b", "/node:a", "/node:c", "/node:b"}) {
    auto scope = g.on_device(there);
    const Variable v = g.variable("v" + std::to_string(updates.size()), DType::f32, {1000},
                                  Initializer::constant(0));
    updates.push_back(v.assign_add(1.0f));
  }
  const Placed placed = place(lowered(g, {}, {group(updates)}), three_nodes());
  is(devices_of(placed, "Group"), {kA, kB, kC}, "one a device");
  const Graph& all = placed.program.graph;
  for (std::int32_t id = 0; id < all.size(); ++id)
    for (const Edge e : all.node(id).inputs)
      if (all.node(id).op->name == "Group" && placed.device[static_cast<std::size_t>(id)] !=
                                                  placed.device[static_cast<std::size_t>(e.node)])
        BOOST_TEST((all.spec(e).dtype == DType::boolean), all.describe(e.node));
}

BOOST_AUTO_TEST_CASE(a_group_fires_after_updates_on_other_devices) {
  Graph g;
  std::vector<Expr> updates;
  std::vector<Variable> variables;
  for (const char* there : {"cpu:0", "cpu:1", "cpu:1", "sim:0"}) {
    auto scope = g.on_device(there);
    variables.push_back(g.variable("v" + std::to_string(updates.size()), DType::f32, {64},
                                   Initializer::constant(0)));
    updates.push_back(variables.back().assign_add(1.0f));
  }
  Engine engine;
  const Function step = engine.compile(g, {}, {group(updates)});
  for (int i = 1; i <= 3; ++i) {
    BOOST_TEST(step({})[0].item<bool>());
    for (const Variable& v : variables) BOOST_TEST(engine.get(v).at(63) == i);
  }
  BOOST_TEST(says(step.explain(), {"2 cut edges, 2 B a run"}), step.explain());
}

BOOST_AUTO_TEST_CASE(f32_goes_between_nodes_as_bf16_if_that_is_asked_for) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4});
  Expr y = exp(x), whole = cast(y, DType::i32);
  std::vector<Expr> fetches;
  {
    auto there = g.on_device("/node:b");
    fetches = {tanh(y), sin(y), whole + 1};
  }
  {
    auto there = g.on_device("cpu:1");
    fetches.push_back(cos(y));
  }
  PlacementOptions o = three_nodes();
  BOOST_TEST(devices_of(place(lowered(g, {x}, fetches), o), "Cast").size() == 0u);
  o.edges.as_bf16 = true;
  is(devices_of(place(lowered(g, {x}, fetches), o), "Cast"), {kA, kB},
     "once there, once here; none between devices of one node");
}

BOOST_AUTO_TEST_CASE(one_edge_goes_between_nodes_as_bf16_if_that_is_asked_for) {
  const auto casts = [](const std::function<std::vector<Expr>(Graph&, const Expr&)>& make) {
    Graph g;
    Expr x = g.input("x", DType::f32, {4});
    const std::vector<Expr> fetches = make(g, x);
    return devices_of(place(lowered(g, {x}, fetches), three_nodes()), "Cast");
  };
  const auto there = [](Graph& g, const auto& make) {
    auto scope = g.on_device("/node:b");
    return make();
  };
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = exp(x), lossy = edge_as_bf16(sin(x));
       return there(g, [&] { return std::vector<Expr>{tanh(y), tanh(lossy)}; });
     }),
     {kA, kB}, "said where it is made");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = exp(x);
       return there(g, [&] { return std::vector<Expr>{tanh(edge_as_bf16(y))}; });
     }),
     {kA, kB}, "said where it is used");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = edge_as_bf16(exp(x));
       return std::vector<Expr>{cond(
           sum(x) > 0.0, [&] { return there(g, [&] { return tanh(y); }); },
           [&] { return there(g, [&] { return sin(y); }); })};
     }),
     {kA, kA, kB, kB}, "into branches, of which each has its own edge");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = edge_as_bf16(exp(x));
       auto [n, s] = while_loop([](Expr i, Expr) { return i < 5; },
                                [&](Expr i, Expr v) {
                                  return std::tuple{i + 1, there(g, [&] { return v * y; })};
                                },
                                std::tuple{g.constant(0), x});
       return std::vector<Expr>{n, s};
     }),
     {kA, kB}, "into a loop, as what is the same in all iterations");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = exp(x);
       auto [n, s] =
           while_loop([](Expr i, Expr) { return i < 5; },
                      [&](Expr i, Expr v) {
                        return std::tuple{i + 1, there(g, [&] { return v * edge_as_bf16(y); })};
                      },
                      std::tuple{g.constant(0), x});
       return std::vector<Expr>{n, s};
     }),
     {kA, kB}, "said in a loop of what is the same in all iterations");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = exp(x);
       auto [n, s] =
           while_loop([](Expr i, Expr) { return i < 5; },
                      [&](Expr i, Expr v) {
                        return std::tuple{i + 1, there(g, [&] { return v * edge_as_bf16(y) + y; })};
                      },
                      std::tuple{g.constant(0), x});
       return std::vector<Expr>{n, s};
     }),
     {}, "where somebody wants it whole it goes once, and whole");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = edge_as_bf16(exp(x));
       auto [n, s] = while_loop([](Expr i, Expr) { return i < 5; },
                                [&](Expr i, Expr v) {
                                  return std::tuple{i + 1, there(g, [&] { return v * 0.5; })};
                                },
                                std::tuple{g.constant(0), y});
       return std::vector<Expr>{n, sin(s)};
     }),
     {kA, kB}, "a loop begins with it, and goes on as it is");
  is(casts([&](Graph& g, const Expr& x) {
       const Expr y = there(g, [&] { return edge_as_bf16(exp(x)); });
       auto here = g.on_device(kA);
       return std::vector<Expr>{gradients(sum(sin(y)), {x})[0]};
     }),
     {kA, kA, kB, kB}, "the cotangent too");
  is(casts([&](Graph&, const Expr& x) { return std::vector<Expr>{tanh(edge_as_bf16(exp(x)))}; }),
     {}, "nothing where nothing is cut");
}

// ---- explain

BOOST_AUTO_TEST_CASE(a_plan_explains_itself) {
  Graph g;
  Expr x = g.input("x", DType::f32, {64, 128}), n = g.input("n", DType::f32, {kAny});
  Expr w = g.constant(Tensor::zeros(DType::f32, {128, 64}));
  Expr y = g.named(matmul(x, w), "y");
  Expr z, t;
  {
    auto there = g.on_device("cpu:1");
    z = g.named(exp(y), "z");
    t = g.named(tanh(n), "t");
  }
  Expr end = g.named(sin(t), "end");
  EngineOptions options;
  options.workers = 1;
  Engine engine(options);
  Function f = engine.compile(g, {x, n}, {z, end});
  std::string text = f.explain();
  text = text.substr(0, text.find("\nnodes after each pass"));
  for (std::size_t at; (at = text.find("placement_test.cpp:")) != std::string::npos;)
    text.erase(at, text.find(')', at) - at);
  const std::string golden = R"(predicted: 31.7 us a run; 24.7 us with all of it on cpu:0

device   nodes  flops a run       busy  peak memory
cpu:0        2        1.0 M    21.2 us    ~80.0 KiB
cpu:1        2        4.1 k     3.5 us    ~32.1 KiB

2 cut edges, ~16.1 KiB a run
  cpu:0 -> cpu:1: MatMul 'y' () f32[64, 64], 16.0 KiB
  cpu:1 -> cpu:0: Tanh 't' () f32[?], ~128 B

critical path, 31.7 us
       0 ns +21.1 us   MatMul 'y' () on cpu:0
    21.1 us +3.6 us    MatMul 'y' () goes to cpu:1
    24.7 us +3.4 us    Exp 'z' () on cpu:1
    28.1 us +3.6 us    Exp 'z' () goes to cpu:0
)";
  BOOST_TEST(text == golden);
}

namespace {

// Three products an iteration, each on a device; the sums of the last ones, or the last one itself,
// go on to the next iteration.
std::string explained_stages(const std::vector<std::string>& devices, bool waits, int window) {
  Graph g;
  Expr x = g.input("x", DType::f32, {256, 256});
  auto [n, y] =
      while_loop([](Expr i, Expr) { return i < 20; },
                 [&](Expr i, Expr v) {
                   Expr in = waits ? v : x * cast(i, DType::f32), out = in;
                   for (const std::string& d : devices) {
                     auto there = g.on_device(d);
                     out = matmul(out, out);
                   }
                   auto there = g.on_device(devices.back());
                   return std::tuple{i + 1, waits ? out : v + out};
                 },
                 std::tuple{g.constant(0), x}, {.name = "stages", .parallel_iterations = window});
  EngineOptions options;
  options.workers = 1;
  options.costs.trips = 30;
  Engine engine(options);
  const std::string text = engine.compile(g, {x}, {n, y}).explain();
  const std::size_t begin = text.find("loops over devices");
  return begin == std::string::npos ? std::string()
                                    : text.substr(begin, text.find("\n\n", begin) - begin);
}

int bubble_in(const std::string& text) {
  const std::size_t at = text.find("bubble ");
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + 7);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_over_devices_explains_its_bubble) {
  const std::vector<std::string> three{"cpu:0", "cpu:1", "cpu:2"};
  BOOST_TEST(explained_stages({"cpu:0", "cpu:0", "cpu:0"}, false, 32).empty());
  const std::string overlapped = explained_stages(three, false, 32);
  BOOST_TEST(says(overlapped, {"loop 'stages", "cpu:0", "cpu:1", "cpu:2", "of 30 iterations"}),
             overlapped);
  // Each stage works in 30 of 30 + 2 periods.
  BOOST_TEST((bubble_in(overlapped) > 0 && bubble_in(overlapped) < 20), overlapped);
  const std::string one_at_once = explained_stages(three, false, 1);
  BOOST_TEST(says(one_at_once, {"limited by one iteration at a time"}), one_at_once);
  BOOST_TEST((bubble_in(one_at_once) > 60 && bubble_in(one_at_once) < 75), one_at_once);
  const std::string waiting = explained_stages(three, true, 32);
  BOOST_TEST(says(waiting, {"limited by the variable of "}), waiting);
  BOOST_TEST((bubble_in(waiting) > 60 && bubble_in(waiting) < 75), waiting);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
