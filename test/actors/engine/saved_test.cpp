// An engine's variables in a file: what comes back, what is missing, what is left over.
#include <boost/test/unit_test.hpp>

#include <filesystem>

#include <unistd.h>

#include <troupe/actors/engine/saved.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(saved_test)

namespace {

struct File {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("troupe_saved_" + std::to_string(getpid()) + ".safetensors"))
                         .string();
  ~File() { std::filesystem::remove(path); }
};

Tensor floats(std::initializer_list<float> v) { return Tensor::of<float>(v); }

}  // namespace

BOOST_AUTO_TEST_CASE(variables_and_the_step_come_back) {
  File file;
  Graph g;
  Variable w = g.variable("w", DType::f32, {2}, Initializer::normal(0, 1)),
           b = g.variable("b", Tensor::scalar(std::int64_t{3}));
  Tensor value;
  {
    Engine engine({.workers = 1, .seed = 4});
    engine.run(g, {}, {w.assign_add(1.0), b.assign_add(1)});
    engine.set_step(17);
    value = engine.get(w);
    save(engine, file.path);
  }
  for (bool gives_graph : {true, false}) {
    Engine engine({.workers = 1});
    const Function read = engine.compile(g, {}, {w.read(), b.read()});
    const Loaded loaded = gives_graph ? load(engine, g, file.path) : load(engine, file.path);
    BOOST_TEST(loaded.is_complete(), loaded.text());
    BOOST_TEST(loaded.text() == "");
    BOOST_TEST(engine.step() == 17u);
    const std::vector<Tensor> out = read({});
    BOOST_TEST(identical(out[0], value));
    BOOST_TEST(out[1].item<std::int64_t>() == 4);
  }
}

BOOST_AUTO_TEST_CASE(an_engine_that_has_run_nothing_needs_the_graph) {
  File file;
  save_safetensors(file.path, {{"w", floats({5, 6})}});
  Graph g;
  Variable w = g.variable("w", floats({1, 2}));
  Engine engine({.workers = 1});
  BOOST_TEST((load(engine, file.path).left_over == std::vector<std::string>{"w"}));
  BOOST_TEST(load(engine, g, file.path).is_complete());
  BOOST_TEST(identical(engine.get(w), floats({5, 6})));
}

BOOST_AUTO_TEST_CASE(names_on_one_side_are_reported) {
  File file;
  save_safetensors(file.path, {{"z", floats({1})}, {"w", floats({5, 6})}, {"a", floats({1})}});
  Graph g;
  Variable w = g.variable("w", floats({1, 2})), v = g.variable("v", floats({3}));
  Engine engine({.workers = 1});
  const Loaded loaded = load(engine, g, file.path);
  BOOST_TEST((loaded.missing == std::vector<std::string>{"v"}));
  BOOST_TEST((loaded.left_over == std::vector<std::string>{"a", "z"}));
  BOOST_TEST(loaded.text() == "missing: v; left over: a, z");
  BOOST_TEST(identical(engine.get(w), floats({5, 6})));
  BOOST_TEST(identical(engine.get(v), floats({3})));
}

BOOST_AUTO_TEST_CASE(another_shape_changes_nothing) {
  File file;
  save_safetensors(file.path, {{"a", floats({9})}, {"w", floats({5, 6, 7})}});
  Graph g;
  Variable a = g.variable("a", floats({1})), w = g.variable("w", floats({1, 2}));
  Engine engine({.workers = 1});
  const std::string said = refusal([&] { load(engine, g, file.path); }, Code::invalid_argument);
  BOOST_TEST(said.find("variable 'w' is f32[2]") != std::string::npos, said);
  BOOST_TEST(identical(engine.get(a), floats({1})));
  BOOST_TEST(identical(engine.get(w), floats({1, 2})));
  refusal([&] { load(engine, g, file.path + ".none"); }, Code::not_found);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
