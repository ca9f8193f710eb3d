// troupe checkpoint: lists, shows, verifies and exports the checkpoints of a training.
#include <troupe/apps/verbs/verbs.hpp>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/cluster/training/checkpoint_folder.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::verbs {
namespace {

std::string time_text(std::int64_t seconds) {
  if (seconds <= 0) return "-";
  const std::time_t at = seconds;
  std::tm utc{};
  gmtime_r(&at, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &utc);
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// A checkpoint as the verbs show it, in one folder or in those of nodes.
struct Shown {
  std::int64_t step = 0;
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t time = 0;
  std::optional<double> metric;
  CheckpointId id;  // in folders of nodes
};

class Source {
 public:
  virtual ~Source() = default;
  virtual std::vector<Shown> entries() const = 0;
  virtual TensorFileHead head(const Shown& shown) const = 0;
  virtual TensorFile read(const Shown& shown) const = 0;
  // The outcome for people. Throws for a checkpoint that is damaged.
  virtual std::string verify(const Shown& shown) const = 0;
  virtual const char* pattern() const = 0;  // names of its files
};

class OneFolder final : public Source {
 public:
  explicit OneFolder(const std::string& folder) : folder_(folder, false) {}
  std::vector<Shown> entries() const override {
    std::vector<Shown> all;
    for (const CheckpointFolder::Entry& e : folder_.entries())
      all.push_back({e.step, e.path, e.bytes, e.time, e.metric, {}});
    return all;
  }
  TensorFileHead head(const Shown& shown) const override {
    return read_safetensors_head(shown.path);
  }
  TensorFile read(const Shown& shown) const override { return folder_.read(shown.step); }
  std::string verify(const Shown& shown) const override {
    return fmt::format("{} variables, whole", folder_.read(shown.step).tensors.size());
  }
  const char* pattern() const override { return "step-N.safetensors"; }

 private:
  const CheckpointFolder folder_;
};

class OfNodes final : public Source {
 public:
  explicit OfNodes(std::vector<std::string> folders) : folders_(real_disk(), std::move(folders)) {}
  std::vector<Shown> entries() const override {
    std::vector<Shown> all;
    for (const CheckpointId& id : folders_.all()) {
      Shown& s = all.emplace_back();
      s.step = id.step;
      s.id = id;
      s.path = manifest_name(id);
      try {
        const Manifest m = folders_.manifest(id);
        for (const ShardEntry& shard : m.shards) s.bytes += shard.bytes;
        s.time = m.time;
        s.metric = m.metric;
      } catch (const Error&) {  // `verify` says why
      }
    }
    return all;
  }
  TensorFileHead head(const Shown& shown) const override {
    const Manifest m = folders_.manifest(shown.id);
    TensorFileHead head;
    head.metadata = m.metadata;
    head.metadata["troupe.driver"] = m.driver;
    head.metadata["troupe.epoch"] = std::to_string(m.id.epoch);
    head.metadata["troupe.step"] = std::to_string(m.id.step);
    for (const ShardEntry& shard : m.shards)
      head.metadata[shard.file] = fmt::format("on {}", fmt::join(shard.holders, ", "));
    for (const Manifest::Value& v : m.values) head.tensors.push_back({v.name, v.dtype, v.shape});
    return head;
  }
  TensorFile read(const Shown& shown) const override {
    return {folders_.read(shown.id), {{"troupe.step", std::to_string(shown.step)}}, true};
  }
  std::string verify(const Shown& shown) const override {
    const Manifest m = folders_.manifest(shown.id);
    const std::size_t found = folders_.verify(m);
    if (found == m.shards.size()) return fmt::format("{} variables, whole", m.values.size());
    return fmt::format("{} of {} shards are here, whole; name folders of other nodes (--with)",
                       found, m.shards.size());
  }
  const char* pattern() const override { return "step-N.epoch-M.json"; }

 private:
  const NodeFolders folders_;
};

std::unique_ptr<Source> source_of(const CheckpointFlags& flags) {
  std::vector<std::string> folders{flags.folder};
  folders.insert(folders.end(), flags.with.begin(), flags.with.end());
  if (!NodeFolders(real_disk(), folders).all().empty())
    return std::make_unique<OfNodes>(std::move(folders));
  return std::make_unique<OneFolder>(flags.folder);
}

// The entry of the step asked for, or the newest.
Shown entry_of(const Source& source, const CheckpointFlags& flags) {
  const std::vector<Shown> all = source.entries();
  if (all.empty())
    throw std::runtime_error(printable(fmt::format("'{}' has no checkpoint: no file is named {}",
                                                   flags.folder, source.pattern())));
  if (flags.step < 0) return all.back();
  for (auto e = all.rbegin(); e != all.rend(); ++e)
    if (e->step == flags.step) return *e;
  std::vector<std::string> steps;
  for (const Shown& e : all) steps.push_back(std::to_string(e.step));
  throw std::runtime_error(
      printable(fmt::format("'{}' has no checkpoint of step {}; there are {}", flags.folder,
                            flags.step, fmt::join(steps, ", "))));
}

int list(const Source& source, const CheckpointFlags& flags) {
  nlohmann::json rows = nlohmann::json::array();
  if (!flags.json) fmt::print("{:>12}  {:>10}  {:20}  {}\n", "step", "size", "written", "metric");
  for (const Shown& e : source.entries()) {
    if (flags.json) {
      rows.push_back({{"step", e.step}, {"path", e.path}, {"bytes", e.bytes}, {"time", e.time}});
      if (e.metric) rows.back()["metric"] = *e.metric;
      continue;
    }
    fmt::print("{:>12}  {:>10}  {:20}  {}\n", e.step, bytes_text(e.bytes), time_text(e.time),
               e.metric ? fmt::format("{:g}", *e.metric) : "-");
  }
  if (flags.json) fmt::print("{}\n", json_text(rows));
  return 0;
}

int show(const Source& source, const CheckpointFlags& flags) {
  const TensorFileHead head = source.head(entry_of(source, flags));
  if (flags.json) {
    nlohmann::json out{{"metadata", head.metadata}, {"variables", nlohmann::json::array()}};
    for (const auto& t : head.tensors)
      out["variables"].push_back(
          {{"name", t.name}, {"dtype", name_of(t.dtype)}, {"shape", t.shape.text()}});
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  for (const auto& [name, value] : head.metadata)
    fmt::print("{} = {}\n", printable(name), printable(value));
  std::vector<TensorFileHead::Entry> sorted = head.tensors;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& t : sorted)
    fmt::print("{}{}  {}\n", name_of(t.dtype), t.shape.text(), printable(t.name));
  return 0;
}

// All checkpoints, or the one that was named.
int verify(const Source& source, const CheckpointFlags& flags) {
  std::vector<Shown> all = source.entries();
  if (flags.step >= 0 || all.empty()) all = {entry_of(source, flags)};
  int status = 0;
  for (const Shown& e : all) try {
      fmt::print("step {}: {}\n", e.step, source.verify(e));
    } catch (const Error& error) {
      fmt::print("step {}: {}\n", e.step, printable(error.what()));
      status = 1;
    }
  return status;
}

int export_to(const Source& source, const CheckpointFlags& flags) {
  if (flags.to.empty())
    throw Misuse("'export' needs a file to write: troupe checkpoint export DIR --to FILE");
  const Shown e = entry_of(source, flags);
  TensorFile file = source.read(e);
  const auto is_variable = [&](const std::string& only) {
    return std::any_of(file.tensors.begin(), file.tensors.end(),
                       [&](const auto& t) { return t.first == only; });
  };
  // A variable's slots have names below its own, and an export of `w` is not for them.
  const auto takes = [&](const std::string& name) {
    return flags.only.empty() ||
           std::any_of(flags.only.begin(), flags.only.end(), [&](const std::string& only) {
             return name == only || (name.starts_with(only + "/") && !is_variable(only));
           });
  };
  NamedTensors chosen;
  for (const auto& [name, value] : file.tensors)
    if (takes(name)) chosen.emplace_back(name, value);
  if (chosen.empty())
    throw std::runtime_error(printable(
        fmt::format("the checkpoint of step {} has no variable named {}; 'troupe checkpoint show "
                    "{}' lists them",
                    e.step, fmt::join(flags.only, ", "), flags.folder)));
  save_safetensors(flags.to, chosen, file.metadata);
  fmt::print("{} variables of step {} in {}\n", chosen.size(), e.step, printable(flags.to));
  return 0;
}

}  // namespace

int checkpoint(const CheckpointFlags& flags) {
  try {
    const std::unique_ptr<Source> source = source_of(flags);
    if (flags.action == "list") return list(*source, flags);
    if (flags.action == "show") return show(*source, flags);
    if (flags.action == "verify") return verify(*source, flags);
    return export_to(*source, flags);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) throw Misuse(printable(error.what()));
    throw std::runtime_error(printable(error.what()));
  }
}

}  // namespace troupe::verbs
