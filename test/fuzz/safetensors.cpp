// libFuzzer: a file of tensors. The reader returns no more than the file holds, and a bool is false
// or true. Instruments: ops/format/safetensors.cpp
#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  seed(file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"BOOL","shape":[1,3],"data_offsets":[8,11]}})",
               std::string("\0\0\x80\x3f\0\0\0\0\0\1\1", 11)));
  seed(file_of(
      R"({"__metadata__":{"step":"7"},"one":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("none":{"dtype":"F16","shape":[0,4],"data_offsets":[8,8]}})",
      std::string(8, '\5')));
  seed(file_of(R"({"f":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "x"));
  if (const char* folder = std::getenv("TROUPE_SEEDS"))  // with a checksum
    save_safetensors(std::string(folder) + "/saved",
                     {{"w", Tensor::of<float>({1, 2, 3})}, {"n", Tensor::scalar<std::int64_t>(5)}},
                     {{"model", "lstm"}});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const int memory = memfd_create("tensors", MFD_CLOEXEC);
  static const std::string path = fmt::format("/proc/self/fd/{}", memory);
  if (ftruncate(memory, 0) != 0 || pwrite(memory, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  try {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : load_safetensors(path).tensors) {
      bytes += tensor.bytes();
      const auto* elements = static_cast<const unsigned char*>(tensor.raw());
      if (tensor.dtype() == DType::boolean &&
          std::any_of(elements, elements + tensor.bytes(), [](unsigned char b) { return b > 1; }))
        std::abort();
    }
    if (bytes > size) std::abort();
  } catch (const Error&) {}
  return 0;
}
