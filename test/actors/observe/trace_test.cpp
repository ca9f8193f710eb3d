// Events that the flight recorder keeps, and the files it writes: for a run that is traced, and for
// a run that fails.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/executor/trace_file.hpp>
#include <troupe/test/support/chrome_trace.hpp>
#include <troupe/test/support/process.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/text.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(trace_test)

namespace {

using json = nlohmann::json;

// A loop on one device that another adds to.
Expr over_two(Graph& g, int iterations) {
  auto [n, s] = while_loop([=](Expr i, Expr) { return i < iterations; },
                           [&](Expr i, Expr v) {
                             auto there = g.on_device("cpu:1");
                             return std::tuple{i + 1, v + 1.0};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  return s;
}

std::size_t count(const json& trace, const std::string& category) {
  std::size_t n = 0;
  for (const json& e : trace["traceEvents"])
    n += e.contains("cat") && e["cat"] == category && e["ph"] == "X";
  return n;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_traced_run_is_in_a_file_with_its_firings_and_tokens) {
  Folder folder;
  Graph g;
  Expr y = over_two(g, 10);
  Engine engine({.deterministic = true});
  Function f = engine.compile(g, {}, {y});
  f({}, {.trace = folder / "trace.json"});
  while (engine.take_step()) {}
  const json trace = json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  BOOST_TEST(count(trace, "firing") > 20u);
  BOOST_TEST(count(trace, "turn") > 0u);
  BOOST_TEST(count(trace, "send") > 0u);
  BOOST_TEST(count(trace, "send") == count(trace, "receive"));
  BOOST_TEST(count(trace, "wait") > 0u);  // each device for the other
  BOOST_TEST(trace["otherData"]["error"] == "");
  BOOST_TEST(trace["otherData"]["run"] == "/1");
  BOOST_TEST(well_formed(trace).arrows > 10);
  f({});
  while (engine.take_step()) {}
  BOOST_TEST(folder.files().size() == 1u);  // the file of that one run
}

// A trace that cannot be written fails no run; the handle and the log tell why it is missing.
BOOST_AUTO_TEST_CASE(a_trace_on_a_full_disk_gives_a_warning) {  // G3
  Folder folder;
  Graph g;
  Expr y = over_two(g, 10);
  for (const bool stepped : {true, false}) {
    std::mutex mutex;
    std::vector<LogRecord> told;  // guarded by mutex
    std::vector<std::string> texts;
    std::optional<Engine> holder;
    holder.emplace(EngineOptions{.deterministic = stepped, .log = [&](const LogRecord& r) {
                                   std::lock_guard lock(mutex);
                                   told.push_back(r);
                                 }});
    Engine& engine = *holder;
    Function f = engine.compile(g, {}, {y});
    const auto lost = [&](const std::string& path, const char* why) {
      RunHandle run = f.start({}, {.trace = path});
      BOOST_TEST(run.wait().ok());
      const Status status = run.trace();
      BOOST_TEST((status.code() == Code::resource_exhausted));
      for (const std::string& part :
           {"the trace cannot be written to '" + path + "'", std::string(why)})
        BOOST_TEST(status.message().find(part) != std::string::npos, status.message());
      BOOST_TEST(run.get().size() == 1u);
      texts.push_back(status.message());
    };
    lost("/dev/full", "No space left on device");
    // A limit on file sizes stands for a disk that is full after some bytes.
    rlimit old{};
    BOOST_REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{256, old.rlim_max};
    BOOST_REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    lost(folder / "trace.json", "File too large");
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    BOOST_TEST(folder.files().empty());  // half a trace is none
    RunHandle whole = f.start({}, {.trace = folder / "trace.json"});
    BOOST_TEST(whole.trace().ok());
    const std::string earlier = read_file(folder / "trace.json");
    BOOST_TEST(!json::parse(earlier, nullptr, false).is_discarded());
    // A trace that fails leaves the earlier one, directly and by a link.
    std::filesystem::create_symlink("trace.json", folder / "link.json");
    std::signal(SIGXFSZ, SIG_IGN);
    BOOST_REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    lost(folder / "trace.json", "File too large");
    lost(folder / "link.json", "File too large");
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    BOOST_TEST(read_file(folder / "trace.json") == earlier);
    BOOST_TEST(folder.files().size() == 2u);
    // A trace that is written keeps mode and link.
    const auto mode = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
    std::filesystem::permissions(folder / "trace.json", mode);
    BOOST_TEST(f.start({}, {.trace = folder / "link.json"}).trace().ok());
    BOOST_TEST(std::filesystem::is_symlink(folder / "link.json"));
    BOOST_TEST(read_file(folder / "trace.json") != earlier);
    BOOST_TEST((std::filesystem::status(folder / "trace.json").permissions() == mode));
    std::filesystem::remove(folder / "link.json");
    std::filesystem::remove(folder / "trace.json");
    BOOST_TEST(f.start({}).trace().ok());  // none was asked for
    f = {};
    holder.reset();  // no event comes later
    for (const std::string& text : texts)
      BOOST_TEST(std::count_if(told.begin(), told.end(),
                               [&](const LogRecord& r) {
                                 return r.text == text && r.level == LogRecord::Level::warning;
                               }) == 1,
                 text);
    BOOST_TEST(told.size() == texts.size());
  }
}

// Two traced runs of one plan share its recorders: the one that ends first leaves the other's trace
// unchanged.
BOOST_AUTO_TEST_CASE(a_short_traced_run_leaves_a_long_one_s_trace_whole,
                     *boost::unit_test::label("one_thread")) {
  Folder folder;
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Expr last = while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                         g.constant(std::int64_t{0}));
  Engine engine({.deterministic = true});
  CompileOptions in_nodes;  // nodes that fire one by one
  in_nodes.resident_loops = false;
  Function f = engine.compile(g, {n}, {last}, in_nodes);
  RunHandle longer =
      f.start({Tensor::scalar(std::int64_t{100'000})}, {.trace = folder / "long.json"});
  for (int i = 0; i < 5; ++i) engine.take_step();
  RunHandle shorter = f.start({Tensor::scalar(std::int64_t{1})}, {.trace = folder / "short.json"});
  while (!shorter.is_done()) engine.take_step();
  BOOST_TEST(!longer.is_done());
  while (engine.take_step()) {}
  BOOST_TEST(longer.get()[0].item<std::int64_t>() == 100'000);
  const json trace = json::parse(read_file(folder / "long.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  const auto is_its_first = [](const json& e) {
    return e.contains("cat") && e["cat"] == "firing" && e["args"]["run"] == "/1" &&
           e["args"]["iteration"] == 0;
  };
  BOOST_TEST(std::any_of(trace["traceEvents"].begin(), trace["traceEvents"].end(), is_its_first));
  BOOST_TEST(!json::parse(read_file(folder / "short.json"), nullptr, false).is_discarded());
}

BOOST_AUTO_TEST_CASE(engine_writes_the_events_before_a_failure) {
  Folder folder;
  Graph g;
  Expr index = g.input("index", DType::i64, Shape{1});
  Expr y = gather(over_two(g, 10), index);
  std::vector<LogRecord> log;
  EngineOptions options;
  options.deterministic = true;
  options.flight = folder.path();
  options.log = [&](const LogRecord& r) { log.push_back(r); };
  Engine engine(options);
  Function f = engine.compile(g, {index}, {y});
  f({Tensor::of<std::int64_t>({1})});
  while (engine.take_step()) {}
  BOOST_TEST(folder.files().empty());
  BOOST_TEST(log.empty());
  refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range);
  while (engine.take_step()) {}
  BOOST_REQUIRE(folder.files().size() == 1u);
  const json trace = json::parse(read_file(folder / folder.files()[0]), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  well_formed(trace);
  BOOST_TEST(count(trace, "send") > 0u);
  BOOST_TEST(count(trace, "firing") == 0u);  // untraced
  BOOST_TEST(folder.files()[0] == "local@local-2.flight.json");
  BOOST_REQUIRE(count(trace, "failure") == 1u);
  for (const json& e : trace["traceEvents"])
    if (e.contains("cat") && e["cat"] == "failure")
      for (const char* part : {"failed: Gather", "(trace_test.cpp:"})
        BOOST_TEST(has(e["name"], part), e["name"]);
  const json& other = trace["otherData"];
  for (const char* part : {"Gather", "trace_test.cpp:"})
    BOOST_TEST(has(other["error"], part), other["error"]);
  BOOST_TEST(other["run"] == "/2");
  BOOST_TEST(other["plan"] == "/1");
  BOOST_TEST(other["begin"].get<std::string>().substr(10, 1) == "T");
  BOOST_TEST(std::stoll(other["begin_ns"].get<std::string>()) +
                 other["took_ns"].get<std::int64_t>() ==
             log.at(0).time_ns);
  BOOST_REQUIRE(log.size() == 2u);
  BOOST_TEST((log[0].level == LogRecord::Level::error));
  BOOST_TEST(has(log[0].run, "/2"), log[0].run);
  BOOST_TEST(has(log[0].actor, "trace_test.cpp:"), log[0].actor);
  BOOST_TEST(log[0].time_ns > 0);
  BOOST_TEST((log[1].level == LogRecord::Level::info));
  BOOST_TEST(log[1].run == log[0].run);
  BOOST_TEST(has(log[1].text, "are in '" + folder / "local@local-2.flight.json'"), log[1].text);
}

BOOST_AUTO_TEST_CASE(a_failure_is_kept_with_the_reason_why_its_file_is_missing) {
  Folder folder;
  Graph g;
  Expr index = g.input("index", DType::i64, Shape{1}), y = gather(over_two(g, 10), index);
  EngineOptions options;
  options.deterministic = true;
  options.flight = folder.path();
  options.log = [](const LogRecord&) {};
  Engine engine(options);
  Function f = engine.compile(g, {index}, {y});
  // A limit on file sizes stands for a full disk.
  rlimit old{};
  BOOST_REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{256, old.rlim_max};
  BOOST_REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string why = refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range);
  while (engine.take_step()) {}
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  BOOST_TEST(has(why, "Gather"), why);
  BOOST_TEST(folder.files().empty());
  const EngineSnapshot s = engine.snapshot();
  BOOST_REQUIRE(s.errors.size() == 1u);
  BOOST_TEST(has(s.errors[0].flight, "cannot be written to"), s.errors[0].flight);
  BOOST_TEST(has(s.errors[0].flight, "File too large"), s.errors[0].flight);
}

BOOST_AUTO_TEST_CASE(repeated_failures_fill_no_log) {
  Graph g;
  Expr index = g.input("index", DType::i64, Shape{1}),
       y = gather(g.constant(Tensor::of<float>({1, 2})), index);
  std::uint64_t told = 0;
  EngineOptions options;
  options.deterministic = true;
  options.log = [&](const LogRecord& r) { told += r.level == LogRecord::Level::error; };
  Engine engine(options);
  Function f = engine.compile(g, {index}, {y});
  const std::uint64_t most = EngineOptions::kFailuresLogged;
  for (std::uint64_t i = 1; i <= most + 20; ++i) {
    refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range);
    while (engine.take_step()) {}
    if (i <= most) BOOST_TEST(told == i);
  }
  BOOST_TEST(told < most + 20);  // within a minute
}

// Long kernels are always recorded in full, even without a trace.
BOOST_AUTO_TEST_CASE(a_long_kernel_before_a_failure_is_in_its_file) {
  Folder folder;
  Graph g;
  Expr index = g.input("index", DType::i64, Shape{1}),
       m = g.input("m", DType::f32, Shape{512, 512});
  Expr y = gather(g.named(matmul(m, m), "long"), index);
  EngineOptions options;
  options.deterministic = true;
  options.flight = folder.path();
  Engine engine(options);
  Function f = engine.compile(g, {index, m}, {y});
  refusal(
      [&] {
        f({Tensor::of<std::int64_t>({700}), Tensor::zeros(DType::f32, {512, 512})});
      },
      Code::out_of_range);
  while (engine.take_step()) {}
  BOOST_REQUIRE(folder.files().size() == 1u);
  const json trace = json::parse(read_file(folder / folder.files()[0]), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::size_t products = 0;
  for (const json& e : trace["traceEvents"]) {
    if (!e.contains("cat") || e["cat"] != "kernel") continue;
    BOOST_TEST(e["dur"].get<double>() >= 20);  // µs
    products += has(e["name"], "MatMul 'long' (trace_test.cpp:");
  }
  BOOST_TEST(products == 1u);
}

// It is one event, with the iteration that it had come to.
BOOST_AUTO_TEST_CASE(a_resident_loop_that_was_timed_out_is_in_its_file) {
  Folder folder;
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Expr last = while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                         g.constant(std::int64_t{0}), {.name = "counting"});
  EngineOptions options;
  options.deterministic = true;
  options.flight = folder.path();
  Engine engine(options);
  Function f = engine.compile(g, {n}, {last});
  BOOST_TEST(has(f.explain(), ": resident, "));
  RunHandle run = f.start({Tensor::scalar(INT64_MAX)}, {.timeout = std::chrono::seconds(1)});
  for (int i = 0; i < 20; ++i) BOOST_TEST_REQUIRE(engine.take_step());
  const std::uint64_t before = f.loops().at(0).iterations;
  engine.advance_time(std::chrono::seconds(2));
  BOOST_TEST((run.wait().code() == Code::deadline_exceeded));
  while (engine.take_step()) {}
  BOOST_TEST(before > 0u);
  BOOST_TEST(f.loops().at(0).executions == 1u);
  BOOST_REQUIRE(folder.files().size() == 1u);
  const json trace = json::parse(read_file(folder / folder.files()[0]), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::size_t loops = 0;
  for (const json& e : trace["traceEvents"]) {
    if (!e.contains("cat") || e["cat"] != "kernel") continue;
    if (!has(e["name"], "ResidentLoop '") || !has(e["name"], "(trace_test.cpp:")) continue;
    ++loops;
    BOOST_TEST(e["args"]["iteration"].get<std::uint64_t>() >= before);
    BOOST_TEST(e["args"]["iteration"].get<std::uint64_t>() == f.loops()[0].iterations);
  }
  BOOST_TEST(loops == 1u);
}

// A file for each of thousands of cancelled runs would never be read.
BOOST_AUTO_TEST_CASE(engine_writes_the_first_of_many_runs_that_fail_together) {
  Folder folder;
  Graph g;
  Expr index = g.input("index", DType::i64, Shape{1});
  Expr y = gather(over_two(g, 10), index);
  EngineOptions options;
  options.deterministic = true;
  options.flight = folder.path();
  Engine engine(options);
  Function f = engine.compile(g, {index}, {y});
  for (int i = 0; i < 40; ++i) {
    refusal([&] { f({Tensor::of<std::int64_t>({7})}); }, Code::out_of_range);
    while (engine.take_step()) {}
  }
  const std::vector<std::string> files = folder.files();
  BOOST_TEST(files.size() == EngineOptions::kFlights);
  BOOST_TEST(std::count(files.begin(), files.end(), "local@local-1.flight.json") == 1);
}

// Tokens are moments, and give way; what truly overlaps has a row of its own, and nothing else is
// shortened.
BOOST_AUTO_TEST_CASE(slices_of_a_lane_lie_within_each_other) {
  using Kind = RecordedEvent::Kind;
  const auto event = [](Kind kind, std::int64_t begin, std::int64_t length) {
    RecordedEvent e;
    e.kind = kind, e.begin_ns = begin, e.length_ns = length;
    return e;
  };
  const std::vector<RecordedEvent> events = {
      event(Kind::receive, 1000, 0),   event(Kind::receive, 1100, 0),
      event(Kind::firing, 1200, 100),  event(Kind::turn, 1200, 1000),
      event(Kind::send, 1290, 0),      event(Kind::firing, 1300, 900),
      event(Kind::send, 2190, 0),      event(Kind::kernel, 2000, 5000),
      event(Kind::turn, 3000, 5000),   event(Kind::wait, 9000, 0),
      event(Kind::turn, 10'000, 1000), event(Kind::send, 10'700, 0),
      event(Kind::receive, 10'700, 0), event(Kind::send, 10'700, 0)};
  std::vector<const RecordedEvent*> all;
  for (const RecordedEvent& e : events) all.push_back(&e);
  std::map<const RecordedEvent*, Slice> drawn;
  for (const Slice& s : slices(all)) drawn.emplace(s.event, s);
  BOOST_REQUIRE(drawn.size() == events.size());
  const std::vector<std::int64_t> lengths = {100,  100,  100, 1000, 10,  900, 10,
                                             5000, 5000, 1,   1000, 300, 300, 300};
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Slice& s = drawn.at(&events[i]);
    BOOST_TEST(s.begin_ns == events[i].begin_ns);
    BOOST_TEST(s.length_ns == lengths[i], i);
    BOOST_TEST(s.lane == (i == 7 ? 1u : 0u), i);
    BOOST_TEST(s.arrow_ns() >= s.begin_ns);
    BOOST_TEST(s.arrow_ns() < s.begin_ns + s.length_ns);
  }
}

// As many as wait at a queue; each is there, and none takes a row that others would look through.
BOOST_AUTO_TEST_CASE(thousands_of_overlapping_slices_take_a_few_lanes,
                     *boost::unit_test::label("one_thread")) {
  using Kind = RecordedEvent::Kind;
  constexpr std::size_t kWaits = 10'000;
  Folder folder;
  Graph g;
  Engine engine({.deterministic = true});
  Function f = engine.compile(g, {}, {over_two(g, 2)});
  const Plan& plan = *engine.impl().plans().at(0)->troupe.plan;
  PartitionSnapshot p;
  p.device = "cpu:0";
  for (std::size_t i = 0; i < kWaits; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    p.events.push_back({Kind::wait, 0, 1'000'000 + 1000 * at, 1'000'000'000 + at, 1, at, 0});
    if (i % 100 == 0)
      p.events.push_back({i % 200 == 0 ? Kind::send : Kind::receive, 0, 1'000'300 + 1000 * at, 0, 1,
                          0, 1 + i / 200});
  }
  BOOST_REQUIRE(write_trace(folder / "trace.json", {}, plan, {p}).ok());
  const json trace = json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::size_t on_lanes = 0, begun = 0;
  std::set<std::int64_t> lanes;
  for (const json& e : trace["traceEvents"]) {
    const std::string ph = e["ph"];
    begun += ph == "b";
    if (ph == "X") lanes.insert(e["tid"].get<std::int64_t>()), on_lanes += e["cat"] == "wait";
    if (ph == "s" || ph == "f") BOOST_TEST(e["tid"] == 1);  // the row of tokens
  }
  BOOST_TEST(lanes.size() <= 8u);
  BOOST_TEST(on_lanes + begun == kWaits);
  BOOST_TEST(trace["otherData"]["overlapping"] == begun);
  const ChromeTrace read = well_formed(trace);
  BOOST_TEST(read.arrows == static_cast<int>(kWaits / 200));
  BOOST_TEST(read.pairs == static_cast<int>(begun));
}

// On a device with a stream a partition has left the run before its last kernel has begun.
BOOST_AUTO_TEST_CASE(engine_writes_a_stream_failure_after_its_partition_left) {
  for (int round = 0; round < 10; ++round) {
    Folder folder;
    Graph g;
    Expr index = g.input("index", DType::i64, Shape{1}),
         table = g.input("table", DType::f32, Shape{3});
    EngineOptions options;
    options.flight = folder.path();
    options.default_device = "sim:0";
    {
      Engine engine(options);
      Function f = engine.compile(g, {index, table}, {gather(table, index)});
      refusal(
          [&] {
            f({Tensor::of<std::int64_t>({7}), Tensor::zeros(DType::f32, {3})});
          },
          Code::out_of_range);
      while (folder.files().empty()) std::this_thread::yield();
    }
    const json trace = json::parse(read_file(folder / folder.files()[0]), nullptr, false);
    BOOST_REQUIRE(!trace.is_discarded());
    BOOST_REQUIRE(count(trace, "failure") == 1u);
    well_formed(trace);
    for (const json& e : trace["traceEvents"])
      if (e.contains("cat") && e["cat"] == "failure")
        for (const char* part : {"failed: Gather", "(trace_test.cpp:"})
          BOOST_TEST(has(e["name"], part), e["name"]);
  }
}

BOOST_AUTO_TEST_CASE(a_firing_that_waits_at_a_queue_is_in_a_trace) {
  Folder folder;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  Queue q = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 2);
  Expr put = q.enqueue({x}), taken = g.named(q.dequeue()[0], "take");
  Engine engine({.deterministic = true});
  RunHandle run = engine.compile(g, {}, {taken}).start({}, {.trace = folder / "trace.json"});
  while (engine.take_step()) {}
  for (const auto began = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - began < std::chrono::microseconds(50);) {}
  engine.run(g, {{x, Tensor::scalar(1.0f)}}, {put});
  while (engine.take_step()) {}
  run.wait();
  const json trace = json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::size_t waits = 0;
  for (const json& e : trace["traceEvents"])
    if (e.contains("cat") && e["cat"] == "wait" &&
        has(e["name"], "waits: Dequeue 'take' (trace_test.cpp:")) {
      BOOST_TEST(e["dur"].get<double>() >= 50);
      ++waits;
    }
  BOOST_TEST(waits == 1u);
}

BOOST_AUTO_TEST_CASE(copies_to_a_device_and_from_it_are_in_a_trace) {
  Folder folder;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{64}), twice = x * 2.0, more;
  {
    auto there = g.on_device("cpu:0");
    more = twice + 1.0;
  }
  EngineOptions options;
  options.default_device = "sim:0";
  Engine engine(options);
  engine.compile(g, {x}, {more})({Tensor::zeros(DType::f32, {64})},
                                 {.trace = folder / "trace.json"});
  const json trace = written_trace(folder / "trace.json");
  BOOST_TEST(count(trace, "copy") >= 2u);
  well_formed(trace);
}

// Two that are ready together go to workers, and their partition ends its turn: most of what they
// take lies in none.
BOOST_AUTO_TEST_CASE(kernels_that_were_handed_to_workers_are_in_a_trace) {
  Folder folder;
  Graph g;
  Expr m = g.input("m", DType::f32, Shape{256, 256});
  auto [n, last] = while_loop(
      [](Expr i, Expr) { return i < 50; },
      [&](Expr i, Expr v) {
        return std::tuple{i + 1, g.named(matmul(v, m), "left") + g.named(matmul(m, v), "right")};
      },
      std::tuple{g.constant(0), m}, {.name = "twice", .parallel_iterations = 1});
  Engine engine({.workers = 2});
  engine.compile(g, {m}, {n, last}, {.optimize = false})({Tensor::zeros(DType::f32, {256, 256})},
                                                         {.trace = folder / "trace.json"});
  const json trace = written_trace(folder / "trace.json");
  std::vector<std::pair<double, double>> turns;
  std::map<std::string, int> handed;
  const auto span = [](const json& e) {
    return std::pair<double, double>(e["ts"], e["ts"].get<double>() + e["dur"].get<double>());
  };
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "turn") turns.push_back(span(e));
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || e["cat"] != "kernel") continue;
    const auto [begin, end] = span(e);
    const bool is_in_turn =
        std::any_of(turns.begin(), turns.end(), [begin = begin, end = end](const auto& turn) {
          return turn.first <= begin && end <= turn.second;
        });
    for (const char* name : {"left", "right"})
      handed[name] += !is_in_turn && has(e["name"], fmt::format("MatMul 'twice/{}'", name));
  }
  for (const char* name : {"left", "right"}) BOOST_TEST(handed[name] > 0, name);
  well_formed(trace);
}

// A turn draws some of its firings; of the others those that take long are there all the same.
BOOST_AUTO_TEST_CASE(a_long_kernel_after_many_short_ones_is_in_a_trace) {
  Folder folder;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), m = g.input("m", DType::f32, Shape{512, 512});
  Expr sum = x;
  for (int i = 0; i < 200; ++i) sum = sum + 1.0;
  Expr y = g.named(matmul(m + sum, m), "long");
  Engine engine({.deterministic = true});
  engine.compile(g, {x, m}, {y}, {.optimize = false})(
      {Tensor::scalar(1.0f), Tensor::zeros(DType::f32, {512, 512})},
      {.trace = folder / "trace.json"});
  while (engine.take_step()) {}
  const json trace = json::parse(read_file(folder / "trace.json"), nullptr, false);
  BOOST_REQUIRE(!trace.is_discarded());
  std::size_t found = 0;
  for (const json& e : trace["traceEvents"])
    found += e.contains("cat") && (e["cat"] == "kernel" || e["cat"] == "firing") &&
             has(e["name"], "MatMul 'long' (trace_test.cpp:");
  BOOST_TEST(found == 1u);
  well_formed(trace);
}

// Nodes share a folder: the last files of each are kept, and each node removes only its own.
BOOST_AUTO_TEST_CASE(files_of_failed_runs_are_named_apart_and_bounded) {
  Folder folder;
  std::set<std::string> files;
  const auto fail = [&](const std::string& node, const std::string& owner, int run) {
    const std::string file = flight_file(folder.path(), node, owner, std::to_string(run), 4);
    BOOST_TEST(files.insert(file).second, file);
    std::ofstream(file) << "{}";
    static int age = 0;  // the clock of a file system may be coarse
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type() + std::chrono::seconds(++age));
  };
  std::ofstream(folder / "a@notes.json") << "mine";
  for (int run = 0; run < 10; ++run) {
    fail("a", "a", run);
    fail("a", "b", run);
    fail("a-b", "a", run);
    fail("a@b", "../\x01/x", run);
  }
  const std::vector<std::string> all = folder.files();
  const std::vector<std::string> expected = {
      "a-b@a-6.flight.json",      "a-b@a-7.flight.json",      "a-b@a-8.flight.json",
      "a-b@a-9.flight.json",      "a@a-8.flight.json",        "a@a-9.flight.json",
      "a@b-8.flight.json",        "a@b-9.flight.json",        "a@notes.json",
      "a_b@..___x-6.flight.json", "a_b@..___x-7.flight.json", "a_b@..___x-8.flight.json",
      "a_b@..___x-9.flight.json"};
  BOOST_TEST(all == expected, boost::test_tools::per_element());
  std::ofstream(folder / "mine.flight.json") << "mine";
  for (int node = 0; node < 100; ++node) fail("n" + std::to_string(node), "a", 0);
  const std::vector<std::string> many = folder.files();
  BOOST_TEST(many.size() == 4 * 16 + 2u);
  for (const char* kept :
       {"a@notes.json", "mine.flight.json", "n36@a-0.flight.json", "n99@a-0.flight.json"})
    BOOST_TEST(std::count(many.begin(), many.end(), kept) == 1, kept);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
