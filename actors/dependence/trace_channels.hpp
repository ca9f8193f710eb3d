// Channels of a recorded trace: the times at which events of one name began.
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/dependence/dependence.hpp>
#include <troupe/actors/events/engine_events.hpp>

namespace troupe::dependence {

struct TraceChannels {
  std::vector<Channel> channels;  // the most events first
  double end = 0;                 // s, since the first event
  std::size_t left_out = 0;       // channels beyond `most`
};

/// Events of the kinds, such as `kernel` and `send`; with several nodes a name has the node before
/// it. At most `most` channels.
TraceChannels channels_of(const std::vector<events::EngineEvent>& events,
                          const std::vector<std::string>& kinds, std::size_t most);

}  // namespace troupe::dependence
