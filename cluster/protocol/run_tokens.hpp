// Tokens and grants between partitions on two nodes: the most frequent message, in a form of its
// own. A scalar, a dead token or a grant takes a few bytes, so one line of a cache mostly holds a
// turn's. Every other value follows behind all tokens, as archives write it (archive.hpp). Without
// such values the bytes can go as a direct record, too (Transport::send_direct).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

/// To a partition of the receiver's (partition_messages.hpp: Token, Grant).
struct RunToken {
  std::int32_t partition = 0;
  std::int32_t receive = 0;
  bool is_dead = false;
  Path path;
  Value value;
  std::int32_t times = 1;  // for as many iterations, from that of its path on
};
struct RunGrant {
  std::int32_t partition = 0;
  std::int32_t send = 0;
  Path path;
  std::int64_t last = 0;
};
/// Participant to participant: tokens and grants of one turn of a partition, all or the first of
/// them. Grants alone go with control priority.
struct RunTokens {
  static constexpr Lane kLane = Lane::data;
  static constexpr std::size_t kMost = 1024;  // tokens, and grants; partitions collect 64 in all
  RunKey run;
  std::vector<RunGrant> grants;
  std::vector<RunToken> tokens;
};

/// Returns true if both are one tensor, or views of the same elements with equal shapes and dtypes.
bool is_same_tensor(const Value& a, const Value& b);

/// The tokens and grants of `posted`, all of one run and for one node, as they are written. Refers
/// to `posted`.
class WrittenTokens {
 public:
  WrittenTokens(const RunKey& run, std::span<const Posted> posted, const Plan& plan);
  /// Returns the direct record; empty if a value follows, or if it does not fit.
  std::span<const std::byte> record() const;
  /// Returns the message, which shares the elements of tensors.
  Message message() const;

 private:
  static constexpr std::size_t kFirst = 12 << 10;  // bytes: 64 tokens fit, and more take a block
  std::span<const std::byte> bytes() const {       // behind the byte of the message's kind
    return {more_.empty() ? first_.data() : more_.data(), used_};
  }

  std::span<const Posted> posted_;
  std::array<std::byte, kFirst> first_;  // not initialised
  std::vector<std::byte> more_;          // all bytes, if there are more
  std::size_t used_ = 0;
  bool has_values_ = false;  // which follow
};

Message written_tokens(const RunTokens& tokens);
/// Into `tokens`, which is empty. Throws data_loss for anything that is not written so.
void read_tokens(std::span<const std::byte> record, RunTokens& tokens);
/// Reads a message of that kind, whose tensors are moved.
void read_tokens(Message& message, RunTokens& tokens);

}  // namespace troupe
