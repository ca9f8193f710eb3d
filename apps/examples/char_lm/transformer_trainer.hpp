// Trains, validates and samples the Transformer: a step reads windows from anywhere, and predicts
// each of their characters from those before it. All three functions run over the mesh of the
// options, under its layout; a sample is a run a character.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/apps/examples/char_lm/trainer.hpp>
#include <troupe/apps/examples/char_lm/transformer_model.hpp>
#include <troupe/apps/examples/char_lm/window_reader.hpp>

namespace troupe::char_lm {

class TransformerTrainer final : public Trainer {
 public:
  TransformerTrainer(const Text& text, const TrainerOptions& options)
      : Trainer(text, options),
        order_(options.model.context, text.held_out_begin(), options.model.seed),
        partitioning_(partitioning()) {
    compile_training();
    compile_validation();
    compile_sampling();
  }

  /// The next batch is read while the engine computes.
  double train(std::int64_t step) override {
    Rows now = next_ && next_step_ == step ? std::move(*next_) : batch(step);
    RunHandle run =
        train_.start({std::move(now.symbols), std::move(now.labels), rate(step)}, {.step = step});
    next_ = batch(step + 1);
    next_step_ = step + 1;
    characters_ += options_.batch * context();
    return run.get()[0].item<float>() / std::numbers::ln2;
  }

  double work_before(std::int64_t step) const override {
    return static_cast<double>(step * options_.batch * context());
  }

  /// Windows begin evenly spaced; the second half of each counts.
  double validate(std::int64_t limit) override {
    const std::int64_t counted = context() - context() / 2,
                       begin = std::max(text_.held_out_begin(), context()),
                       all = text_.size() - begin,
                       windows = std::max<std::int64_t>(1, std::min(limit, all) / counted);
    double nats = 0;
    for (std::int64_t first = 0; first < windows; first += options_.batch) {
      Rows r = rows(
          [&](std::int64_t row) {
            // A window's last label is the character at its place.
            return begin + std::min(all - 1, counted - 1 + (first + row) * all / windows);
          },
          [&](std::int64_t row, std::int64_t at) {
            return first + row < windows && at >= context() / 2;
          });
      nats += validate_({std::move(r.symbols), std::move(r.labels)})[0].item<float>();
    }
    return nats / static_cast<double>(windows * counted) / std::numbers::ln2;
  }

  /// One character a run.
  std::string sample(std::int64_t characters, double temperature) override {
    std::vector<std::int32_t> seen = prompt(context());
    std::string out;
    for (std::int64_t i = 0; i < characters; ++i) {
      const Tensor p = sample_({Tensor::of<std::int32_t>(seen, {1, context()}),
                                Tensor::scalar(static_cast<float>(temperature))})[0];
      const int symbol = drawn(p, uniform(options_.model.seed, i));
      out += text_.alphabet()[static_cast<std::size_t>(symbol)];
      seen.erase(seen.begin());
      seen.push_back(symbol);
    }
    return out;
  }

  /// The report of a step: what it sends, and why.
  std::string explain() const { return train_.explain(); }

 private:
  /// The feeds of one run, both [rows, context].
  struct Rows {
    Tensor symbols, labels;
  };

  std::int64_t context() const { return options_.model.context; }
  mesh::Dim batch_dim() const { return {"batch", options_.batch}; }

  std::optional<mesh::Partitioning> partitioning() const {
    if (options_.mesh.empty()) return std::nullopt;
    const mesh::Dims axes = mesh::parse_dims(options_.mesh);
    std::int64_t size = 1;
    for (const mesh::Dim& axis : axes) size *= axis.size;
    return mesh::Partitioning{mesh::Mesh(axes, machines_.devices(size)),
                              mesh::Layout(options_.layout)};
  }
  CompileOptions over_mesh() const {
    CompileOptions options;
    options.mesh = partitioning_;
    return options;
  }

  void compile_training() {
    const Shape shape{options_.batch, context()};
    const Expr symbols = graph_.input("symbols", DType::i32, shape),
               labels = graph_.input("labels", DType::i32, shape),
               rate = graph_.input("rate", DType::f32, {});
    const TransformerModel model(graph_, options_.model);
    const Expr loss = sum(model.losses(symbols, labels, batch_dim())) *
                      (1.0 / static_cast<double>(shape.elements()));
    const std::vector<Variable> all = model.variables();
    const Expr step =
        Adam({.learning_rate = rate}).apply(clip_by_global_norm(gradients(loss, all), kNorm), all);
    train_ = engine_.compile(graph_, {symbols, labels, rate}, {loss, step}, over_mesh());
  }
  void compile_validation() {
    Graph g;
    const Shape shape{options_.batch, context()};
    const Expr symbols = g.input("symbols", DType::i32, shape),
               labels = g.input("labels", DType::i32, shape);
    const TransformerModel model(g, options_.model);
    validate_ = engine_.compile(g, {symbols, labels},
                                {sum(model.losses(symbols, labels, batch_dim()))}, over_mesh());
  }
  // One row, which no rule splits.
  void compile_sampling() {
    Graph g;
    const Expr symbols = g.input("symbols", DType::i32, {1, context()}),
               temperature = g.input("temperature", DType::f32, {});
    const TransformerModel model(g, options_.model);
    const Expr logits = model.logits(symbols, {"sample", 1});
    const Expr last = slice(logits, {0, context() - 1, 0}, {1, 1, options_.model.symbols});
    sample_ = engine_.compile(g, {symbols, temperature},
                              {softmax(reshape(last, {1, options_.model.symbols}) / temperature)},
                              over_mesh());
  }

  Rows batch(std::int64_t step) const {
    return rows([&](std::int64_t row) { return order_[step * options_.batch + row]; },
                [](std::int64_t, std::int64_t) { return true; });
  }
  // The window of each row ends with the label at `position(row)`; others have -1 in the place of
  // their label.
  template <class Position, class Counts>
  Rows rows(const Position& position, const Counts& counts) const {
    Rows r{Tensor::empty(DType::i32, {options_.batch, context()}),
           Tensor::empty(DType::i32, {options_.batch, context()})};
    auto* symbols = r.symbols.mutable_data<std::int32_t>();
    auto* labels = r.labels.mutable_data<std::int32_t>();
    for (std::int64_t row = 0; row < options_.batch; ++row) {
      const std::int64_t end = position(row) + 1;
      for (std::int64_t i = 0; i < context(); ++i) {
        const std::int64_t at = end - context() + i;
        *symbols++ = text_.symbol(at - 1);
        *labels++ = counts(row, i) ? text_.symbol(at) : -1;
      }
    }
    return r;
  }

  static constexpr double kNorm = 1;  // limit of the norm of all gradients together

  Order order_;
  const std::optional<mesh::Partitioning> partitioning_;
  std::optional<Rows> next_;  // read ahead
  std::int64_t next_step_ = 0;
  Function train_, validate_, sample_;
};

}  // namespace troupe::char_lm
