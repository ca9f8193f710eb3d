// Measures the links between nodes, for placement: probe messages that are answered at once.
//
//   owner ── ProbeFor(c, bytes) ──► b ── Probe(load) ──► c
//         ◄──── Answer(ns) ──────── b ◄──── Answer ──── c
//
// `links` measures when a plan asks. A measurement holds for half a minute, for a hundred times the
// time that it took, and while the link is in use: its probes would wait behind the traffic. All
// pairs of up to 16 nodes are measured, of more nodes the links of this one.
//
// Threads: any; `links` blocks. Invariants: 1. the lock is not held while a message is sent or
// awaited; 2. a peer has a bounded number of probes under way here; 3. `links` returns measured
// links of present nodes only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/node/cluster_view.hpp>
#include <troupe/cluster/node/request_table.hpp>

namespace troupe {

class LinkProbes {
 public:
  /// `node`: this one's name. The others outlive the probes.
  LinkProbes(std::string node, Transport& transport, ClusterView& view, RequestTable& requests)
      : node_(std::move(node)), transport_(transport), view_(view), requests_(requests) {}

  /// Returns the measured links; nothing without a clock.
  std::vector<LinkBetween> links();
  /// Sends a probe for another node. Throws data_loss for too large a probe, or too many.
  void handle(Peer from, ProbeFor&& m);
  void handle(Peer from, Probe&& m) { send(transport_, from, Answer{m.request, {}, {}}); }
  /// Forgets the links of a node whose session has ended.
  void lost(const std::string& node);

 private:
  using Link = std::pair<std::string, std::string>;  // the lesser name first
  struct Measured {
    LinkCost cost;
    std::chrono::nanoseconds holds_until;
  };

  /// Links between nodes that are there, and those of them that have to be measured.
  std::pair<std::vector<Link>, std::vector<Link>> links_to_measure(std::chrono::nanoseconds now);
  std::uint64_t probe(const std::string& a, const std::string& b, std::uint64_t bytes,
                      RequestTable::Continuation then = {});
  void note(const Link& link, std::uint64_t least_ns, std::uint64_t loaded_ns,
            std::chrono::nanoseconds holds_until);

  const std::string node_;
  Transport& transport_;
  ClusterView& view_;
  RequestTable& requests_;

  std::mutex mutex_;                        // guards everything below
  std::map<Link, Measured> links_;          // until a node of the two is lost
  std::map<Peer, std::size_t> for_others_;  // probes under way for a peer; peers without: no entry
};

}  // namespace troupe
