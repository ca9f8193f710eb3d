// Compiles CUDA text to machine code with NVRTC, which is opened at its first use, and keeps the
// results in memory and in a folder.
//
//   ProgramCache cache({.folder = "", .architecture = 90});
//   std::shared_ptr<const std::string> image = cache.get(text, name);   // a CUBIN, or PTX
//
// A file is named by the hash of text, options, NVRTC's version and architecture; it is written
// beside and renamed, so that processes share a folder; a damaged file is compiled anew. The files
// together stay below a limit: the ones used longest ago go first. A folder that cannot be written
// costs compilation, never a failure; the cause is kept (problem()).
//
// Threads: any. Two simultaneous requests for one text compile it once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include <troupe/devices/base/internal.hpp>

namespace troupe::cuda {

struct ProgramCacheOptions {
  std::string folder = {};  // empty: $XDG_CACHE_HOME/troupe/cuda or ~/.cache/troupe/cuda
  int architecture = 90;    // compute capability, ten times the major plus the minor number
  std::uint64_t limit = std::uint64_t{256} << 20;  // bytes of all files
  std::string library = {};  // NVRTC's file; empty: found by name over a list of folders
};

struct ProgramCacheCounters {
  std::uint64_t compiled = 0, from_memory = 0, from_files = 0, damaged = 0;
};

class ProgramCache {
 public:
  explicit ProgramCache(ProgramCacheOptions options);
  ~ProgramCache();

  /// Returns the machine code of `prelude text`, with the kernel `name`. Throws failed_precondition
  /// with the searched folders if NVRTC cannot be opened, and internal with NVRTC's log if the text
  /// does not compile.
  std::shared_ptr<const std::string> get(const std::string& text, const std::string& name);
  ProgramCacheCounters counters() const;
  /// Why the folder is not used; empty: it is.
  std::string problem() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Opens a library of the CUDA toolkit or of PyTorch's wheels by its names, in this order: the
/// system's search path, $CUDA_HOME/lib64, /usr/local/cuda/lib64, `nvidia/*/lib` of Python's
/// packages in TROUPE_CUDA_LIBRARIES, a list of folders. Null, with `looked` saying where it was
/// not, if there is none. It is never closed.
void* open_cuda_library(std::initializer_list<const char*> names, std::string* looked);

}  // namespace troupe::cuda
