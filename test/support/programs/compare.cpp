#include <troupe/test/support/programs/compare.hpp>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/gpu.hpp>
#include <troupe/test/support/programs/swapping.hpp>

namespace troupe::test {

namespace {

std::vector<Way> all_ways() {
  std::vector<Way> all{
      {.name = "interpreter", .is_interpreter = true},
      {.name = "deterministic", .is_deterministic = true, .seed = 1},
      {.name = "deterministic, an actor an op",
       .granularity = Granularity::op,
       .is_deterministic = true,
       .seed = 2},
      {.name = "no passes",
       .granularity = Granularity::op,
       .is_deterministic = true,
       .optimize = false,
       .seed = 3},
      {.name = "spread, deterministic",
       .is_deterministic = true,
       .devices = Devices::cpus,
       .seed = 4},
      {.name = "spread, narrow edges",
       .is_deterministic = true,
       .devices = Devices::cpus,
       .seed = 9,
       .is_narrow = true},
      {.name = "spread, no passes",
       .granularity = Granularity::op,
       .is_deterministic = true,
       .optimize = false,
       .devices = Devices::cpus,
       .seed = 5},
      {.name = "in flight",
       .granularity = Granularity::automatic,
       .is_deterministic = true,
       .in_flight = true,
       .seed = 6},
      {.name = "one worker", .workers = 1, .granularity = Granularity::partition},
      {.name = "lowered, deterministic", .is_deterministic = true, .seed = 10, .lowers = true},
      {.name = "two workers", .workers = 2, .granularity = Granularity::automatic},
      {.name = "two workers, an actor an op", .workers = 2, .granularity = Granularity::op},
      {.name = "spread, two workers",
       .workers = 2,
       .granularity = Granularity::automatic,
       .devices = Devices::all},
      {.name = "spread over CPUs, two workers",
       .workers = 2,
       .granularity = Granularity::op,
       .devices = Devices::cpus},
      {.name = "a simulated device",
       .workers = 2,
       .granularity = Granularity::automatic,
       .device = "sim:0"},
      {.name = "a simulated device that swaps",
       .workers = 2,
       .granularity = Granularity::automatic,
       .device = "sim:0",
       .seed = 7,
       .swaps = true},
      {.name = "spread, with a device that swaps",
       .workers = 2,
       .granularity = Granularity::automatic,
       .devices = Devices::all,
       .device = "sim:0",
       .seed = 8,
       .swaps = true},
  };
  if (has_gpu())
    all.push_back(
        {.name = "a GPU", .workers = 2, .granularity = Granularity::automatic, .device = "gpu:0"});
  return all;
}

}  // namespace

const std::vector<Way>& ways() {
  static const std::vector<Way> all = all_ways();
  return all;
}

std::vector<std::pair<Expr, OracleValue>> oracle_feeds(const Recipe& r, const Kitchen& k, int run) {
  std::vector<std::pair<Expr, OracleValue>> out;
  for (std::size_t i = 0; i < r.inputs.size(); ++i)
    out.emplace_back(k.inputs()[i],
                     OracleValue::of(k.tensor(r.inputs[i].name.type,
                                              r.inputs[i].values[static_cast<std::size_t>(run)])));
  return out;
}

Expected expected_of(const Recipe& r) {
  // allowed distance of a comparison, and between rounded and unrounded results
  constexpr double kApart = 2e-4;
  Graph g;
  Kitchen k(r, g, Devices::none);
  Oracle exact, rounded(DType::f32);
  Expected out;
  try {
    for (int run = 0; run < r.runs; ++run) {
      try {
        out.fetched.push_back(exact.run(g, oracle_feeds(r, k, run), k.fetches()));
      } catch (const OracleError& e) {
        out.error = e.what();
        if (exact.margin() < kApart) throw Unfit("a comparison is close");
        return out;
      }
      if (exact.margin() < kApart) throw Unfit("a comparison is close");
      out.rounded.push_back(rounded.run(g, oracle_feeds(r, k, run), k.fetches()));
    }
    for (const Variable& v : k.variables()) {
      out.variables.push_back(exact.variable(g, v.state()));
      out.rounded_variables.push_back(rounded.variable(g, v.state()));
    }
  } catch (const OracleRefusal& e) { throw Unfit(e.what()); } catch (const OracleError&) {
    throw Unfit("rounding makes an error");
  }
  auto check = [&](const Array& a, const Array& b) {
    if (a.shape != b.shape) throw Unfit("rounding changes shapes");
    for (std::size_t i = 0; i < a.v.size(); ++i)
      if (std::abs(a.v[i] - b.v[i]) > kApart * std::max(1.0, std::abs(a.v[i])))
        throw Unfit("rounding grows");
  };
  for (std::size_t run = 0; run < out.fetched.size(); ++run)
    for (std::size_t f = 0; f < out.fetched[run].size(); ++f)
      check(out.fetched[run][f].array, out.rounded[run][f].array);
  for (std::size_t v = 0; v < out.variables.size(); ++v)
    check(out.variables[v], out.rounded_variables[v]);
  return out;
}

ProgramOutcome interpret(const Recipe& r) {
  Graph g;
  Kitchen k(r, g, Devices::none);
  Eager interpreter;
  ProgramOutcome out;
  try {
    for (int run = 0; run < r.runs; ++run) {
      Feeds feeds;
      for (std::size_t i = 0; i < r.inputs.size(); ++i)
        feeds.emplace_back(
            k.inputs()[i],
            k.tensor(r.inputs[i].name.type, r.inputs[i].values[static_cast<std::size_t>(run)]));
      out.fetched.push_back(interpreter.run(g, feeds, k.fetches()));
    }
    for (const Variable& v : k.variables()) out.variables.push_back(interpreter.get(g, v.name()));
  } catch (const Error& e) { out.error = e.what(); }
  return out;
}

namespace {

/// Waits for a run. A deterministic engine's steps are bounded: an executor that went astray may
/// take steps for ever. A large program takes up to 4 steps for a node that the oracle computes
/// (turns, dead branches, cut edges). A small one takes more, because its branches are mostly dead.
/// False if it hangs.
bool settles(World& world, RunHandle& run, bool is_deterministic) {
  if (!is_deterministic) return run.wait().code() != Code::deadline_exceeded;
  // None of its devices has threads: what no step brings never comes.
  constexpr std::int64_t kMostSteps = 20 * Oracle::kMostFired;
  for (std::int64_t n = 0; !run.is_done(); ++n)
    if (n == kMostSteps || !world.step()) return false;
  return true;
}

}  // namespace

int& cut_functions() {
  static int n = 0;
  return n;
}

int& resident_loops() {
  static int n = 0;
  return n;
}

int& cancelled_runs() {
  static int n = 0;
  return n;
}

EngineOptions options_of(const Way& way, std::uint64_t seed) {
  EngineOptions o;
  o.workers = way.workers;
  o.granularity = way.granularity;
  o.deterministic = way.is_deterministic;
  o.seed = way.seed + seed;
  o.default_device = way.device;
  o.optimize = way.optimize;
  if (way.swaps) swap_everything(o);
  if (way.is_narrow) o.edges.bytes = 1;
  return o;
}

void run_program(const Recipe& r, const Way& way, Graph& g, const Kitchen& k,
                 const std::vector<Expr>& fetches, int runs, ProgramOutcome& out,
                 const CompileOptions& compile) {
  const EngineOptions options = options_of(way, r.seed);
  std::unique_ptr<World> world =
      way.world ? way.world(options) : std::make_unique<OneEngine>(options);
  Engine& engine = world->engine();
  try {
    RunOptions patient;
    // the largest take 15 over processes
    if (!way.is_deterministic) patient.timeout = std::chrono::seconds(60);
    CompileOptions chosen = compile;
    if (way.lowers) chosen.resident_loops = false;
    Function f = engine.compile(g, k.inputs(), fetches, chosen);
    if (chosen.resident_loops) {
      const std::string text = f.explain();
      for (std::size_t at = text.find(": resident, "); at != std::string::npos;
           at = text.find(": resident, ", at + 1))
        ++resident_loops();
    }
    if (way.devices == Devices::cpus && !r.functions.empty() && r.seed % 10 == 0)
      cut_functions() += f.explain().find(" that it is called") != std::string::npos;
    std::vector<RunHandle> handles;
    auto start = [&](int run) {
      std::vector<Tensor> feeds;
      for (const Recipe::Input& in : r.inputs)
        feeds.push_back(k.tensor(in.name.type, in.values[static_cast<std::size_t>(run)]));
      handles.push_back(f.start(std::move(feeds), patient));
    };
    const bool all_at_once = way.in_flight && r.variables.empty();
    if (all_at_once)
      for (int run = 0; run < runs; ++run) start(run);
    for (int run = 0; run < runs; ++run) {
      if (!all_at_once) start(run);
      RunHandle& h = handles[static_cast<std::size_t>(run)];
      if (!settles(*world, h, way.is_deterministic)) {
        out.hangs = true;
        // the awaited token never comes, so the destructor would not end either
        (void)world.release();
        return;
      }
      out.fetched.push_back(h.get());
    }
    for (const Variable& v : k.variables()) out.variables.push_back(engine.get(v));
    if (way.swaps) swapped().count(engine);
  } catch (const Error& e) { out.error = e.what(); }
}

namespace {

ProgramOutcome run_in_engine(const Recipe& r, const Way& way, const CompileOptions& compile = {}) {
  Graph g;
  Kitchen k(r, g, way.devices);
  ProgramOutcome out;
  run_program(r, way, g, k, k.fetches(), r.runs, out, compile);
  return out;
}

std::string text_of(const Array& a) { return fmt::format("{} of shape {}", a.v, a.shape.text()); }

std::optional<std::string> difference(const Tensor& got, const Array& wanted, const Array& rounded,
                                      DType dtype, const std::string& what) {
  auto say = [&](const std::string& why) {
    return fmt::format("{} {}: {}, expected {}", what, why, got.text(), text_of(wanted));
  };
  if (got.dtype() != dtype) return say("has another dtype");
  if (got.shape() != wanted.shape) return say("has another shape");
  for (std::size_t i = 0; i < wanted.v.size(); ++i) {
    double is = got.at(static_cast<std::int64_t>(i)), be = wanted.v[i], room = 0;
    if (is_floating(dtype)) {
      // The tolerance derives from the effect of rounding to f32 everywhere: some of it for f32;
      // for f64, whose roundings are 2^-29 as large, far less.
      const double moved = std::abs(be - rounded.v[i]);
      room = dtype == DType::f32 ? 1e-5 * std::max(1.0, std::abs(be)) + 50 * moved
                                 : 1e-12 * std::max(1.0, std::abs(be)) + 1e-5 * moved;
    }
    if (!(std::abs(is - be) <= room)) return say(fmt::format("differs at {}", i));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> difference(const Recipe& r, const Expected& e, const ProgramOutcome& o) {
  if (o.hangs) return "it hangs";
  if (e.error.empty() != o.error.empty())
    return e.error.empty() ? "an error: " + o.error : "no error, expected: " + e.error;
  for (std::size_t run = 0; run < e.fetched.size() && run < o.fetched.size(); ++run)
    for (std::size_t f = 0; f < e.fetched[run].size(); ++f) {
      auto d = difference(o.fetched[run][f], e.fetched[run][f].array, e.rounded[run][f].array,
                          e.fetched[run][f].dtype,
                          fmt::format("fetch {} of run {}", r.body.results[f].id, run));
      if (d) return d;
    }
  if (!e.error.empty()) return std::nullopt;
  for (std::size_t v = 0; v < e.variables.size(); ++v)
    if (auto d = difference(o.variables[v], e.variables[v], e.rounded_variables[v], r.real,
                            fmt::format("variable v{}", v)))
      return d;
  return std::nullopt;
}

std::optional<std::string> difference_beside_cancelled(const Recipe& r, const Expected& e,
                                                       const Way& way) {
  constexpr int kTries = 3, kMostSteps = 2000;
  if (way.is_interpreter) return std::nullopt;
  Graph g;
  const Kitchen k(r, g, way.devices);
  const EngineOptions options = options_of(way, r.seed);
  std::unique_ptr<World> world =
      way.world ? way.world(options) : std::make_unique<OneEngine>(options);
  std::minstd_rand random(static_cast<unsigned>(options.seed));
  try {
    RunOptions patient;
    if (!way.is_deterministic) patient.timeout = std::chrono::seconds(60);
    const Function f = world->engine().compile(g, k.inputs(), k.fetches());
    const auto start = [&] {
      std::vector<Tensor> feeds;
      for (const Recipe::Input& in : r.inputs)
        feeds.push_back(k.tensor(in.name.type, in.values[0]));
      return f.start(std::move(feeds), patient);
    };
    for (int i = 0; i < kTries; ++i) {
      const bool at_once = random() % 2 == 0;
      RunHandle given_up = start(), kept;
      if (at_once) kept = start();
      // With threads a run may end within few turns of a busy machine: half are given up at once.
      const bool is_given_time = way.is_deterministic || random() % 2 == 0;
      for (auto n = is_given_time ? random() % kMostSteps : 0; n > 0 && !given_up.is_done(); --n)
        if (!way.is_deterministic) std::this_thread::yield();
        else if (!world->step()) break;
      given_up.cancel();
      if (!at_once) kept = start();
      for (RunHandle* h : {&kept, &given_up})
        if (!settles(*world, *h, way.is_deterministic)) {
          (void)world.release();
          return h == &kept ? "it hangs beside a run that was cancelled"
                            : "a cancelled run does not end";
        }
      const Status ended = given_up.wait();
      if (!ended.ok() && ended.code() != Code::cancelled)
        return "a cancelled run ended otherwise: " + ended.message();
      cancelled_runs() += !ended.ok();
      ProgramOutcome o;
      o.fetched.push_back(kept.get());
      if (auto wrong = difference(r, e, o)) return "beside a run that was cancelled: " + *wrong;
    }
  } catch (const Error& error) {
    return std::string("beside a run that was cancelled, an error: ") + error.what();
  }
  return std::nullopt;
}

std::optional<std::string> difference_of_outcomes(const ProgramOutcome& one,
                                                  const ProgramOutcome& two,
                                                  const std::string& other) {
  if (one.hangs || two.hangs) return "it hangs";
  // which of several errors comes first is open
  if (one.error.empty() != two.error.empty())
    return fmt::format("error '{}', {} '{}'", one.error, other, two.error);
  const auto compare = [&](const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                           const std::string& what) -> std::optional<std::string> {
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
      if (!identical(a[i], b[i]))
        return fmt::format("{} {} is {}, {} {}", what, i, a[i].text(), other, b[i].text());
    return std::nullopt;
  };
  for (std::size_t run = 0; run < one.fetched.size() && run < two.fetched.size(); ++run)
    if (auto wrong = compare(one.fetched[run], two.fetched[run], "fetch")) return wrong;
  return one.error.empty() ? compare(one.variables, two.variables, "variable") : std::nullopt;
}

std::optional<std::string> difference_from_lowered(const Recipe& r, const Way& way) {
  CompileOptions lowering, interpreting;
  lowering.resident_loops = false;
  interpreting.compiled_loops = false;
  const ProgramOutcome lowered = run_in_engine(r, way, lowering);
  const int before = resident_loops();
  if (auto wrong = difference_of_outcomes(run_in_engine(r, way), lowered, "lowered")) return wrong;
  if (resident_loops() == before) return std::nullopt;  // there is nothing to interpret
  if (auto wrong = difference_of_outcomes(run_in_engine(r, way, interpreting), lowered, "lowered"))
    return "interpreted: " + *wrong;
  return std::nullopt;
}

std::optional<std::string> difference(const Recipe& r, const Expected& e, const Way& way) {
  if (!way.is_interpreter) {
    ProgramOutcome o = run_in_engine(r, way);
    // The oracle computes unused loop variables and results, and may fail there.
    if (way.optimize && !e.error.empty() && o.error.empty() && !o.hangs && may_fail(r))
      o = run_in_engine(r, way, {.skip_passes = {"drop_unused_outputs"}});
    return difference(r, e, o);
  }
  ProgramOutcome o = interpret(r);
  // The engine also computes unused values in a branch or a body, and may fail there.
  if (e.error.empty() && !o.error.empty() && may_fail(r)) return std::nullopt;
  return difference(r, e, o);
}

}  // namespace troupe::test
