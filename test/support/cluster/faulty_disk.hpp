// A disk with the faults of real ones: full, read-only, torn, damaged. Files are on the real disk.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/disk.hpp>

namespace troupe::test {

class FaultyDisk final : public Disk {
 public:
  std::atomic<std::int64_t> room{INT64_MAX};  // bytes until it is full
  std::atomic<bool> is_read_only{false};
  /// A file that is placed has lost what follows this many bytes, as after a power failure of a
  /// disk that reports syncs too early; negative: none is.
  std::atomic<std::int64_t> torn_after{-1};
  std::atomic<std::int64_t> flipped{-1};  // the position of a byte that reads wrong; negative: none
  std::atomic<int> writes{0}, places{0};

  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override {
    if (is_read_only) throw Error(Code::failed_precondition, "the disk is read-only: " + path);
    return std::make_unique<Written>(*this, path, bytes);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return std::make_unique<Read>(*this, real_disk().open(path));
  }
  std::vector<std::string> names(const std::string& folder) override {
    return real_disk().names(folder);
  }
  void make_folder(const std::string& folder) override { real_disk().make_folder(folder); }
  std::unique_ptr<DiskLock> lock(const std::string& path) override {
    return real_disk().lock(path);
  }
  void remove(const std::string& path) override {
    if (is_read_only) throw Error(Code::failed_precondition, "the disk is read-only: " + path);
    real_disk().remove(path);
  }

 private:
  class Written final : public WritableFile {
   public:
    Written(FaultyDisk& disk, const std::string& path, std::uint64_t bytes)
        : disk_(disk), path_(path), file_(real_disk().create(path, bytes)) {}
    void write(const void* data, std::size_t bytes) override {
      ++disk_.writes;
      if ((disk_.room -= static_cast<std::int64_t>(bytes)) < 0)
        throw Error(Code::resource_exhausted, "the disk is full: " + path_);
      const std::int64_t most = disk_.torn_after;
      const std::size_t kept =
          most < 0 ? bytes
                   : std::min(bytes, static_cast<std::size_t>(std::max<std::int64_t>(
                                         0, most - static_cast<std::int64_t>(written_))));
      written_ += bytes;
      file_->write(data, kept);
    }
    void place() override {
      ++disk_.places;
      file_->place();
    }

   private:
    FaultyDisk& disk_;
    const std::string path_;
    const std::unique_ptr<WritableFile> file_;
    std::size_t written_ = 0;
  };
  class Read final : public ReadableFile {
   public:
    Read(FaultyDisk& disk, std::unique_ptr<ReadableFile> file)
        : ReadableFile(file->path(), file->size()), disk_(disk), file_(std::move(file)) {}
    void read(std::uint64_t at, void* data, std::size_t bytes) override {
      file_->read(at, data, bytes);
      const std::int64_t flipped = disk_.flipped;
      if (flipped < 0 || static_cast<std::uint64_t>(flipped) < at ||
          static_cast<std::uint64_t>(flipped) - at >= bytes)
        return;
      static_cast<unsigned char*>(data)[static_cast<std::uint64_t>(flipped) - at] ^= 0x10;
    }

   private:
    FaultyDisk& disk_;
    const std::unique_ptr<ReadableFile> file_;
  };
};

}  // namespace troupe::test
