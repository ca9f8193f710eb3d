// Files of shards: written with the checksums of their chunks, and read with each chunk compared.
//
//   ShardSums sums = write_shard(disk, path, image);
//   CheckedFile file(disk.open(path), entry);      // `entry` of a manifest
//   NamedTensors values = load_tensors(file).tensors;
//
// Threads: a file one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/manifest.hpp>
#include <troupe/ops/format/disk.hpp>
#include <troupe/ops/format/tensor_image.hpp>

namespace troupe {

struct ShardSums {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> sums;  // as in a ShardEntry
};

/// Throws as `WritableFile::write`.
ShardSums write_shard(detail::Disk& disk, const std::string& path, const TensorImage& image);

/// A file that returns no byte of a chunk whose checksum differs: `read` throws data_loss, naming
/// the file and the chunk. Chunks are read as they are asked for.
class CheckedFile final : public detail::ReadableFile {
 public:
  /// Throws data_loss for a file of another length.
  CheckedFile(std::unique_ptr<detail::ReadableFile> file, ShardEntry entry);
  void read(std::uint64_t at, void* data, std::size_t bytes) override;

 private:
  void read_chunk(std::uint64_t chunk, char* data, std::size_t bytes);

  const std::unique_ptr<detail::ReadableFile> file_;
  const ShardEntry entry_;
  std::vector<char> buffer_;  // the chunk `buffered_`, which was read in part
  std::uint64_t buffered_ = UINT64_MAX;
};

/// Opens a shard's file at one of its holders. Throws if that cannot be done.
using OpenShard = std::function<std::unique_ptr<detail::ReadableFile>(const std::string& holder,
                                                                      const ShardEntry& shard)>;

/// Reads the values of a shard from the first of its holders where it is whole. `log` gets a line
/// for each copy that is not. Throws data_loss, naming file and chunk of each copy, if there is
/// none; unavailable instead if one of its holders could not be asked.
NamedTensors read_shard(const Manifest& manifest, const ShardEntry& shard, const OpenShard& open,
                        const std::function<void(const std::string& line)>& log);
/// Reads those of all shards of a checkpoint. Throws as `read_shard`.
NamedTensors read_checkpoint(const Manifest& manifest, const OpenShard& open,
                             const std::function<void(const std::string& line)>& log);

}  // namespace troupe
