// CRC-32C (Castagnoli, reflected), as records of TensorBoard's files have it.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace troupe
