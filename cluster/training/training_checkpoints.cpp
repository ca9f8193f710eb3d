#include <troupe/cluster/training/training_checkpoints.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/training/checkpoint_requests.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
namespace {

using RequestKind = CheckpointRequest::Kind;

std::int64_t seconds_of(std::int64_t ns) { return ns / 1'000'000'000; }

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
    if (v.variable || v.given) {
      taken.emplace_back(v.name, v.given ? *v.given : node_.engine().get(*v.variable));
      continue;
    }
    CheckpointRequest& ask = by_node[v.node];
    ask.kind = RequestKind::take;
    ask.fence = driver_.fence();
    ask.step = step;
    ask.number = place_;
    ask.names.push_back(v.name);
  }
  for (auto& [node, ask] : by_node) {
    CheckpointRequest fetch;
    fetch.kind = RequestKind::fetch;
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

CheckpointRequest NodeCheckpoints::request(RequestKind kind) const {
  CheckpointRequest m;
  m.kind = kind;
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
  missing_.clear();
  for (const auto& [node, report] : node_.checkpoints().look())
    for (const TrainingsReport::Entry& e : report.trainings) {
      if (e.training != driver_.fence().training) continue;
      for (const CheckpointId& id : e.checkpoints) found_[id].push_back(node);
      if (e.progress.checkpoint >= 0)
        missing_ = fmt::format(
            "node '{}' knows of the checkpoint of step {} of training '{}', and "
            "no node that has it is there; start one, or give the training "
            "another name to begin at step 0",
            node, e.progress.checkpoint, e.training);
    }
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

OpenShard NodeCheckpoints::opener(const Manifest& m) {
  return [this, training = m.training](const std::string& holder, const ShardEntry& shard) {
    const std::vector<std::string> there = node_.nodes();
    if (std::find(there.begin(), there.end(), holder) == there.end())
      throw Error(Code::unavailable, "it is not there");
    return node_.checkpoints().open(holder, training, shard);
  };
}

NamedTensors NodeCheckpoints::read(const CheckpointId& id) {
  const Manifest m = manifest(id);
  return read_checkpoint(m, opener(m), log_);
}

namespace {

using Homes = std::map<std::string, std::string>;

// The nodes of the program's variables, if these are exactly those of the checkpoint.
std::optional<Homes> homes_of(const Manifest& m, const TrainingCheckpoints::Values& program) {
  std::map<std::string, const TrainingCheckpoints::Value*> wanted;
  for (const TrainingCheckpoints::Value& v : program) {
    if (!v.variable) return std::nullopt;  // manifests do not name queues and actors
    wanted[v.name] = &v;
  }
  Homes homes;
  for (const Manifest::Value& v : m.values) {
    const auto is = wanted.find(v.name);
    if (is == wanted.end() || is->second->variable->dtype() != v.dtype ||
        is->second->variable->shape() != v.shape)
      return std::nullopt;
    homes[v.name] = is->second->node;
  }
  return homes.size() == wanted.size() ? std::optional(homes) : std::nullopt;
}

}  // namespace

NamedTensors NodeCheckpoints::restore(const CheckpointId& id, const Values& program,
                                      std::set<std::string>& set) {
  const Manifest m = manifest(id);
  const std::optional<Homes> homes = homes_of(m, program);
  if (!homes) return read_checkpoint(m, opener(m), log_);
  std::vector<std::map<std::string, std::vector<std::string>>> by_home(m.shards.size());
  std::vector<std::set<std::string>> others(m.shards.size());
  std::vector<std::uint64_t> counts(m.shards.size());
  for (const Manifest::Value& v : m.values) {
    const auto s = static_cast<std::size_t>(v.shard);
    const std::vector<std::string>& holders = m.shards[s].holders;
    const std::string& home = homes->at(v.name);
    ++counts[s];
    if (std::find(holders.begin(), holders.end(), home) == holders.end()) others[s].insert(v.name);
    else by_home[s][home].push_back(v.name);
  }
  std::set<std::string> set_there;
  try {
    CheckpointRequests putting(node_.checkpoints());
    for (std::size_t s = 0; s < m.shards.size(); ++s)
      for (auto& [home, names] : by_home[s]) {
        CheckpointRequest ask = request(RequestKind::put);
        ask.text = m.shards[s].file;
        ask.tensors = {packed(WrittenShard{m.shards[s].bytes, m.shards[s].sums, {}, {}})};
        ask.count = counts[s];
        set_there.insert(names.begin(), names.end());
        ask.names = std::move(names);
        putting.start(home, std::move(ask));
      }
    putting.await();
  } catch (const Error& e) {
    if (log_) log_(fmt::format("nodes do not restore {} by themselves: {}", text(id), e.what()));
    return read_checkpoint(m, opener(m), log_);
  }
  NamedTensors values;
  for (std::size_t s = 0; s < m.shards.size(); ++s)
    if (!others[s].empty())
      for (auto& value : read_shard(m, m.shards[s], opener(m), log_))
        if (others[s].contains(value.first)) values.push_back(std::move(value));
  set.insert(set_there.begin(), set_there.end());
  return values;
}

std::function<void()> NodeCheckpoints::take(std::int64_t step, std::optional<double> metric,
                                            const Values& values) {
  Manifest m;
  m.training = driver_.fence().training;
  m.driver = driver_.fence().driver;
  m.id = {step, driver_.fence().epoch};
  m.metric = metric;
  // Values of other nodes stay there; this one brings its own, and those whose node is not known.
  std::map<std::string, CheckpointRequest> by_node;
  for (const Value& v : values) {
    const std::string& home = v.node.empty() ? node_.name() : v.node;
    CheckpointRequest& ask = by_node.try_emplace(home, request(RequestKind::take)).first->second;
    ask.step = step;
    if (v.node.empty() || v.given) {
      ask.text += v.name + "\n";
      ask.tensors.push_back(v.given ? *v.given : node_.engine().get(v.variable.value()));
    } else {
      ask.names.push_back(v.name);
    }
  }
  std::vector<std::string> nodes;
  CheckpointRequests taking(node_.checkpoints());
  for (auto& [node, ask] : by_node) {
    for (const Value& v : values)
      if (v.variable && (v.node.empty() ? node_.name() : v.node) == node)
        m.values.push_back({v.name, v.variable->dtype(), v.variable->shape(),
                            static_cast<std::int64_t>(nodes.size())});
    nodes.push_back(node);
    taking.start(node, std::move(ask));
  }
  taking.await();
  return [this, m = std::move(m), nodes = std::move(nodes)] { write(m, nodes); };
}

void NodeCheckpoints::write(Manifest m, const std::vector<std::string>& nodes) {
  const std::vector<std::string> among = keepers();
  m.shards.resize(nodes.size());
  {
    CheckpointRequests writing(node_.checkpoints());
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
  CheckpointRequests committing(node_.checkpoints());
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
    CheckpointRequests pruning(node_.checkpoints());
    for (const std::string& node : keepers()) {
      CheckpointRequest ask = request(RequestKind::prune);
      ask.tensors = {packed(stay)};
      pruning.start(node, std::move(ask));
    }
    pruning.await();
  } catch (const Error& e) {  // files that stay take room, and do no harm
    if (log_) log_(fmt::format("checkpoints that are not kept stay: {}", e.what()));
  }
}

}  // namespace troupe::detail
