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
    return fmt::format("the {} {} belongs to user {} and can change; run 'chown {} {}'", what,
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

// Looks at each folder above `path`, an absolute path: a writer of any of them can put another tree
// in its place.
std::string of_folders_above(const fs::path& path) {
  for (fs::path entry = path; entry.has_relative_path(); entry = entry.parent_path())
    if (std::string why = of_folder(entry.parent_path(), entry); !why.empty()) return why;
  return {};
}

}  // namespace

std::string why_others_can_write(const fs::path& path) {
  struct ::stat about {};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  if (!is_own(about) || (about.st_mode & kOthersWrite) != 0) return why_not(path, about, "file");
  std::error_code unknown;
  const fs::path as_given = fs::absolute(path, unknown).lexically_normal();
  if (unknown) return {};
  if (std::string why = of_folders_above(as_given); !why.empty()) return why;
  const fs::path target = fs::canonical(path, unknown);
  return unknown ? std::string() : of_folders_above(target);
}

}  // namespace troupe::detail
