// Files on a disk, through one seam: the real disk, and faulty ones in tests.
//
//   Disk& disk = real_disk();
//   std::unique_ptr<WritableFile> file = disk.create("model.safetensors", bytes);
//   file->write(data, bytes);
//   file->place();                                    // on disk under its name from here on
//   std::unique_ptr<ReadableFile> old = disk.open("model.safetensors");
//   old->read(0, data, bytes);
//
// Threads: a disk serves any, a file one at a time. Ownership: a disk outlives its files.
//
// Invariants:
// 1. A file is whole or not there: it is written without a name or under another, synced, then
//    renamed over the earlier one. A failure does not change that one.
// 2. `place` returns after the contents and the name are on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace detail {

/// A new file. Its destructor removes what was not placed.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Appends bytes. Throws resource_exhausted if the disk is full, failed_precondition for any
  /// other trouble.
  virtual void write(const void* data, std::size_t bytes) = 0;
  /// Puts the file under its name. Throws as `write`. Called once, last.
  virtual void place() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  /// The name in error texts.
  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Reads bytes from position `at` on. Throws data_loss if the file has fewer, failed_precondition
  /// if the disk fails.
  virtual void read(std::uint64_t at, void* data, std::size_t bytes) = 0;

 protected:
  ReadableFile(std::string path, std::uint64_t size) : path_(std::move(path)), size_(size) {}

 private:
  const std::string path_;
  const std::uint64_t size_;
};

/// The lock of a file, held until this is destroyed or the process ends.
class DiskLock {
 public:
  virtual ~DiskLock() = default;
};

class Disk {
 public:
  virtual ~Disk() = default;
  /// Begins a file of so many bytes, which error texts name. Keeps the mode of an existing file;
  /// for a symbolic link, replaces the file that it points to. Throws as `WritableFile::write`.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) = 0;
  /// Throws not_found if there is no file, failed_precondition if it cannot be read.
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  /// Returns the names in a folder, in order; none if there is no folder.
  virtual std::vector<std::string> names(const std::string& folder) = 0;
  /// Makes a folder and those above it. Throws failed_precondition.
  virtual void make_folder(const std::string& folder) = 0;
  /// Waits until no other owner, of whatever process, has the lock of this file, and takes it.
  /// Makes the file, which is empty and stays. Throws failed_precondition.
  virtual std::unique_ptr<DiskLock> lock(const std::string& path) = 0;
  /// Removes a file, if it is there. Throws failed_precondition.
  virtual void remove(const std::string& path) = 0;
};

}  // namespace detail

/// The disk of this machine.
detail::Disk& real_disk();

/// Returns a small file's contents. Throws as `Disk::open` and `ReadableFile::read`.
std::string read_text(detail::Disk& disk, const std::string& path);
/// Replaces a small file. Throws as `WritableFile::write`.
void write_text(detail::Disk& disk, const std::string& path, const std::string& text);

}  // namespace troupe
