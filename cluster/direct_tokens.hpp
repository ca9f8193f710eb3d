// Tokens and grants as they go directly to a process of the same host (Transport::send_direct): in as few bytes as a line of a cache mostly has, for both
// ends are of one build. What is not so small, a tensor, a list, goes as a message (messages.hpp: RunTokens), and means the same.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <troupe/actors/partition_messages.hpp>
#include <troupe/cluster/messages.hpp>

namespace troupe {

/// Of `posted`, which is of one run and for one node. Empty: it cannot be written so, or does not fit.
class DirectTokens {
 public:
  static constexpr std::size_t kMost = 4 << 10;  // bytes
  DirectTokens(const RunKey& run, std::span<const Posted> posted, const Plan& plan);
  std::span<const std::byte> bytes() const { return std::span(bytes_).first(used_); }

 private:
  std::array<std::byte, kMost> bytes_;  // not initialised
  std::size_t used_ = 0;
};

/// Into `said`, which is empty. Throws data_loss for what DirectTokens does not write.
void read_direct(std::span<const std::byte> bytes, RunTokens& said);

}  // namespace troupe
