// Answers of reporters (actors/engine/reporters.hpp) of all nodes as JSON, and the stream of the
// engine's events.
//
//   queries_json(node.inspect(topic_question("queries"), kAsk))
//
// A node's texts are untrusted: entries of another form are left out.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/event_feed.hpp>
#include <troupe/cluster/protocol/node_report.hpp>

namespace troupe {

/// Asks for the texts of a topic (cluster/node/inspection_service.hpp).
inline NodeQuestion topic_question(const std::string& topic) {
  NodeQuestion question;
  question.kind = NodeQuestion::Kind::scalars;
  question.plan.owner = topic;
  return question;
}

/// Returns the texts of all nodes that have answered as objects, each with its `node`.
nlohmann::json texts_in(const ClusterReport& report);
/// The causes that each node's own events show, against the true ones.
std::string dependence_json(const ClusterReport& report);
/// Running queries with their operators.
std::string queries_json(const ClusterReport& report);
/// Returns the answer about an actor with the entry `operator`, if `report` has it.
std::string with_operator(const std::string& actor_json, const ClusterReport& report);

/// Events of the engine, and how far each node's are complete.
std::string stream_json(const EventFeed::Part& part, const EventFeed::Counts& counts);

}  // namespace troupe
