// Training, validation and sampling: three functions of one graph, in one engine.
//
//   Trainer trainer(text, options);
//   float loss = trainer.train(step);                    // one step; the loss before it, in bits
//   double bits = trainer.validate(16'384);
//   std::string s = trainer.sample(400, 0.7);
//
// What a step does depends on the options, the variables and its number only, so that a run that
// stops after any step and goes on later ends with the same bits.
#pragma once

#include <algorithm>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

#include <troupe/apps/examples/char_lm/model.hpp>
#include <troupe/apps/examples/char_lm/reader.hpp>
#include <troupe/troupe.hpp>

namespace troupe::char_lm {

struct TrainerOptions {
  ModelOptions model{};
  std::int64_t batch = 512;
  std::int64_t steps = 1000;  // the whole training: the rate falls towards its end
  double rate = 1e-3;
  int workers = 0;
};

inline constexpr std::int64_t kWarmUp = 100;

/// Rises linearly, then falls to a hundredth along half a cosine (Loshchilov and Hutter, ICLR 2017).
inline double rate_at(std::int64_t step, const TrainerOptions& o) {
  if (step < kWarmUp) return o.rate * static_cast<double>(step + 1) / static_cast<double>(kWarmUp);
  double done = std::min(1.0, static_cast<double>(step - kWarmUp) / static_cast<double>(std::max<std::int64_t>(1, o.steps - kWarmUp)));
  return o.rate * (0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * done)));
}

class Trainer {
 public:
  Trainer(const Text& text, const TrainerOptions& options)
      : text_(text),
        options_(options),
        order_(options.model.context, text.held_out_begin(), options.model.seed),
        engine_({.workers = options.workers, .seed = options.model.seed}) {
    Expr contexts = graph_.input("contexts", DType::i32, {kAny, options.model.context});
    Expr labels = graph_.input("labels", DType::i32, {kAny});
    Expr rate = graph_.input("rate", DType::f32, {});
    Expr temperature = graph_.input("temperature", DType::f32, {});
    Model model(graph_, options.model);
    Expr logits = model.logits(contexts);
    Expr losses = cross_entropy(logits, labels);
    Expr loss = mean(losses);
    Expr step = Adam({.learning_rate = rate}).apply(gradients(loss, model.variables()), model.variables());
    train_ = engine_.compile(graph_, {contexts, labels, rate}, {loss, step});
    validate_ = engine_.compile(graph_, {contexts, labels}, {sum(losses)});
    sample_ = engine_.compile(graph_, {contexts, temperature}, {softmax(logits / temperature)});
  }

  Engine& engine() { return engine_; }
  const TrainerOptions& options() const { return options_; }
  void set_steps(std::int64_t steps) { options_.steps = steps; }
  std::int64_t position(std::int64_t step) const { return step * options_.batch; }
  std::int64_t epoch_size() const { return order_.epoch_size(); }

  /// One step of training. The next batch is read while the engine computes.
  double train(std::int64_t step) {
    Windows now = next_ && next_step_ == step ? std::move(*next_) : batch(step);
    auto rate = Tensor::scalar(static_cast<float>(rate_at(step, options_)));
    RunHandle run = train_.start({std::move(now.contexts), std::move(now.labels), rate}, {.step = step});
    next_ = batch(step + 1);
    next_step_ = step + 1;
    return run.get()[0].item<float>() / std::numbers::ln2;
  }

  /// Bits a character over at most `limit` held-out characters, evenly spaced.
  double validate(std::int64_t limit) {
    std::int64_t begin = std::max(text_.held_out_begin(), options_.model.context), all = text_.size() - begin;
    std::int64_t count = std::min(limit, all), rows = 1024;
    double nats = 0;
    for (std::int64_t first = 0; first < count; first += rows) {
      Windows w = windows(text_, std::min(rows, count - first), options_.model.context,
                          [&](std::int64_t r) { return begin + (first + r) * all / count; });
      nats += validate_({std::move(w.contexts), std::move(w.labels)})[0].item<float>();
    }
    return nats / static_cast<double>(count) / std::numbers::ln2;
  }

  /// What the model writes, one character a run, after the line end nearest before the held-out part.
  std::string sample(std::int64_t characters, double temperature) {
    std::int64_t from = text_.held_out_begin(), context = options_.model.context;
    auto line_end = text_.alphabet().find('\n');
    for (std::int64_t i = from; i > context; --i)
      if (line_end != std::string::npos && text_.symbol(i - 1) == static_cast<int>(line_end)) {
        from = i;
        break;
      }
    std::vector<std::int32_t> seen(context);
    for (std::int64_t i = 0; i < context; ++i) seen[i] = text_.symbol(from - context + i);
    std::string out;
    for (std::int64_t i = 0; i < characters; ++i) {
      Tensor p = sample_({Tensor::of<std::int32_t>(seen, {1, context}), Tensor::scalar(static_cast<float>(temperature))})[0];
      int symbol = draw(p, static_cast<double>(mixed(mixed(options_.model.seed) + i) >> 11) * 0x1p-53);
      out += text_.alphabet()[symbol];
      seen.erase(seen.begin());
      seen.push_back(symbol);
    }
    return out;
  }

 private:
  Windows batch(std::int64_t step) const {
    return windows(text_, options_.batch, options_.model.context, [&](std::int64_t r) { return order_[position(step) + r]; });
  }

  static int draw(const Tensor& probabilities, double uniform) {
    const float* p = probabilities.data<float>();
    int last = static_cast<int>(probabilities.elements()) - 1;
    for (int i = 0; i < last; ++i)
      if ((uniform -= p[i]) < 0) return i;
    return last;
  }

  const Text& text_;
  TrainerOptions options_;
  Order order_;
  std::optional<Windows> next_;  // read ahead
  std::int64_t next_step_ = 0;
  Graph graph_;
  Engine engine_;
  Function train_, validate_, sample_;
};

}  // namespace troupe::char_lm
