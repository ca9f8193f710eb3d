// troupe report RUN -o FILE: a run as one HTML file, from what a node says of it.
#include <troupe/apps/verbs/client.hpp>

#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/report_page.hpp>

namespace troupe::verbs {

namespace {

using Json = nlohmann::json;

/// The plan of a run that is under way, or is among the last that ended. Throws Misuse, with the nearest.
std::string plan_of(const Json& state, const std::string& run) {
  std::vector<std::string> known;
  for (const char* list : {"runs", "recent"})
    for (const Json& r : state.at(list)) {
      if (r.at("id") == run) return r.at("plan");
      known.push_back(r.at("id"));
    }
  const std::string like = nearest(run, known);
  throw Misuse(printable(known.empty() ? fmt::format("there is no run '{}': none is under way there, and none has ended", run)
                                       : fmt::format("there is no run '{}' among those under way and the last that ended; {}", run,
                                                     like.empty() ? "'troupe ps' lists them" : fmt::format("did you mean '{}'?", like))));
}

/// What a node may not have: then nothing.
std::string fetch_or_null(const LookFlags& flags, const std::string& path) {
  try {
    return fetch(flags, path, 10);
  } catch (const Misuse&) {
    return "null";
  }
}

}  // namespace

int report(const LookFlags& flags) {
  Output out(flags.out);
  const std::string state = fetch(flags, "/api/state");
  const std::string plan = encoded(plan_of(Json::parse(state), flags.what));
  const std::string events = fetch_or_null(flags, "/api/events?limit=20000");  // first: they are overwritten soon
  const std::string actors = fetch(flags, "/api/plan?id=" + plan, 60), counters = fetch(flags, "/api/counters?since=0&plan=" + plan, 60);
  const std::string scalars = fetch_or_null(flags, "/api/scalars");
  const std::string html = report_page(flags.what, {.state = state, .plan = actors, .counters = counters, .events = events, .scalars = scalars});
  out.write(html);
  return 0;
}

}  // namespace troupe::verbs
