// Direct records between two nodes of the simulated network (simulated.hpp), in place of a ring in
// shared memory.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <troupe/cluster/transport/frame_link.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// In one of the two directions of a connection: it is not lost with that, and its receiver may
/// give it up at any time.
class SimulatedDirect final : public DirectSource {
 public:
  // direct records: a ring that is full is no rare thing; bytes of one
  static constexpr std::size_t kMost = 6, kMostBytes = 4096;
  void open(std::uint64_t messages) override {
    is_open_ = true;
    messages_ = messages;
  }
  void have_come(std::uint64_t messages) override { messages_ = messages; }
  void close() override { is_open_ = false; }
  void look() override {}  // nothing happens meanwhile
  std::optional<DirectRecord> first() override {
    if (records_.empty()) return {};
    return DirectRecord{records_.front().first, records_.front().second};
  }
  void take() override { records_.pop_front(); }
  bool write(std::uint64_t after, std::span<const std::byte> record, bool may_wait) {
    if (!may_wait && messages_ < after) return false;
    if (!is_open_ || records_.size() == kMost || record.size() > kMostBytes) return false;
    records_.emplace_back(after, std::vector(record.begin(), record.end()));
    return true;
  }

 private:
  bool is_open_ = false;
  std::uint64_t messages_ = 0;
  std::deque<std::pair<std::uint64_t, std::vector<std::byte>>> records_;
};

}  // namespace troupe
