#include <troupe/ops/format/disk.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/replaced_file.hpp>

namespace troupe {
namespace {

[[noreturn]] void refuse_to_write(const std::string& path, Code code, const std::string& why) {
  throw Error(code, fmt::format("cannot save '{}': {}", path, why));
}

[[noreturn]] void fail_to_write(const std::string& path, std::uint64_t bytes, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    refuse_to_write(path, Code::resource_exhausted,
                    fmt::format("the disk is full or a limit is reached ({}); {} bytes are needed "
                                "there{}; make room or name another place",
                                std::strerror(error), bytes,
                                access(path.c_str(), F_OK) == 0
                                    ? " for a moment, beside the earlier file, which is unchanged"
                                    : ""));
  refuse_to_write(path, Code::failed_precondition,
                  fmt::format("{}; name a place where files can be written", std::strerror(error)));
}

std::string directory_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// A file without a name until it is put in its place, so that nothing remains if the process is
// killed. If the file system has no such files, it has a temporary name, which is removed unless
// the file is put in its place. An earlier file's mode is kept. A symbolic link is kept, and the
// file that it points to is replaced.
class NewFile final : public WritableFile {
 public:
  NewFile(const std::string& path, std::uint64_t bytes)
      : old_(replaced_file(path)), path_(old_.path), bytes_(bytes) {
    if (old_.is_there && !old_.is_regular)
      refuse_to_write(path, Code::failed_precondition,
                      "it is there and no regular file; name another");
    if (path_.empty() || path_.back() == '/')
      refuse_to_write(path_, Code::failed_precondition, "this names no file");
    if (access("/proc/self/fd", X_OK) == 0)
      fd_ = open(directory_of(path_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, old_.mode);
    if (fd_ >= 0) return;
    name([&] {
      return fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, old_.mode);
    });
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() override {
    if (fd_ >= 0) close(fd_);
    if (is_named_ && !is_placed_) unlink(temporary_.c_str());
  }

  void write(const void* data, std::size_t bytes) override {
    auto* p = static_cast<const char*>(data);
    while (bytes > 0) {
      ssize_t n = ::write(fd_, p, std::min<std::size_t>(bytes, 1 << 30));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(n < 0 ? errno : ENOSPC);
      p += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }

  void place() override {
    if (!old_.hand_on(fd_)) fail(errno);
    if (fsync(fd_) != 0) fail(errno);
    if (!is_named_)
      name([&] {
        return linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", fd_).c_str(), AT_FDCWD,
                      temporary_.c_str(), AT_SYMLINK_FOLLOW);
      });
    if (close(std::exchange(fd_, -1)) != 0) fail(errno);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    is_placed_ = true;
    int directory = open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // a directory that can be written but not read: the name is then synced when the system does
    if (directory < 0) return;
    // EINVAL: a file system without
    int error = fsync(directory) != 0 && errno != EINVAL ? errno : 0;
    close(directory);
    if (error) fail(error);
  }

 private:
  // Tries names until `make` finds one that is not taken.
  template <class Make>
  void name(Make make) {
    // publishes nothing: two threads of a process need two names
    static std::atomic<unsigned> count{0};
    int made = -1;
    do temporary_ = fmt::format("{}.{}-{}.tmp", path_, getpid(), count++);
    while ((made = make()) < 0 && errno == EEXIST);
    if (made < 0) fail(errno);
    is_named_ = true;
  }
  // The destructor of an object whose constructor throws does not run; the file then was not made.
  [[noreturn]] void fail(int error) const { fail_to_write(path_, bytes_, error); }
  const ReplacedFile old_;
  const std::string path_;
  std::string temporary_;
  std::uint64_t bytes_;
  int fd_ = -1;
  bool is_named_ = false;
  bool is_placed_ = false;
};

class OldFile final : public ReadableFile {
 public:
  OldFile(const std::string& path, int fd, std::uint64_t size)
      : ReadableFile(path, size), fd_(fd) {}
  OldFile(const OldFile&) = delete;
  OldFile& operator=(const OldFile&) = delete;
  ~OldFile() override { close(fd_); }

  void read(std::uint64_t at, void* data, std::size_t bytes) override {
    auto* p = static_cast<char*>(data);
    while (bytes > 0) {
      ssize_t n = ::pread(fd_, p, std::min<std::size_t>(bytes, 1 << 30), static_cast<::off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        throw Error(Code::failed_precondition,
                    fmt::format("cannot read '{}': {}; name a file that can be read", path(),
                                std::strerror(errno)));
      if (n == 0)
        throw Error(Code::data_loss,
                    fmt::format("'{}' is truncated: it became shorter while it was read", path()));
      p += n;
      at += static_cast<std::uint64_t>(n);
      bytes -= static_cast<std::size_t>(n);
    }
  }

 private:
  const int fd_;
};

class FileLock final : public DiskLock {
 public:
  explicit FileLock(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    int locked = -1;
    do locked = fd_ < 0 ? -1 : flock(fd_, LOCK_EX);
    while (locked != 0 && errno == EINTR);
    if (locked == 0) return;
    const int error = errno;
    if (fd_ >= 0) close(fd_);
    throw Error(Code::failed_precondition,
                fmt::format("'{}' cannot be locked: {}; name a folder of a file system with locks",
                            path, std::strerror(error)));
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() override { close(fd_); }

 private:
  const int fd_;
};

class RealDisk final : public Disk {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) override {
    return std::make_unique<NewFile>(path, bytes);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    const auto refuse = [&](int fd, Code code, const char* why) {
      if (fd >= 0) close(fd);
      throw Error(code,
                  fmt::format("cannot read '{}': {}; name a file that can be read", path, why));
    };
    // O_NONBLOCK: opening a pipe would wait for a writer
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
      refuse(fd, errno == ENOENT || errno == ENOTDIR ? Code::not_found : Code::failed_precondition,
             std::strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0) refuse(fd, Code::failed_precondition, std::strerror(errno));
    if (!S_ISREG(info.st_mode)) refuse(fd, Code::failed_precondition, "it is no regular file");
    return std::make_unique<OldFile>(path, fd, static_cast<std::uint64_t>(info.st_size));
  }
  std::vector<std::string> names(const std::string& folder) override {
    std::vector<std::string> all;
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(folder, absent))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  void make_folder(const std::string& folder) override {
    std::error_code error;
    std::vector<std::string> missing;  // the innermost first
    for (std::string at = folder; at != "." && !std::filesystem::exists(at, error) && !error;
         at = directory_of(at))
      missing.push_back(at);
    error.clear();
    std::filesystem::create_directories(folder, error);
    if (error)
      throw Error(
          Code::failed_precondition,
          fmt::format("the folder '{}' cannot be made: {}; name another", folder, error.message()));
    // The names of new folders outlive a loss of power, as those of files do.
    for (const std::string& made : missing) {
      const int directory = ::open(directory_of(made).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (directory < 0) continue;
      static_cast<void>(fsync(directory));
      close(directory);
    }
  }
  std::unique_ptr<DiskLock> lock(const std::string& path) override {
    return std::make_unique<FileLock>(path);
  }
  void remove(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error)
      throw Error(Code::failed_precondition,
                  fmt::format("'{}' cannot be removed: {}", path, error.message()));
  }
};

}  // namespace

Disk& real_disk() {
  static RealDisk disk;
  return disk;
}

std::string read_text(Disk& disk, const std::string& path) {
  const std::unique_ptr<ReadableFile> file = disk.open(path);
  std::string text(file->size(), '\0');
  file->read(0, text.data(), text.size());
  return text;
}

void write_text(Disk& disk, const std::string& path, const std::string& text) {
  const std::unique_ptr<WritableFile> file = disk.create(path, text.size());
  file->write(text.data(), text.size());
  file->place();
}

}  // namespace troupe
