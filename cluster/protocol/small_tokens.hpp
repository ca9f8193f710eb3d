// Small tokens and grants, scalars and dead tokens, in so few bytes that one line of a cache mostly
// holds them. They go directly to a process of the same host (Transport::send_direct), and as
// messages to others. A larger value, a tensor or a list, goes as RunTokens (messages.hpp), with an
// equal meaning.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

/// The tokens and grants of `posted`, all of one run and for one node, in the small form.
class SmallTokens {
 public:
  static constexpr std::size_t kMost = 4 << 10;  // bytes
  SmallTokens(const RunKey& run, std::span<const Posted> posted, const Plan& plan);
  /// Empty: it cannot be written so, or does not fit.
  std::span<const std::byte> bytes() const { return std::span(bytes_).subspan(kKind, used_); }
  /// Returns the message; must not be empty.
  Message message() const {
    return {{bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(kKind + used_)}, {}};
  }

 private:
  static constexpr std::size_t kKind = 1;       // byte, of a message's kind
  std::array<std::byte, kKind + kMost> bytes_;  // not initialised
  std::size_t used_ = 0;
};

/// Into `said`, which is empty. Throws data_loss for what SmallTokens does not write.
void read_small(std::span<const std::byte> bytes, RunTokens& said);
/// Reads a message of that kind.
void read_small(const Message& message, RunTokens& said);

}  // namespace troupe
