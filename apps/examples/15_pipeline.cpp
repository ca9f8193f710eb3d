// A pipeline over nodes from placement scopes alone: eight layers of an LSTM, two on each of four
// nodes. A loop goes over the micro-batches of a batch; while one is in the last layers, the next
// ones are in those before, and so backwards. `explain` predicts the bubble: the part of the nodes'
// time in which they wait. The losses have the same bits as on one device.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <troupe/cluster.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

constexpr int kLayers = 8, kStages = 4, kSteps = 12;
constexpr std::int64_t kMicro = 8, kTime = 6, kRows = 4, kUnits = 16;

// Each row's answer is the mean of what it has seen.
struct Stages {
  Graph g;
  Expr x = g.input("x", DType::f32, {kMicro, kTime, kRows, kUnits});
  Expr loss, train;

  explicit Stages(const std::vector<std::string>& devices) {
    const auto stage_of = [&](int layer) {
      return devices[static_cast<std::size_t>(layer * kStages / kLayers)];
    };
    std::vector<Variable> variables;
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto there = g.on_device(stage_of(layer));
      const std::string name = "layer" + std::to_string(layer);
      for (const char* part : {"/input", "/recurrent"})
        variables.push_back(g.variable(name + part, DType::f32, {kUnits, 4 * kUnits},
                                       Initializer::glorot(kUnits, kUnits, 5)));
      variables.push_back(
          g.variable(name + "/bias", DType::f32, {4 * kUnits}, Initializer::constant(0)));
    }
    Exprs weights;
    for (const Variable& v : variables) weights.push_back(v.read());
    auto [count, sum_of_losses] = while_loop(
        [](Expr i, Expr) { return i < kMicro; },
        [&](Expr i, Expr total) {
          Expr in = gather(x, i), y = in, error;
          for (int layer = 0; layer < kLayers; ++layer) {
            const auto there = g.on_device(stage_of(layer));
            const std::size_t w = 3 * static_cast<std::size_t>(layer);
            y = y + lstm(y, {weights[w], weights[w + 1], weights[w + 2]}, {.fused = true}).outputs;
            if (layer == kLayers - 1) error = mean(square(mean(y, {0}) - mean(in, {0}) * 2.0));
          }
          return std::tuple{i + 1, total + error};
        },
        std::tuple{g.constant<std::int64_t>(0), g.constant(0.f)},
        {.name = "micro-batches", .parallel_iterations = kStages});
    loss = sum_of_losses / static_cast<double>(kMicro);
    train = Adam({.learning_rate = 3e-3}).minimize(loss, variables);
  }
  std::vector<float> run(Engine& engine, bool explains) const {
    const Function step = engine.compile(g, {x}, {loss, train});
    if (explains) {
      const std::string text = step.explain();
      const std::size_t begin = text.find("loops over devices");
      std::puts(text.substr(begin, text.find("\n\n", begin) - begin).c_str());
    }
    std::vector<float> losses;
    for (int i = 0; i < kSteps; ++i) {
      std::vector<float> batch;
      for (std::int64_t k = 0; k < kMicro * kTime * kRows * kUnits; ++k)
        batch.push_back(static_cast<float>((k * 37 + i * 11) % 101) / 101.f - 0.5f);
      losses.push_back(
          step({Tensor::of<float>(batch, {kMicro, kTime, kRows, kUnits})})[0].item<float>());
    }
    return losses;
  }
};

int main() {
  const auto tcp = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self));
  };
  ClusterNode here({.name = "stage0", .transport = tcp});
  std::vector<std::unique_ptr<ClusterNode>> others;  // as well other processes, or machines
  std::vector<std::string> names, devices{"/node:stage0/cpu:0"};
  for (int s = 1; s < kStages; ++s) {
    names.push_back("stage" + std::to_string(s));
    devices.push_back("/node:" + names.back() + "/cpu:0");
    others.push_back(std::make_unique<ClusterNode>(
        NodeOptions{.name = names.back(), .transport = tcp, .join = {here.address()}}));
  }
  here.wait_for(names, std::chrono::seconds(30));

  const std::vector<float> piped = Stages(devices).run(here.engine(), true);
  Engine alone;
  const std::vector<float> one =
      Stages(std::vector<std::string>(kStages, "cpu:0")).run(alone, false);
  std::printf("loss %.5f, then %.5f; on one device %.5f\n", piped.front(), piped.back(),
              one.back());
  return piped == one && piped.back() < piped.front() ? 0 : 1;
}
