#include <troupe/cluster/checkpoint/node_folders.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

std::vector<CheckpointId> NodeFolders::all() const {
  std::set<CheckpointId> found;
  for (const std::string& folder : folders_)
    for (const std::string& name : disk_.names(folder)) {
      bool is_manifest = false;
      const auto id = checkpoint_of_name(name, is_manifest);
      if (id && is_manifest) found.insert(*id);
    }
  return {found.begin(), found.end()};
}

Manifest NodeFolders::manifest(const CheckpointId& id) const {
  std::vector<std::string> failed;
  for (const std::string& folder : folders_) try {
      const std::string path = fmt::format("{}/{}", folder, manifest_name(id));
      return manifest_of(read_text(disk_, path), path);
    } catch (const Error& e) { failed.push_back(e.what()); }
  throw Error(Code::data_loss, fmt::format("{}", fmt::join(failed, "; ")));
}

NamedTensors NodeFolders::read(const CheckpointId& id) const {
  Manifest m = manifest(id);
  // Folders are asked in place of the nodes that have a shard.
  for (ShardEntry& shard : m.shards) shard.holders = folders_;
  return read_checkpoint(m,
                         [&](const std::string& folder, const ShardEntry& shard) {
                           return disk_.open(fmt::format("{}/{}", folder, shard.file));
                         },
                         {});
}

std::size_t NodeFolders::verify(const Manifest& manifest) const {
  std::size_t found = 0;
  for (const ShardEntry& shard : manifest.shards) {
    bool is_there = false;
    for (const std::string& folder : folders_) try {
        CheckedFile file(disk_.open(fmt::format("{}/{}", folder, shard.file)), shard);
        static_cast<void>(load_tensors(file));
        is_there = true;
      } catch (const Error& e) {
        if (e.code() != Code::not_found) throw;
      }
    found += is_there;
  }
  return found;
}

}  // namespace troupe
