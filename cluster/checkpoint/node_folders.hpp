// The checkpoints of one training in the folders of nodes, read without a cluster: those of one
// node, or of several whose disks are mounted or were copied.
//
//   NodeFolders folders(real_disk(), {"/var/lib/troupe/checkpoints/demo"});
//   for (const CheckpointId& id : folders.all()) NamedTensors values = folders.read(id);
//
// Threads: any. Files may come and go.
#pragma once

#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/shard_file.hpp>

namespace troupe {

class NodeFolders {
 public:
  NodeFolders(detail::Disk& disk, std::vector<std::string> folders)
      : disk_(disk), folders_(std::move(folders)) {}

  /// Returns the checkpoints with a manifest in a folder, in order.
  std::vector<CheckpointId> all() const;
  /// Returns the first whole manifest. Throws data_loss, naming each that is not.
  Manifest manifest(const CheckpointId& id) const;
  /// Throws data_loss, naming file and chunk, if a shard is whole in no folder.
  NamedTensors read(const CheckpointId& id) const;
  /// Compares each shard that is in a folder with its checksums. Returns how many of the shards
  /// there are; throws data_loss, naming file and chunk, for one that is damaged.
  std::size_t verify(const Manifest& manifest) const;

 private:
  detail::Disk& disk_;
  const std::vector<std::string> folders_;
};

}  // namespace troupe
