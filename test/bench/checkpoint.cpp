// A checkpoint of variables on three nodes of this process, each with a folder on this machine's
// disk: written, read, and the time for which training stands still. Peers: the same bytes written
// and synced, and read, as one plain file. MiB of all variables as the first argument, by default
// 256.
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <unistd.h>

#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/training/training_checkpoints.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/troupe.hpp>

namespace {

using namespace troupe;
namespace fs = std::filesystem;

constexpr int kNodes = 3, kVariables = 4, kRepetitions = 5;

struct Nodes {
  InProcessNetwork network{InProcessNetwork::Delivery::threads};
  std::vector<std::unique_ptr<ClusterNode>> all;

  explicit Nodes(const std::string& folder) {
    for (const std::string name : {"a", "b", "c", "d"}) {
      NodeOptions o;
      o.name = name;
      o.engine.workers = 1;
      if (name != "a") o.state = folder + "/" + name;
      if (!all.empty()) o.join = {all[0]->address()};
      o.transport = [this](PeerInfo self) {
        self.address = "inproc://" + self.name;
        return network.make_transport(self);
      };
      all.push_back(std::make_unique<ClusterNode>(std::move(o)));
    }
    all[0]->wait_for({"b", "c", "d"}, std::chrono::seconds(30));
  }
};

double write_plain_ns(const std::string& path, const std::vector<char>& bytes) {
  const double start = bench::now_ns();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + at, bytes.size() - at);
    if (n <= 0) std::exit(1);
    at += static_cast<std::size_t>(n);
  }
  if (fsync(fd) != 0) std::exit(1);
  close(fd);
  return bench::now_ns() - start;
}

double read_plain_ns(const std::string& path, std::vector<char>& bytes) {
  const double start = bench::now_ns();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = read(fd, bytes.data() + at, bytes.size() - at);
    if (n <= 0) std::exit(1);
    at += static_cast<std::size_t>(n);
  }
  close(fd);
  return bench::now_ns() - start;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t mib = argc > 1 ? std::atoll(argv[1]) : 256;
  const std::int64_t floats = mib * (1 << 20) / 4 / (kNodes * kVariables);
  const auto bytes = static_cast<double>(4 * floats * kNodes * kVariables);
  const fs::path place = fs::current_path() / ("checkpoint-bench-" + std::to_string(getpid()));
  fs::create_directories(place);
  {
    Nodes nodes(place.string());
    ClusterNode& here = *nodes.all[0];
    Graph g;
    TrainingCheckpoints::Values values;
    Exprs updates;
    for (int n = 0; n < kNodes; ++n)
      for (int v = 0; v < kVariables; ++v) {
        const std::string node(1, static_cast<char>('b' + n));
        const auto there = g.on_device("/node:" + node + "/cpu:0");
        Variable w =
            g.variable(node + std::to_string(v), DType::f32, {floats}, Initializer::uniform(-1, 1));
        values.push_back({w.name(), node, w});
        updates.push_back(sum(w.assign_add(g.ones(DType::f32, {floats}) * 0.5)));
      }
    Function step = here.engine().compile(g, {}, updates);
    step({});
    TrainingDriver driver(here.checkpoints(), "bench");
    driver.claim();
    NodeCheckpoints checkpoints(here, driver, 0, {});
    bench::Comparison written{.name = "checkpoint_write",
                              .unit = "ms",
                              .peer = "write, fsync",
                              .budget = 0.9,
                              .threads = kNodes + 1,
                              .speed_up = true},
        stood{.name = "checkpoint_standstill", .unit = "ms", .peer = "none"},
        read{.name = "checkpoint_read", .unit = "ms", .peer = "read", .budget = 1.3, .threads = 1};
    stood.budget_value = 100 * bytes / (1 << 30);
    std::vector<char> plain(static_cast<std::size_t>(bytes), 1);
    const std::vector<std::string> folders{place / "b/bench", place / "c/bench", place / "d/bench"};
    for (int i = 0; i < kRepetitions; ++i) {
      const double start = bench::now_ns();
      const auto write = checkpoints.take(i, {}, values);
      const double taken = bench::now_ns();
      write();
      written.ours.push_back((bench::now_ns() - taken) / 1e6);
      stood.ours.push_back((taken - start) / 1e6);
      written.theirs.push_back(write_plain_ns(place / "plain", plain) / 1e6);
      const double began = bench::now_ns();
      const NodeFolders all(real_disk(), folders);
      if (all.read({i, 1}).size() != values.size()) return 1;
      read.ours.push_back((bench::now_ns() - began) / 1e6);
      std::vector<char> into(plain.size());
      read.theirs.push_back(read_plain_ns(place / "plain", into) / 1e6);
      checkpoints.prune({.newest = 1}, i);
    }
    written.also = {{"mib", static_cast<double>(mib)},
                    {"gb_s", bytes / bench::median(written.ours) / 1e6}};
    read.also = {{"gb_s", bytes / bench::median(read.ours) / 1e6}};
    written.print();
    stood.print();
    read.print();
  }
  fs::remove_all(place);
  return 0;
}
