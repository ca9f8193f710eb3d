// Word vectors of the King James Bible by skip-grams and sampled softmax (Mikolov et al., 2013).
// The embeddings are sharded over four devices: a step moves the rows of its words, whatever the
// size of the vocabulary, and changes them where they are.
//
//   word_vectors        # 6,000 steps
//   word_vectors 30000
//
// Test: 150
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <troupe/apps/examples/char_lm/text.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

constexpr std::int64_t kWords = 4000, kSize = 32, kBatch = 128, kSampled = 64, kAround = 2;

// Words by falling frequency, and the text as their numbers; rarer words are left out.
struct Corpus {
  std::vector<std::string> words;
  std::vector<std::int64_t> text;

  explicit Corpus(const std::string& bytes) {
    std::vector<std::string> all(1);
    for (const char c : bytes)
      if (std::isalpha(static_cast<unsigned char>(c)))
        all.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      else if (!all.back().empty()) all.emplace_back();
    std::map<std::string, std::int64_t> counts;
    for (const std::string& word : all) ++counts[word];
    std::vector<std::pair<std::int64_t, std::string>> ranked;
    for (const auto& [word, count] : counts) ranked.emplace_back(-count, word);
    std::sort(ranked.begin(), ranked.end());
    std::map<std::string, std::int64_t> number;
    for (std::int64_t i = 0; i < kWords; ++i) {
      words.push_back(ranked[static_cast<std::size_t>(i)].second);
      number[words.back()] = i;
    }
    for (const std::string& word : all)
      if (const auto found = number.find(word); found != number.end())
        text.push_back(found->second);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t steps = argc > 1 ? std::atoll(argv[1]) : 6000;
  const Corpus corpus(char_lm::read_bible());

  Graph g;
  const collective::Group servers("servers", {"cpu:0", "cpu:1", "cpu:2", "cpu:3"});
  // Frequent words have low numbers: by the remainder they are spread over the shards.
  const ShardedVariable vectors(g, "vectors", DType::f32, {kWords, kSize},
                                Initializer::uniform(-0.5 / kSize, 0.5 / kSize, 1), servers,
                                Partitioner::modulo()),
      weights(g, "weights", DType::f32, {kWords, kSize}, Initializer::constant(0), servers,
              Partitioner::modulo()),
      biases(g, "biases", DType::f32, {kWords}, Initializer::constant(0), servers,
             Partitioner::modulo());
  const Expr word = g.input("word", DType::i64, {kBatch}),
             near = g.input("near", DType::i64, {kBatch});
  const Expr loss = mean(sampled_softmax(weights, biases, vectors.lookup(word), near, kSampled));
  std::vector<Variable> learnt = vectors.shards();
  for (const ShardedVariable& v : {weights, biases})
    learnt.insert(learnt.end(), v.shards().begin(), v.shards().end());
  const Expr step = Adagrad({.learning_rate = 0.3}).minimize(loss, learnt);

  Engine engine;
  const Function train = engine.compile(g, {word, near}, {loss, step});
  double first = 0, last = 0;
  std::int64_t at = kAround;
  for (std::int64_t i = 0; i < steps; ++i) {
    std::vector<std::int64_t> words, neighbours;
    while (static_cast<std::int64_t>(words.size()) < kBatch) {
      for (const std::int64_t away : {-2, -1, 1, 2}) {
        words.push_back(corpus.text[static_cast<std::size_t>(at)]);
        neighbours.push_back(corpus.text[static_cast<std::size_t>(at + away)]);
      }
      at = at + 7 + kAround < static_cast<std::int64_t>(corpus.text.size()) ? at + 7 : kAround;
    }
    const double now = train({Tensor::of<std::int64_t>(words, {kBatch}),
                              Tensor::of<std::int64_t>(neighbours, {kBatch})},
                             {.step = i})[0]
                           .item<float>();
    const std::int64_t some = std::max<std::int64_t>(1, steps / 10);
    if (i < some) first += now / static_cast<double>(some);
    if (i >= steps - some) last += now / static_cast<double>(some);
  }
  std::printf("loss %.3f at first, %.3f at last\n", first, last);

  // Nearest words by the cosine.
  const Expr all = vectors.read();
  const Expr unit = all / sqrt(sum(square(all), {1}, true) + 1e-9);
  const Expr asked = g.input("asked", DType::i64, {1});
  const Function nearest =
      engine.compile(g, {asked}, {argsort(matmul(gather(unit, asked), transpose(unit)), true)});
  for (const char* word_of : {"king", "bread", "said", "father"}) {
    const auto found = std::find(corpus.words.begin(), corpus.words.end(), word_of);
    const Tensor order =
        nearest({Tensor::of<std::int64_t>({found - corpus.words.begin()}, {1})})[0];
    std::printf("%s:", word_of);
    for (std::int64_t i = 1; i < 6; ++i)
      std::printf(" %s", corpus.words[static_cast<std::size_t>(order.at(i))].c_str());
    std::puts("");
  }
  return last < first ? 0 : 1;
}
