// TensorBoard's event files: the records of a training, in the order in which they were made.
//
//   EventFile file("runs/1");  // runs/1/events.out.tfevents.TIME.HOST.PID.NUMBER
//   file.append({.wall_ns = now, .step = 3, .tag = "loss", .value = 0.25});
//
// A file is a row of records:
//
//   8 bytes  n, little endian          4 bytes  masked CRC-32C of those 8
//   n bytes  an Event (protobuf)       4 bytes  masked CRC-32C of those n
//
// masked(c) = (c >> 15 | c << 17) + 0xA282EAD8. An Event here: 1 wall time (double, seconds), 2
// step (varint), and either 3 `brain.Event:2`, which the first one has, or 5 a Summary with one
// value: 1 tag, and 2 a float, or 5 a histogram (1 min, 2 max, 3 count, 4 sum, 5 sum of squares, 6
// right edges, 7 counts; all doubles), or 8 a tensor of strings with 9 the metadata that name the
// plugin `text`.
//
// Sources: tensorflow/core/lib/io/record_writer.cc; tensorflow/core/util/event.proto,
// framework/summary.proto, tensor.proto.
//
// Each record is written to the system when it is made: it is visible to readers at once, and a
// process that dies loses none.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace detail {

struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, squares = 0;
  std::vector<double> limits;  // right edges of the buckets, rising
  std::vector<double> counts;  // as many
};

}  // namespace detail

struct TrainingRecord {
  std::int64_t wall_ns = 0;  // since the Unix epoch
  std::int64_t step = 0;
  std::string tag;
  std::variant<double, std::string, Histogram> value;
};

namespace detail {

/// Returns the bytes of one Event and its framing, as they stand in a file. A scalar is rounded to
/// a float, because the format stores floats.
std::string event_record(const TrainingRecord& record);
/// Returns the bytes of the first record of every file.
std::string first_record(std::int64_t wall_ns);

class EventFile {
 public:
  /// A new file in `folder`, which is made if it is not there. Throws failed_precondition if that
  /// cannot be.
  EventFile(const std::filesystem::path& folder, std::int64_t wall_ns);
  /// Throws resource_exhausted when the disk is full, failed_precondition if the file cannot be
  /// written.
  void append(const TrainingRecord& record);
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::string_view bytes);
  struct Closer {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace detail

}  // namespace troupe
