// Not under asan and tsan: trainings take minutes there, on parts that other suites run.
// The Transformer of the main job: no position sees a later one, and every layout over devices and
// nodes learns the same.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/transformer_trainer.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/support/process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(char_lm_transformer_test)

namespace {

using namespace troupe::char_lm;

// Sentences of a small language, in which words predict the next one.
std::string a_language(std::size_t characters) {
  const char* words[] = {"the cat ", "a dog ", "watches ", "follows ", "the moon", "nobody"};
  std::mt19937 random(3);
  std::string text;
  while (text.size() < characters)
    text += fmt::format("{}{}{}.\n", words[random() % 2], words[2 + random() % 2],
                        words[4 + random() % 2]);
  text.resize(characters);
  return text;
}

TrainerOptions small(const Text& text, const std::string& mesh = {},
                     const std::string& layout = {}) {
  TrainerOptions o;
  o.model = {.kind = kTransformer,
             .symbols = static_cast<std::int64_t>(text.alphabet().size()),
             .context = 8,
             .hidden = 16,
             .layers = 2,
             .heads = 4,
             .seed = 3};
  o.batch = 8;
  o.steps = 100;
  o.rate = 0.01;
  o.workers = 2;
  o.mesh = mesh;
  o.layout = layout;
  return o;
}

// A text whose symbols two devices divide.
Text a_text() {
  std::string text = a_language(2000);
  while (Text::of(text, "a text").alphabet().size() % 2 != 0)
    text += static_cast<char>('A' + text.size() % 26);
  return Text::of(text, "a text");
}

std::vector<double> losses(Trainer& trainer, int steps) {
  std::vector<double> all;
  for (int i = 0; i < steps; ++i) all.push_back(trainer.train(i));
  return all;
}

void check_alike(const std::vector<double>& got, const std::vector<double>& wanted,
                 const std::string& what) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    BOOST_TEST(std::abs(got[i] - wanted[i]) <= 2e-3 * wanted[i],
               what << ": step " << i << " has loss " << got[i] << " in place of " << wanted[i]);
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_position_sees_a_later_one) {
  const ModelOptions o{.kind = kTransformer,
                       .symbols = 5,
                       .context = 6,
                       .hidden = 8,
                       .layers = 2,
                       .heads = 2,
                       .seed = 3};
  Graph g;
  const Expr symbols = g.input("symbols", DType::i32, {1, 6});
  const TransformerModel model(g, o);
  Engine engine;
  const Function f = engine.compile(g, {symbols}, {model.logits(symbols, {"rows", 1})});
  const auto logits = [&](std::vector<std::int32_t> of) {
    return f({Tensor::of<std::int32_t>(of, {1, 6})})[0];
  };
  const Tensor one = logits({0, 1, 2, 3, 4, 0}), other = logits({0, 1, 2, 0, 1, 2});
  for (std::int64_t i = 0; i < 15; ++i) BOOST_TEST(one.at(i) == other.at(i));
  double apart = 0;
  for (std::int64_t i = 15; i < 30; ++i) apart = std::max(apart, std::abs(one.at(i) - other.at(i)));
  BOOST_TEST(apart > 1e-3);
}

BOOST_AUTO_TEST_CASE(every_layout_learns_the_same) {
  const Text text = a_text();
  TransformerTrainer whole(text, small(text));
  const std::vector<double> wanted = losses(whole, 50);
  BOOST_TEST(wanted.back() < 0.85 * wanted.front());
  const double bits = whole.validate(1000);
  const std::string sample = whole.sample(20, 0.7);
  BOOST_TEST(sample.size() == 20u);
  for (const auto& [mesh, layout] :
       {std::pair("p:2", "batch:p"), std::pair("p:2", "heads:p;inner:p;vocabulary:p"),
        std::pair("rows:2;cols:2", "batch:rows;heads:cols;inner:cols"),
        std::pair("p:2", "length:p"), std::pair("p:4", "batch:p;slots/inner:p")}) {
    TransformerTrainer cut(text, small(text, mesh, layout));
    check_alike(losses(cut, 50), wanted, layout);
    BOOST_TEST(cut.validate(1000) == bits, boost::test_tools::tolerance(5e-3));
    BOOST_TEST(cut.explain().find(fmt::format("mesh {}, layout '{}'", mesh, layout)) !=
               std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_training_goes_on_under_another_layout) {
  const Text text = a_text();
  TransformerTrainer first(text, small(text, "p:2", "batch:p")),
      second(text, small(text, "p:4", "inner:p;heads:p"));
  losses(first, 5);
  for (const std::string& name : first.engine().variables())
    second.engine().set(name, first.engine().get(name));
  for (int step = 5; step < 10; ++step)
    BOOST_TEST(second.train(step) == first.train(step), boost::test_tools::tolerance(2e-3));
}

BOOST_AUTO_TEST_CASE(nodes_hold_the_devices_of_a_mesh) {
  const Text text = a_text();
  TransformerTrainer alone(text, small(text));
  const std::vector<double> wanted = losses(alone, 10);
  for (const int count : {2, 4}) {
    InProcessNetwork network;
    const auto reached = [&](PeerInfo self) {
      self.address = "inproc://" + self.name;
      return network.make_transport(std::move(self));
    };
    TrainerOptions o = small(text, "rows:2;cols:2", "batch:rows;heads:cols;inner:cols");
    o.cluster = {.join = {"inproc://a"}, .nodes = {}, .keys = {}, .transport = reached};
    std::vector<std::unique_ptr<ClusterNode>> nodes;
    for (int i = 0; i < count; ++i) {
      NodeOptions n;
      n.name = std::string(1, static_cast<char>('a' + i));
      n.transport = reached;
      n.engine.workers = 1;
      if (!nodes.empty()) n.join = {"inproc://a"};
      o.cluster.nodes.push_back(n.name);
      nodes.push_back(std::make_unique<ClusterNode>(std::move(n)));
    }
    TransformerTrainer shared(text, o);
    check_alike(losses(shared, 10), wanted, fmt::format("{} nodes", count));
    for (const auto& node : nodes) BOOST_TEST(node->counters().bytes_in > 0u);
    const std::string plan = shared.explain();
    const std::string told =
        fmt::format("4 devices on {} nodes run instances of one program", count);
    BOOST_TEST(plan.find(told) != std::string::npos, plan);
  }
}

BOOST_AUTO_TEST_CASE(sizes_of_one_keep_their_names) {
  const Text text = a_text();
  TrainerOptions o = small(text, "p:2", "inner:p");
  o.batch = 1;
  o.model.heads = 1;
  o.model.layers = 1;
  TransformerTrainer cut(text, o);
  o.mesh = o.layout = "";
  TransformerTrainer whole(text, o);
  check_alike(losses(cut, 5), losses(whole, 5), "batch and heads of one");
}

namespace {

Outcome lm(const Folder& place, std::vector<std::string> more) {
  std::vector<std::string> all{
      example("char_lm"), "--text", "text.txt", "--model", "transformer",    "--context", "8",
      "--hidden",         "16",     "--batch",  "8",       "--sample-chars", "20"};
  all.insert(all.end(), more.begin(), more.end());
  return run(place.path(), all);
}

}  // namespace

using boost::unit_test::precondition;

BOOST_AUTO_TEST_CASE(the_program_trains_over_a_mesh, *precondition(Built{"char_lm"})) {
  Folder place;
  write_file(place / "text.txt", a_language(4000));
  const Outcome whole = lm(place, {"--steps", "30", "--save", "whole"});
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.out << whole.error);
  const Outcome cut = lm(place, {"--steps", "30", "--save", "cut", "--mesh", "rows:2;cols:2",
                                 "--layout", "batch:rows;heads:cols;inner:cols"});
  BOOST_REQUIRE_MESSAGE(cut.code == 0, cut.out << cut.error);
  BOOST_TEST(cut.out.find("the transformer model after ") != std::string::npos);
  const TensorFile a = load_safetensors(place / "whole"), b = load_safetensors(place / "cut");
  BOOST_REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    const Tensor& other = b.at(name);
    BOOST_REQUIRE(tensor.shape() == other.shape());
  }
  // The file has no layout: any goes on with it.
  const Outcome more =
      run(place.path(), {example("char_lm"), "--text", "text.txt", "--resume", "cut", "--steps",
                         "40", "--mesh", "p:2", "--layout", "batch:p", "--sample-chars", "0"});
  BOOST_TEST(more.code == 0, more.out << more.error);
  BOOST_TEST(load_safetensors(place / "cut").metadata.at("step") == "40");
}

BOOST_AUTO_TEST_CASE(meshes_and_layouts_that_do_not_fit_are_refused,
                     *precondition(Built{"char_lm"})) {
  Folder place;
  write_file(place / "text.txt", a_language(4000));
  const auto refuses = [&](const std::vector<std::string>& options, const char* part) {
    const Outcome o = lm(place, options);
    BOOST_TEST(o.code == 2, o.out << o.error);
    BOOST_TEST(o.error.find(part) != std::string::npos, o.error);
    BOOST_TEST(std::count(o.error.begin(), o.error.end(), '\n') == 1, o.error);
  };
  refuses({"--mesh", "p:2"}, "--mesh requires --layout");
  refuses({"--layout", "batch:p"}, "--layout requires --mesh");
  refuses({"--mesh", "p:two", "--layout", "batch:p"}, "the size 'two' of 'p'");
  refuses({"--mesh", "p:2", "--layout", "batch"}, "'batch' is not NAME:AXIS");
  refuses({"--mesh", "p:2", "--layout", "experts:p"}, "no dimension 'experts'; it has batch");
  refuses({"--mesh", "p:2", "--layout", "batch:q"}, "--mesh p:2 has no axis 'q'");
  refuses({"--mesh", "p:2000", "--layout", "batch:p"}, "more than 1024 places");
  refuses({"--mesh", "p:3", "--layout", "batch:p", "--no-save"},
          "axis 'p' of 3 devices does not divide dimension 'batch' of size 8");
  refuses({"--mesh", "p:2", "--layout", "heads:p;inner:p;width:p", "--no-save"}, "mesh axis 'p'");
  refuses({"--heads", "3"}, "--heads 3 do not divide --hidden 16");
  refuses({"--length", "8"}, "--length belongs to --model lstm, not to transformer");
  refuses({"--embedding", "8"}, "--embedding belongs to --model lstm and window");
  const Outcome lstm = run(place.path(), {example("char_lm"), "--text", "text.txt", "--mesh", "p:2",
                                          "--layout", "batch:p"});
  BOOST_TEST(lstm.code == 2);
  BOOST_TEST(
      lstm.error.find("--mesh belongs to --model transformer, not to lstm") != std::string::npos,
      lstm.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
