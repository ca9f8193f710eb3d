// Prometheus text. Names follow its conventions: base units, `_total` for what only grows;
// scripts/checks/metrics.sh has promtool check them.
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

class Exposition {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(const std::string& labels, double value) {
    out_ += labels.empty() ? fmt::format("{} {}\n", name_, value)
                           : fmt::format("{}{{{}}} {}\n", name_, labels, value);
  }
  /// A cumulative histogram: the count of the last bucket is of all.
  void histogram(const std::string& labels, const RunDurations& durations) {
    const std::string before = labels.empty() ? labels : labels + ",";
    std::uint64_t runs = 0;
    for (std::size_t i = 0; i < durations.runs.size(); ++i) {
      runs += durations.runs[i];
      const std::string bound = i < RunDurations::kBounds.size()
                                    ? fmt::format("{}", RunDurations::kBounds[i])
                                    : std::string("+Inf");
      out_ += fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", name_, before, bound, runs);
    }
    out_ += fmt::format("{}_sum{{{}}} {}\n", name_, labels,
                        static_cast<double>(durations.total_ns) * 1e-9);
    out_ += fmt::format("{}_count{{{}}} {}\n", name_, labels, runs);
  }
  void one(const char* name, const char* type, const char* help, double value) {
    family(name, type, help);
    sample({}, value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  const char* name_ = "";
};

double d(std::uint64_t n) { return static_cast<double>(n); }

void add_pool(Exposition& t, const PoolCounters& pool) {
  t.one("troupe_worker_jobs_total", "counter", "Turns of actors and pieces of kernels.",
        d(pool.jobs));
  t.one("troupe_worker_steals_total", "counter", "Jobs that a worker took from another.",
        d(pool.steals));
  t.one("troupe_worker_offers_total", "counter", "Jobs that a worker gave to one without work.",
        d(pool.offers));
  t.one("troupe_worker_searches_total", "counter", "Times a worker had no work and spun.",
        d(pool.searches));
  t.one("troupe_worker_finds_total", "counter", "Searches that found work.", d(pool.finds));
  t.one("troupe_worker_search_seconds_total", "counter", "Time that workers spun.",
        d(pool.search_ns) * 1e-9);
  t.one("troupe_worker_parks_total", "counter", "Times a worker started to sleep.", d(pool.parks));
  t.one("troupe_worker_wakes_total", "counter", "Times a sleeping worker was woken.",
        d(pool.wakes));
  t.one("troupe_worker_wake_seconds_total", "counter", "Time from wake-ups until the workers ran.",
        d(pool.wake_ns) * 1e-9);
}

void add_devices(Exposition& t, const std::vector<DeviceSnapshot>& devices) {
  const auto of_devices = [&](const char* name, const char* help, auto value) {
    t.family(name, "gauge", help);
    for (const DeviceSnapshot& device : devices)
      t.sample(fmt::format("device=\"{}\"", escaped(device.name)), d(value(device)));
  };
  using Device = DeviceSnapshot;
  of_devices("troupe_device_memory_bytes", "Memory in use on a device.",
             [](const Device& v) { return v.in_use; });
  of_devices("troupe_device_memory_peak_bytes", "The most memory that was in use on a device.",
             [](const Device& v) { return v.peak; });
  of_devices("troupe_device_memory_reserved_bytes",
             "Memory that was taken for a device: in use, or kept for reuse.",
             [](const Device& v) { return v.reserved; });
  of_devices("troupe_device_memory_free_bytes",
             "Memory that a device can still hand out; 0: not known.",
             [](const Device& v) { return v.free; });
  of_devices("troupe_device_memory_limit_bytes", "The most memory that a device hands out; 0: all.",
             [](const Device& v) { return v.limit; });
  of_devices("troupe_device_swapped_bytes",
             "Memory of the host that holds what was moved there from a device that is full.",
             [](const Device& v) { return v.swapped; });

  const auto of_queues = [&](const char* name, const char* type, const char* help, auto value) {
    t.family(name, type, help);
    for (const DeviceSnapshot& device : devices)
      for (const QueueActivity& q : device.queues)
        t.sample(fmt::format("device=\"{}\",queue=\"{}\"", escaped(device.name), escaped(q.name)),
                 value(q));
  };
  using Queue = QueueActivity;
  of_queues("troupe_device_queue_busy_seconds_total", "counter",
            "Time in which a queue of a device had work; of workers: on average.",
            [](const Queue& q) { return d(q.busy_ns) * 1e-9; });
  of_queues("troupe_device_queue_enqueued_total", "counter",
            "Launches and copies that were enqueued.",
            [](const Queue& q) { return d(q.enqueued); });
  of_queues("troupe_device_queue_depth", "gauge",
            "Launches and copies that are not known to have ended.",
            [](const Queue& q) { return d(q.depth); });
  of_queues("troupe_device_queue_events", "gauge",
            "Recorded points of a queue that are not known to have passed.",
            [](const Queue& q) { return d(q.events); });
  of_queues("troupe_device_queue_launches_total", "counter", "Calls of kernels and libraries.",
            [](const Queue& q) { return d(q.launches); });
  of_queues("troupe_device_queue_replayed_total", "counter", "Launches that a graph has made.",
            [](const Queue& q) { return d(q.replayed); });
  of_queues("troupe_device_queue_graphs_total", "counter", "Launches of graphs.",
            [](const Queue& q) { return d(q.graphs); });
  t.family("troupe_device_queue_copied_bytes_total", "counter",
           "Bytes that a queue has copied, by direction.");
  for (const DeviceSnapshot& device : devices)
    for (const QueueActivity& q : device.queues)
      for (const auto& [direction, copies] : {std::pair("to_device", &q.to_device),
                                              {"from_device", &q.from_device},
                                              {"from_peer", &q.from_peer}})
        t.sample(fmt::format("device=\"{}\",queue=\"{}\",direction=\"{}\"", escaped(device.name),
                             escaped(q.name), direction),
                 d(copies->bytes));
}

/// The name of a status, as a value of a label: `deadline_exceeded`.
std::string reason_of(std::size_t code) {
  std::string name(name_of(static_cast<Code>(code)));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

}  // namespace

std::string metrics_text(const NodeReport& r, const std::vector<Member>& members,
                         const PoolCounters& pool, const MembershipCounters& membership) {
  Exposition t;
  t.family("troupe_build_info", "gauge", "The version of Troupe; always 1.");
  t.sample(fmt::format("node=\"{}\",version=\"{}\"", escaped(r.name), escaped(r.version)), 1);
  t.one("process_cpu_seconds_total", "counter", "Processor time that the process has taken.",
        d(r.cpu_ns) * 1e-9);
  t.one("process_resident_memory_bytes", "gauge", "Memory that the process holds.", d(r.resident));
  t.one("troupe_machine_memory_bytes", "gauge", "Memory of the machine.", d(r.total));
  t.one("troupe_workers", "gauge", "Threads that compute.", r.engine.workers);
  add_pool(t, pool);
  t.family("troupe_members", "gauge", "Nodes in the membership of this node, by state.");
  for (const MemberState state :
       {MemberState::alive, MemberState::suspect, MemberState::dead, MemberState::left}) {
    std::size_t n = 0;
    for (const Member& m : members) n += m.state == state;
    t.sample(fmt::format("state=\"{}\"", name_of(state)), static_cast<double>(n));
  }
  t.one("troupe_membership_suspicions_total", "counter",
        "Times that this node suspected a node, by itself or by gossip.", d(membership.suspicions));
  t.one("troupe_membership_refutations_total", "counter",
        "Times that this node was suspected by another, and has refuted it.",
        d(membership.refuted));
  t.one("troupe_membership_deaths_total", "counter", "Times that this node declared a node dead.",
        d(membership.deaths));
  add_devices(t, r.engine.devices);
  t.one("troupe_runs_in_flight", "gauge", "Runs that this node takes part in now.",
        static_cast<double>(r.engine.runs.size()));
  t.family("troupe_runs_started_total", "counter", "Runs of a plan that this node took part in.");
  for (const auto& p : r.engine.plans)
    t.sample(fmt::format("plan=\"{}\"", escaped(p.name.text())), d(p.started));
  t.family("troupe_runs_ended_total", "counter", "Runs of a plan that have ended, by outcome.");
  for (const auto& p : r.engine.plans) {
    t.sample(fmt::format("plan=\"{}\",outcome=\"ok\"", escaped(p.name.text())), d(p.ended));
    t.sample(fmt::format("plan=\"{}\",outcome=\"failed\"", escaped(p.name.text())), d(p.failed));
  }
  t.family("troupe_run_duration_seconds", "histogram",
           "How long runs of a plan took on this node, until they ended, well or not.");
  for (const auto& p : r.engine.plans)
    t.histogram(fmt::format("plan=\"{}\"", escaped(p.name.text())), p.durations);
  t.family("troupe_run_endings_total", "counter",
           "Runs that have ended on this node, by the status that ended them, with those of plans "
           "that are gone.");
  for (std::size_t code = 0; code < r.engine.ended_by.size(); ++code)
    t.sample(fmt::format("reason=\"{}\"", reason_of(code)), d(r.engine.ended_by[code]));
  std::uint64_t waits = 0, ready = 0;
  for (const RunSnapshot& run : r.engine.runs)
    for (const PartitionSnapshot& p : run.partitions)
      for (const RunPart& part : p.runs)
        waits += part.waits.size() + part.more_waits, ready += part.ready;
  t.one("troupe_waits", "gauge", "Tokens, grants and kernels that runs wait for on this node now.",
        d(waits));
  t.one("troupe_ready_actors", "gauge", "Actors that can fire now.", d(ready));
  const TransportCounters& c = r.transport;
  t.one("troupe_transport_sent_messages_total", "counter", "Messages sent to other nodes.",
        d(c.messages_out));
  t.one("troupe_transport_received_messages_total", "counter", "Messages of other nodes.",
        d(c.messages_in));
  t.one("troupe_transport_sent_bytes_total", "counter", "Bytes sent to other nodes.",
        d(c.bytes_out));
  t.one("troupe_transport_received_bytes_total", "counter", "Bytes of other nodes.", d(c.bytes_in));
  t.one("troupe_transport_queued_bytes", "gauge", "Bytes that wait to be sent.", d(c.unsent_bytes));
  t.one("troupe_transport_unacknowledged_bytes", "gauge",
        "Bytes that were sent and are not known to have arrived.", d(c.unacknowledged_bytes));
  const auto of_peers = [&](const char* name, const char* type, const char* help, auto value) {
    t.family(name, type, help);
    for (const PeerReport& p : r.peers)
      t.sample(fmt::format("peer=\"{}\"", escaped(p.node)), value(p));
  };
  of_peers("troupe_peer_sent_bytes_total", "counter",
           "Bytes sent to a node, since it was connected.",
           [](const PeerReport& p) { return d(p.sent); });
  of_peers("troupe_peer_received_bytes_total", "counter",
           "Bytes of a node, since it was connected.",
           [](const PeerReport& p) { return d(p.received); });
  of_peers("troupe_peer_queued_bytes", "gauge", "Bytes that wait to be sent to a node.",
           [](const PeerReport& p) { return d(p.queued); });
  of_peers("troupe_peer_unacknowledged_bytes", "gauge",
           "Bytes that were sent to a node and are not known to have arrived.",
           [](const PeerReport& p) { return d(p.unacknowledged); });
  of_peers("troupe_peer_round_trip_seconds", "gauge",
           "Round-trip time of the last ping of a node; 0: no answer yet.",
           [](const PeerReport& p) { return static_cast<double>(p.round_trip_ns) * 1e-9; });
  t.one("troupe_transport_reconnects_total", "counter",
        "Connections that broke after their handshake.", d(c.reconnects));
  t.one("troupe_transport_dropped_total", "counter",
        "Frames that were malformed, repeated or not authenticated.", d(c.dropped));
  t.one("troupe_transport_turned_away_total", "counter",
        "Connections that ended in their handshake, such as those without an authorized key.",
        d(c.turned_away));
  t.one("troupe_transport_broken_off_total", "counter",
        "Connections from others that ended in the middle of a session.", d(c.broken_off));
  return t.take();
}

std::string training_metrics(const TrainingsReport& r) {
  Exposition t;
  const auto of_trainings = [&](const char* name, const char* type, const char* help, auto value) {
    t.family(name, type, help);
    for (const TrainingsReport::Entry& e : r.trainings)
      t.sample(fmt::format("training=\"{}\",driver=\"{}\"", escaped(e.training), escaped(e.driver)),
               static_cast<double>(value(e)));
  };
  using Entry = TrainingsReport::Entry;
  of_trainings("troupe_training_step", "gauge", "Steps of a training that its driver has reported.",
               [](const Entry& e) { return e.progress.step; });
  of_trainings("troupe_training_steps", "gauge", "Steps of a training until it ends.",
               [](const Entry& e) { return e.progress.steps; });
  of_trainings("troupe_training_checkpoint_step", "gauge",
               "The step of a training's newest checkpoint; -1: there is none.",
               [](const Entry& e) { return e.progress.checkpoint; });
  of_trainings("troupe_training_recoveries", "gauge",
               "Times that a training's driver has gone on after a loss.",
               [](const Entry& e) { return e.progress.recoveries; });
  of_trainings("troupe_training_epoch", "gauge",
               "The epoch of a training's driver: it rises with each driver and placement.",
               [](const Entry& e) { return e.epoch; });
  return t.take();
}

}  // namespace troupe
