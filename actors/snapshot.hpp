// Snapshots: what an engine is doing, and what it waits for. Who can say it is asked: a partition answers between two
// firings; of one that does not, because a kernel of its own takes long, what it is at is known.
//
//   EngineSnapshot now = engine.snapshot();
//   std::puts(now.text().c_str());
//   for (const std::string& verdict : diagnose(now)) std::puts(verdict.c_str());
//
// A snapshot is no moment: its partitions answer one after the other. What waits is still waiting when somebody reads it,
// which is what a snapshot is for.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Something that has not come.
struct Wait {
  enum class Kind : std::uint8_t {
    kernel,  // a firing has begun and not ended
    device,  // a predicate is on its way from a device
    token,   // from another partition
    grant,   // another partition has no room for a token of this one
  };
  Kind kind = Kind::kernel;
  std::string what;       // the node that has not ended, or whose token has not come or gone: op, name, the user's line
  std::string state;      // what it is done to: `queue 'q'`; empty: nothing
  std::string tag;        // `iteration 3 of loop 'w'`, inner loops last; empty: outside of loops
  std::string from;       // the other partition's device
  std::int32_t node = 0;  // of the program
  std::chrono::nanoseconds for_so_long{};  // a kernel: since it began; 0: not known
};

/// A loop that is going on.
struct OpenLoop {
  std::string loop;
  std::string tag;        // of the iteration that it was entered from
  std::string predicate;  // the node that decides, if that is in this partition
  int depth = 0;          // loops and calls around it, itself included
  std::int64_t first = 0, last = 0;  // iterations that are open
  std::int32_t window = 1;           // as many as may be
};

/// A run in a partition.
struct RunPart {
  std::uint64_t run = 0;  // its number in this engine
  std::size_t ready = 0;  // nodes that can fire
  std::vector<OpenLoop> loops;   // outer ones first
  std::vector<Wait> waits;       // kMostWaits at most
  std::size_t more_waits = 0;
  static constexpr std::size_t kMostWaits = 32;
};

struct PartitionSnapshot {
  std::string device;
  bool has_answered = false;
  std::string busy_with;  // the node whose kernel it runs itself; empty: none
  std::vector<RunPart> runs;
};

struct RunSnapshot {
  std::uint64_t run = 0;
  std::uint64_t step = 0;
  std::chrono::nanoseconds for_so_long{};
  bool is_ending = false;  // it has failed or was cancelled
  std::vector<std::string> other_nodes;       // that take part and were not asked
  std::vector<PartitionSnapshot> partitions;  // of this node, each with this run alone
};

struct EngineSnapshot {
  struct Memory {
    std::string device;
    std::uint64_t in_use = 0, peak = 0, limit = 0;  // bytes; limit 0: none
  };
  std::string node;  // empty: of no cluster
  int workers = 0;
  std::vector<Memory> devices;
  std::vector<RunSnapshot> runs;  // in the order they were started
  std::string text() const;
};

/// Why a run has not ended: a sentence for each cause, the likeliest first. A partition that waits for another is no cause
/// if the other one can be asked.
std::vector<std::string> diagnose(const RunSnapshot& run);
/// Of all runs, each sentence naming its run.
std::vector<std::string> diagnose(const EngineSnapshot& engine);

}  // namespace troupe
