// Data-parallel training that survives the loss of nodes. Four replicas share each batch, wherever
// the nodes are; the loop writes checkpoints, and goes on from the newest one after a loss.
//
//   data_parallel                                    # all replicas in this process
//   data_parallel --join tcp://127.0.0.1:7117 ckpt   # on the nodes of that cluster; kill any
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include <troupe/cluster.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

constexpr int kReplicas = 4;
constexpr std::int64_t kRows = 16;

// A network learns sin(3x) cos(2y). Each replica has its rows; their gradients are averaged in one
// order, so that the nodes change no bit. cluster/TRAINING.md lists other ways.
TrainingProgram network(Graph& g, const collective::Group& replicas) {
  Variable w = g.variable("w", DType::f32, {2, 32}, Initializer::normal(0, 1.5, 1)),
           b = g.variable("b", DType::f32, {32}, Initializer::uniform(-2, 2, 2)),
           v = g.variable("v", DType::f32, {32, 1}, Initializer::normal(0, 0.2, 3));
  TrainingProgram p;
  Exprs losses;
  for (int r = 0; r < replicas.size(); ++r) {
    auto there = g.on_device(replicas.device(r));
    Expr x = g.input("x" + std::to_string(r), DType::f32, {kRows, 2});
    p.feeds.push_back(x);
    Expr target = sin(x[{{}, {0, 1}}] * 3.f) * cos(x[{{}, {1, 2}}] * 2.f);
    losses.push_back(mean(square(matmul(tanh(matmul(x, w) + b), v) - target)));
  }
  auto [loss, train] =
      data_parallel::synchronous(replicas, losses, {w, b, v}, Adam({.learning_rate = 0.02}));
  p.fetches = {loss, train};
  return p;
}

// Points of a step, by its number alone: a repeated step sees the same.
std::vector<Tensor> points_of(std::int64_t step) {
  std::vector<Tensor> all;
  for (std::int64_t r = 0; r < kReplicas; ++r) {
    std::vector<float> xs;
    for (std::int64_t i = 0; i < 2 * kRows; ++i)
      xs.push_back(
          std::sin(static_cast<float>(12.9898 * static_cast<double>(step * 97 + r * 31 + i))));
    all.push_back(Tensor::of<float>(xs, {kRows, 2}));
  }
  return all;
}

int main(int argc, char** argv) {
  const bool joins = argc > 2 && std::string(argv[1]) == "--join";
  const std::string folder =
      argc > 3 ? argv[3] : (std::filesystem::temp_directory_path() / "data_parallel").string();
  if (!joins) std::filesystem::remove_all(folder);
  NodeOptions options{.name = "driver", .transport = [](PeerInfo self) {
                        self.address = "tcp://127.0.0.1:0";
                        return make_zeromq_transport(std::move(self));
                      }};
  if (joins) options.join = {argv[2]};
  ClusterNode node(std::move(options));
  if (joins) node.wait_joined(std::chrono::seconds(30));
  Training training(node,
                    {.replicas = kReplicas,
                     .folder = folder,
                     .every = 100,
                     .log = [](const std::string& line) { std::puts(line.c_str()); }},
                    network, points_of);
  const std::vector<Tensor> last = training.run(400);
  std::printf("mean squared error of the last step %g\n", last[0].item<float>());
  return last[0].item<float>() < 0.1f ? 0 : 1;
}
