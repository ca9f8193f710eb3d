// Trains, validates and samples the window model: a step predicts characters drawn from anywhere.
#pragma once

#include <optional>
#include <utility>

#include <troupe/apps/examples/char_lm/trainer.hpp>
#include <troupe/apps/examples/char_lm/window_model.hpp>
#include <troupe/apps/examples/char_lm/window_reader.hpp>

namespace troupe::char_lm {

class WindowTrainer final : public Trainer {
 public:
  WindowTrainer(const Text& text, const TrainerOptions& options)
      : Trainer(text, options),
        order_(options.model.context, text.held_out_begin(), options.model.seed) {
    Expr contexts = graph_.input("contexts", DType::i32, {kAny, options.model.context});
    Expr labels = graph_.input("labels", DType::i32, {kAny});
    Expr rate = graph_.input("rate", DType::f32, {});
    Expr temperature = graph_.input("temperature", DType::f32, {});
    WindowModel model(graph_, options.model);
    Expr logits = model.logits(contexts);
    Expr losses = cross_entropy(logits, labels);
    Expr loss = mean(losses);
    Expr step =
        Adam({.learning_rate = rate}).apply(gradients(loss, model.variables()), model.variables());
    train_ = engine_.compile(graph_, {contexts, labels, rate}, {loss, step});
    validate_ = engine_.compile(graph_, {contexts, labels}, {sum(losses)});
    sample_ = engine_.compile(graph_, {contexts, temperature}, {softmax(logits / temperature)});
  }

  /// The next batch is read while the engine computes.
  double train(std::int64_t step) override {
    Windows now = next_ && next_step_ == step ? std::move(*next_) : batch(step);
    RunHandle run =
        train_.start({std::move(now.contexts), std::move(now.labels), rate(step)}, {.step = step});
    next_ = batch(step + 1);
    next_step_ = step + 1;
    characters_ += options_.batch;
    return run.get()[0].item<float>() / std::numbers::ln2;
  }

  double work_before(std::int64_t step) const override {
    return static_cast<double>(step * options_.batch);
  }

  /// The characters are evenly spaced.
  double validate(std::int64_t limit) override {
    std::int64_t begin = std::max(text_.held_out_begin(), options_.model.context),
                 all = text_.size() - begin;
    std::int64_t count = std::min(limit, all), rows = 1024;
    double nats = 0;
    for (std::int64_t first = 0; first < count; first += rows) {
      Windows w = windows(text_, std::min(rows, count - first), options_.model.context,
                          [&](std::int64_t r) { return begin + (first + r) * all / count; });
      nats += validate_({std::move(w.contexts), std::move(w.labels)})[0].item<float>();
    }
    return nats / static_cast<double>(count) / std::numbers::ln2;
  }

  /// One character a run.
  std::string sample(std::int64_t characters, double temperature) override {
    std::int64_t context = options_.model.context;
    std::vector<std::int32_t> seen = prompt(context);
    std::string out;
    for (std::int64_t i = 0; i < characters; ++i) {
      Tensor p = sample_({Tensor::of<std::int32_t>(seen, {1, context}),
                          Tensor::scalar(static_cast<float>(temperature))})[0];
      int symbol = drawn(p, uniform(options_.model.seed, i));
      out += text_.alphabet()[symbol];
      seen.erase(seen.begin());
      seen.push_back(symbol);
    }
    return out;
  }

 private:
  Windows batch(std::int64_t step) const {
    return windows(text_, options_.batch, options_.model.context,
                   [&](std::int64_t r) { return order_[step * options_.batch + r]; });
  }

  Order order_;
  std::optional<Windows> next_;  // read ahead
  std::int64_t next_step_ = 0;
  Function train_, validate_, sample_;
};

}  // namespace troupe::char_lm
