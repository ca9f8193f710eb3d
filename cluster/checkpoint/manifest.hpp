// The manifest of a checkpoint whose shards are on the disks of several nodes: which shards there
// are, which nodes have a copy of each, and a checksum for each of their chunks.
//
//   Manifest m;  ...  write_text(disk, "step-40.epoch-3.json", text_of(m));
//   Manifest read = manifest_of(read_text(disk, path), path);
//
//   step-40.epoch-3.json                       this, as JSON with a checksum of its own
//   step-40.epoch-3.shard-0.safetensors        variables, in a file that any tool reads
//   step-40.epoch-3.shard-1.safetensors
//
// A **chunk** is 1 MiB of a shard's file; the last one is shorter. Its checksum is the CRC-64/XZ of
// the file from its beginning to the chunk's end, so that the last is the file's, and one pass
// makes them all.
//
// Threads: any.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

inline constexpr std::uint64_t kCheckpointChunk = 1 << 20;  // bytes

/// Checkpoints of one training, older ones first.
struct CheckpointId {
  std::int64_t step = 0;
  std::uint64_t epoch = 0;  // its driver's
  auto operator<=>(const CheckpointId&) const = default;
};

struct ShardEntry {
  std::string file;  // its name, the same on each holder
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> sums;   // a chunk's each
  std::vector<std::string> holders;  // nodes, in the order in which they are asked
};

struct Manifest {
  struct Value {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::int64_t shard = 0;  // index into `shards`
  };
  std::string training, driver;
  CheckpointId id;
  std::int64_t time = 0;         // seconds since 1970
  std::optional<double> metric;  // lower is better
  std::map<std::string, std::string> metadata;
  std::vector<ShardEntry> shards;
  std::vector<Value> values;
};

/// Returns the names of a checkpoint's files.
std::string manifest_name(const CheckpointId& id);
std::string shard_name(const CheckpointId& id, std::size_t shard);
/// Returns the checkpoint that a file's name is of; nothing if it is no such file.
std::optional<CheckpointId> checkpoint_of_name(const std::string& file, bool& is_manifest);
/// True for a name that may be a training's, which is the name of a folder too.
bool is_training_name(const std::string& name);

std::string text_of(const Manifest& manifest);
/// Throws data_loss, naming `path`, for a text that is damaged or no manifest, and unimplemented
/// for one of a newer version.
Manifest manifest_of(const std::string& text, const std::string& path);

}  // namespace troupe
