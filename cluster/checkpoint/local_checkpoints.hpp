// Checkpoints on one node's disk, without a cluster: a shard with checksums and its manifest, as
// those of a training. The tools that read checkpoints of nodes read them, too.
//
//   LocalCheckpoints files(real_disk(), "/var/lib/troupe/checkpoints", "demo");
//   const CheckpointId id = files.save(objects.values(), 40);           // an ObjectCheckpoint's
//   Restoration r = objects.restore(files.read(files.all().back()));
//
//   FOLDER/demo/step-40.epoch-1.json                       the manifest, which has the metadata
//   FOLDER/demo/step-40.epoch-1.shard-0.safetensors        the values
//
//   FOLDER/demo/lock                                       held while a checkpoint is saved
//
// Each LocalCheckpoints that saves is a driver of the training (checkpoint_store.hpp), later than
// the ones before it, of whatever process, which are refused from then on: a save reads the last
// epoch from the disk under the lock. Threads: one at a time. Ownership: the disk outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/checkpoint_store.hpp>
#include <troupe/cluster/checkpoint/manifest.hpp>
#include <troupe/ops/format/safetensors.hpp>

namespace troupe {

class LocalCheckpoints {
 public:
  /// Throws failed_precondition if the folder cannot be made, and invalid_argument for a name that
  /// is no training's.
  LocalCheckpoints(Disk& disk, std::string folder, std::string training);

  /// Throws failed_precondition if a later driver has saved, and as `Disk::create`.
  CheckpointId save(const TensorFile& values, std::int64_t step);
  /// Returns the checkpoints that there are, in order.
  std::vector<CheckpointId> all() const;
  /// Throws not_found, and data_loss, naming file and chunk, for one that is damaged.
  TensorFile read(const CheckpointId& id) const;

 private:
  Disk& disk_;
  const std::string folder_, training_;
  Fence driver_;  // its name is empty before the first save
};

}  // namespace troupe
