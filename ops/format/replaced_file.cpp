#include <troupe/ops/format/replaced_file.hpp>

#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

ReplacedFile replaced_file(std::string path) {
  ReplacedFile old{std::move(path)};
  constexpr int kMostLinks = 40;  // as Linux follows; a circle is then no regular file
  struct stat info;
  std::error_code unreadable;
  for (int i = 0; i < kMostLinks && ::lstat(old.path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
       ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(old.path, unreadable);
    if (unreadable) break;
    // An absolute target takes the place of the folder.
    old.path = (std::filesystem::path(old.path).parent_path() / target).string();
  }
  if (::lstat(old.path.c_str(), &info) != 0) return old;
  old.is_there = true;
  old.is_regular = S_ISREG(info.st_mode);
  old.mode = info.st_mode & 07777;
  old.owner = info.st_uid;
  old.group = info.st_gid;
  return old;
}

bool ReplacedFile::hand_on(int file) const {
  if (!is_there) return true;
  // Changing the owner clears some bits of the mode, which therefore comes last.
  if (::fchown(file, owner, group) != 0 && ::fchown(file, static_cast<::uid_t>(-1), group) != 0) {
    // The group could not be set: the group's permissions would apply to a different group.
    struct stat made;
    if (::fstat(file, &made) == 0 && made.st_gid != group) return ::fchmod(file, mode & 0707) == 0;
  }
  return ::fchmod(file, mode) == 0;
}

}  // namespace troupe
