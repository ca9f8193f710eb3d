#include <troupe/cluster/transport/net/file_rights.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace troupe::detail {
namespace {

namespace fs = std::filesystem;

constexpr ::mode_t kOthersWrite = S_IWGRP | S_IWOTH;

bool is_own(const struct ::stat& about) { return about.st_uid == 0 || about.st_uid == ::geteuid(); }

std::string why_not(const fs::path& path, const struct ::stat& about, const char* what) {
  if (!is_own(about))
    return fmt::format("the {} {} belongs to user {}, who can change it: 'chown {} {}'", what,
                       path.string(), about.st_uid, ::geteuid(), path.string());
  return fmt::format("others can write to the {} {}: 'chmod go-w {}', and look at what is in it",
                     what, path.string(), path.string());
}

// `entry`: of the folder, as it lies there.
std::string of_folder(const fs::path& folder, const fs::path& entry) {
  struct ::stat about {
  }, of_entry{};
  if (::stat(folder.c_str(), &about) != 0) return {};
  const bool is_sticky = (about.st_mode & S_ISVTX) != 0 && is_own(about) &&
                         ::lstat(entry.c_str(), &of_entry) == 0 && is_own(of_entry);
  if (is_own(about) && ((about.st_mode & kOthersWrite) == 0 || is_sticky)) return {};
  return why_not(folder, about, "folder");
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::string why_others_can_write(const fs::path& path) {
  struct ::stat about {};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  if (!is_own(about) || (about.st_mode & kOthersWrite) != 0) return why_not(path, about, "file");
  if (std::string why = of_folder(folder_of(path), path); !why.empty()) return why;
  std::error_code unknown;
  const fs::path target = fs::canonical(path, unknown);
  return unknown ? std::string() : of_folder(folder_of(target), target);
}

}  // namespace troupe::detail
