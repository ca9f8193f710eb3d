// troupe report RUN -o FILE: writes a run as one HTML file, from a node's answers.
#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <ctime>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/report_page.hpp>

namespace troupe::verbs {

namespace {

using Json = nlohmann::json;

/// `a/7, a/6, a/5 and 29 more`
std::string listed(const Json& runs) {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(kMost, runs.size()); ++i)
    out += (i == 0 ? "" : ", ") + runs[i].at("id").get<std::string>();
  return runs.size() > kMost ? fmt::format("{} and {} more", out, runs.size() - kMost) : out;
}

/// The plan of a run that is under way, or is among the last that ended. Throws Misuse, with those
/// there are.
std::string plan_of(const Json& state, const std::string& run) {
  const Json &under_way = state.at("runs"), &ended = state.at("recent");
  for (const Json* runs : {&under_way, &ended})
    for (const Json& r : *runs) {
      if (r.at("id") != run) continue;
      const std::string plan = r.at("plan");
      for (const Json& p : state.at("plans"))
        if (p.at("id") == plan) return plan;
      throw Misuse(
          printable(fmt::format("run '{}' has ended, and its plan '{}' with it: its program keeps "
                                "the function no more, or its node is gone",
                                run, plan)));
    }
  if (under_way.empty() && ended.empty())
    throw Misuse(printable(
        fmt::format("there is no run '{}': none is under way there, and none has ended", run)));
  throw Misuse(printable(fmt::format(
      "there is no run '{}'; {} under way, and the last that ended are {}", run,
      under_way.empty() ? "none is" : listed(under_way) + (under_way.size() == 1 ? " is" : " are"),
      ended.empty() ? "none" : listed(ended))));
}

/// Returns all that nodes have kept of a failed run, of the latest life of its owner; else nothing.
std::vector<Json> failures_of(const Json& state, const std::string& run) {
  std::vector<Json> all;
  for (const Json& e : state.at("errors"))
    if (e.at("run") == run && (all.empty() || e.at("incarnation") == all[0].at("incarnation")))
      all.push_back(e);
  return all;
}

std::string page_of(const std::string& run, const std::vector<Json>& failures) {
  std::vector<FailureTold> told;
  std::string how = failures[0].at("how");
  for (const Json& e : failures) {
    if (e.at("owned").get<bool>()) how = e.at("how");
    const auto ms = e.at("time_ns").get<std::int64_t>() / 1'000'000;
    told.push_back(
        {e.at("node"),
         fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(ms / 1000))),
         e.at("text"), e.at("flight")});
  }
  return failure_page(run, how, told);
}

bool is_under_way(const Json& state, const std::string& run) {
  const Json& runs = state.at("runs");
  return std::any_of(runs.begin(), runs.end(), [&](const Json& r) { return r.at("id") == run; });
}

/// Fetches a resource that a node may lack: then returns `null`.
std::string fetch_or_null(const LookFlags& flags, const std::string& path) {
  try {
    return fetch(flags, path, 10);
  } catch (const Misuse&) { return "null"; }
}

/// The diagnosis is requested last, and asks all nodes several times: a report without it is better
/// than none. The page then says why it is missing.
std::string fetch_diagnosis(const LookFlags& flags) {
  try {
    return fetch_or_null(flags, "/api/diagnose");
  } catch (const std::runtime_error& error) {
    Json said;
    said["error"] = error.what();
    return said.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace

int report(const LookFlags& flags) {
  Output out(flags.out);
  const std::string state = fetch(flags, "/api/state");
  const Json parsed = verbs::parsed(state);
  std::string plan;
  try {
    plan = encoded(plan_of(parsed, flags.what));
  } catch (const Misuse&) {
    const std::vector<Json> failures = failures_of(parsed, flags.what);
    if (failures.empty()) throw;
    out.write(page_of(flags.what, failures));
    return 0;
  }
  // first: they are overwritten soon
  const std::string events = fetch_or_null(flags, "/api/events?limit=20000");
  const std::string actors = fetch(flags, "/api/plan?id=" + plan, 60),
                    counters = fetch(flags, "/api/counters?since=0&plan=" + plan, 60);
  const std::string scalars = fetch_or_null(flags, "/api/scalars");
  const std::string diagnosis = is_under_way(parsed, flags.what) ? fetch_diagnosis(flags) : "null";
  const std::string html = report_page(flags.what, {.state = state,
                                                    .plan = actors,
                                                    .counters = counters,
                                                    .events = events,
                                                    .scalars = scalars,
                                                    .diagnosis = diagnosis});
  out.write(html);
  return 0;
}

}  // namespace troupe::verbs
