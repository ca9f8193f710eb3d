// The common part of every model's training. A model is a graph with three functions: train,
// validate, sample.
//
//   std::unique_ptr<Trainer> trainer = make_trainer(text, options);   // trainers.hpp
//   double loss = trainer->train(step);                  // one step; the loss before it, in bits
//   double bits = trainer->validate(16'384);
//   std::string s = trainer->sample(400, 0.7);
//
// A step depends on the options, the variables and its number only, so a run that stops after any
// step and goes on later ends with the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <troupe/apps/examples/char_lm/machines.hpp>
#include <troupe/apps/examples/char_lm/text.hpp>

namespace troupe::char_lm {

inline constexpr const char* kWindow = "window";
inline constexpr const char* kLstm = "lstm";
inline constexpr const char* kTransformer = "transformer";

struct ModelOptions {
  std::string kind = kLstm;
  std::int64_t symbols = 0;
  std::int64_t context = 0;  // window, transformer: characters it sees
  std::int64_t length = 0;   // lstm: characters gradients go back, at most
  std::int64_t embedding = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;  // transformer
  std::uint64_t seed = 0;
};

struct TrainerOptions {
  ModelOptions model{};
  std::int64_t batch = 0;  // window: characters; lstm: streams; transformer: windows
  std::int64_t steps = 0;  // the whole training: the rate falls towards its end
  double rate = 0;
  /// lstm: parts of a batch, computed apart and added up in order, so that they decide the bits of
  /// the result, and the nodes that compute them do not.
  std::int64_t replicas = 1;
  // transformer: the mesh of devices, and which dimension is split along which of its axes, as
  // mesh::parse_dims and mesh::Layout read them; empty: one device
  std::string mesh{}, layout{};
  int workers = 0;
  std::string device{};  // this process's; empty: cpu:0
  ClusterOptions cluster{};
};

inline constexpr std::int64_t kWarmUp = 100;  // steps

class Trainer {
 public:
  Trainer(const Text& text, const TrainerOptions& options)
      : text_(text), options_(options), machines_({.workers = options.workers,
                                                   .seed = options.model.seed,
                                                   .default_device = options.device},
                                                  options.cluster),
        engine_(machines_.engine()) {}
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  /// Null without --http.
  InspectionServer* page() { return machines_.page(); }
  /// The nodes that share a batch, and where the nodes of their cluster are reached.
  const std::vector<std::string>& nodes() const { return machines_.nodes(); }
  /// True if a node that was lost, or is named and had no part, can have one now.
  bool has_more_nodes() const { return machines_.has_more_nodes(); }
  std::vector<std::string> addresses() const { return machines_.addresses(); }

  /// One step of training; the mean loss of its characters, in bits.
  virtual double train(std::int64_t step) = 0;
  /// Bits a character over at most `limit` held-out characters.
  virtual double validate(std::int64_t limit) = 0;
  /// Text that the model writes after the line end nearest before the held-out part.
  virtual std::string sample(std::int64_t characters, double temperature) = 0;

  /// The number of characters that all steps before this one predict, except for the ends of words.
  virtual double work_before(std::int64_t step) const = 0;
  /// The first step with so much before it.
  std::int64_t step_after(double work) const {
    std::int64_t low = 0, high = 1;
    while (work_before(high) < work) high *= 2;
    while (low < high)
      if (const std::int64_t middle = (low + high) / 2; work_before(middle) < work)
        low = middle + 1;
      else high = middle;
    return low;
  }

  Engine& engine() { return engine_; }
  const TrainerOptions& options() const { return options_; }
  void set_steps(std::int64_t steps) { options_.steps = steps; }
  /// Characters that steps so far have predicted, in this process.
  std::int64_t characters() const { return characters_; }

 protected:
  /// Rises linearly, then falls to a hundredth along half a cosine (Loshchilov and Hutter, ICLR
  /// 2017).
  Tensor rate(std::int64_t step) const {
    double part = static_cast<double>(step + 1) / static_cast<double>(kWarmUp);
    if (step >= kWarmUp) {
      const double begin = work_before(kWarmUp),
                   end = work_before(std::max(options_.steps, kWarmUp + 1));
      const double done = std::min(1.0, (work_before(step) - begin) / (end - begin));
      part = 0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * done));
    }
    return Tensor::scalar(static_cast<float>(options_.rate * part));
  }

  /// `count` symbols that end at the line end nearest before the held-out part, if one is.
  std::vector<std::int32_t> prompt(std::int64_t count) const {
    std::int64_t end = text_.held_out_begin();
    auto line_end = text_.alphabet().find('\n');
    for (std::int64_t i = end; i > count && line_end != std::string::npos; --i)
      if (text_.symbol(i - 1) == static_cast<int>(line_end)) {
        end = i;
        break;
      }
    std::vector<std::int32_t> symbols;
    for (std::int64_t i = end - count; i < end; ++i) symbols.push_back(text_.symbol(i));
    return symbols;
  }

  /// The symbol at which the running sum of probabilities exceeds `uniform`, in [0, 1).
  static int drawn(const Tensor& probabilities, double uniform) {
    const float* p = probabilities.data<float>();
    int last = static_cast<int>(probabilities.elements()) - 1;
    for (int i = 0; i < last; ++i)
      if ((uniform -= p[i]) < 0) return i;
    return last;
  }

  const Text& text_;
  TrainerOptions options_;
  std::int64_t characters_ = 0;
  Graph graph_;
  Machines machines_;
  Engine& engine_;
};

}  // namespace troupe::char_lm
