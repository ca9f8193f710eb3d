// Event streams: ns an event of four queries on one core and on two, live and peak bytes, and the
// latency of the pattern at 10,000 events/s.
//
// One generator feeds all, in the timed part: 1,000 keys, ten types, event i at i ms less 0 to 99.
//
//   filter    half of the events, a product of a field
//   window    count a key over 10 s sliding by 5 s
//   join      types 0-4 with types 5-9 of the last 5 s of the key
//   pattern   A, then B, no D, then C of the key within 10 s; `dense`: of four types
//
// scripts/peers/streams_flink.py runs the same queries.
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/pattern.hpp>
#include <troupe/actors/events/running_query.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/peer.hpp>

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

namespace {

using namespace troupe;
using namespace troupe::events;
constexpr int kRepetitions = 3;
constexpr Time kDisorder = 100;  // ms

const Schema& event_schema() {
  static const Schema schema{{"key", Type::integer},
                             {"type", Type::integer},
                             {"v", Type::real},
                             {"ts", Type::integer},
                             {"number", Type::integer}};
  return schema;
}

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 32);
}

/// Makes the events [from, to), and the guarantee behind them.
Batch make_events(std::int64_t from, std::int64_t to, std::uint64_t types) {
  Batch batch(event_schema());
  const auto n = static_cast<std::size_t>(to - from);
  batch.key.resize(n);
  batch.begin.resize(n);
  batch.end.resize(n);
  batch.old_end.assign(n, Batch::kInsert);
  auto& key = std::get<std::vector<std::int64_t>>(batch.columns[0]);
  auto& type = std::get<std::vector<std::int64_t>>(batch.columns[1]);
  auto& v = std::get<std::vector<double>>(batch.columns[2]);
  auto& ts = std::get<std::vector<std::int64_t>>(batch.columns[3]);
  auto& number = std::get<std::vector<std::int64_t>>(batch.columns[4]);
  key.resize(n);
  number.resize(n);
  type.resize(n);
  v.resize(n);
  ts.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    number[i] = from + static_cast<Time>(i);
    const std::uint64_t x = mixed(static_cast<std::uint64_t>(number[i]));
    const Time at = number[i] - static_cast<Time>(x % kDisorder);
    batch.key[i] = static_cast<Key>(number[i]);
    batch.begin[i] = ts[i] = at;
    batch.end[i] = at + 1;
    key[i] = number[i] * 7919 % 1000;
    type[i] = static_cast<std::int64_t>((x >> 20) % types);
    v[i] = static_cast<double>(x >> 40) / (1 << 24);
  }
  batch.guarantee = to - kDisorder;
  return batch;
}

Query make_query(const std::string& name) {
  Query q;
  const Stream all = q.source("events", event_schema(), {.inserts_only = true});
  if (name == "filter") {
    q.output(name, all.select(field("v") > 0.5).project({{"x", field("v") * 2.0}}));
  } else if (name == "window") {
    q.output(name, all.hopping(5'000, 10'000).count({"key"}));
  } else if (name == "join") {
    const Stream left = all.select(field("type") < 5),
                 right = all.select(field("type") >= 5).hopping(1, 5'001);
    q.output(name, left.join(right, {"key"}).project({{"key", field("key")}}));
  } else {
    const auto is = [](const char* of, int type) { return field(of) == type; };
    q.output(name,
             match(without(event(all, "d"),
                           sequence({event(all, "a"), event(all, "b"), event(all, "c")}, 10'000)),
                   {.where = is("a.type", 0) && is("b.type", 1) && is("c.type", 2) &&
                             is("d.type", 3) && field("d.ts") > field("b.ts"),
                    .equal = {"key"},
                    .output = {{"key", field("a.key")},
                               {"a", field("a.number")},
                               {"b", field("b.number")},
                               {"c", field("c.number")}}}));
  }
  return q;
}

void pin_to(int cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int c = 0; c < cores; ++c) CPU_SET(c, &set);
  sched_setaffinity(0, sizeof set, &set);
}

struct Speed {
  double ns = 0;  // an event
  double outputs = 0;
};

struct Case {
  const char* name;
  const char* query;
  std::uint64_t types;
  std::int64_t events;
  double budget_ns;
};
constexpr Case kCases[] = {{"filter", "filter", 10, 8'000'000, 100},
                           {"window", "window", 10, 2'000'000, 1e3 / 3},
                           {"join", "join", 10, 1'500'000, 1e3 / 1.5},
                           {"pattern", "pattern", 10, 1'000'000, 1e3},
                           {"pattern_dense", "pattern", 4, 500'000, 1e3}};

/// Runs a query as actors, with this thread as its source.
Speed run(const Query& q, const Case& of, int workers, int partitions) {
  constexpr std::int64_t kMost = Batch::kMost;
  std::atomic<std::size_t> outputs{0};
  const auto receive = [&](std::size_t, const Batch& batch) { outputs += batch.size(); };
  const double begin = bench::now_ns();
  {
    RunningQuery running(q, receive, {.workers = workers, .partitions = partitions});
    for (std::int64_t i = 0; i < of.events; i += kMost)
      running.feed("events", make_events(i, std::min(of.events, i + kMost), of.types));
    running.finish();
  }
  return {(bench::now_ns() - begin) / static_cast<double>(of.events),
          static_cast<double>(outputs.load())};
}

/// Bytes in use by the heap of this thread.
double heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// Adds bytes after all events, and the most at any batch; on the calling thread.
void measure_memory(const Query& q, const Case& of, bench::Comparison& c) {
  constexpr std::int64_t kMost = Batch::kMost, kEvents = 300'000;
  const double before = heap_bytes();
  double most = 0, live = 0;
  DirectRun direct(q, [](std::size_t, const Batch&) {});
  for (std::int64_t i = 0; i < kEvents; i += kMost) {
    direct.feed("events", make_events(i, i + kMost, of.types));
    live = heap_bytes() - before;
    most = std::max(most, live);
  }
  std::uint64_t state = 0;
  for (const Counters& counters : direct.counters()) state += counters.peak_state;
  c.also.emplace_back("live_bytes", live);
  c.also.emplace_back("peak_bytes", most);
  c.also.emplace_back("peak_events", static_cast<double>(state));
}

/// One core: the source, the operators and the receiver share it.
void measure(const Case& of, const Consistency& level, bench::Peer* peer) {
  Query q = make_query(of.query);
  q.set_consistency(level);
  bench::Comparison c{
      .name = fmt::format("streams_{}{}", of.name, level.is_strong() ? "_strong" : ""),
      .unit = "ns an event",
      .peer = "",
      .budget_value = of.budget_ns};
  if (peer) peer->describe(c, peer->name());
  pin_to(1);
  double outputs = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const Speed speed = run(q, of, 1, 1);
    c.ours.push_back(speed.ns);
    outputs = speed.outputs;
  }
  if (peer && peer->is_here())  // once: it warms up, and takes a slope
    c.theirs = {peer->ask(fmt::format("{} {} {} 0", of.query, of.events, of.types))[0]};
  c.also = {{"million_a_second", 1e3 / bench::median(c.ours)},
            {"outputs_an_event", outputs / static_cast<double>(of.events)}};
  measure_memory(q, of, c);
  c.print();
}

/// Two partitions on two cores, against one on one: the source is one more thread of either.
void measure_two_cores(const Case& of, const Consistency& level) {
  if (std::thread::hardware_concurrency() < 2) return;
  Query q = make_query(of.query);
  q.set_consistency(level);
  bench::Comparison c{
      .name = fmt::format("streams_{}{}_two_cores", of.name, level.is_strong() ? "_strong" : ""),
      .unit = "ns an event",
      .peer = "one core",
      .budget = 1.7,
      .threads = 2,
      .speed_up = true};
  for (int i = 0; i < kRepetitions; ++i) {
    pin_to(1);
    c.theirs.push_back(run(q, of, 1, 1).ns);
    pin_to(2);
    c.ours.push_back(run(q, of, 2, 2).ns);
  }
  c.print();
}

/// Time from an event to the matches that it completes; if strong, from the guarantee that permits
/// them. Events are fed one by one, 10,000 a second.
void measure_latency(const Consistency& level, bench::Peer* peer) {
  constexpr std::int64_t kEvents = 50'000;
  constexpr double kNs = 1e5;  // between events
  Query q = make_query("pattern");
  q.set_consistency(level);
  std::vector<double> fed(kEvents), late(kEvents), ms;
  const auto receive = [&](std::size_t, const Batch& batch) {
    const double now = bench::now_ns();
    const auto number = [&](std::size_t column, std::size_t i) {
      return std::get<std::vector<std::int64_t>>(batch.columns[column])[i];
    };
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!batch.is_insert(i)) continue;
      const std::int64_t last = level.is_strong()
                                    ? batch.begin[i] + kDisorder - 1
                                    : std::max({number(1, i), number(2, i), number(3, i)});
      if (last < kEvents) ms.push_back((now - fed[static_cast<std::size_t>(last)]) * 1e-6);
    }
  };
  pin_to(static_cast<int>(std::thread::hardware_concurrency()));
  {
    RunningQuery running(q, receive, {.workers = 1});
    const double begin = bench::now_ns();
    for (std::int64_t i = 0; i < kEvents; ++i) {
      while (bench::now_ns() < begin + static_cast<double>(i) * kNs) continue;
      fed[static_cast<std::size_t>(i)] = bench::now_ns();
      late[static_cast<std::size_t>(i)] =
          (fed[static_cast<std::size_t>(i)] - begin - static_cast<double>(i) * kNs) * 1e-6;
      running.feed("events", make_events(i, i + 1, 10));
    }
    running.finish();
  }
  std::sort(ms.begin(), ms.end());
  std::sort(late.begin(), late.end());
  std::vector<double> theirs;
  if (peer && peer->is_here()) theirs = peer->ask("pattern 50000 10 10000");
  for (const double share : {0.5, 0.99}) {
    bench::Comparison c{.name = fmt::format("streams_latency_{}_p{:.0f}",
                                            level.is_strong() ? "strong" : "middle", 100 * share),
                        .unit = "ms",
                        .peer = "",
                        .budget_value = share == 0.5 && !level.is_strong() ? 0.1 : 1.0};
    if (peer) peer->describe(c, peer->name());
    c.ours = {ms[static_cast<std::size_t>(share * static_cast<double>(ms.size()))]};
    if (!theirs.empty()) c.theirs = {theirs[share == 0.5 ? 0 : 1]};
    c.also = {
        {"matches", static_cast<double>(ms.size())},
        {"source_late_ms", late[static_cast<std::size_t>(share * static_cast<double>(kEvents))]}};
    c.print();
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string only = count > 1 ? words[1] : "";
  bench::Peer flink("Flink", "streams_flink.py", {});
  for (const Case& of : kCases) {
    if (!only.empty() && only != of.name) continue;
    measure(of, Consistency::middle(), &flink);
    measure(of, Consistency::strong(), nullptr);
    measure_two_cores(of, Consistency::middle());
    measure_two_cores(of, Consistency::strong());
  }
  if (!only.empty() && only != "latency") return 0;
  measure_latency(Consistency::middle(), &flink);
  measure_latency(Consistency::strong(), nullptr);
}
