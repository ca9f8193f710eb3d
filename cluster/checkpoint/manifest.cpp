#include <troupe/cluster/checkpoint/manifest.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/crc64.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kManifestVersion = 1;
constexpr std::string_view kSumBefore = ",\"crc64\":\"", kSumBehind = "\"}\n";
constexpr std::size_t kDigits = 16;  // a checksum has so many

[[noreturn]] void refuse_manifest(const std::string& path, const std::string& why) {
  throw Error(Code::data_loss,
              fmt::format("the manifest '{}' is damaged in chunk 0: {}", path, why));
}

std::uint64_t hexadecimal(std::string_view digits, const std::string& path) {
  std::uint64_t n = 0;
  const char* const end = digits.data() + digits.size();
  if (digits.size() != kDigits || std::from_chars(digits.data(), end, n, 16).ptr != end)
    refuse_manifest(path, fmt::format("'{}' is no checksum", digits));
  return n;
}

DType dtype_named(const std::string& name, const std::string& path) {
  for (int i = 0; i < kAllDTypes; ++i)
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  refuse_manifest(path, fmt::format("'{}' is no dtype", name));
}

// A number behind `before`, which is cut off; false if there is none.
template <class N>
bool take_number(std::string_view& text, std::string_view before, N& n) {
  if (!text.starts_with(before)) return false;
  const char* const begin = text.data() + before.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), n);
  if (error != std::errc() || (*begin == '0' && end - begin > 1)) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return n >= 0;
}

bool is_negative(std::int64_t n) { return n < 0; }

void check_sense(const Manifest& m, const std::string& path) {
  for (const ShardEntry& s : m.shards) {
    bool is_manifest = true;
    const auto id = checkpoint_of_name(s.file, is_manifest);
    if (!id || is_manifest || *id != m.id)
      refuse_manifest(path, fmt::format("'{}' is no shard of it", s.file));
    if (s.sums.size() != s.bytes / kCheckpointChunk + (s.bytes % kCheckpointChunk != 0))
      refuse_manifest(
          path, fmt::format("'{}' has {} checksums for {} bytes", s.file, s.sums.size(), s.bytes));
  }
  for (const Manifest::Value& v : m.values)
    if (v.shard < 0 || static_cast<std::size_t>(v.shard) >= m.shards.size())
      refuse_manifest(path,
                      fmt::format("'{}' is in shard {} of {}", v.name, v.shard, m.shards.size()));
}

}  // namespace

std::string manifest_name(const CheckpointId& id) {
  return fmt::format("step-{}.epoch-{}.json", id.step, id.epoch);
}

std::string shard_name(const CheckpointId& id, std::size_t shard) {
  return fmt::format("step-{}.epoch-{}.shard-{}.safetensors", id.step, id.epoch, shard);
}

std::optional<CheckpointId> checkpoint_of_name(const std::string& file, bool& is_manifest) {
  std::string_view rest = file;
  CheckpointId id;
  std::int64_t shard = 0;
  if (!take_number(rest, "step-", id.step) || !take_number(rest, ".epoch-", id.epoch)) return {};
  is_manifest = rest == ".json";
  if (is_manifest) return id;
  if (!take_number(rest, ".shard-", shard) || rest != ".safetensors") return {};
  return id;
}

bool is_training_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

std::string text_of(const Manifest& m) {
  Json j{{"format", kManifestVersion}, {"training", m.training}, {"driver", m.driver},
         {"step", m.id.step},          {"epoch", m.id.epoch},    {"time", m.time},
         {"chunk", kCheckpointChunk},  {"metadata", m.metadata}, {"shards", Json::array()},
         {"values", Json::array()}};
  if (m.metric) j["metric"] = fmt::format("{}", *m.metric);
  for (const ShardEntry& s : m.shards) {
    Json sums = Json::array();
    for (const std::uint64_t sum : s.sums) sums.push_back(fmt::format("{:016x}", sum));
    j["shards"].push_back(
        {{"file", s.file}, {"bytes", s.bytes}, {"holders", s.holders}, {"sums", std::move(sums)}});
  }
  for (const Manifest::Value& v : m.values)
    j["values"].push_back({{"name", v.name},
                           {"dtype", name_of(v.dtype)},
                           {"shape", std::vector<std::int64_t>(v.shape.begin(), v.shape.end())},
                           {"shard", v.shard}});
  std::string text = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.pop_back();  // the closing brace
  const std::uint64_t sum = crc64(text.data(), text.size());
  return fmt::format("{}{}{:016x}{}", text, kSumBefore, sum, kSumBehind);
}

Manifest manifest_of(const std::string& text, const std::string& path) {
  const std::size_t tail = kSumBefore.size() + kDigits + kSumBehind.size();
  if (text.size() < tail) refuse_manifest(path, fmt::format("it has {} bytes", text.size()));
  const std::string_view whole = text, body = whole.substr(0, text.size() - tail);
  if (whole.substr(body.size(), kSumBefore.size()) != kSumBefore || !text.ends_with(kSumBehind))
    refuse_manifest(path, "it does not end with a checksum");
  const std::uint64_t said =
      hexadecimal(whole.substr(body.size() + kSumBefore.size(), kDigits), path);
  if (const std::uint64_t sum = crc64(body.data(), body.size()); sum != said)
    refuse_manifest(
        path, fmt::format("its checksum is {:016x}, not {:016x} as written in it", sum, said));
  Manifest m;
  try {
    const Json j = Json::parse(text);
    if (const int version = j.at("format").get<int>(); version > kManifestVersion)
      throw Error(Code::unimplemented,
                  fmt::format("the manifest '{}' has format {}, and this version of Troupe reads "
                              "up to {}; use the one that wrote it, or a later one",
                              path, version, kManifestVersion));
    if (const auto chunk = j.at("chunk").get<std::uint64_t>(); chunk != kCheckpointChunk)
      refuse_manifest(path, fmt::format("its chunks have {} bytes", chunk));
    m.training = j.at("training").get<std::string>();
    m.driver = j.at("driver").get<std::string>();
    m.id = {j.at("step").get<std::int64_t>(), j.at("epoch").get<std::uint64_t>()};
    m.time = j.at("time").get<std::int64_t>();
    m.metadata = j.at("metadata").get<std::map<std::string, std::string>>();
    if (j.contains("metric"))
      m.metric = std::strtod(j.at("metric").get<std::string>().c_str(), nullptr);
    for (const Json& s : j.at("shards")) {
      ShardEntry& shard = m.shards.emplace_back();
      shard.file = s.at("file").get<std::string>();
      shard.bytes = s.at("bytes").get<std::uint64_t>();
      shard.holders = s.at("holders").get<std::vector<std::string>>();
      for (const Json& sum : s.at("sums"))
        shard.sums.push_back(hexadecimal(sum.get<std::string>(), path));
    }
    for (const Json& v : j.at("values")) {
      Manifest::Value& value = m.values.emplace_back();
      value.name = v.at("name").get<std::string>();
      value.dtype = dtype_named(v.at("dtype").get<std::string>(), path);
      const auto shape = v.at("shape").get<std::vector<std::int64_t>>();
      if (shape.size() > Shape::kMaxRank || std::any_of(shape.begin(), shape.end(), is_negative))
        refuse_manifest(path, fmt::format("'{}' has no shape", value.name));
      value.shape = Shape(shape);
      value.shard = v.at("shard").get<std::int64_t>();
    }
  } catch (const Json::exception& error) {
    refuse_manifest(path,
                    fmt::format("it lacks a field, or has one of another type ({})", error.id));
  }
  check_sense(m, path);
  return m;
}

}  // namespace troupe
