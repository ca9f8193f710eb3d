// CRC-64/XZ (ECMA-182 polynomial, reflected): detects corrupted files.
//
//   std::uint64_t c = crc64(data, bytes);
//   c = crc64(more, n, c);                  // of both, one after the other
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Continues from `crc`, that of the bytes before.
std::uint64_t crc64(const void* data, std::size_t bytes, std::uint64_t crc = 0);

}  // namespace troupe
