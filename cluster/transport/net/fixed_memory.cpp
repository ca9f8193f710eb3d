#include <troupe/cluster/transport/net/fixed_memory.hpp>

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <troupe/devices/base/error.hpp>

namespace troupe {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

OwnedDescriptor fixed_memory(const char* name, std::size_t bytes) {
  OwnedDescriptor memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0 || ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    throw Error(Code::unavailable, fmt::format("no memory to share with a process of this host: {}",
                                               std::strerror(errno)));
  return memory;
}

std::optional<std::size_t> fixed_memory_bytes(const OwnedDescriptor& memory) {
  struct stat s {};
  struct statfs kind {};
  // Pages of another size may be missing when they are touched, which kills the reader.
  if (fstatfs(memory.get(), &kind) != 0 || kind.f_type == HUGETLBFS_MAGIC) return std::nullopt;
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memory.get(), &s) != 0 || s.st_size < 0)
    return std::nullopt;
  return static_cast<std::size_t>(s.st_size);
}

}  // namespace troupe
