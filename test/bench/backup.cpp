// Synchronous training with backup workers: 4 gradients an update, of 4 to 7 replicas. A replica
// takes 1 ms, or 10 ms once in ten steps, at random; it sleeps and takes no core, as if it were
// another machine. `normalised`: the speed-up over no backups times the part of the replicas that
// an update needs (Chen et al., arXiv:1604.00981, figure 6). The row `backup_best` has the number
// of backups with the best one. The peer of a row is the run without backups; no budget.
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include <fmt/format.h>

#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster/training/arrival_loop.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/bench/bench.hpp>

namespace {

using namespace troupe;
constexpr int kNeeded = 4, kMostBackups = 3, kSteps = 100, kRepetitions = 5;

class Training {
 public:
  explicit Training(Engine& engine, int backups) {
    const int replicas = kNeeded + backups;
    std::vector<std::string> devices;
    for (int r = 0; r < replicas; ++r) devices.push_back(fmt::format("cpu:{}", r));
    const collective::Group group(fmt::format("with_{}", backups), devices);
    const Variable w = graph_.variable(fmt::format("w_{}", backups), DType::f32, {64, 64},
                                       Initializer::constant(1));
    Exprs losses, feeds;
    for (int r = 0; r < replicas; ++r) {
      const auto there = graph_.on_device(group.device(r));
      feeds.push_back(graph_.input(fmt::format("x{}", r), DType::f32, {8, 64}));
      const auto random = std::make_shared<std::mt19937>(static_cast<unsigned>(97 + r));
      const Expr x =
          actor_node(graph_, fmt::format("delay_{}_{}", backups, r), {feeds.back()},
                     {{DType::f32, Shape{8, 64}}},
                     [random](std::span<const Tensor> in, std::span<Tensor> out) {
                       const bool is_slow = (*random)() % 10 == 0;
                       std::this_thread::sleep_for(std::chrono::milliseconds(is_slow ? 10 : 1));
                       out[0] = in[0];
                     },
                     {.blocks = true})[0];
      losses.push_back(mean(square(matmul(x, w))));
    }
    const ArrivalStep step =
        data_parallel::with_backups(group, losses, {w}, Sgd({.learning_rate = 1e-3}), backups);
    const Tensor x = Tensor::zeros(DType::f32, {8, 64});
    loop_ = std::make_unique<detail::ArrivalLoop>(
        engine, graph_, step, feeds, std::vector<Expr>{step.loss},
        [x, replicas](std::int64_t) {
          return std::vector<Tensor>(static_cast<std::size_t>(replicas), x);
        },
        1);
  }
  double ms(int steps) {
    const double start = bench::now_ns();
    for (int i = 0; i < steps; ++i) loop_->step(at_++);
    return (bench::now_ns() - start) / steps / 1e6;
  }

 private:
  Graph graph_;
  std::unique_ptr<detail::ArrivalLoop> loop_;
  std::int64_t at_ = 0;
};

}  // namespace

int main() {
  EngineOptions o;
  o.workers = 2;
  Engine engine(std::move(o));
  std::vector<std::unique_ptr<Training>> all;
  for (int backups = 0; backups <= kMostBackups; ++backups) {
    all.push_back(std::make_unique<Training>(engine, backups));
    all.back()->ms(kSteps / 10);
  }
  std::vector<std::vector<double>> ms(all.size());
  for (int i = 0; i < kRepetitions; ++i)
    for (std::size_t b = 0; b < all.size(); ++b) ms[b].push_back(all[b]->ms(kSteps));
  double best = 0;
  std::size_t best_at = 0;
  for (std::size_t b = 0; b < all.size(); ++b) {
    const double normalised =
        bench::median(ms[0]) / bench::median(ms[b]) * kNeeded / (kNeeded + static_cast<double>(b));
    if (normalised > best) best = normalised, best_at = b;
    bench::Comparison c{.name = fmt::format("backup_{}", b),
                        .unit = "ms",
                        .peer = "no backups",
                        .threads = 2,
                        .speed_up = true,
                        .ours = ms[b],
                        .theirs = ms[0],
                        .also = {{"normalised", normalised}}};
    c.print();
  }
  bench::Comparison c{.name = "backup_best",
                      .unit = "backups",
                      .peer = "none",
                      .threads = 2,
                      .ours = {static_cast<double>(best_at)},
                      .also = {{"normalised", best}}};
  c.print();
}
