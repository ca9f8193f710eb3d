// A data-parallel training of the demo's model (an LSTM of 256 units over 64 characters, batch 32)
// by three replicas on three processes, each with a folder for checkpoints. One of them dies
// between two steps, by SIGKILL or, `_silent`, by SIGSTOP, with which its sockets stay open. From
// then until the next step that ends: `detected_ms` until the step that was under way has failed,
// `placed_ms` until the program is built over the others, `restored_ms` until all variables have
// the newest checkpoint's values, `stepped_ms` until a step after it has ended. No peer. The budget
// is the detection bound and 2 s.
#include <filesystem>
#include <mutex>

#include <fmt/format.h>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/processes.hpp>

namespace {

using namespace troupe;
namespace fs = std::filesystem;

constexpr int kReplicas = 3, kRepetitions = 5;
constexpr std::int64_t kSymbols = 72, kEmbedding = 32, kHidden = 256, kTime = 64, kRows = 11;
constexpr std::int64_t kEvery = 5, kKilledAt = 12;  // steps

TrainingProgram network(Graph& g, const collective::Group& group) {
  const auto variable = [&](const char* name, const Shape& shape) {
    return g.variable(name, DType::f32, shape, Initializer::normal(0, 0.05, 3));
  };
  const Variable embedding = variable("embedding", {kSymbols, kEmbedding}),
                 input = variable("input", {kEmbedding, 4 * kHidden}),
                 recurrent = variable("recurrent", {kHidden, 4 * kHidden}),
                 bias = variable("bias", {4 * kHidden}),
                 output = variable("output", {kHidden, kSymbols});
  TrainingProgram p;
  Exprs losses;
  for (int r = 0; r < group.size(); ++r) {
    const auto there = g.on_device(group.device(r));
    const Expr symbols = g.input("symbols" + std::to_string(r), DType::i32, {kTime, kRows});
    const Expr labels = g.input("labels" + std::to_string(r), DType::i32, {kTime * kRows});
    p.feeds.insert(p.feeds.end(), {symbols, labels});
    const auto [outputs, state] =
        lstm(gather(embedding, symbols), {input, recurrent, bias}, {.fused = true});
    losses.push_back(
        mean(cross_entropy(matmul(reshape(outputs, {kTime * kRows, kHidden}), output), labels)));
  }
  auto [loss, train] = data_parallel::synchronous(
      group, losses, {embedding, input, recurrent, bias, output}, Adam({.learning_rate = 8e-3}));
  p.fetches = {loss, train};
  return p;
}

std::vector<Tensor> batch_of(std::int64_t step) {
  std::vector<Tensor> all;
  for (int r = 0; r < kReplicas; ++r)
    for (const Shape& shape : {Shape{kTime, kRows}, Shape{kTime * kRows}}) {
      Tensor t = Tensor::zeros(DType::i32, shape);
      for (std::int64_t i = 0; i < t.elements(); ++i)
        t.mutable_data<std::int32_t>()[i] =
            static_cast<std::int32_t>((step * 31 + r * 7 + i * 13) % kSymbols);
      all.push_back(std::move(t));
    }
  return all;
}

// Milliseconds from the kill to the end of each phase.
struct Phases {
  double detected = 0, placed = 0, restored = 0, stepped = 0, bound = 0;
};

Phases recover(bench::Processes& workers, int signal, const std::string& name) {
  const auto node = workers.join();
  Phases ms;
  double killed = 0;
  int begun = 0;     // steps since the restore
  std::mutex mutex;  // guards the phases: a line may come from the thread that writes a checkpoint
  const auto note = [&](double& phase) {
    if (killed > 0 && phase == 0) phase = (bench::now_ns() - killed) / 1e6;
  };
  Training training(*node,
                    {.replicas = kReplicas,
                     .name = name,
                     .every = kEvery,
                     .nodes = workers.names(),
                     .log =
                         [&](const std::string& line) {
                           const std::lock_guard lock(mutex);
                           if (line.find(" replicas on ") != std::string::npos) note(ms.placed);
                           else if (line.find(": restored ") != std::string::npos)
                             note(ms.restored);
                           else if (line.find(": wrote ") == std::string::npos) note(ms.detected);
                         }},
                    network, [&](std::int64_t step) {
                      const std::lock_guard lock(mutex);
                      if (step == kKilledAt && killed == 0) {
                        killed = bench::now_ns();
                        workers.signal(1, signal);
                      } else if (ms.restored > 0 && ++begun == 2) {
                        note(ms.stepped);
                      }
                      return batch_of(step);
                    });
  training.run(kKilledAt + 2);
  bench::require(training.counters().recoveries == 1 && ms.stepped > 0, "a node that was lost");
  ms.bound = std::chrono::duration<double, std::milli>(node->detection_bound(4)).count();
  return ms;
}

}  // namespace

int main() {
  const fs::path place = fs::current_path() / ("recovery-bench-" + std::to_string(getpid()));
  fs::create_directories(place);
  std::vector<std::unique_ptr<bench::Processes>> clusters;  // before this process starts a thread
  for (int i = 0; i < 2 * kRepetitions; ++i)
    clusters.push_back(std::make_unique<bench::Processes>(kReplicas, ZeroMqOptions{},
                                                          (place / std::to_string(i)).string()));
  std::size_t next = 0;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    bench::Comparison c{.name = signal == SIGKILL ? "recovery" : "recovery_silent",
                        .unit = "ms",
                        .peer = "none",
                        .threads = kReplicas + 1};
    std::vector<Phases> all;
    for (int i = 0; i < kRepetitions; ++i, ++next) {
      all.push_back(recover(*clusters[next], signal, fmt::format("bench-{}", next)));
      clusters[next].reset();
      c.ours.push_back(all.back().stepped);
    }
    const auto middle = [&](double Phases::*phase) {
      std::vector<double> values;
      for (const Phases& p : all) values.push_back(p.*phase);
      return bench::median(values);
    };
    c.budget_value = middle(&Phases::bound) + 2000;
    c.also = {{"detected_ms", middle(&Phases::detected)},
              {"placed_ms", middle(&Phases::placed)},
              {"restored_ms", middle(&Phases::restored)},
              {"stepped_ms", middle(&Phases::stepped)},
              {"bound_ms", middle(&Phases::bound)}};
    c.print();
  }
  fs::remove_all(place);
}
