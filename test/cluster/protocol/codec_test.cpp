// Not under tsan: it encodes and decodes on one thread.
// The bytes between nodes: values, programs, and invalid messages.
#include <boost/test/unit_test.hpp>

#include <random>
#include <set>
#include <string>
#include <vector>

#include <msgpack.hpp>

#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/test/support/cluster/every_message.hpp>
#include <troupe/test/support/cluster/finder.hpp>
#include <troupe/test/support/cluster/golden.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(codec_test, TROUPE_ONE_THREAD)

namespace {

Value through(const Value& value) {
  MessageWriter w;
  w(value);
  Message m = w.take();
  MessageReader r(m);
  Value back;
  r(back);
  r.end();
  return back;
}

Placed placed_program(Graph& g) {
  Expr x = g.input("x", DType::f32, {2});
  Variable v = g.variable("v", Tensor::of<float>({1, 2}));
  auto [n, s] = while_loop(
      [](Expr i, Expr) { return i < 5; },
      [&](Expr i, Expr t) {
        return std::tuple{
            i + 1, tanh(t * x) + cond(
                                     i < 2, [&] { return t * 0.25; }, [&] { return v - 1.5; })};
      },
      std::tuple{g.constant(0), x});
  Program p = optimize(g, {x.edge()}, {s.edge(), n.edge()}, {.optimize = true});
  return place(std::move(p), {.default_device = "cpu:0",
                              .here = "a",
                              .scatter = {"/node:a/cpu:0", "/node:b/cpu:0"},
                              .seed = 3});
}

Message message_of(const Placed& placed, const std::string& to = {}) {
  MessageWriter w;
  write(w, placed, to);
  return w.take();
}

Placed placed_of(Message m) {
  MessageReader r(m);
  Placed placed;
  read(r, placed, "b");
  r.end();
  return placed;
}

// A loop over two nodes: a counts, b multiplies by a variable. All is built by hand, because
// neither a pass nor the placer may affect the encoding. The source lines are made up, because
// those of this file move.
Placed program_by_hand() {
  Placed placed;
  Graph& g = placed.program.graph;
  StateSpec v;
  v.kind = StateSpec::Kind::variable;
  v.name = "v";
  v.values = {ValueSpec{DType::f32, Shape{2}}};
  v.initial = Initializer::tensor(Tensor::of<float>({1, 2}));
  v.device = "/node:b/cpu:0";
  g.declare(v, Site());
  const auto scope = std::make_shared<const std::string>("train/");
  const auto add = [&](const std::string& device, const char* op, std::vector<Edge> inputs,
                       Attrs attrs, std::vector<ValueSpec> outputs, int state = -1,
                       const std::string& name = {}) {
    Node n;
    n.name = name;
    n.op = &find_op(op);
    n.attrs = std::move(attrs);
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    n.scope = scope;
    n.site.file = "model.cpp";
    n.site.function = "step";
    n.site.line = static_cast<unsigned>(40 + g.size());
    n.state = state;
    n.origin = static_cast<std::uint64_t>(g.size() + 1);
    placed.device.push_back("/node:" + device + "/cpu:0");
    return Edge{g.append(std::move(n)), 0};
  };
  const ValueSpec count{DType::i32, Shape{}}, row{DType::f32, Shape{2}},
      truth{DType::boolean, Shape{}};
  const auto enter = [&](const std::string& device, Edge of, const ValueSpec& spec, bool constant) {
    const Attrs attrs{{"frame", std::string("train/while")},
                      {"constant", constant},
                      {"parallel_iterations", std::int64_t{8}},
                      {"key", std::int64_t{7}}};
    return add(device, "Enter", {of}, attrs, {spec});
  };
  const auto constant = [&](std::int32_t n) {
    return add("a", "Constant", {}, {{"value", Tensor::scalar(n)}}, {count});
  };
  const Edge x =
      add("a", "Input", {}, {{"dtype", DType::f32}, {"shape", Shape{2}}}, {row}, -1, "x");
  const Edge negative = add("a", "Neg", {x}, {}, {row});
  const Edge read =
      add("b", "ReadVariable", {}, {{"dtype", DType::f32}, {"shape", Shape{2}}}, {row}, 0);
  const Edge start = constant(0), most = constant(5), one = constant(1);
  const Edge i = add("a", "Merge", {enter("a", start, count, false)}, {}, {count, count});
  const Edge t = add("b", "Merge", {enter("b", negative, row, false)}, {}, {row, count});
  const Edge weight = enter("b", read, row, true);
  const Edge less = add("a", "Less", {i, enter("a", most, count, true)}, {}, {truth});
  const Edge goes_on = add("a", "LoopCond", {less}, {{"structured", true}}, {truth});
  const auto branches = [](const ValueSpec& spec) { return std::vector<ValueSpec>(2, spec); };
  const Edge i_switch =
      add("a", "Switch", {i, goes_on}, {{"branches", std::int64_t{2}}}, branches(count));
  const Edge t_switch =
      add("b", "Switch", {t, goes_on}, {{"branches", std::int64_t{2}}}, branches(row));
  ScalarProgram times;
  const std::int16_t operand = append_input(times, DType::f32),
                     factor = append_input(times, DType::f32);
  times.code.push_back(
      {.op = ScalarOp::mul, .type = DType::f32, .operand = {operand, factor, -1}, .constant = 0});
  times.results = {static_cast<std::int16_t>(times.code.size() - 1)};
  const auto program =
      std::make_shared<ProgramAttr>(std::make_shared<const ScalarProgram>(std::move(times)));
  const Edge product =
      add("b", "Fused", {Edge{t_switch.node, 1}, weight}, {{"program", program}}, {row});
  const Edge next =
      add("a", "Add", {Edge{i_switch.node, 1}, enter("a", one, count, true)}, {}, {count});
  add("a", "NextIteration", {next, i}, {}, {count});
  add("b", "NextIteration", {product, t}, {}, {row});
  const Edge last = add("b", "Exit", {t_switch}, {}, {row}, -1, "last");
  placed.program.feeds = {x};
  placed.program.fetches = {add("a", "Neg", {last}, {}, {row}), last};
  placed.default_device = "/node:a/cpu:0";
  placed.edge_bytes = 1 << 20;
  placed.edge_ahead = 32;
  return placed;
}

// The error for a peer's program, on b.
std::string why_no_plan(const Placed& placed) {
  Finder b("b");
  StateStore states;
  return refusal([&] { make_plan(placed_of(message_of(placed)), b, states); },
                 Code::invalid_argument);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_head_is_what_msgpack_writes_however_long) {
  for (const int rounds : {1, 3, 40}) {  // the last by far more than is gathered at once
    MessageWriter w;
    msgpack::sbuffer expected;
    msgpack::packer packer(expected);
    for (int round = 0; round < rounds; ++round)
      for (int bits = 0; bits < 64; ++bits)
        for (const std::uint64_t n : {std::uint64_t{1} << bits, (std::uint64_t{1} << bits) - 1}) {
          w.unsigned_number(n);
          packer.pack(n);
          const auto below = -static_cast<std::int64_t>(n >> 1) - 1;
          w.number(below);
          packer.pack(below);
          w.flag(n % 3 == 0);
          packer.pack(n % 3 == 0);
          const std::string some(static_cast<std::size_t>(bits), 'x');
          w.bytes(some.data(), some.size());
          packer.pack_bin(static_cast<std::uint32_t>(some.size()))
              .pack_bin_body(some.data(), static_cast<std::uint32_t>(some.size()));
          if (bits % 16 == 0) w.text(some), packer.pack(some);
        }
    const Message m = w.take();
    const auto* bytes = reinterpret_cast<const std::byte*>(expected.data());
    BOOST_TEST((m.head == std::vector<std::byte>(bytes, bytes + expected.size())));
  }
}

// After a field is added, the version must be raised (wire::kVersion) and the file written anew.
BOOST_AUTO_TEST_CASE(messages_are_written_as_the_golden_file_has_them) {
  std::vector<std::byte> all;
  std::set<std::byte> kinds;
  for_each_message([&](const auto& message) {
    const std::vector<std::byte> head = written(message).head;
    all.insert(all.end(), head.begin(), head.end());
    kinds.insert(head.at(0));
  });
  BOOST_TEST(kinds.size() == std::variant_size_v<NodeMessage>);
  check_golden("messages", all);
}

BOOST_AUTO_TEST_CASE(programs_are_written_as_the_golden_files_have_them) {
  Placed whole = program_by_hand();
  Finder a("a");
  StateStore states;
  const Plan plan = make_plan(Placed(whole), a, states);
  const PlanParts parts(plan, whole);
  BOOST_REQUIRE(parts.is_divisible());
  const auto b = std::find(plan.nodes.begin(), plan.nodes.end(), "b");
  BOOST_REQUIRE((b != plan.nodes.end()));
  const Placed part = parts.of(static_cast<std::int32_t>(b - plan.nodes.begin()));
  const auto check = [](const std::string& name, const Placed& placed, const std::string& to) {
    const Message written = message_of(placed, to);
    check_golden(name, written.head);
    const Placed was = placed_of({golden_bytes(name), written.tensors});
    BOOST_TEST(was.device == placed.device);
    BOOST_TEST((was.part != nullptr) == (placed.part != nullptr));
    BOOST_TEST((message_of(was, to).head == written.head));
    Finder there("b");
    StateStore none;
    BOOST_TEST(make_plan(Placed(was), there, none).is_shared());
    return was.program.graph.text();
  };
  const std::string of_part = check("program_part", part, "b");
  // for values that a has, and constants that only a uses
  BOOST_TEST(says(of_part, {"Elsewhere", "value=nothing"}), of_part);
  // A function as well: a program that calls one has no parts.
  auto function = std::make_shared<FunctionDef>();
  function->name = "f";
  function->parameters = {ValueSpec{DType::f32, Shape{2}}};
  function->results = {ValueSpec{DType::boolean, Shape{}}};
  function->site.file = "model.cpp";
  whole.program.graph.set_functions({function});
  BOOST_TEST(check("program", whole, "") == whole.program.graph.text());
}

BOOST_AUTO_TEST_CASE(values_arrive_as_they_were) {
  BOOST_TEST(!through(Value()).has_value());
  BOOST_TEST(identical(through(Tensor::scalar(true)).tensor(), Tensor::scalar(true)));
  BOOST_TEST(identical(through(Tensor::scalar(-0.0)).tensor(), Tensor::scalar(-0.0)));
  BOOST_TEST(identical(through(Tensor::scalar(std::complex<double>(1, -2))).tensor(),
                       Tensor::scalar(std::complex<double>(1, -2))));
  const Tensor t = Tensor::of<float>({1, 2, 3, 4, 5, 6}, Shape{2, 3});
  BOOST_TEST(identical(through(t).tensor(), t));
  List inner(DType::f32, Shape{2, 3}), outer(DType::f32, Shape{2, 3}, 2);
  inner.push(t);
  inner.grow(3);
  inner.mark_saved(nullptr);
  outer.push(inner);
  outer.push(List(DType::f32, Shape{2, 3}));
  const Value back = through(outer);
  BOOST_REQUIRE(back.is_list());
  BOOST_TEST(text_of(back) == text_of(outer));
  const Value first = back.list().read(0);
  BOOST_TEST(first.list().length() == 3);
  BOOST_TEST(first.list().is_saved());
  BOOST_TEST(identical(first.list().read(0).tensor(), t));
  BOOST_TEST(!first.list().read(1).has_value());
}

BOOST_AUTO_TEST_CASE(a_bool_is_one_of_two) {
  MessageWriter w;
  w(Value(Tensor::scalar(true)));
  Message m = w.take();
  m.head.back() = std::byte{2};
  MessageReader r(m);
  Value back;
  refusal([&] { r(back); }, Code::data_loss);
}

BOOST_AUTO_TEST_CASE(strings_arrive_as_they_were) {
  const Tensor t =
      Tensor::strings({"peach", "", std::string(100'000, 'x'), std::string("a\0b", 3)}, {2, 2});
  BOOST_TEST(identical(through(t).tensor(), t));
  BOOST_TEST(identical(through(Tensor::string("")).tensor(), Tensor::string("")));
  BOOST_TEST(identical(through(Tensor::strings({}, {0, 3})).tensor(), Tensor::strings({}, {0, 3})));
  // Wrong lengths, and surplus bytes.
  for (const auto& [at, byte] :
       std::vector<std::pair<std::size_t, std::uint8_t>>{{0, 6}, {0, 4}, {7, 0x80}, {15, 0xFF}}) {
    MessageWriter w;
    w(Value(Tensor::strings({"peach", "pear"}, {2})));
    Message m = w.take();
    std::vector<std::uint8_t> bytes = m.tensors[0].to_vector<std::uint8_t>();
    bytes[at] = byte;
    m.tensors[0] = Tensor::of(bytes, m.tensors[0].shape());
    MessageReader r(m);
    Value back;
    refusal([&] { r(back); }, Code::data_loss);
  }
  MessageWriter w;
  w(Value(Tensor::strings({"peach"}, {1})));
  Message short_one = w.take();
  short_one.tensors[0] = Tensor::of<std::uint8_t>({1, 2, 3});
  MessageReader r(short_one);
  Value back;
  refusal([&] { r(back); }, Code::data_loss);
}

BOOST_AUTO_TEST_CASE(every_node_makes_the_same_plan) {
  Graph g;
  const Placed here = placed_program(g);
  const Placed there = placed_of(message_of(here));
  BOOST_TEST(there.program.graph.text() == here.program.graph.text());
  BOOST_TEST(there.device == here.device);
  for (std::int32_t id = 0; id < here.program.graph.size(); ++id)
    BOOST_TEST(there.program.graph.describe(id) == here.program.graph.describe(id));
  Finder a("a"), b("b");
  StateStore states_a, states_b;
  const Plan mine = make_plan(Placed(here), a, states_a),
             theirs = make_plan(Placed(there), b, states_b);
  BOOST_TEST(fingerprints(mine) == fingerprints(theirs), boost::test_tools::per_element());
  BOOST_TEST(mine.is_shared());
  for (std::size_t p = 0; p < mine.partitions.size(); ++p)
    BOOST_TEST((mine.partitions[p].kernels.empty() || theirs.partitions[p].kernels.empty()));
}

// Placement keeps these nodes beside each other, and users can only wire them so: a peer's program
// may do otherwise.
BOOST_AUTO_TEST_CASE(loops_that_are_not_closed_where_they_start_are_refused) {
  Graph g;
  const Placed placed = placed_program(g);
  const Graph& whole = placed.program.graph;
  int closed = 0;
  for (std::int32_t id = 0; id < whole.size(); ++id) {
    if (whole.node(id).op->name != "NextIteration") continue;
    ++closed;
    for (const std::int32_t moved :
         {id, whole.node(whole.node(id).inputs[1].node).inputs[0].node}) {
      Placed other = placed;
      std::string& device = other.device[static_cast<std::size_t>(moved)];
      device = device == "/node:a/cpu:0" ? "/node:b/cpu:0" : "/node:a/cpu:0";
      BOOST_TEST(says(why_no_plan(other), {"is on another device than Merge"}));
    }
  }
  BOOST_TEST(closed >= 2);

  Placed by_hand;
  Graph& h = by_hand.program.graph;
  Expr x = h.input("x", DType::f32, Shape{}), c = h.constant(Tensor::scalar(1.f));
  Node next;
  next.op = &find_op("NextIteration");
  next.inputs = {x.edge(), c.edge()};
  next.outputs = {ValueSpec{DType::f32, Shape{}}};
  by_hand.program.feeds = {x.edge()};
  by_hand.program.fetches = {Edge{h.append(std::move(next)), 0}};
  by_hand.device.assign(static_cast<std::size_t>(h.size()), "/node:b/cpu:0");
  by_hand.default_device = "/node:b/cpu:0";
  BOOST_TEST(says(why_no_plan(by_hand),
                  {"NextIteration", "closes a loop at Constant", "which is no Merge"}));
}

BOOST_AUTO_TEST_CASE(loop_constant_is_not_taken_from_another_device) {
  Placed placed;
  Graph& g = placed.program.graph;
  Expr x = g.input("x", DType::f32, Shape{});
  Node enter, user;
  enter.op = &find_op("Enter");
  enter.inputs = {x.edge()};
  enter.attrs = Attrs{{"frame", std::string("hand")}, {"constant", true}};
  user.op = &find_op("Neg");
  user.outputs = enter.outputs = {ValueSpec{DType::f32, Shape{}}};
  user.inputs = {Edge{g.append(std::move(enter)), 0}};
  placed.program.feeds = {x.edge()};
  placed.program.fetches = {Edge{g.append(std::move(user)), 0}};
  placed.device = {"/node:b/cpu:0", "/node:b/cpu:0", "/node:a/cpu:0"};
  placed.default_device = "/node:b/cpu:0";
  BOOST_TEST(says(why_no_plan(placed),
                  {"Neg", "it takes Enter", "which is constant in its loop, from another device"}));
}

BOOST_AUTO_TEST_CASE(a_node_gets_the_constants_that_it_uses) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2}), c = g.constant(Tensor::of<float>({3, 4}));
  Expr y;
  {
    auto there = g.on_device("/node:b");
    y = x * c;
  }
  const Placed placed = place(optimize(g, {x.edge()}, {y.edge()}, {.optimize = true}),
                              {.default_device = "cpu:0", .here = "a"});
  const auto value_there = [](const Placed& p) {
    for (const Node& n : p.program.graph.nodes())
      if (n.op->name == "Constant") return n.attrs.get<Tensor>("value").has_value();
    return false;
  };
  BOOST_TEST(value_there(placed_of(message_of(placed, "b"))));
  // "b" reads what was meant for "c"
  const std::string why = refusal([&] { placed_of(message_of(placed, "c")); }, Code::data_loss);
  BOOST_TEST(says(why, {"a constant that is used here and has no value"}), why);
  MessageWriter w;
  write(w, placed, "c");
  Message m = w.take();
  MessageReader r(m);
  Placed at_c;
  read(r, at_c, "c");
  BOOST_TEST(!value_there(at_c));
}

BOOST_AUTO_TEST_CASE(codec_names_the_op_that_a_node_lacks) {
  Graph g;
  Placed placed = placed_program(g);
  OpDef unknown;
  unknown.name = "Frobnicate";
  Node node;
  node.op = &unknown;
  node.site = std::source_location::current();
  placed.program.graph.append(node);
  placed.device.push_back("/node:b/cpu:0");
  BOOST_CHECK_EXCEPTION(placed_of(message_of(placed)), Error, [](const Error& e) {
    return e.code() == Code::not_found && says(e.what(), {"no op 'Frobnicate'", "codec_test.cpp"});
  });
}

// Bytes that are turned, cut or added are refused or mean something: they do no harm (run under the
// sanitizers).
BOOST_AUTO_TEST_CASE(damaged_programs_are_refused) {
  Graph g;
  const Message whole = message_of(placed_program(g));
  std::minstd_rand random(1);
  int refused = 0;
  for (int n = 0; n < 4000; ++n) {
    Message m = whole;
    for (int k = 0; k < 1 + n % 3; ++k)
      m.head[random() % m.head.size()] = static_cast<std::byte>(random());
    if (n % 7 == 0) m.head.resize(random() % m.head.size());
    if (n % 11 == 0 && !m.tensors.empty()) m.tensors.pop_back();
    try {
      placed_of(std::move(m));
    } catch (const Error&) { ++refused; }
  }
  BOOST_TEST(refused > 2000);
}

// Assumptions of kernels about nodes that no user can break, and a peer can.
BOOST_AUTO_TEST_CASE(nodes_that_are_not_of_what_they_work_on_are_refused) {
  using Object = std::shared_ptr<const AttrObject>;
  // A program of as many results, which are its operand, of that type; and a node that computes it
  // of four floats.
  const auto program = [](DType type, std::size_t results) -> Object {
    ScalarProgram p;
    p.results.assign(results, append_input(p, type));
    return std::make_shared<ProgramAttr>(std::make_shared<const ScalarProgram>(std::move(p)));
  };
  const auto why_refused = [](const std::string& op, Attrs attrs, std::vector<ValueSpec> outputs) {
    Placed p;
    Graph& g = p.program.graph;
    Expr x = g.input("x", DType::f32, {4});
    const Variable v = g.variable("v", Tensor::zeros(DType::f32, {4}));
    g.fifo_queue("q", {{DType::f32, Shape{4}}}, 2);
    Node n;
    n.op = &find_op(op);
    if (op.starts_with("Fused")) n.inputs = {x.edge()};
    else n.state = op == "Dequeue" ? 1 : v.state();
    n.attrs = std::move(attrs);
    n.outputs = std::move(outputs);
    p.program.feeds = {x.edge()};
    p.program.fetches = {Edge{g.append(std::move(n)), 0}};
    p.device.assign(static_cast<std::size_t>(g.size()), "/node:b/cpu:0");
    p.default_device = "/node:b/cpu:0";
    try {
      placed_of(message_of(p));
      return std::string();
    } catch (const Error& e) { return std::string(e.what()); }
  };
  const ValueSpec row{DType::f32, Shape{4}}, wide{DType::f64, Shape{4}}, two{DType::f32, Shape{2}};
  const auto sliced = [&](const Object& what, std::int64_t start) {
    return Attrs{{"program", what},
                 {"columns", std::int64_t{2}},
                 {"starts", std::vector<std::int64_t>{start}},
                 {"outputs", std::vector<std::int64_t>{0}}};
  };
  const auto of = [](DType type, const Shape& shape) {
    return Attrs{{"dtype", type}, {"shape", shape}};
  };
  BOOST_TEST(why_refused("Fused", {{"program", program(DType::f32, 1)}}, {row}) == "");
  BOOST_TEST(says(why_refused("Fused", {{"program", program(DType::f64, 1)}}, {wide}),
                  {"a program that is not of Fused"}));
  BOOST_TEST(says(
      why_refused("Fused", {{"program", program(DType::f32, 17)}}, std::vector<ValueSpec>(17, row)),
      {"a program that is not of Fused"}));
  BOOST_TEST(why_refused("FusedSlices", sliced(program(DType::f32, 1), 2), {two}) == "");
  for (const std::int64_t start : {-2, -1, 3})
    BOOST_TEST(says(why_refused("FusedSlices", sliced(program(DType::f32, 1), start), {two}),
                    {"a program that is not of FusedSlices"}));
  BOOST_TEST(says(why_refused("FusedSlices", sliced(make_specs_attr({row}), 2), {two}),
                  {"a node of FusedSlices that is none"}));
  const auto reduced = [&](const Object& what, std::int64_t which, std::int64_t reduction) {
    return Attrs{{"program", what},
                 {"reduced", which},
                 {"reduction", reduction},
                 {"stored", false},
                 {"axes", std::vector<std::int64_t>{0}},
                 {"keep_dims", false}};
  };
  const ValueSpec one{DType::f32, Shape{}};
  BOOST_TEST(why_refused("FusedReduce", reduced(program(DType::f32, 1), 0, 0), {one}) == "");
  for (const std::int64_t which : {-1, 1})
    BOOST_TEST(says(why_refused("FusedReduce", reduced(program(DType::f32, 1), which, 0), {one}),
                    {"its program has no such result"}));
  for (const std::int64_t kind : {-1, 10})
    BOOST_TEST(says(why_refused("FusedReduce", reduced(program(DType::f32, 1), 0, kind), {one}),
                    {"there is no such reduction"}));
  BOOST_TEST(says(why_refused("FusedReduce", reduced(program(DType::f64, 1), 0, 0), {one}),
                  {"a program that is not of FusedReduce"}));
  BOOST_TEST(why_refused("ReadVariable", of(DType::f32, {4}), {row}) == "");
  BOOST_TEST(says(why_refused("ReadVariable", of(DType::f64, {4}), {wide}),
                  {"ReadVariable of 'v', as what it is not"}));
  BOOST_TEST(says(why_refused("ReadVariable", of(DType::f32, {2}), {two}), {"as what it is not"}));
  BOOST_TEST(why_refused("Dequeue", {{"components", make_specs_attr({row})}}, {row}) == "");
  BOOST_TEST(says(why_refused("Dequeue", {{"components", make_specs_attr({wide})}}, {wide}),
                  {"Dequeue of 'q', as what it is not"}));
}

// A user could not declare such queues either: one that gives while it has nothing would take an
// element out of none.
BOOST_AUTO_TEST_CASE(queues_that_keep_nothing_are_refused) {
  const auto read_back = [](StateSpec::Kind kind, std::int64_t capacity,
                            std::int64_t min_after_dequeue) {
    StateSpec spec, back;
    spec.kind = kind;
    spec.name = "q";
    spec.values = {ValueSpec{DType::f32, Shape{}}};
    spec.capacity = capacity;
    spec.min_after_dequeue = min_after_dequeue;
    MessageWriter w;
    w(spec);
    Message m = w.take();
    MessageReader r(m);
    r(back);
    r.end();
    return back.is_same(spec);
  };
  using enum StateSpec::Kind;
  BOOST_TEST(read_back(fifo_queue, 1, 0));
  BOOST_TEST(read_back(shuffling_queue, 4, 3));
  for (const auto& [capacity, least] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{4, -1}, {4, 4}, {0, 0}, {-1, -2}})
    for (const StateSpec::Kind kind : {fifo_queue, shuffling_queue})
      BOOST_TEST(says(refusal([&, most = capacity, kept = least] { read_back(kind, most, kept); },
                              Code::data_loss),
                      {"a queue that keeps nothing"}));
}

BOOST_AUTO_TEST_CASE(damaged_tokens_are_refused) {
  List list(DType::f32, Shape{2});
  list.push(Tensor::of<float>({1, 2}));
  RunToken token{1, 2, false, {}, list};
  token.path.depth = 2;
  token.path.number[1] = 3;
  const Message whole = written(RunTokens{{7, 8}, {{3, 4, token.path, 32}}, {token, token}});
  {
    Message m = whole;
    const auto back = std::get<RunTokens>(read_message(m));
    BOOST_TEST((back.run == RunKey{7, 8}));
    BOOST_REQUIRE((back.grants.size() == 1 && back.tokens.size() == 2));
    BOOST_TEST((back.grants[0].partition == 3 && back.grants[0].send == 4 &&
                back.grants[0].path.number[1] == 3 && back.grants[0].last == 32));
    BOOST_TEST(back.tokens[1].path.number[1] == 3);
    BOOST_TEST(text_of(back.tokens[1].value) == text_of(token.value));
  }
  std::minstd_rand random(1);
  for (int n = 0; n < 20000; ++n) {
    Message m = whole;
    for (int k = 0; k < 1 + n % 3; ++k)
      m.head[random() % m.head.size()] = static_cast<std::byte>(random());
    if (n % 7 == 0) m.head.resize(random() % m.head.size());
    try {
      read_message(m);
    } catch (const Error&) {}
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
