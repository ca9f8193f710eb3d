#include <troupe/cluster/training/training_checkpoints.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
namespace {

using RequestKind = CheckpointRequest::What;

std::int64_t seconds_of(std::int64_t ns) { return ns / 1'000'000'000; }

// Requests that are under way, so that each is awaited once, also after the first error.
class Requests {
 public:
  explicit Requests(CheckpointService& service) : service_(service) {}
  void start(const std::string& node, CheckpointRequest m) {
    asked_.emplace_back(node, service_.start(node, std::move(m)));
  }
  /// Calls `take(node, reply)` for each in order. Throws the first error when all are done.
  template <class Take>
  void await(Take take) {
    std::exception_ptr first;
    for (const auto& [node, request] : std::exchange(asked_, {})) try {
        take(node, service_.await(node, request));
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    if (first) std::rethrow_exception(first);
  }
  ~Requests() {
    try {
      await([](const std::string&, const CheckpointService::Reply&) {});
    } catch (...) {  // an earlier error is on its way
    }
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

 private:
  CheckpointService& service_;
  std::vector<std::pair<std::string, std::uint64_t>> asked_;
};

// A safetensors file in a tensor's bytes.
class TensorBytes final : public ReadableFile {
 public:
  TensorBytes(const std::string& node, Tensor bytes)
      : ReadableFile(fmt::format("the states of node '{}'", node), bytes.bytes()),
        bytes_(std::move(bytes)) {}
  void read(std::uint64_t at, void* data, std::size_t bytes) override {
    if (at > size() || bytes > size() - at)
      throw Error(Code::data_loss, fmt::format("{} are cut off", path()));
    if (bytes > 0) std::memcpy(data, static_cast<const char*>(bytes_.raw()) + at, bytes);
  }

 private:
  const Tensor bytes_;
};

}  // namespace

// ---- one folder

std::uint64_t FolderCheckpoints::next_place() {
  // publishes nothing: trainings of one process need different numbers
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

std::vector<CheckpointId> FolderCheckpoints::all() {
  std::vector<CheckpointId> all;
  for (const std::int64_t step : folder_.steps()) all.push_back({step, 0});
  return all;
}

// Queues and actors come from their nodes, variables as the engine reads them.
std::function<void()> FolderCheckpoints::take(std::int64_t step, std::optional<double> metric,
                                              const Values& values) {
  NamedTensors taken;
  std::map<std::string, CheckpointRequest> by_node;
  for (const Value& v : values) {
    if (v.variable) {
      taken.emplace_back(v.name, node_.engine().get(*v.variable));
      continue;
    }
    CheckpointRequest& ask = by_node[v.node];
    ask.what = RequestKind::take;
    ask.fence = driver_.fence();
    ask.step = step;
    ask.number = place_;
    ask.names.push_back(v.name);
  }
  for (auto& [node, ask] : by_node) {
    CheckpointRequest fetch;
    fetch.what = RequestKind::fetch;
    fetch.fence = ask.fence;
    fetch.step = step;
    fetch.number = place_;
    node_.checkpoints().ask(node, std::move(ask));
    TensorBytes bytes(node, node_.checkpoints().ask(node, std::move(fetch)).value);
    for (auto& value : load_tensors(bytes).tensors) taken.push_back(std::move(value));
  }
  return [this, step, metric, taken = std::move(taken)] { folder_.write(step, taken, metric); };
}

// ---- disks of nodes

CheckpointRequest NodeCheckpoints::request(RequestKind what) const {
  CheckpointRequest m;
  m.what = what;
  m.fence = driver_.fence();
  return m;
}

std::string NodeCheckpoints::text(const CheckpointId& id) const {
  return fmt::format("{}/{}", driver_.fence().training, manifest_name(id));
}

// Nodes that keep checkpoints, in the order of their names.
std::vector<std::string> NodeCheckpoints::keepers() const {
  const std::vector<std::string> there = node_.nodes();
  std::vector<std::string> all, away;
  for (const auto& [node, report] : driver_.nodes())
    if (report.has_folder)
      (std::find(there.begin(), there.end(), node) != there.end() ? all : away).push_back(node);
  if (all.empty() && !away.empty())
    throw Error(Code::unavailable,
                fmt::format("training '{}': the nodes that keep checkpoints have left: {}",
                            driver_.fence().training, fmt::join(away, ", ")));
  if (all.empty())
    throw Error(Code::failed_precondition,
                fmt::format("training '{}': no node keeps checkpoints; start nodes with a folder "
                            "for them (troupe node --state DIR), or name one folder for all "
                            "(TrainingOptions::folder)",
                            driver_.fence().training));
  return all;
}

// The node itself comes first, if it keeps checkpoints, then those after it in a ring.
std::vector<std::string> NodeCheckpoints::holders(const std::string& node,
                                                  const std::vector<std::string>& among,
                                                  std::size_t shard) const {
  const auto own = std::find(among.begin(), among.end(), node);
  const std::size_t first =
      own != among.end() ? static_cast<std::size_t>(own - among.begin()) : shard;
  std::vector<std::string> all;
  for (std::size_t i = 0; i < std::min(among.size(), static_cast<std::size_t>(copies_) + 1); ++i)
    all.push_back(among[(first + i) % among.size()]);
  return all;
}

std::vector<CheckpointId> NodeCheckpoints::all() {
  found_.clear();
  for (const auto& [node, report] : node_.checkpoints().look())
    for (const TrainingsReport::Entry& e : report.trainings)
      if (e.training == driver_.fence().training)
        for (const CheckpointId& id : e.checkpoints) found_[id].push_back(node);
  std::vector<CheckpointId> all;
  for (const auto& [id, nodes] : found_) all.push_back(id);
  return all;
}

Manifest NodeCheckpoints::manifest(const CheckpointId& id) {
  std::vector<std::string> failed;
  for (const std::string& node : found_[id]) try {
      CheckpointRequest m = request(RequestKind::find);
      m.step = id.step;
      m.number = id.epoch;
      const std::string bytes = text_of(node_.checkpoints().ask(node, std::move(m)).value);
      Manifest found = manifest_of(bytes, fmt::format("{}:{}", node, manifest_name(id)));
      if (found.id != id || found.training != driver_.fence().training)
        throw Error(Code::data_loss,
                    fmt::format("'{}' is a manifest of another checkpoint", manifest_name(id)));
      return found;
    } catch (const Error& e) {
      failed.push_back(fmt::format("on node '{}': {}", node, e.what()));
      if (log_) log_(fmt::format("{} {}", manifest_name(id), failed.back()));
    }
  throw Error(Code::data_loss, fmt::format("no node has a whole '{}': {}", manifest_name(id),
                                           fmt::join(failed, "; ")));
}

NamedTensors NodeCheckpoints::read(const CheckpointId& id) {
  const Manifest m = manifest(id);
  return read_checkpoint(
      m,
      [&](const std::string& holder, const ShardEntry& shard) {
        const std::vector<std::string> there = node_.nodes();
        if (std::find(there.begin(), there.end(), holder) == there.end())
          throw Error(Code::unavailable, "it is not there");
        return node_.checkpoints().open(holder, m.training, shard);
      },
      log_);
}

std::function<void()> NodeCheckpoints::take(std::int64_t step, std::optional<double> metric,
                                            const Values& values) {
  Manifest m;
  m.training = driver_.fence().training;
  m.driver = driver_.fence().driver;
  m.id = {step, driver_.fence().epoch};
  m.metric = metric;
  // Values of other nodes stay there; this one brings those whose node is not known.
  std::map<std::string, CheckpointRequest> by_node;
  for (const Value& v : values) {
    const std::string& home = v.node.empty() ? node_.name() : v.node;
    CheckpointRequest& ask = by_node.try_emplace(home, request(RequestKind::take)).first->second;
    ask.step = step;
    if (v.node.empty()) {
      ask.text += v.name + "\n";
      ask.tensors.push_back(node_.engine().get(v.variable.value()));
    } else {
      ask.names.push_back(v.name);
    }
  }
  std::vector<std::string> nodes;
  Requests taking(node_.checkpoints());
  for (auto& [node, ask] : by_node) {
    for (const Value& v : values)
      if (v.variable && (v.node.empty() ? node_.name() : v.node) == node)
        m.values.push_back({v.name, v.variable->dtype(), v.variable->shape(),
                            static_cast<std::int64_t>(nodes.size())});
    nodes.push_back(node);
    taking.start(node, std::move(ask));
  }
  taking.await([](const std::string&, const CheckpointService::Reply&) {});
  return [this, m = std::move(m), nodes = std::move(nodes)] { write(m, nodes); };
}

void NodeCheckpoints::write(Manifest m, const std::vector<std::string>& nodes) {
  const std::vector<std::string> among = keepers();
  m.shards.resize(nodes.size());
  {
    Requests writing(node_.checkpoints());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      CheckpointRequest ask = request(RequestKind::write);
      ask.step = m.id.step;
      ask.text = m.shards[i].file = shard_name(m.id, i);
      ask.names = holders(nodes[i], among, i);
      writing.start(nodes[i], std::move(ask));
    }
    std::size_t i = 0;
    writing.await([&](const std::string& node, const CheckpointService::Reply& reply) {
      i = static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
      auto written = unpacked_as<WrittenShard>(reply.value);
      m.shards[i].bytes = written.bytes;
      m.shards[i].sums = std::move(written.sums);
      m.shards[i].holders = std::move(written.holders);
      for (const std::string& failed : written.failed)
        if (log_)
          log_(fmt::format("step {}: {} has no copy on {}", m.id.step, m.shards[i].file, failed));
    });
  }
  m.time = seconds_of(node_.checkpoints().time_ns());
  const std::string bytes = text_of(m);
  Requests committing(node_.checkpoints());
  std::optional<Error> failed;  // the first
  for (const std::string& node : among) try {
      CheckpointRequest ask = request(RequestKind::commit);
      ask.step = m.id.step;
      ask.number = m.id.epoch;
      ask.tensors = {bytes_tensor(bytes.data(), bytes.size())};
      committing.start(node, std::move(ask));
    } catch (const Error& e) {  // it has left
      if (!failed) failed = e;
    }
  std::size_t committed = 0;
  try {
    committing.await([&](const std::string&, const CheckpointService::Reply&) { ++committed; });
  } catch (const Error& e) {
    if (!failed) failed = e;
  }
  // One manifest makes the checkpoint.
  if (!failed) return;
  if (committed == 0) throw *failed;
  if (log_) log_(fmt::format("step {}: a manifest is missing: {}", m.id.step, failed->what()));
}

void NodeCheckpoints::prune(const CheckpointPolicy& policy, std::int64_t written) {
  std::vector<CheckpointFolder::Entry> entries;
  const std::vector<CheckpointId> ids = all();
  for (const CheckpointId& id : ids) {
    CheckpointFolder::Entry e;
    e.step = id.step;
    if (policy.best || policy.span.count() > 0) try {
        const Manifest m = manifest(id);
        e.time = m.time;
        e.metric = m.metric;
      } catch (const Error&) {  // a damaged one is no best one
      }
    entries.push_back(std::move(e));
  }
  const std::vector<bool> stays = kept_by(policy, entries, written);
  std::vector<CheckpointId> stay;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (stays[i]) stay.push_back(ids[i]);
  try {
    Requests pruning(node_.checkpoints());
    for (const std::string& node : keepers()) {
      CheckpointRequest ask = request(RequestKind::prune);
      ask.tensors = {packed(stay)};
      pruning.start(node, std::move(ask));
    }
    pruning.await([](const std::string&, const CheckpointService::Reply&) {});
  } catch (const Error& e) {  // files that stay take room, and do no harm
    if (log_) log_(fmt::format("checkpoints that are not kept stay: {}", e.what()));
  }
}

}  // namespace troupe::detail
