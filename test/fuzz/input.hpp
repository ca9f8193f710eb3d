// Tools of the fuzz targets: bytes as a message of nodes and back, demands, and seeds.
//
// A message's bytes: the number of tensors; for each its dtype and rank, and a byte an extent; then
// the head. Elements are zeros.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <source_location>
#include <string>

#include <troupe/cluster/transport/transport.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::test {

class Input {
 public:
  Input(const unsigned char* data, std::size_t size) : data_(data), size_(size) {}
  /// 0 when none is left.
  unsigned next() { return size_ == 0 ? 0 : (--size_, *data_++); }
  bool is_empty() const { return size_ == 0; }
  std::string rest() const { return {reinterpret_cast<const char*>(data_), size_}; }

  Message message() {
    Message m;
    for (unsigned left = next() % 8; left > 0; --left) {
      const auto dtype = static_cast<DType>(next() % kDTypes);
      std::vector<std::int64_t> extents(next() % 4);
      for (auto& e : extents) e = next() % 16;
      Tensor t = Tensor::empty(dtype, Shape(extents));
      std::memset(t.raw_mutable(), 0, t.bytes());
      m.tensors.push_back(std::move(t));
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(data_);
    m.head.assign(bytes, bytes + size_);
    return m;
  }

 private:
  const unsigned char* data_;
  std::size_t size_;
};

/// Or it is a crash, and the report says of which line.
inline void demand(bool holds, std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "line %u of the target does not hold\n",
               static_cast<unsigned>(where.line()));
  std::abort();
}

inline std::string bytes_as_input(const Message& m) {
  std::string all(1, static_cast<char>(m.tensors.size()));
  for (const Tensor& t : m.tensors) {
    all += static_cast<char>(t.dtype());
    all += static_cast<char>(t.shape().rank());
    for (const std::int64_t e : t.shape()) all += static_cast<char>(e);
  }
  return all.append(reinterpret_cast<const char*>(m.head.data()), m.head.size());
}

/// Into the folder $TROUPE_SEEDS, which `scripts/checks/fuzz.sh` has the corpus start from.
inline void seed(const std::string& bytes) {
  static int written = 0;
  const char* folder = std::getenv("TROUPE_SEEDS");
  if (folder)
    std::ofstream(std::filesystem::path(folder) / ("seed-" + std::to_string(written++)),
                  std::ios::binary)
        << bytes;
}

}  // namespace troupe::test
