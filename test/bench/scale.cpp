// How the costs of a large cluster grow: 10 to 1,000 nodes with 100 partitions each.
//
// membership  the machine of cluster/membership/membership.hpp on a simulated network (1 ms a
//             message, a virtual clock): messages and time until all know all, messages a node and
//             second from then on, time until all know that one has died
// planning    on the node that compiles: constraints resolved, the program placed, cut, and divided
//             for all nodes
// start-up    messages and virtual time of a plan and of a run over 4 to 1,000 nodes of this
//             process, a partition on each, on the simulated transport (whose million ends of
//             connections take 5 minutes and 9 GB)
// partitions  like start-up, with 100 partitions on each of 4 to 1,000 nodes
//
// Each figure comes with the exponent of the power law that fits it best (least squares on
// logarithms). `scale 300` stops at that many nodes, `scale 300 start-up` shows one of the four
// alone.
#include <cmath>
#include <queue>
#include <string_view>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/placement/placement.hpp>
#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/cluster/transport/sim/simulated.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/simulated_cluster.hpp>

namespace {

using namespace troupe;

double seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

/// Values at sizes, and the law between them.
class Growth {
 public:
  Growth(std::string name, std::string unit, std::string note = {})
      : name_(std::move(name)), unit_(std::move(unit)), note_(std::move(note)) {}
  void add(int nodes, double value) {
    points_.emplace_back(nodes, value);
    bench::Comparison c{.name = name_ + "_" + std::to_string(nodes),
                        .unit = unit_,
                        .peer = "none",
                        .ours = {value},
                        .note = note_};
    c.print();
  }
  void print_law() const {
    if (points_.size() < 2) return;
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (const auto& [n, v] : points_) {
      const double x = std::log(n), y = std::log(std::max(v, 1e-12));
      sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    const auto count = static_cast<double>(points_.size());
    const double k = (count * sxy - sx * sy) / (count * sxx - sx * sx),
                 c = std::exp((sy - k * sx) / count);
    double worst = 1;
    for (const auto& [n, v] : points_)
      worst = std::max(worst, std::max(v / (c * std::pow(n, k)), c * std::pow(n, k) / v));
    char law[160];
    std::snprintf(law, sizeof law,
                  "%.3g * nodes^%.2f %s, off by at most a factor of %.2f from %d to %d nodes", c, k,
                  unit_.c_str(), worst, points_.front().first, points_.back().first);
    bench::Comparison law_of{
        .name = name_ + "_law", .unit = "exponent", .peer = "none", .ours = {k}, .note = law};
    law_of.print();
  }

 private:
  const std::string name_, unit_, note_;
  std::vector<std::pair<int, double>> points_;
};

// ---- membership

class Clique {
 public:
  using Time = Membership::Time;
  explicit Clique(int count) {
    for (int i = 0; i < count; ++i) nodes_.push_back(std::make_unique<Node>(*this, i));
    for (auto& n : nodes_) {
      if (n->number > 0) n->machine.join(now_, nodes_[0]->self());
      wake(*n, now_);
    }
  }

  bool all_know(std::size_t up, int but = -1) const {
    for (const auto& n : nodes_)
      if (n->number != but && n->machine.count_up() != up) return false;
    return true;
  }
  void run_for(Time time) { run_to(now_ + time); }
  /// Runs until `is_done`, asked after each period; returns the time it took. There is no figure if
  /// it is never done.
  template <class Done>
  Time run_until(Done is_done, Time most) {
    const Time began = now_;
    const Time step = std::chrono::milliseconds(100);
    for (Time t = now_ + step; now_ - began < most; t += step) {
      run_to(t);
      if (is_done()) return now_ - began;
    }
    std::fprintf(stderr, "scale: after %.0f s the nodes have not agreed\n", seconds(most));
    std::exit(1);
  }
  void run_to(Time end) {
    while (!events_.empty() && events_.top().when <= end) {
      Event e = events_.top();
      events_.pop();
      now_ = e.when;
      Node& n = *nodes_[static_cast<std::size_t>(e.to)];
      if (n.is_dead) continue;
      if (e.message)
        n.machine.receive(now_, nodes_[static_cast<std::size_t>(e.from)]->self(), *e.message);
      else if (e.when != n.wanted) continue;  // another call has been asked for since
      wake(n, n.machine.tick(now_));
    }
    now_ = end;
  }
  void kill(int number) { nodes_[static_cast<std::size_t>(number)]->is_dead = true; }
  std::uint64_t messages() const {
    std::uint64_t sum = 0;
    for (const auto& n : nodes_) sum += n->machine.counters().messages_out;
    return sum;
  }
  Time detection_bound() const { return nodes_[0]->machine.detection_bound(nodes_.size()); }

 private:
  struct Node final : MembershipHost {
    Node(Clique& all, int n)
        : clique(all), number(n), machine(self(), *this, {}, static_cast<std::uint64_t>(n) + 1) {}
    Member self() const {
      return {.name = "n" + std::to_string(number),
              .incarnation = 1,
              .address = "sim://" + std::to_string(number)};
    }
    void send(const Member& to, MembershipMessage message) override {
      clique.post(number, std::atoi(to.name.c_str() + 1), std::move(message));
    }
    void changed(const Member&) override {}
    void superseded(const Member&) override {}
    bool has_session(const Member&) const override { return true; }
    Clique& clique;
    const int number;
    bool is_dead = false;
    Time wanted{};
    Membership machine;
  };
  struct Event {
    Time when;
    std::uint64_t number;
    int from, to;
    std::shared_ptr<MembershipMessage> message;
    bool operator<(const Event& o) const {
      return when != o.when ? when > o.when : number > o.number;
    }
  };
  void post(int from, int to, MembershipMessage message) {
    events_.push({now_ + std::chrono::milliseconds(1), ++count_, from, to,
                  std::make_shared<MembershipMessage>(std::move(message))});
  }
  void wake(Node& n, Time when) {
    n.wanted = std::max(when, now_ + Time(1));
    events_.push({n.wanted, ++count_, n.number, n.number, nullptr});
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::priority_queue<Event> events_;
  Time now_{};
  std::uint64_t count_ = 0;
};

void membership(const std::vector<int>& sizes) {
  Growth joined("scale_join_messages", "messages"),
      join_time("scale_join_time", "s", "virtual, until all know all; all joined one node at once"),
      load("scale_membership_load", "messages/s a node"),
      dead("scale_death_time", "s", "virtual, until all know that one is dead");
  for (int n : sizes) {
    Clique clique(n);
    const auto up = static_cast<std::size_t>(n);
    const auto took =
        clique.run_until([&] { return clique.all_know(up); }, std::chrono::minutes(10));
    join_time.add(n, seconds(took));
    joined.add(n, static_cast<double>(clique.messages()));
    const std::uint64_t before = clique.messages();
    clique.run_for(std::chrono::seconds(10));
    load.add(n, static_cast<double>(clique.messages() - before) / 10 / n);
    clique.kill(n - 1);
    dead.add(n, seconds(clique.run_until([&] { return clique.all_know(up - 1, n - 1); },
                                         std::chrono::minutes(10))));
  }
  for (const Growth* g : {&joined, &join_time, &load, &dead}) g->print_law();
}

// ---- planning

constexpr int kDevices = 100;  // a node

struct Here final : DeviceFinder {
  Device* find(const std::string& name) override {
    return node_of(name) == "n0" ? device.get() : nullptr;
  }
  std::string node() const override { return "n0"; }
  std::unique_ptr<Device> device = make_cpu_device();
};

// Each device adds to what the one before it sends; so every node but the ends has two neighbours.
void planning(const std::vector<int>& sizes) {
  Growth build("scale_build_time", "ms", "the graph, with its constraints"),
      lowered("scale_lower_time", "ms", "passes and lowering"), placed("scale_place_time", "ms"),
      cut("scale_plan_time", "ms", "cut into partitions"),
      divided("scale_parts_time", "ms", "all nodes' parts, made and written"),
      written("scale_part_bytes", "bytes", "sent to the node in the middle"),
      by_cost("scale_automatic_time", "ms",
              "an unconstrained chain of as many ops, placed by the cost model on all nodes");
  for (int n : sizes) {
    PlacementOptions options{.default_device = "cpu:0", .here = "n0"};
    for (int i = 0; i < n; ++i) options.nodes.push_back({"n" + std::to_string(i), ""});
    double start = bench::now_ns();
    const auto lap = [&] {
      const double now = bench::now_ns(), took = (now - start) / 1e6;
      start = bench::now_ns();
      return took;
    };
    Graph g;
    Expr x = g.input("x", DType::f32, {4}), y = x;
    for (int i = 0; i < n; ++i)
      for (int d = 0; d < kDevices; ++d) {
        auto there = g.on_device("/node:n" + std::to_string(i) + "/sim:" + std::to_string(d));
        y = y + 1.0;
      }
    build.add(n, lap());
    Program program = optimize(g, {x.edge()}, {y.edge()}, {.optimize = true});
    lowered.add(n, lap());
    Placed where = place(program, options);
    placed.add(n, lap());
    Here here;
    StateStore states(nullptr);
    const Plan plan = make_plan(Placed(where), here, states);
    cut.add(n, lap());
    if (plan.partitions.size() < static_cast<std::size_t>(n) * kDevices)
      std::fprintf(stderr, "scale: %zu partitions\n", plan.partitions.size());
    const PlanParts parts(plan, where);
    std::vector<double> bytes;
    for (std::int32_t node = 0; node < n; ++node) {
      MessageWriter w;
      write(w, parts.of(node), plan.nodes[static_cast<std::size_t>(node)]);
      bytes.push_back(static_cast<double>(bytes_of(w.take())));
    }
    divided.add(n, lap());
    written.add(n, bytes[bytes.size() / 2]);
    Graph chain;
    Expr from = chain.input("x", DType::f32, {4}), to = from;
    for (int i = 0; i < n; ++i) to = matmul(reshape(to, {2, 2}), reshape(to, {2, 2}));
    options.policy = Placement::automatic;
    program = optimize(chain, {from.edge()}, {to.edge()}, {.optimize = true});
    lap();
    place(program, options);
    by_cost.add(n, lap());
  }
  for (const Growth* g : {&build, &lowered, &placed, &cut, &divided, &written, &by_cost})
    g->print_law();
}

// ---- start-up

/// With `devices` partitions on each node, each of which hears from the one before it; the first
/// from the first node, which hears from the last.
void start_up(const std::vector<int>& sizes, int devices) {
  const std::string clock = "virtual: 50 us to 5 ms a message",
                    of = devices > 1 ? "_of_" + std::to_string(devices) : "";
  Growth planned("scale_plan_messages" + of, "messages",
                 "until all nodes have made the plan, of all transports"),
      plan_time("scale_plan_virtual_time" + of, "ms", clock),
      run("scale_run_messages" + of, "messages",
          "of a run: begin, one token to each node and back, left"),
      run_time("scale_run_virtual_time" + of, "ms", clock),
      plan_work("scale_plan_work" + of, "ms",
                "of processor time, of all nodes and their network together"),
      run_work("scale_run_work" + of, "ms", "of processor time, likewise");
  for (int n : sizes) {
    auto cluster = std::make_unique<bench::SimulatedCluster>(n);
    bench::SimulatedCluster& nodes = *cluster;
    Graph g;
    Expr x = g.input("x", DType::f32, {4}), start = tanh(x), total = start;
    for (std::size_t i = 0; i < nodes.names().size(); ++i) {
      Expr last = start;
      for (int d = i == 0; d < devices; ++d) {
        auto there = g.on_device("/node:" + nodes.names()[i] + "/cpu:" + std::to_string(d));
        last = exp(-last);
      }
      total = total + last;
    }
    double messages = nodes.messages(), time = nodes.now_ms(), work = bench::processor_ns();
    const auto taken = [&](Growth& how_many, Growth& how_long, Growth& how_much) {
      how_many.add(n, nodes.messages() - messages);
      how_long.add(n, nodes.now_ms() - time);
      how_much.add(n, (bench::processor_ns() - work) / 1e6);
      messages = nodes.messages(), time = nodes.now_ms(), work = bench::processor_ns();
    };
    Function f = nodes.engine().compile(g, {x}, {total});
    taken(planned, plan_time, plan_work);
    RunHandle h = f.start({Tensor::of<float>({1, 2, 3, 4})});
    while (!h.is_done() && nodes.step()) {}
    h.get();
    taken(run, run_time, run_work);
    // disconnecting each from all takes longer than all before
    if (n >= 1000) (void)cluster.release();
  }
  for (const Growth* law : {&planned, &plan_time, &plan_work, &run, &run_time, &run_work})
    law->print_law();
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::vector<int> sizes, few;
  for (int n : {10, 30, 100, 300, 1000})
    if (n <= most) sizes.push_back(n);
  for (int n : {4, 8, 16, 32, 100, 300, 1000})  // each a whole engine, in one process
    if (n <= most) few.push_back(n);
  const std::string_view what = argc > 2 ? argv[2] : "";
  if (what.empty() || what == "membership") membership(sizes);
  if (what.empty() || what == "planning") planning(sizes);
  if (what.empty() || what == "start-up") start_up(few, 1);
  if (what.empty() || what == "partitions") start_up(few, kDevices);
}
