// All-reduces in a loop of one compiled graph: each iteration averages what the one before yielded,
// so that none begins before the last has ended. Members are devices of this process, processes of
// this machine that share memory, and two processes over encrypted TCP. Peers are OpenMPI's and
// gloo's all-reduce of as many processes, in loops of their own; figures in one process have the
// same peers, which need processes.
//
//   allreduce                                        # all rows
//   allreduce profile here|shared|sealed 2 16384 10  # members, floats, repetitions
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/test/bench/peer.hpp>
#include <troupe/test/bench/processes.hpp>

namespace {

using namespace troupe;

class AllReduces {
 public:
  AllReduces(Engine& engine, const std::vector<std::string>& devices, std::int64_t floats)
      : members_(static_cast<int>(devices.size())) {
    const collective::Group group("members", devices);
    Expr times = graph_.input("times", DType::i32, {});
    Exprs initial{graph_.constant(0)};
    for (int m = 0; m < members_; ++m) {
      const auto there = graph_.on_device(group.device(m));
      initial.push_back(graph_.ones(DType::f32, {floats}) * static_cast<double>(m + 1));
    }
    Exprs last = while_loop([&](Exprs v) { return v[0] < times; },
                            [&](Exprs v) {
                              Exprs next = collective::all_reduce(group, {v.begin() + 1, v.end()},
                                                                  collective::Combine::mean);
                              next.insert(next.begin(), v[0] + 1);
                              return next;
                            },
                            initial);
    Exprs fetches;
    for (int m = 0; m < members_; ++m) {
      const auto there = graph_.on_device(group.device(m));
      fetches.push_back(slice(last[static_cast<std::size_t>(m) + 1], {floats - 1}, {1}));
    }
    run_ = engine.compile(graph_, {times}, fetches);
    us(2);
  }
  double us(int times) {
    const double start = bench::now_ns();
    const std::vector<Tensor> out = run_({Tensor::scalar<std::int32_t>(times)});
    const double took = bench::now_ns() - start;
    for (const Tensor& t : out)
      if (t.item<float>() != 0.5f * static_cast<float>(members_ + 1)) {
        std::fprintf(stderr, "allreduce: %g is a wrong mean\n", t.item<float>());
        std::exit(1);
      }
    return took / times / 1e3;
  }
  const Function& function() const { return run_; }

 private:
  const int members_;
  Graph graph_;
  Function run_;
};

struct Size {
  const char* name;
  std::int64_t floats;
  int times, repetitions;
};
constexpr Size kSizes[] = {{"8B", 2, 10'000, 7},
                           {"64KiB", 16'384, 2'000, 7},
                           {"1MiB", 262'144, 500, 7},
                           {"64MiB", 16'777'216, 20, 3}};

// Budgets in µs an all-reduce, by size; 0: none.
struct Setting {
  const char* name;
  int members;
  double budgets[4];
};

std::vector<std::string> devices_here(int members) {
  std::vector<std::string> devices;
  for (int m = 0; m < members; ++m) devices.push_back(fmt::format("cpu:{}", m));
  return devices;
}

std::vector<std::string> devices_of(const bench::Processes& workers, int members) {
  std::vector<std::string> devices{"/node:driver/cpu:0"};
  for (int m = 1; m < members; ++m)
    devices.push_back(workers.device(static_cast<std::size_t>(m) - 1));
  return devices;
}

struct Peers {
  explicit Peers(int members) {
    const std::string count = std::to_string(members);
#ifdef TROUPE_PEER_OPENMPI
    all.push_back(std::make_unique<bench::Peer>(
        "OpenMPI",
        bench::Command{{TROUPE_MPIRUN, "--oversubscribe", "-np", count, TROUPE_PEER_OPENMPI}}));
#else
    all.push_back(std::make_unique<bench::Peer>("OpenMPI", bench::Command{}));
#endif
    all.push_back(std::make_unique<bench::Peer>("gloo", "allreduce_gloo.py",
                                                std::vector<std::string>{count}));
  }
  std::vector<std::unique_ptr<bench::Peer>> all;
};

void measure(Engine& engine, const Setting& setting, const std::vector<std::string>& devices,
             Peers* peers) {
  const auto cores = std::thread::hardware_concurrency();
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    const Size& size = kSizes[i];
    AllReduces loop(engine, devices, size.floats);
    std::vector<bench::Comparison> rows;
    const std::size_t count = peers ? peers->all.size() : 1;
    for (std::size_t p = 0; p < count; ++p) {
      bench::Comparison c{
          .name = fmt::format("allreduce_{}_{}_{}", setting.name, setting.members, size.name),
          .unit = "us",
          .peer = "none",
          .threads = setting.members,
          .budget_value = setting.budgets[i]};
      if (peers) peers->all[p]->describe(c, peers->all[p]->name());
      if (static_cast<unsigned>(setting.members) > cores) c.note = "more members than cores";
      rows.push_back(std::move(c));
    }
    for (int r = 0; r < size.repetitions; ++r) {
      const double ours = loop.us(size.times);
      for (bench::Comparison& c : rows) c.ours.push_back(ours);
      for (std::size_t p = 0; peers && p < count; ++p)
        if (peers->all[p]->is_here())
          rows[p].theirs.push_back(
              peers->all[p]->ask(fmt::format("run {} {}", size.floats, size.times))[0] / 1e3);
    }
    for (bench::Comparison& c : rows) {
      c.also = {{"gb_s", 4e-3 * static_cast<double>(size.floats) / bench::median(c.ours)}};
      c.print();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "profile") {
    const std::string where = argc > 2 ? argv[2] : "here";
    const int members = argc > 3 ? std::atoi(argv[3]) : 2;
    const std::int64_t floats = argc > 4 ? std::atoll(argv[4]) : 2;
    const int repetitions = argc > 5 ? std::atoi(argv[5]) : 5;
    const int times = static_cast<int>(std::max(10.0, 1e8 / (1e4 + static_cast<double>(floats))));
    std::unique_ptr<bench::Processes> workers;
    std::unique_ptr<ClusterNode> node;
    std::unique_ptr<Engine> alone;
    if (where == "here") {
      EngineOptions o;
      o.workers = 2;
      alone = std::make_unique<Engine>(std::move(o));
    } else {
      workers = std::make_unique<bench::Processes>(
          members - 1,
          where == "sealed" ? bench::with_keys({.shared_memory = false}) : ZeroMqOptions{});
      node = workers->join();
    }
    AllReduces loop(node ? node->engine() : *alone,
                    {node ? devices_of(*workers, members) : devices_here(members)}, floats);
    if (std::getenv("EXPLAIN")) std::puts(loop.function().explain().c_str());
    for (int i = 0; i < repetitions; ++i) std::printf("%.4g us\n", loop.us(times));
    return 0;
  }
  // Processes first, before this one has threads.
  bench::Processes shared(3), sealed(1, bench::with_keys({.shared_memory = false}));
  Peers two(2), four(4);
  {
    EngineOptions o;
    o.workers = 2;
    Engine here(std::move(o));
    measure(here, {"here", 2, {2, 0, 100, 0}}, devices_here(2), &two);
    measure(here, {"here", 4, {}}, devices_here(4), nullptr);
  }
  const double of_64_mib = 65536 * 1.024;  // µs at 1 GB/s
  {
    const auto node = shared.join();
    measure(node->engine(), {"shared", 2, {2, 19, 0, of_64_mib / 1.5}}, devices_of(shared, 2),
            &two);
    measure(node->engine(), {"shared", 4, {40, 0, 0, 0}}, devices_of(shared, 4), &four);
  }
  const auto node = sealed.join();
  measure(node->engine(), {"sealed", 2, {0, 0, 0, of_64_mib}}, devices_of(sealed, 2), nullptr);
}
