#include <troupe/ops/format/event_file.hpp>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/format/crc32c.hpp>

namespace troupe::detail {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they lie in memory");

template <class T>
void put(std::string& out, T number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

// ---- protobuf's wire format: a field is (number << 3 | kind), then its value

enum class Kind : std::uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t n) {
  for (; n >= 128; n >>= 7) out += static_cast<char>(n | 128);
  out += static_cast<char>(n);
}
void put_key(std::string& out, std::uint64_t field, Kind kind) {
  put_varint(out, field << 3 | static_cast<std::uint64_t>(kind));
}

void put_varint(std::string& out, std::uint64_t field, std::uint64_t n) {
  put_key(out, field, Kind::varint);
  put_varint(out, n);
}
void put_double(std::string& out, std::uint64_t field, double x) {
  put_key(out, field, Kind::fixed64);
  put(out, x);
}
void put_float(std::string& out, std::uint64_t field, float x) {
  put_key(out, field, Kind::fixed32);
  put(out, x);
}
void put_bytes(std::string& out, std::uint64_t field, std::string_view text) {
  put_key(out, field, Kind::bytes);
  put_varint(out, text.size());
  out += text;
}
void put_doubles(std::string& out, std::uint64_t field, const std::vector<double>& numbers) {
  put_bytes(out, field,
            {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)});
}

// ---- messages

void put_value(std::string& out, double x) { put_float(out, 2, static_cast<float>(x)); }

void put_value(std::string& out, const Histogram& h) {
  std::string inner;
  put_double(inner, 1, h.min);
  put_double(inner, 2, h.max);
  put_double(inner, 3, h.count);
  put_double(inner, 4, h.sum);
  put_double(inner, 5, h.squares);
  put_doubles(inner, 6, h.limits);
  put_doubles(inner, 7, h.counts);
  put_bytes(out, 5, inner);
}

void put_value(std::string& out, const std::string& text) {
  constexpr std::uint64_t kString = 7, kTensorData = 2;  // DT_STRING, DATA_CLASS_TENSOR
  std::string extent, shape, tensor, plugin, metadata;
  put_varint(extent, 1, 1);  // one element
  put_bytes(shape, 2, extent);
  put_varint(tensor, 1, kString);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(out, 8, tensor);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_varint(metadata, 4, kTensorData);
  put_bytes(out, 9, metadata);
}

std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

std::string framed(const std::string& event) {
  std::string out;
  put(out, static_cast<std::uint64_t>(event.size()));
  put(out, masked(crc32c(out)));
  out += event;
  put(out, masked(crc32c(event)));
  return out;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "host";
}

}  // namespace

std::string event_record(const TrainingRecord& record) {
  std::string value, summary, out;
  put_bytes(value, 1, record.tag);
  std::visit([&](const auto& v) { put_value(value, v); }, record.value);
  put_bytes(summary, 1, value);
  put_double(out, 1, static_cast<double>(record.wall_ns) * 1e-9);
  put_varint(out, 2, static_cast<std::uint64_t>(record.step));
  put_bytes(out, 5, summary);
  return framed(out);
}

std::string first_record(std::int64_t wall_ns) {
  std::string out;
  put_double(out, 1, static_cast<double>(wall_ns) * 1e-9);
  put_bytes(out, 3, "brain.Event:2");
  return framed(out);
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t wall_ns) {
  // publishes nothing: two files of a process need two names
  static std::atomic<unsigned> count{0};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(Code::failed_precondition,
                fmt::format("the folder of records '{}' cannot be made: {}; name another",
                            folder.string(), error.message()));
  path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", wall_ns / 1'000'000'000,
                               host_name(), getpid(), count++);
  file_.reset(std::fopen(path_.c_str(), "wbx"));
  if (!file_)
    throw Error(Code::failed_precondition,
                fmt::format("records cannot be written to '{}': {}; name another folder",
                            path_.string(), std::strerror(errno)));
  write(first_record(wall_ns));
}

void EventFile::append(const TrainingRecord& record) { write(event_record(record)); }

void EventFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size() &&
      std::fflush(file_.get()) == 0)
    return;
  const int error = errno;
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(
      is_full ? Code::resource_exhausted : Code::failed_precondition,
      fmt::format("'{}' cannot be written any further: {}; what was recorded before is whole",
                  path_.string(), std::strerror(error)));
}

}  // namespace troupe::detail
