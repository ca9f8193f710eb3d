// A report of a run as one HTML file that needs nothing else: the web page's drawing code with the
// data inside.
//
//   std::string html = report_page("a/17", {.state = ..., .plan = ..., .counters = ...});     // JSON, as INSPECTION.md has it
//
// A file that is opened years later, without a network, still draws: graph, timeline, slowest ops,
// loops, communication, memory.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// What the inspection server answered, each as JSON text.
struct ReportParts {
  std::string_view state, plan, counters;
  // null where there are none
  std::string_view events = "null", scalars = "null", diagnosis = "null";
};

/// `run` names one of the state's runs, under way or recent. Nothing in the JSON is read as HTML.
std::string report_page(std::string_view run, const ReportParts& parts);

}  // namespace troupe
