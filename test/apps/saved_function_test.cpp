// Not under tsan: it has one thread.
// Traced functions in files: loaded into another engine, run by the binary alone, and refused by
// name where they hold what only this process has.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <optional>

#include <troupe/cluster.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/cluster/protocol/saved_function.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/eager_scopes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(saved_function_test)

namespace {

Numbers numbers_of(const Tensor& t) {
  Numbers out;
  for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_function_runs_without_its_code) {
  const Folder folder;
  const std::string file = folder / "step.safetensors";
  {
    Engine engine({.workers = 1});
    Eager e(engine);
    Variable w = e.variable("w", Tensor::of<double>({1, 2}, {2}));
    w.assign(e.constant(Tensor::of<double>({10, 20}, {2})));
    Expr captured = e.constant(100.0);
    auto step = function("step", [&](Expr x, Expr n) {
      w.assign_add(x);
      Expr powers = std::get<1>(while_loop([&](Expr i, Expr) { return i < n; },
                                           [&](Expr i, Expr y) {
                                             return std::tuple{i + 1, y * x};
                                           },
                                           std::tuple{n * 0, x * 0.0 + 1.0}));
      return std::pair(cond(
                           n > 2, [&] { return powers + captured; }, [&] { return powers; }),
                       w.read());
    });
    save(step, file, e.constant(Tensor::zeros(DType::f64, {2})), e.constant(std::int64_t{0}));
    BOOST_TEST(numbers(w.read()) == (Numbers{10, 20}));  // nothing ran
  }
  Engine engine({.workers = 1});
  const SavedFunction step(engine, file);
  BOOST_TEST(step.text() == "step(f64[2], i64[]) -> (f64[2], f64[2])");
  BOOST_TEST(step.variables() == std::vector<std::string>{"w"});
  const Tensor x = Tensor::of<double>({1, 2}, {2});
  std::vector<Tensor> out = step({x, Tensor::scalar(std::int64_t{3})});
  BOOST_TEST(numbers_of(out[0]) == (Numbers{101, 108}));
  BOOST_TEST(numbers_of(out[1]) == (Numbers{11, 22}));
  out = step({x, Tensor::scalar(std::int64_t{2})});
  BOOST_TEST(numbers_of(out[0]) == (Numbers{1, 4}));
  BOOST_TEST(numbers_of(out[1]) == (Numbers{12, 24}));
  BOOST_TEST(numbers_of(engine.get("w")) == (Numbers{12, 24}));
  BOOST_CHECK_EXCEPTION(step({x}), Error, [](const Error& error) {
    return says(error, Code::invalid_argument, {"takes 2 arguments", "1 are given"});
  });
  BOOST_CHECK_THROW(step({Tensor::scalar(1.0), Tensor::scalar(std::int64_t{2})}), Error);
}

BOOST_AUTO_TEST_CASE(a_function_over_nodes_is_loaded_onto_one_device) {
  const Folder folder;
  const std::string file = folder / "step.safetensors";
  {
    Nodes nodes(2, stepped(1));
    Eager e(nodes.engine());
    std::optional<Variable> w;
    {
      const auto there = e.on_device("/node:b/cpu:0");
      w = e.variable("w", Tensor::of<double>({1, 2}, {2}));
    }
    w->assign_add(e.constant(Tensor::of<double>({10, 20}, {2})));
    auto step = function("step", [&](Expr x) {
      const auto there = e.on_device("/node:b/cpu:0");
      return x * 2.0 + w->read();
    });
    BOOST_TEST(numbers(step(e.constant(Tensor::of<double>({1, 2}, {2})))) == (Numbers{13, 26}));
    save(step, file);
  }
  Engine engine({.workers = 1});
  const SavedFunction step(engine, file);
  BOOST_TEST(numbers_of(step({Tensor::of<double>({2, 4}, {2})})[0]) == (Numbers{15, 30}));
}

BOOST_AUTO_TEST_CASE(a_recursive_function_is_saved) {
  const Folder folder;
  const std::string file = folder / "power.safetensors";
  {
    Engine engine({.workers = 1});
    Eager e(engine);
    FunctionOptions options;
    options.results = {{DType::f64, Shape{}}};
    std::function<Expr(Expr, Expr)> again;
    auto power = function(
        "power",
        [&](Expr x, Expr n) {
          return cond(
              n > 0.0, [&] { return x * again(x, n - 1.0); }, [&] { return x * 0.0 + 1.0; });
        },
        options);
    again = [&](Expr x, Expr n) { return power(x, n); };
    BOOST_TEST(number(power(e.constant(2.0), e.constant(5.0))) == 32);
    save(power, file);
  }
  Engine engine({.workers = 1});
  const SavedFunction power(engine, file);
  BOOST_TEST(power({Tensor::scalar(3.0), Tensor::scalar(4.0)})[0].item<double>() == 81);
}

BOOST_AUTO_TEST_CASE(the_binary_runs_a_saved_function) {
  const Folder folder;
  const std::string file = folder / "f.safetensors", out = folder / "out.safetensors";
  {
    Engine engine({.workers = 1});
    Eager e(engine);
    Variable w = e.variable("w", Tensor::of<float>({1, 2, 3}, {3}));
    FunctionOptions options;
    options.signature = {{DType::f32, Shape{kAny, 3}}, {DType::f32, Shape{}}};
    auto f = function(
        "f", [&](Expr x, Expr s) { return sum(x * w, {1}) * s; }, options);
    save(f, file, e.constant(Tensor::zeros(DType::f32, {1, 3})), Tensor::scalar(1.0f));
  }
  Outcome got = run(folder.path(), {binary(), "run", file, "1,1,1,0,0,1", "2"});
  BOOST_TEST(got.code == 0);
  BOOST_TEST(got.out == "f32[2] 12 6\n");
  got = run(folder.path(), {binary(), "run", file, "1,1,1", "-2", "--out", out});
  BOOST_TEST(got.code == 0);
  BOOST_TEST(load_safetensors(out).at("0").at(0) == -12);
  save_safetensors(folder / "x.safetensors",
                   {{"x", Tensor::of<float>({0, 0, 1}, {1, 3})}, {"y", Tensor::scalar(1.0f)}});
  got = run(folder.path(), {binary(), "run", file, "x.safetensors:x", "x.safetensors:y"});
  BOOST_TEST(got.out == "f32[1] 3\n");
  got = run(folder.path(), {binary(), "run", file, "--describe"});
  BOOST_TEST(got.out == "f(f32[?, 3], f32[]) -> (f32[?])\nvariable w\n");
  const auto refuses = [&](std::vector<std::string> words, const char* part) {
    words.insert(words.begin(), {binary(), "run"});
    const Outcome refused = run(folder.path(), words);
    BOOST_TEST((refused.code == 1 || refused.code == 2));
    BOOST_TEST(refused.error.find(part) != std::string::npos);
  };
  refuses({file, "1,1,1"}, "takes 2 arguments, and 1 are given");
  refuses({file, "1,1", "2"}, "argument 0 is f32[?, 3], and 2 numbers are given");
  refuses({file, "1,one,1", "2"}, "'one' is no number");
  refuses({file, "x.safetensors", "2"}, "holds 2 tensors; name one");
  refuses({"nowhere.safetensors"}, "nowhere.safetensors");
  refuses({"x.safetensors"}, "holds no function");
}

BOOST_AUTO_TEST_CASE(the_binary_reads_and_prints_numbers_whole) {
  const Folder folder;
  const std::string file = folder / "f.safetensors";
  {
    Engine engine({.workers = 1});
    Eager e(engine);
    FunctionOptions options;
    options.signature = {{DType::i64, Shape{2}}, {DType::f64, Shape{}}, {DType::f32, Shape{}}};
    auto f = function(
        "f",
        [](Expr n, Expr x, Expr s) { return std::tuple(n + 0, complex(x, 2.0 * x), s * 1.0f); },
        options);
    save(f, file, e.constant(Tensor::of<std::int64_t>({1, 2})), e.constant(1.0),
         Tensor::scalar(1.0f));
  }
  const Outcome got =
      run(folder.path(), {binary(), "run", file, "9007199254740993,-1", "1.5", "0.1"});
  BOOST_TEST(got.code == 0);
  BOOST_TEST(got.out == "i64[2] 9007199254740993 -1\nc128[] 1.5+3i\nf32[] 0.1\n");
  for (const char* const refused : {"3.7,-1", "1e30,0", "nan,1"}) {
    const Outcome o = run(folder.path(), {binary(), "run", file, refused, "1.5", "0.1"});
    BOOST_TEST(o.code == 2, o.out);
    BOOST_TEST(o.error.find("argument 0 is i64[2], which has no value ") != std::string::npos,
               o.error);
  }
}

BOOST_AUTO_TEST_CASE(the_variables_are_those_of_the_scope_that_saves) {
  const Folder folder;
  const std::string file = folder / "f.safetensors";
  Eager a, b;
  Variable w = a.variable("w", Tensor::scalar(2.0));
  b.variable("w", Tensor::scalar(5.0));
  auto f = function("f", [&](Expr x) { return x * w; });
  BOOST_TEST(number(f(a.constant(1.0))) == 2);
  save(f, file, b.constant(1.0));
  BOOST_TEST(f.traces() == 1);
  BOOST_TEST(load_safetensors(file).at("w").item<double>() == 5);
  BOOST_CHECK_EXCEPTION(save(f, file), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"function 'f'", "traced in another scope"});
  });
}

BOOST_AUTO_TEST_CASE(code_and_queues_of_this_process_are_refused_by_name) {
  const Folder folder;
  Engine engine({.workers = 1});
  Eager e(engine);
  Queue queue = e.fifo_queue("numbers", {{DType::f64, Shape{}}}, 4);
  auto f = function("f", [&](Expr x) {
    return cond(
        x > 0.0,
        [&] {
          return host_callback("noise", {x}, {DType::f64, Shape{}},
                               [](std::span<const Tensor> in) { return in[0]; });
        },
        [&] {
          queue.enqueue({x});
          return x;
        });
  });
  BOOST_CHECK_EXCEPTION(save(f, folder / "f", e.constant(1.0)), Error, [](const Error& error) {
    return says(error, Code::unimplemented,
                {"function 'f'", "cannot be saved", "the user actor 'noise#",
                 "the queue 'numbers' (", "saved_function_test.cpp"});
  });
  BOOST_TEST(folder.files().empty());
  auto g = function("g", [](Expr x) { return x; });
  BOOST_CHECK_EXCEPTION(save(g, folder / "g"), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"function 'g'", "it has 0 graphs"});
  });
}

BOOST_AUTO_TEST_CASE(broken_files_are_refused) {
  const Folder folder;
  const std::string file = folder / "f.safetensors";
  Engine engine({.workers = 1});
  Eager e(engine);
  Variable w = e.variable("w", Tensor::scalar(1.0));
  auto f = function("f", [&](Expr x) { return x * w; });
  save(f, file, e.constant(1.0));
  const TensorFile whole = load_safetensors(file);
  const auto refuses = [&](const NamedTensors& tensors, const char* part) {
    save_safetensors(file, tensors, whole.metadata);
    Engine other({.workers = 1});
    BOOST_CHECK_EXCEPTION(SavedFunction(other, file), Error, [&](const Error& error) {
      return says(error, Code::data_loss, {file, part});
    });
  };
  NamedTensors without_w, cut = whole.tensors;
  for (const auto& entry : whole.tensors)
    if (entry.first != "w") without_w.push_back(entry);
  refuses(without_w, "variable 'w' is missing");
  for (auto& [name, value] : cut)
    if (name == "troupe.program") value = value.rows(0, value.elements() / 2);
  refuses(cut, "holds no function");
  // nodes of others, whose constants may lack
  Message message;
  const Tensor head = whole.at("troupe.program");
  const auto* bytes = reinterpret_cast<const std::byte*>(head.data<std::uint8_t>());
  message.head.assign(bytes, bytes + head.elements());
  Placed placed;
  MessageReader reader(message);
  read(reader, placed, std::string());
  for (std::string& device : placed.device) device = "/node:x/cpu:0";
  MessageWriter writer;
  write(writer, placed);
  const Message moved = writer.take();
  NamedTensors elsewhere = without_w;
  for (auto& [name, value] : elsewhere)
    if (name == "troupe.program")
      value = Tensor::of<std::uint8_t>(
          std::vector<std::uint8_t>(
              reinterpret_cast<const std::uint8_t*>(moved.head.data()),
              reinterpret_cast<const std::uint8_t*>(moved.head.data()) + moved.head.size()),
          {static_cast<std::int64_t>(moved.head.size())});
  elsewhere.emplace_back("w", Tensor::scalar(1.0));
  refuses(elsewhere, "placed on other nodes");
  refuses({{"w", Tensor::scalar(1.0)}}, "no entry 'troupe.program'");
  auto metadata = whole.metadata;
  metadata["troupe.format"] = "1";
  save_safetensors(file, whole.tensors, metadata);
  BOOST_CHECK_EXCEPTION(SavedFunction(engine, file), Error, [&](const Error& error) {
    return says(error, Code::unimplemented, {file, "in format 1", "save it again"});
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
