// Rights of files that decide about access: keys, lists of keys, tokens.
//
//   if (const std::string why = why_others_can_write(path); !why.empty()) throw ...
//
// As sshd does for `authorized_keys`: a file counts only if no other user can change or replace it.
#pragma once

#include <filesystem>
#include <string>

namespace troupe::detail {

/// Returns why a user other than this process's and root can change the file at `path` or put
/// another in its place, with the command that ends this; empty if none can, or if it is not there.
/// Looks at the file, at all folders above it, and, if `path` has a link, at where it leads. A pipe
/// or a device is not looked at. In a folder with the sticky bit, as Kubernetes mounts a secret,
/// only an entry's owner can replace it.
std::string why_others_can_write(const std::filesystem::path& path);

}  // namespace troupe::detail
