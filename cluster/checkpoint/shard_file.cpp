#include <troupe/cluster/checkpoint/shard_file.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/crc64.hpp>

namespace troupe {
namespace {

// Writes pieces to a file, and sums each chunk while it is in the processor's cache.
class SummingWriter {
 public:
  explicit SummingWriter(WritableFile& file) : file_(file) {}
  void write(const char* data, std::size_t bytes) {
    while (bytes > 0) {
      const std::size_t n =
          std::min<std::uint64_t>(bytes, kCheckpointChunk - written_ % kCheckpointChunk);
      sum_ = crc64(data, n, sum_);
      file_.write(data, n);
      written_ += n;
      data += n;
      bytes -= n;
      if (written_ % kCheckpointChunk == 0) sums_.push_back(sum_);
    }
  }
  ShardSums take() {
    if (written_ % kCheckpointChunk != 0) sums_.push_back(sum_);
    return {written_, std::move(sums_)};
  }

 private:
  WritableFile& file_;
  std::uint64_t written_ = 0, sum_ = 0;
  std::vector<std::uint64_t> sums_;
};

}  // namespace

ShardSums write_shard(Disk& disk, const std::string& path, const TensorImage& image) {
  const std::unique_ptr<WritableFile> file = disk.create(path, image.bytes);
  SummingWriter writer(*file);
  writer.write(image.head.data(), image.head.size());
  for (const Tensor& t : image.data) writer.write(static_cast<const char*>(t.raw()), t.bytes());
  file->place();
  return writer.take();
}

CheckedFile::CheckedFile(std::unique_ptr<ReadableFile> file, ShardEntry entry)
    : ReadableFile(file->path(), file->size()), file_(std::move(file)), entry_(std::move(entry)) {
  if (size() != entry_.bytes)
    throw Error(Code::data_loss,
                fmt::format("'{}' has {} bytes, and {} when it was written: it is damaged in chunk "
                            "{}",
                            path(), size(), entry_.bytes,
                            std::min(size(), entry_.bytes) / kCheckpointChunk));
}

void CheckedFile::read(std::uint64_t at, void* data, std::size_t bytes) {
  if (at > size() || bytes > size() - at)
    throw Error(Code::data_loss, fmt::format("'{}' has {} bytes, and {} from byte {} on are asked "
                                             "for",
                                             path(), size(), bytes, at));
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const std::uint64_t chunk = at / kCheckpointChunk, begin = chunk * kCheckpointChunk;
    const auto length = static_cast<std::size_t>(std::min(kCheckpointChunk, size() - begin));
    std::size_t n = length;
    if (at == begin && bytes >= length) {
      read_chunk(chunk, p, length);
    } else {
      if (buffered_ != chunk) {
        buffer_.resize(length);
        buffered_ = UINT64_MAX;
        read_chunk(chunk, buffer_.data(), length);
        buffered_ = chunk;
      }
      const auto from = static_cast<std::size_t>(at - begin);
      n = std::min(bytes, length - from);
      std::memcpy(p, buffer_.data() + from, n);
    }
    p += n;
    at += n;
    bytes -= n;
  }
}

void CheckedFile::read_chunk(std::uint64_t chunk, char* data, std::size_t bytes) {
  const std::uint64_t begin = chunk * kCheckpointChunk;
  file_->read(begin, data, bytes);
  const auto i = static_cast<std::size_t>(chunk);
  const std::uint64_t sum = crc64(data, bytes, i == 0 ? 0 : entry_.sums[i - 1]);
  if (sum != entry_.sums[i])
    throw Error(Code::data_loss,
                fmt::format("'{}' is damaged in chunk {}, bytes {} to {}: its checksum is {:016x}, "
                            "not {:016x} as its manifest has it",
                            path(), chunk, begin, begin + bytes - 1, sum, entry_.sums[i]));
}

NamedTensors read_shard(const Manifest& manifest, const ShardEntry& shard, const OpenShard& open,
                        const std::function<void(const std::string& line)>& log) {
  std::vector<std::string> failed;
  bool is_away = false;
  for (const std::string& holder : shard.holders) try {
      CheckedFile file(open(holder, shard), shard);
      return load_tensors(file).tensors;
    } catch (const Error& e) {
      failed.push_back(fmt::format("on node '{}': {}", holder, e.what()));
      is_away = is_away || e.code() == Code::unavailable;
      if (log) log(fmt::format("{} {}", shard.file, failed.back()));
    }
  throw Error(is_away ? Code::unavailable : Code::data_loss,
              fmt::format("shard '{}' of the checkpoint of step {} is whole on no node: {}",
                          shard.file, manifest.id.step, fmt::join(failed, "; ")));
}

NamedTensors read_checkpoint(const Manifest& manifest, const OpenShard& open,
                             const std::function<void(const std::string& line)>& log) {
  NamedTensors values;
  for (const ShardEntry& shard : manifest.shards)
    for (auto& value : read_shard(manifest, shard, open, log)) values.push_back(std::move(value));
  return values;
}

}  // namespace troupe
