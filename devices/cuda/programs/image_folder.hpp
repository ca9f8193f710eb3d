// Files of compiled programs and plans, which processes share.
//
//   const ImageFolder folder("", 256 << 20);
//   if (folder.read(key, image) != ImageFolder::Found::yes) folder.write(key, make());
//
// A file is named by its key, written beside and renamed; a damaged one is not read. The files
// together stay below a limit: the ones used longest ago go first. Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include <troupe/devices/cuda/programs/hash.hpp>

namespace troupe::cuda {

/// Returns the value of an environment variable; empty if it is not set.
std::string variable_or_nothing(const char* name);

class ImageFolder {
 public:
  enum class Found { no, yes, damaged };

  /// `folder`: empty for $XDG_CACHE_HOME/troupe/cuda or ~/.cache/troupe/cuda; `limit` in bytes.
  ImageFolder(const std::string& folder, std::uint64_t limit);

  /// A file that is found becomes the one used last.
  Found read(const TextHash& key, std::string& image) const;
  /// Returns why the image could not be kept; nothing if it is.
  std::string write(const TextHash& key, const std::string& image) const;

 private:
  std::string path_of(const TextHash& key) const;
  void stay_below_limit() const;

  std::string folder_;
  std::uint64_t limit_;
};

}  // namespace troupe::cuda
