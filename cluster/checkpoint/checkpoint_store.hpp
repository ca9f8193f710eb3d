// The checkpoints on one node's own disk, and the drivers that it obeys.
//
//   CheckpointStore store(real_disk(), "/var/lib/troupe/checkpoints", "worker1");
//   store.claim({"demo", 3, "a"});                       // driver a, in epoch 3
//   ShardSums sums = store.write({"demo", 3, "a"}, shard_name(id, 0), values);
//   store.commit({"demo", 3, "a"}, id, text_of(manifest));
//
//   FOLDER/demo/epoch                                    the driver, with a checksum
//   FOLDER/demo/step-40.epoch-3.json                     a manifest
//   FOLDER/demo/step-40.epoch-3.shard-0.safetensors      a shard, or a copy of one
//
// A **driver** of a training has an **epoch**, which is greater than that of each driver before.
// The node refuses what a driver of an earlier epoch asks for, so that two drivers never act at a
// time. Without a folder the store keeps epochs alone, in memory.
//
// Threads: any; a file is written by one thread at a time. Ownership: the disk outlives the store.
//
// Invariants:
// 1. An epoch is on the disk before `claim` returns, and never goes down.
// 2. A manifest is written after all shards that it names, on whichever nodes, are on disks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/shard_file.hpp>
#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

class CheckpointStore {
 public:
  /// `folder`: empty for none. `node`: this node's name, for error texts. Throws
  /// failed_precondition if the folder cannot be made.
  CheckpointStore(detail::Disk& disk, std::string folder, std::string node);

  bool has_folder() const { return !folder_.empty(); }
  /// Returns the drivers that were accepted last, by training; of one that is known by its files
  /// alone, the name of the driver is empty.
  std::map<std::string, Fence> fences() const;
  /// Accepts a driver. Throws failed_precondition, naming both drivers, unless its epoch is later
  /// than the last, or it is that of the same driver; invalid_argument for names and epochs that
  /// cannot be; resource_exhausted for too many trainings, and if the disk is full: this process
  /// obeys the driver then too.
  void claim(const Fence& fence);
  /// Throws failed_precondition if a later driver was accepted.
  void check(const Fence& fence) const;
  /// Throws as `check`, and unless a driver of this training was accepted.
  void require_driver(const Fence& fence) const;

  /// Writes a shard. Throws as `require_driver` and `Disk::create`, and failed_precondition without
  /// a folder. A driver writes no files of a later epoch than its own.
  ShardSums write(const Fence& fence, const std::string& file, const NamedTensors& values);
  void commit(const Fence& fence, const CheckpointId& id, const std::string& manifest);
  /// Removes the checkpoints of a training that are not among these, and shards without a manifest,
  /// but nothing of a step later than the last of these. Returns how many files it removed.
  std::size_t keep_only(const Fence& fence, const std::vector<CheckpointId>& stay);

  /// Returns the checkpoints of which there is a manifest here, in order.
  std::vector<CheckpointId> checkpoints(const std::string& training) const;
  /// Returns a manifest's text, unchecked. Throws not_found.
  std::string manifest(const std::string& training, const CheckpointId& id) const;
  /// Throws not_found, and invalid_argument for a name that is no shard's.
  std::unique_ptr<detail::ReadableFile> open(const std::string& training,
                                             const std::string& file) const;

 private:
  std::string path(const std::string& training, const std::string& file) const;
  void require_folder() const;
  void refuse_if_older(const Fence& fence) const;

  detail::Disk& disk_;
  const std::string folder_, node_;

  mutable std::mutex mutex_;  // guards fences_; held while an epoch is written
  std::map<std::string, Fence> fences_;
};

}  // namespace troupe
