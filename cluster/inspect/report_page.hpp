// A report of a run as one HTML file that needs nothing else: the web page's drawing code with the
// data inside.
//
//   // JSON, as INSPECTION.md has it:
//   std::string html =
//       report_page("a/17", {.state = ..., .plan = ..., .counters = ...});
//
// A file that is opened years later, without a network, still draws: graph, timeline, slowest ops,
// loops, communication, memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Answers of the inspection server, each as JSON text.
struct ReportParts {
  std::string_view state, plan, counters;
  // null where there are none
  std::string_view events = "null", scalars = "null", diagnosis = "null";
};

/// `run` names one of the state's runs, under way or recent. Nothing in the JSON is read as HTML.
std::string report_page(std::string_view run, const ReportParts& parts);

/// A failed run in one node's report.
struct FailureTold {
  std::string node, when, text, flight;
};
/// The report of a run that has failed and whose plan is not there any more: what its nodes have
/// kept of it, and how to go on.
std::string failure_page(std::string_view run, std::string_view how,
                         const std::vector<FailureTold>& told);

}  // namespace troupe
