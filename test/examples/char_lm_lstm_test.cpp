// Not under asan and tsan: trainings take minutes there, on parts that other suites run.
// The LSTM of the main job from inside: what its reader shows, that padding counts for nothing,
// that streams go on where they ended, and that a sample is one run.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/apps/examples/char_lm/lstm_trainer.hpp>
#include <troupe/apps/examples/char_lm/progress.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(char_lm_lstm_test)

namespace {

using namespace troupe::char_lm;

// Words of one to nine letters.
Text a_text(std::size_t characters, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < characters)
    text += std::string(1 + random() % 9, static_cast<char>('a' + random() % 5)) +
            (random() % 7 ? ' ' : '\n');
  text.resize(characters);
  return Text::of(text, "a text");
}

TrainerOptions small(const Text& text, int workers = 1) {
  TrainerOptions o;
  o.model = {.kind = char_lm::kLstm,
             .symbols = static_cast<std::int64_t>(text.alphabet().size()),
             .length = 12,
             .embedding = 5,
             .hidden = 16,
             .layers = 2,
             .seed = 3};
  o.batch = 4;
  o.steps = 100;
  o.rate = 0.01;
  o.workers = workers;
  return o;
}

std::vector<std::int32_t> symbols_of(const Text& text, std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> symbols;
  for (std::int64_t i = begin; i < end; ++i) symbols.push_back(text.symbol(i));
  return symbols;
}

// A trainer's model in a graph of its own, with the trainer's weights and one row, without padding.
class Alone {
 public:
  Alone(const Text& text, Trainer& trainer)
      : text_(text), model_(graph_, trainer.options().model), engine_({.workers = 1}) {
    symbols_ = graph_.input("symbols", DType::i32, {kAny, 1});
    labels_ = graph_.input("labels", DType::i32, {kAny, 1});
    auto [outputs, states] = model_.read(symbols_, {}, model_.zero_states(1));
    Exprs fetches{model_.losses(outputs, labels_)};
    fetches.insert(fetches.end(), states.begin(), states.end());
    read_ = engine_.compile(graph_, {symbols_, labels_}, fetches);
    for (const Variable& v : model_.variables()) engine_.set(v, trainer.engine().get(v.name()));
  }
  // The losses of characters [begin, end), read from zero states, and the states after them.
  std::vector<Tensor> read(std::int64_t begin, std::int64_t end) {
    return read_({Tensor::of<std::int32_t>(symbols_of(text_, begin - 1, end - 1), {end - begin, 1}),
                  Tensor::of<std::int32_t>(symbols_of(text_, begin, end), {end - begin, 1})});
  }

 private:
  const Text& text_;
  Graph graph_;
  LstmModel model_;
  Engine engine_;
  Expr symbols_, labels_;
  Function read_;
};

/// On each of these devices, and nowhere else: layer by layer over time, and back.
void looped_over_time(const LstmTrainer& trainer, const std::vector<std::string>& devices,
                      std::uint64_t steps, std::uint64_t characters) {
  std::map<std::string, int> loops;
  for (const LoopReport& r : trainer.training_loops()) {
    ++loops[fmt::format("{} of {}", r.loop.substr(0, r.loop.rfind('/')), r.device)];
    BOOST_TEST(r.executions == steps, r.loop << " of " << r.device);
    BOOST_TEST(r.iterations == characters, r.loop << " of " << r.device);
  }
  BOOST_TEST(loops.size() == 4 * devices.size());
  for (const std::string& device : devices)
    for (const char* loop : {"lstm1", "lstm2", "lstm2/gradient", "lstm1/gradient"})
      BOOST_TEST(loops[fmt::format("{} of {}", loop, device)] == 1, loop << " of " << device);
}

}  // namespace

BOOST_AUTO_TEST_CASE(streams_go_on_where_they_ended) {
  Text text = a_text(3000);
  for (std::int64_t length : {1, 7, 8, 64, 300})
    for (std::int64_t rows : {1, 3, 7}) {
      Streams streams(text, 1, 2700, length, rows);
      for (std::int64_t row = 0; row < rows; ++row) {
        Piece now = streams.piece(row, 0);
        for (std::int64_t step = 1; step < 3 * Streams::kStage + 500; ++step) {
          const Piece next = streams.piece(row, step);
          BOOST_REQUIRE(now.size() > 0);
          BOOST_REQUIRE((next.begin == now.end || (now.end == 2700 && next.begin == 1)));
          now = next;
        }
      }
    }
}

BOOST_AUTO_TEST_CASE(streams_see_everything_and_cut_no_word) {
  Text text = a_text(30'000);
  const std::int64_t end = 27'000, rows = 5;
  Streams streams(text, 1, end, 128, rows);  // a mark every 16 characters: words are shorter
  std::vector<int> seen(30'000);
  for (std::int64_t k = 0; k < streams.pieces(); ++k)
    for (std::int64_t row = 0; row < rows; ++row) {
      const Piece p = streams.piece(row, 3 * Streams::kStage + k);
      for (std::int64_t i = p.begin; i < p.end; ++i) ++seen[static_cast<std::size_t>(i)];
      const char last = text.alphabet()[static_cast<std::size_t>(text.symbol(p.end - 1))];
      BOOST_REQUIRE((last == ' ' || last == '\n' || p.end == end));
    }
  for (std::int64_t i = 1; i < end; ++i) BOOST_REQUIRE(seen[static_cast<std::size_t>(i)] == rows);
}

BOOST_AUTO_TEST_CASE(pieces_grow_in_stages) {
  Text text = a_text(30'000);
  Streams streams(text, 1, 27'000, 128, 4);
  double work = 0;
  for (std::int64_t step = 0; step < 4 * Streams::kStage; ++step) {
    const std::int64_t marks = std::min<std::int64_t>(8, 2 << (step / Streams::kStage));
    BOOST_REQUIRE(streams.marks_at(step) == marks);
    BOOST_REQUIRE(std::abs(static_cast<double>(streams.piece(1, step).size() - 16 * marks)) <= 16);
    for (std::int64_t row = 0; row < 4; ++row)
      work += static_cast<double>(streams.piece(row, step).size());
  }
  BOOST_TEST(streams.characters_before(4 * Streams::kStage) == work,
             boost::test_tools::tolerance(1e-3));
}

BOOST_AUTO_TEST_CASE(batches_are_as_long_as_their_longest_row) {
  Text text = a_text(3000);
  Streams streams(text, 1, 2700, 40, 3);
  std::int64_t shortest = 40, longest = 0;
  for (std::int64_t step = 0; step < 50; ++step) {
    Batch b = batch(text, streams, step);
    const std::int64_t time = b.symbols.shape()[0];
    std::int64_t characters = 0, most = 0;
    for (std::int64_t row = 0; row < 3; ++row) {
      const Piece p = streams.piece(row, step);
      BOOST_REQUIRE(b.lengths.at(row) == static_cast<double>(p.size()));
      BOOST_REQUIRE(b.goes_on.at(row) == (p.begin == 1 ? 0. : 1.));
      for (std::int64_t t = 0; t < time; ++t) {
        BOOST_REQUIRE(b.labels.at(t * 3 + row) == (t < p.size() ? text.symbol(p.begin + t) : -1.));
        if (t < p.size())
          BOOST_REQUIRE(b.symbols.at(t * 3 + row) ==
                        static_cast<double>(text.symbol(p.begin + t - 1)));
      }
      characters += p.size();
      most = std::max(most, p.size());
    }
    BOOST_REQUIRE(time == most);
    BOOST_REQUIRE(b.characters == characters);
    shortest = std::min(shortest, time);
    longest = std::max(longest, time);
  }
  BOOST_TEST(shortest < longest);
}

// With a rate of nothing the weights stay, and so states after some steps are those of one long
// reading.
BOOST_AUTO_TEST_CASE(states_are_carried_from_step_to_step) {
  Text text = a_text(1200);
  TrainerOptions o = small(text);
  o.rate = 0;
  LstmTrainer trainer(text, o);
  Streams streams(text, 1, text.held_out_begin(), o.model.length, o.batch);
  const std::int64_t steps = 40;
  for (std::int64_t step = 0; step < steps; ++step) trainer.train(step);
  Alone alone(text, trainer);
  for (std::int64_t row = 0; row < o.batch; ++row) {
    std::vector<Tensor> expected =
        alone.read(streams.piece(row, 0).begin, streams.piece(row, steps - 1).end);
    std::size_t k = 1;
    for (const char* name : {"lstm1/h", "lstm1/c", "lstm2/h", "lstm2/c"}) {
      Tensor state = trainer.engine().get(name);
      for (std::int64_t i = 0; i < o.model.hidden; ++i)
        BOOST_TEST(std::abs(state.at(row * o.model.hidden + i) - expected[k].at(i)) < 1e-5,
                   name << " of row " << row);
      ++k;
    }
  }
  // The first row begins the text, and so begins anew when it comes there again.
  const std::int64_t again = 8 / 2 * streams.pieces();
  BOOST_REQUIRE(again < Streams::kStage);
  BOOST_REQUIRE(streams.piece(0, again).begin == 1);
  trainer.train(again);
  Tensor h = trainer.engine().get("lstm1/h"), anew = alone.read(1, streams.piece(0, again).end)[1];
  for (std::int64_t i = 0; i < o.model.hidden; ++i)
    BOOST_TEST(std::abs(h.at(i) - anew.at(i)) < 1e-5);
}

// Each held-out character once, after at least as many characters as are read before each part.
BOOST_AUTO_TEST_CASE(validation_is_the_mean_over_all_held_out_characters) {
  // some parts empty, parts of two or three characters, parts of six or seven
  for (std::size_t characters : {300, 700, 2000}) {
    Text text = a_text(characters);
    LstmTrainer trainer(text, small(text));
    for (int step = 0; step < 5; ++step) trainer.train(step);
    Alone alone(text, trainer);
    const std::int64_t begin = text.held_out_begin(), all = text.held_out_size(),
                       rows = LstmTrainer::kRows;
    const std::int64_t before = std::min(LstmTrainer::kBefore, begin - 1);
    double nats = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t first = begin + row * all / rows, end = begin + (row + 1) * all / rows;
      if (first == end) continue;
      Tensor losses = alone.read(first - before, end)[0];
      for (std::int64_t i = 0; i < end - first; ++i) nats += losses.at(before + i);
    }
    BOOST_TEST(trainer.validate(text.size()) == nats / static_cast<double>(all) / std::numbers::ln2,
               boost::test_tools::tolerance(1e-5));
  }
}

BOOST_AUTO_TEST_CASE(a_sample_is_one_run) {
  Text text = a_text(1200);
  LstmTrainer trainer(text, small(text));
  for (std::int64_t characters : {40, 7}) {
    auto iterations = [&] {
      for (const LoopReport& r : trainer.sampling_loops())
        if (r.loop.find("write") != std::string::npos && r.loop.find("lstm") == std::string::npos)
          return std::pair(r.executions, r.iterations);
      return std::pair(std::uint64_t{0}, std::uint64_t{0});
    };
    auto before = iterations();
    std::string sample = trainer.sample(characters, 1.0);
    BOOST_TEST(static_cast<std::int64_t>(sample.size()) == characters);
    BOOST_TEST(sample.find_first_not_of(text.alphabet()) == std::string::npos);
    BOOST_TEST(iterations().first == before.first + 1);
    BOOST_TEST(iterations().second - before.second == static_cast<std::uint64_t>(characters));
    BOOST_TEST(trainer.sample(characters, 1.0) == sample);
  }
  BOOST_TEST(trainer.sample(40, 1.0).substr(0, 7) == trainer.sample(7, 1.0));
}

// A loop over time for each layer and one back, one iteration a character, each step: else layers
// would be one op (`fused`), and no loop of the graph.
BOOST_AUTO_TEST_CASE(a_training_step_loops_over_time_in_the_graph) {
  Text text = a_text(1200);
  LstmTrainer trainer(text, small(text));
  Streams streams(text, 1, text.held_out_begin(), trainer.options().model.length,
                  trainer.options().batch);
  std::uint64_t characters = 0;
  for (std::int64_t step = 0; step < 3; ++step) {
    trainer.train(step);
    characters += static_cast<std::uint64_t>(batch(text, streams, step).symbols.shape()[0]);
    looped_over_time(trainer, {"cpu:0"}, static_cast<std::uint64_t>(step) + 1, characters);
  }
}

BOOST_AUTO_TEST_CASE(temperature_makes_a_sample_more_or_less_certain) {
  Text text = Text::of(
      [] {
        std::string s;
        while (s.size() < 2000) s += "abcdefgh ";
        return s;
      }(),
      "a text");
  TrainerOptions o = small(text);
  o.steps = 400;
  LstmTrainer trainer(text, o);
  for (int step = 0; step < o.steps; ++step) trainer.train(step);
  // Followers that the text has.
  auto right = [&](double temperature) {
    const std::string sample = trainer.sample(200, temperature), cycle = "abcdefgh a";
    int n = 0;
    for (std::size_t i = 0; i + 1 < sample.size(); ++i)
      n += cycle.find(sample.substr(i, 2)) != std::string::npos;
    return n;
  };
  BOOST_TEST(right(0.1) > 190);
  BOOST_TEST(right(50) < 80);
}

BOOST_AUTO_TEST_CASE(workers_change_no_bit) {
  Text text = a_text(1200);
  LstmTrainer one(text, small(text, 1)), two(text, small(text, 2));
  for (int step = 0; step < 10; ++step) BOOST_TEST(one.train(step) == two.train(step));
  BOOST_TEST(one.validate(1000) == two.validate(1000));
  BOOST_TEST(one.sample(50, 0.8) == two.sample(50, 0.8));
  for (const std::string& name : one.engine().variables()) {
    Tensor a = one.engine().get(name), b = two.engine().get(name);
    for (std::int64_t i = 0; i < a.elements(); ++i) BOOST_REQUIRE_MESSAGE(a.at(i) == b.at(i), name);
  }
}

// Sums over rows are made in another order, and so differ in the last bits.
BOOST_AUTO_TEST_CASE(nodes_that_share_a_batch_learn_the_same) {
  Text text = a_text(1200);
  LstmTrainer alone(text, small(text));
  InProcessNetwork network;
  auto reached = [&](PeerInfo self) {
    self.address = "inproc://" + self.name;
    return network.make_transport(std::move(self));
  };
  std::vector<std::unique_ptr<ClusterNode>> nodes;
  TrainerOptions o = small(text);
  o.cluster = {.join = {"inproc://a"}, .nodes = {"a", "b", "c"}, .keys = {}, .transport = reached};
  o.replicas = 3;
  for (const std::string& name : o.cluster.nodes) {
    NodeOptions n;
    n.name = name;
    n.transport = reached;
    n.engine.workers = 1;
    if (!nodes.empty()) n.join = {"inproc://a"};
    nodes.push_back(std::make_unique<ClusterNode>(std::move(n)));
  }
  LstmTrainer shared(text, o);
  Streams streams(text, 1, text.held_out_begin(), o.model.length, o.batch);
  std::uint64_t characters = 0;
  for (int step = 0; step < 20; ++step) {
    BOOST_TEST(alone.train(step) == shared.train(step), boost::test_tools::tolerance(1e-4));
    characters += static_cast<std::uint64_t>(batch(text, streams, step).symbols.shape()[0]);
  }
  looped_over_time(shared, {"/node:a/cpu:0", "/node:b/cpu:0", "/node:c/cpu:0"}, 20, characters);
  for (const auto& node : nodes) BOOST_TEST(node->counters().bytes_in > 0u);
  for (const std::string& name : alone.engine().variables()) {
    Tensor a = alone.engine().get(name), b = shared.engine().get(name);
    for (std::int64_t i = 0; i < a.elements(); ++i)
      BOOST_REQUIRE_MESSAGE(std::abs(a.at(i) - b.at(i)) < 1e-3, name);
  }
  BOOST_TEST(alone.validate(1000) == shared.validate(1000), boost::test_tools::tolerance(1e-3));

  nodes[1].reset();
  const std::string why = refusal_once_heard([&] { shared.train(20); }, Code::not_found);
  BOOST_TEST((why.find("no node 'b'") != std::string::npos), why);
}

// By a clock that the test moves.
BOOST_AUTO_TEST_CASE(a_line_is_printed_at_least_every_ten_seconds) {
  using namespace std::chrono_literals;
  Progress::Clock::time_point now{};
  std::vector<std::string> lines;
  Progress progress(
      false, [&] { return now; }, [&](const std::string& line) { lines.push_back(line); });
  progress.tick();
  BOOST_TEST(lines.empty());
  now += 12s;
  progress.tick();
  BOOST_TEST(lines == std::vector<std::string>{"no step has ended for 12 s"},
             boost::test_tools::per_element());  // the first one takes long
  lines.clear();
  for (int step = 1; step <= 100; ++step) {
    now += 500ms;
    progress.step(step, 1000, 2.5, 3.5, 1234);
    progress.tick();
  }
  BOOST_TEST(lines.size() == 5u);  // in 50 s
  BOOST_TEST(lines[0] == "step      20 of 1,000  loss 2.500  1,234 chars/s");
  progress.line("a line of another kind counts");
  now += 9s;
  progress.tick();
  BOOST_TEST(lines.size() == 6u);
  now += 1s;
  progress.tick();
  BOOST_REQUIRE(lines.size() == 7u);
  BOOST_TEST(lines[6] ==
             "step     100 of 1,000  loss 2.500  1,234 chars/s; no step has ended for 10 s");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
