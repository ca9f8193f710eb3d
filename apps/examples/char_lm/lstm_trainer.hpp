// Trains, validates and samples the LSTM. Every loop is in the graph: over time, over the chunks of
// the held-out part, over the characters of a sample; each of the three is one run.
//
// Back-propagation is truncated (Williams and Peng, Neural Computation, 1990): a step goes on where
// the one before it ended in each stream, with the states that it left in variables, but gradients
// stop there.
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include <troupe/apps/examples/char_lm/lstm_model.hpp>
#include <troupe/apps/examples/char_lm/stream_reader.hpp>
#include <troupe/apps/examples/char_lm/trainer.hpp>

namespace troupe::char_lm {

class LstmTrainer final : public Trainer {
 public:
  static constexpr std::int64_t kRows = 32;  // streams of a validation
  // characters read before the first one that is predicted
  static constexpr std::int64_t kBefore = 512;

  LstmTrainer(const Text& text, const TrainerOptions& options)
      : Trainer(text, options),
        streams_(text, 1, text.held_out_begin(), options.model.length, options.batch),
        model_(graph_, options.model) {
    compile_training();
    compile_validation();
    compile_sampling();
  }

  /// The next batch is read while the engine computes.
  double train(std::int64_t step) override {
    Batch now = next_ && next_step_ == step ? std::move(*next_) : batch(text_, streams_, step);
    characters_ += now.characters;
    RunHandle run = train_.start({std::move(now.symbols), std::move(now.labels),
                                  std::move(now.lengths), std::move(now.goes_on), rate(step)},
                                 {.step = step});
    next_ = batch(text_, streams_, step + 1);
    next_step_ = step + 1;
    return run.get()[0].item<float>() / std::numbers::ln2;
  }

  double work_before(std::int64_t step) const override { return streams_.characters_before(step); }

  /// Streams read the beginnings of equal parts side by side, each after the characters before it.
  double validate(std::int64_t limit) override {
    const std::int64_t begin = text_.held_out_begin(), all = text_.held_out_size(),
                       count = std::min(limit, all);
    auto part = [](std::int64_t row, std::int64_t n) { return row * n / kRows; };
    auto first = [&](std::int64_t row) { return begin + part(row, all); };
    auto size = [&](std::int64_t row) {
      return std::min(part(row + 1, count) - part(row, count), first(row + 1) - first(row));
    };
    const std::int64_t before = std::min(kBefore, begin - 1);
    Batch lead = batch_of(text_, kRows, [&](std::int64_t row) {
      return Piece{first(row) - before, first(row)};
    });
    Batch scored = batch_of(
        text_, kRows,
        [&](std::int64_t row) {
          return Piece{first(row), first(row) + size(row)};
        },
        kChunk);
    const Shape chunks{scored.symbols.shape()[0] / kChunk, kChunk, kRows};
    double nats = validate_({std::move(lead.symbols), scored.symbols.reshaped(chunks),
                             scored.labels.reshaped(chunks)})[0]
                      .item<float>();
    return nats / static_cast<double>(scored.characters) / std::numbers::ln2;
  }

  std::string sample(std::int64_t characters, double temperature) override {
    std::vector<std::int32_t> before = prompt(std::min(kBefore, text_.held_out_begin()));
    const auto time = static_cast<std::int64_t>(before.size());
    Tensor written =
        sample_({Tensor::of<std::int32_t>(before, {time, 1}),
                 Tensor::scalar(static_cast<float>(temperature)), Tensor::scalar(characters)},
                {.step = 0})[0];
    std::string out;
    for (std::int32_t symbol : written.to_vector<std::int32_t>())
      out += text_.alphabet()[static_cast<std::size_t>(symbol)];
    return out;
  }

  /// Reports of the loops of `sample`.
  std::vector<LoopReport> sampling_loops() const { return sample_.loops(); }
  /// Reports of the loops of `train`: over time and back, on each machine that has a share of the
  /// rows.
  std::vector<LoopReport> training_loops() const { return train_.loops(); }

 private:
  void compile_training() {
    const std::int64_t rows = options_.batch;
    Expr symbols = graph_.input("symbols", DType::i32, {kAny, rows});
    Expr labels = graph_.input("labels", DType::i32, {kAny, rows});
    Expr lengths = graph_.input("lengths", DType::i64, {rows});
    Expr goes_on = graph_.input("goes_on", DType::f32, {rows, 1});
    Expr rate = graph_.input("rate", DType::f32, {});
    const std::vector<Variable> carried = model_.state_variables(rows);
    Exprs states;
    for (const Variable& v : carried) states.push_back(v * goes_on);
    auto [nats, last] = read_in_shares(symbols, labels, lengths, states);
    Expr loss = nats / cast(sum(lengths), DType::f32);
    std::vector<Expr> done{
        Adam({.learning_rate = rate})
            .apply(clip_by_global_norm(gradients(loss, model_.variables()), kNorm),
                   model_.variables())};
    for (std::size_t i = 0; i < carried.size(); ++i) done.push_back(carried[i].assign(last[i]));
    train_ =
        engine_.compile(graph_, {symbols, labels, lengths, goes_on, rate}, {loss, group(done)});
  }

  /// Each replica reads its share of the rows. The loss of all of them, and the states after them.
  std::pair<Expr, Exprs> read_in_shares(const Expr& symbols, const Expr& labels,
                                        const Expr& lengths, const Exprs& states) {
    const std::int64_t shares = std::min(options_.replicas, options_.batch);
    if (shares == 1 && machines_.nodes().empty()) {
      auto [outputs, last] = model_.read(symbols, lengths, states);
      return {sum(model_.losses(outputs, labels)), last};
    }
    Exprs nats;
    std::vector<Exprs> parts(states.size());
    for (std::int64_t i = 0; i < shares; ++i) {
      const std::int64_t first = i * options_.batch / shares,
                         rows = (i + 1) * options_.batch / shares - first;
      Expr my_symbols = slice(symbols, {0, first}, {-1, rows}),
           my_labels = slice(labels, {0, first}, {-1, rows}),
           my_lengths = slice(lengths, {first}, {rows});
      Exprs before;
      for (const Expr& s : states) before.push_back(slice(s, {first, 0}, {rows, -1}));
      auto there = graph_.on_device(machines_.device_of(i));
      auto [outputs, after] = model_.read(my_symbols, my_lengths, before);
      nats.push_back(sum(model_.losses(outputs, my_labels)));
      for (std::size_t k = 0; k < after.size(); ++k) parts[k].push_back(after[k]);
    }
    Expr all = nats[0];
    for (std::size_t i = 1; i < nats.size(); ++i) all = all + nats[i];
    Exprs last;
    for (const Exprs& part : parts) last.push_back(concat(part, 0));
    return {all, last};
  }

  void compile_validation() {
    Expr lead = graph_.input("lead", DType::i32, {kAny, kRows});
    Expr symbols = graph_.input("held_out_symbols", DType::i32, {kAny, kChunk, kRows});
    Expr labels = graph_.input("held_out_labels", DType::i32, {kAny, kChunk, kRows});
    Exprs first = model_.read(lead, {}, model_.zero_states(kRows)).second;
    first.push_back(graph_.constant(0.f));
    Exprs last = fold_left(
        [&](Exprs states, const std::pair<Expr, Expr>& chunk) {
          Expr nats = states.back();
          states.pop_back();
          auto [outputs, next] = model_.read(chunk.first, {}, states);
          next.push_back(nats + sum(model_.losses(outputs, chunk.second)));
          return next;
        },
        std::pair{symbols, labels}, first, {.name = "chunks", .parallel_iterations = 1});
    validate_ = engine_.compile(graph_, {lead, symbols, labels}, {last.back()});
  }

  // The loop's variables: the last character of the output, the characters written, the states.
  void compile_sampling() {
    Expr before = graph_.input("prompt", DType::i32, {kAny, 1});
    Expr temperature = graph_.input("temperature", DType::f32, {});
    Expr characters = graph_.input("characters", DType::i64, {});
    const Shape output{1, options_.model.hidden};
    auto [outputs, states] = model_.read(before, {}, model_.zero_states(1));
    Exprs first{reshape(slice(outputs, {-1, 0, 0}, {1, -1, -1}), output),
                list_empty(graph_, {DType::i32, Shape{1}})};
    first.insert(first.end(), states.begin(), states.end());
    Exprs last = while_loop([&](const Exprs& s) { return list_length(s[1]) < characters; },
                            [&](const Exprs& s) {
                              Expr symbol = draw(model_.logits(s[0]) / temperature);
                              auto [next, after] = model_.read(expand_dims(symbol, 0), {},
                                                               Exprs(s.begin() + 2, s.end()));
                              Exprs out{reshape(next, output), list_push(s[1], symbol)};
                              out.insert(out.end(), after.begin(), after.end());
                              return out;
                            },
                            first, {.name = "write", .back_prop = false});
    sample_ = engine_.compile(graph_, {before, temperature, characters}, {list_stack(last[1])});
  }

  // From the softmax of logits [1, symbols]: with such noise the largest is a draw (Gumbel, 1954).
  Expr draw(const Expr& logits) {
    Expr noise = -log(-log(graph_.random_uniform({1, options_.model.symbols})));
    return cast(argmax(logits + noise, -1), DType::i32);
  }

  // characters of each stream of a validation at a time
  static constexpr std::int64_t kChunk = 128;
  static constexpr double kNorm = 1;  // limit of the norm of all gradients together

  Streams streams_;
  LstmModel model_;
  std::optional<Batch> next_;  // read ahead
  std::int64_t next_step_ = 0;
  Function train_, validate_, sample_;
};

}  // namespace troupe::char_lm
