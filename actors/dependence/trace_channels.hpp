// Channels of a recorded trace: the times at which events of one name began.
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/dependence/evaluation.hpp>
#include <troupe/actors/events/engine_events.hpp>

namespace troupe::dependence {

struct TraceChannels {
  std::vector<Channel> channels;  // the most events first
  double end = 0;                 // s, since the first event
  std::size_t left_out = 0;       // channels beyond `most`
  bool has_nodes = false;         // names have their node before them
};

/// Events of the kinds, such as `kernel` and `send`; with several nodes a name has the node before
/// it. At most `most` channels.
TraceChannels channels_of(const std::vector<events::EngineEvent>& events,
                          const std::vector<std::string>& kinds, std::size_t most);

/// Returns the name of the event's channel.
std::string channel_of(const events::EngineEvent& event, bool has_nodes);

/// Returns the edges that a trace knows: from a send to the receive of its token, and from an
/// actor's events to its sends. Throws Error (data_loss) for a text that is no trace.
Edges true_edges_of(const std::string& trace, bool has_nodes);

}  // namespace troupe::dependence
