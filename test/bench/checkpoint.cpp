// A checkpoint of variables on three processes, each with a folder on this machine's disk: written,
// read, restored, and the time for which training stands still. MiB of all variables as the first
// argument, by default 1,024. Four times as much room on the disk is needed while it runs.
//
//   checkpoint_write        peer: a thread a file, the same bytes, written and synced
//   checkpoint_read         by one process; peer: the same bytes, read into a buffer that is there
//   checkpoint_read_copied  peer: safetensors reads the checkpoint's own files, values copied
//   checkpoint_read_mapped  the same, values left in the file's pages
//   checkpoint_restore_*    a table of three shards, from the placement to the values: `same`, on
//                           the nodes that wrote it; `moved`, on two of them; `resharded`, two
//                           shards on two nodes. Peer: the plain read.
//
// Files are read from the page cache on both sides.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/cluster/training/training_checkpoints.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/peer.hpp>
#include <troupe/test/bench/processes.hpp>

namespace {

using namespace troupe;
namespace fs = std::filesystem;

constexpr int kNodes = 3, kVariables = 4, kRepetitions = 5;

double ms_since(double start_ns) { return (bench::now_ns() - start_ns) / 1e6; }

/// Files of equal size that are written and read without more.
class PlainFiles {
 public:
  PlainFiles(const fs::path& place, std::size_t bytes) : bytes_(bytes / kNodes, 1) {
    for (int i = 0; i < kNodes; ++i) paths_.push_back(place / fmt::format("plain-{}", i));
  }
  double write_ms() const {
    const double start = bench::now_ns();
    std::vector<std::thread> threads;
    for (const std::string& path : paths_) threads.emplace_back([this, &path] { write_one(path); });
    for (std::thread& t : threads) t.join();
    return ms_since(start);
  }
  double read_ms() const {
    std::vector<char> into(bytes_.size() * kNodes);
    const double start = bench::now_ns();
    for (std::size_t i = 0; i < paths_.size(); ++i)
      read_one(paths_[i], into.data() + i * bytes_.size());
    return ms_since(start);
  }

 private:
  void write_one(const std::string& path) const {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    for (std::size_t at = 0; at < bytes_.size();) {
      const ssize_t n = write(fd, bytes_.data() + at, bytes_.size() - at);
      bench::require(n > 0, "a plain file is written");
      at += static_cast<std::size_t>(n);
    }
    bench::require(fsync(fd) == 0, "a plain file is synced");
    close(fd);
  }
  void read_one(const std::string& path, char* into) const {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    for (std::size_t at = 0; at < bytes_.size();) {
      const ssize_t n = read(fd, into + at, bytes_.size() - at);
      bench::require(n > 0, "a plain file is read");
      at += static_cast<std::size_t>(n);
    }
    close(fd);
  }

  std::vector<char> bytes_;  // the content of a file
  std::vector<std::string> paths_;
};

/// Variables of three nodes, and a step that changes all of them.
struct Weights {
  Graph graph;
  TrainingCheckpoints::Values values;
  Function step;

  Weights(Engine& engine, const bench::Processes& workers, std::int64_t floats) {
    Exprs updates;
    for (std::size_t n = 0; n < kNodes; ++n)
      for (int v = 0; v < kVariables; ++v) {
        const auto there = graph.on_device(workers.device(n));
        const std::string& node = workers.names()[n];
        Variable w = graph.variable(fmt::format("{}-{}", node, v), DType::f32, {floats},
                                    Initializer::uniform(-1, 1));
        values.push_back({w.name(), node, w});
        updates.push_back(sum(w.assign_add(graph.ones(DType::f32, {floats}) * 0.5)));
      }
    step = engine.compile(graph, {}, updates);
  }
  double step_ms() {
    const double start = bench::now_ns();
    step({});
    return ms_since(start);
  }
};

/// The sum of one value of each page, as the peer forms it.
double touched(const NamedTensors& values) {
  double total = 0;
  for (const auto& [name, value] : values)
    for (std::int64_t i = 0; i < value.elements(); i += 1024) total += value.data<float>()[i];
  return total;
}

void require_equal(const NamedTensors& read, const std::string& name, const Tensor& wanted) {
  for (const auto& [is, value] : read)
    if (is == name) {
      bench::require(value.bytes() == wanted.bytes() &&
                         std::memcmp(value.raw(), wanted.raw(), wanted.bytes()) == 0,
                     "checkpoint: values of the step at which they were taken");
      return;
    }
  bench::require(false, "checkpoint: a variable that was taken");
}

void write_and_read(ClusterNode& here, const bench::Processes& workers, const fs::path& place,
                    double bytes, const PlainFiles& plain, bench::Peer& safetensors) {
  Weights weights(here.engine(), workers,
                  static_cast<std::int64_t>(bytes) / 4 / (kNodes * kVariables));
  weights.step_ms();
  TrainingDriver driver(here.checkpoints(), "bench");
  driver.claim();
  NodeCheckpoints checkpoints(here, driver, 0, {});
  bench::Comparison written{.name = "checkpoint_write",
                            .unit = "ms",
                            .peer = "write, fsync, a thread a file",
                            .budget = 0.9,
                            .threads = kNodes,
                            .speed_up = true},
      stood{.name = "checkpoint_standstill", .unit = "ms", .peer = "none"},
      read{.name = "checkpoint_read", .unit = "ms", .peer = "read", .budget = 1.3},
      copied{.name = "checkpoint_read_copied",
             .unit = "ms",
             .peer = "",
             .budget = 1,
             .speed_up = true},
      mapped{.name = "checkpoint_read_mapped",
             .unit = "ms",
             .peer = "",
             .speed_up = true,
             .note = "the peer compares no checksum, and its values cannot be changed in place"};
  stood.budget_value = 100 * bytes / (1 << 30);
  safetensors.describe(copied, "safetensors, torch, copied");
  safetensors.describe(mapped, "safetensors, torch, mapped");
  std::vector<std::string> folders;
  for (const std::string& name : workers.names()) folders.push_back(place / name / "bench");
  const NodeFolders all(real_disk(), folders);
  const TrainingCheckpoints::Value& looked_at = weights.values.back();
  std::vector<double> steps, next_steps;
  for (int i = 0; i < kRepetitions; ++i) {
    steps.push_back(weights.step_ms());
    const Tensor wanted = here.engine().get(looked_at.variable.value());
    const double start = bench::now_ns();
    const auto write = checkpoints.take(i, {}, weights.values);
    stood.ours.push_back(ms_since(start));
    next_steps.push_back(weights.step_ms());
    const double taken = bench::now_ns();
    write();
    written.ours.push_back(ms_since(taken));
    written.theirs.push_back(plain.write_ms());
    double sum_read = 0;
    {
      const double began = bench::now_ns();
      const NamedTensors values = all.read({i, driver.fence().epoch});
      sum_read = touched(values);
      for (bench::Comparison* c : {&read, &copied, &mapped}) c->ours.push_back(ms_since(began));
      bench::require(values.size() == weights.values.size(), "checkpoint: all variables");
      require_equal(values, looked_at.name, wanted);
    }
    read.theirs.push_back(plain.read_ms());
    if (safetensors.is_here()) {
      std::string shards;
      for (const ShardEntry& shard : all.manifest({i, driver.fence().epoch}).shards)
        for (const std::string& folder : folders)
          if (const std::string path = folder + "/" + shard.file; fs::exists(path))
            shards += " " + path;
      for (bench::Comparison* c : {&copied, &mapped}) {
        const std::vector<double> answer =
            safetensors.ask((c == &copied ? "copied" : "mapped") + shards);
        bench::require(answer.size() == 2 && std::abs(answer[1] - sum_read) < 1e-2,
                       "checkpoint: the peer's values");
        c->theirs.push_back(answer[0] / 1e6);
      }
    }
    checkpoints.prune({.newest = 1}, i);
  }
  written.also = {{"mib", bytes / (1 << 20)}, {"gb_s", bytes / bench::median(written.ours) / 1e6}};
  stood.also = {{"step_ms", bench::median(steps)}, {"next_step_ms", bench::median(next_steps)}};
  read.also = {{"gb_s", bytes / bench::median(read.ours) / 1e6}};
  for (const bench::Comparison* c : {&written, &stood, &read, &copied, &mapped}) c->print();
}

// ---- restored by a training

constexpr std::int64_t kColumns = 256, kUsed = 4;

/// A table of so many shards. The first step adds k to row k of four; a later one looks them up.
struct Table {
  std::int64_t rows;
  bool looks;

  TrainingProgram operator()(Graph& g, const collective::Group& group) const {
    const Partitioner by = Partitioner::range();
    const ShardedVariable table(g, "table", DType::f32, {rows, kColumns},
                                Initializer::constant(0.25), group, by);
    const Expr ids =
        g.constant(Tensor::of<std::int64_t>({1, rows / 3, rows / 2, rows - 1}, {kUsed}));
    const Expr updates =
        g.ones(DType::f32, {kUsed, kColumns}) * g.constant(Tensor::of<float>({1, 2, 3, 4}, {4, 1}));
    TrainingProgram p;
    p.fetches = {looks ? sum(table.lookup(ids)) : table.scatter_add(ids, updates)};
    p.sharded = {{table, by}};
    return p;
  }
};

/// Milliseconds from the placement to the restored values, and the log's last word on them.
struct Restored {
  double ms = 0;
  std::string line;
};

class TableTraining {
 public:
  TableTraining(ClusterNode& driver, std::vector<std::string> nodes, int shards, Table program)
      : training_(driver,
                  {.replicas = shards,
                   .name = "bench-table",
                   .copies = 0,
                   .every = 1000,
                   .keep = {.newest = 1},
                   .nodes = std::move(nodes),
                   .log = [this](const std::string& line) { note(line); }},
                  program, [](std::int64_t) { return std::vector<Tensor>(); }) {}
  std::vector<Tensor> run(std::int64_t steps) { return training_.run(steps); }
  Restored restored() {
    const std::lock_guard lock(mutex_);
    return restored_;
  }

 private:
  void note(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (line.find(" replicas on ") != std::string::npos) placed_ns_ = bench::now_ns();
    if (line.find(": restored ") != std::string::npos) restored_ = {ms_since(placed_ns_), line};
  }

  std::mutex mutex_;  // guards the two: a line may come from the thread that writes a checkpoint
  double placed_ns_ = 0;
  Restored restored_;
  Training training_;  // last: it logs
};

void restore(ClusterNode& here, const bench::Processes& workers, double bytes,
             const PlainFiles& plain) {
  // A name stands for one shape in an engine, so two shards need a driver of their own.
  NodeOptions o{
      .name = "second", .transport = bench::listening_transport({}), .join = {here.address()}};
  o.engine.workers = 1;
  ClusterNode second(std::move(o));
  std::vector<std::string> others = workers.names();
  others.push_back(here.name());
  second.wait_for(others, std::chrono::seconds(60));
  const std::vector<std::string> two(workers.names().begin(), workers.names().begin() + 2);
  const Table first{static_cast<std::int64_t>(bytes) / 4 / kColumns, false},
      later{first.rows, true};
  TableTraining(here, workers.names(), kNodes, first).run(1);
  struct Way {
    const char* name;
    ClusterNode& driver;
    std::vector<std::string> nodes;
    int shards;
  };
  for (const Way& way : {Way{"same", here, workers.names(), kNodes},
                         Way{"moved", here, two, kNodes}, Way{"resharded", second, two, 2}}) {
    bench::Comparison c{.name = fmt::format("checkpoint_restore_{}", way.name),
                        .unit = "ms",
                        .peer = "read",
                        .budget = 1.3,
                        .threads = kNodes + 1};
    Restored last;
    for (int i = 0; i < kRepetitions; ++i) {
      TableTraining again(way.driver, way.nodes, way.shards, later);
      again.run(1);  // done already: it is placed and restored
      last = again.restored();
      bench::require(last.ms > 0, "checkpoint: a training that restored its values");
      c.ours.push_back(last.ms);
      c.theirs.push_back(plain.read_ms());
    }
    c.also = {{"gb_s", bytes / bench::median(c.ours) / 1e6}};
    if (const auto at = last.line.find(", "); at != std::string::npos)
      c.note = last.line.substr(at + 2);
    c.print();
  }
  TableTraining looked(second, two, 2, later);
  const std::vector<Tensor> sums = looked.run(2);
  bench::require(sums.size() == 1 && sums[0].item<float>() == kColumns * (kUsed * 0.25f + 10),
                 "checkpoint: the rows of the table after it was resharded");
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t mib = argc > 1 ? std::atoll(argv[1]) : 1024;
  const std::int64_t floats = mib * (1 << 20) / 4 / (kNodes * kVariables);
  const auto bytes = static_cast<double>(4 * floats * kNodes * kVariables);
  const fs::path place = fs::current_path() / ("checkpoint-bench-" + std::to_string(getpid()));
  fs::create_directories(place);
  {
    // Processes first, before this one has threads.
    bench::Processes workers(kNodes, {}, place.string());
    bench::Peer safetensors("safetensors", "checkpoint_safetensors.py", {});
    const auto node = workers.join();
    const PlainFiles plain(place, static_cast<std::size_t>(bytes));
    write_and_read(*node, workers, place, bytes, plain, safetensors);
    restore(*node, workers, bytes, plain);
  }
  fs::remove_all(place);
  return 0;
}
