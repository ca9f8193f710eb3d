// The properties that a new file takes over from the file that it replaces.
//
//   const ReplacedFile old = replaced_file(path);
//   ... write a temporary file beside old.path ...
//   old.hand_on(fd);  // owner and mode
//   rename(temporary, old.path);
#pragma once

#include <string>

#include <sys/types.h>

namespace troupe {

struct ReplacedFile {
  std::string path;  // behind all symbolic links; the target of a dangling link
  bool is_there = false;
  bool is_regular = false;
  ::mode_t mode = 0666;  // permission bits to make the new file with, subject to umask if new
  ::uid_t owner = 0;
  ::gid_t group = 0;

  /// Gives the new file the old one's group, owner (each where this process may) and permissions.
  /// Returns false, and errno, if the permissions cannot be set. Does nothing without an old file.
  bool hand_on(int file) const;
};

ReplacedFile replaced_file(std::string path);

}  // namespace troupe
