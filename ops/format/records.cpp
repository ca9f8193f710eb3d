#include <troupe/ops/format/records.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/format/event_file.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe {
namespace {

// in the order of TrainingRecord::value
constexpr const char* kKinds[] = {"scalar", "text", "histogram"};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Histogram histogram_of(const Tensor& values, int buckets) {
  Histogram h;
  const std::int64_t n = values.elements();
  double low = INFINITY, high = -INFINITY;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = values.at(i);
    if (!std::isfinite(x)) continue;
    low = std::min(low, x);
    high = std::max(high, x);
    h.sum += x;
    h.squares += x * x;
    ++h.count;
  }
  if (h.count == 0) return h;
  h.min = low;
  h.max = high;
  const double width = (high - low) / buckets;
  const int used = width > 0 && std::isfinite(width) ? buckets : 1;
  for (int b = 1; b < used; ++b) h.limits.push_back(low + width * b);
  h.limits.push_back(high);
  h.counts.assign(static_cast<std::size_t>(used), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = values.at(i);
    if (!std::isfinite(x)) continue;
    const int b = used == 1 ? 0 : std::min(used - 1, static_cast<int>((x - low) / width));
    ++h.counts[static_cast<std::size_t>(b)];
  }
  return h;
}

nlohmann::json value_of(double x) {
  return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json();
}
nlohmann::json value_of(const std::string& text) { return text; }
nlohmann::json value_of(const Histogram& h) {
  return {{"min", h.min}, {"max", h.max}, {"limits", h.limits}, {"counts", h.counts}};
}

/// To so many bytes of text: of a curve every so manieth point and the last one, of others the last
/// ones.
void thin(nlohmann::json& points, bool is_curve, std::size_t most) {
  constexpr std::size_t kPoint = 70;  // bytes: two integers and a number, at most
  auto kept = nlohmann::json::array();
  if (is_curve) {
    const std::size_t room = std::max<std::size_t>(1, most / kPoint),
                      stride = (points.size() + room - 1) / room;
    for (std::size_t i = 0; i < points.size(); ++i)
      if ((points.size() - 1 - i) % stride == 0) kept.push_back(std::move(points[i]));
  } else {
    std::size_t first = points.size();
    for (std::size_t bytes = 0;
         first > 0 && (bytes += json_text(points[first - 1]).size() + 1) <= most;)
      --first;
    for (std::size_t i = first; i < points.size(); ++i) kept.push_back(std::move(points[i]));
  }
  points = std::move(kept);
}

}  // namespace

// A curve of any length in bounded memory: a point is kept when its number is a multiple of
// `stride`, which doubles whenever they are too many; the last one is there too.
struct Records::Series {
  std::size_t kind = 0;
  std::uint64_t recorded = 0, stride = 1;
  std::vector<TrainingRecord> points;
  TrainingRecord last;  // a curve's last record, if it is not among the points

  bool has_last() const { return kind == 0 && recorded > 0 && (recorded - 1) % stride != 0; }

  void add(TrainingRecord record) {
    if (kind != 0) {
      points.push_back(std::move(record));
      if (points.size() > kMostTexts) points.erase(points.begin());
    } else if (recorded++ % stride != 0) {
      last = std::move(record);
    } else {
      points.push_back(std::move(record));
      if (points.size() == kMostPoints) halve();
    }
  }

 private:
  void halve() {
    last = points.back();
    for (std::size_t i = 0; 2 * i < points.size(); ++i) points[i] = points[2 * i];
    points.resize((points.size() + 1) / 2);
    stride *= 2;
  }
};

Records::Records() : clock_(now) {}
Records::Records(const std::string& folder, Clock clock)
    : clock_(clock ? std::move(clock) : now), file_(std::make_unique<EventFile>(folder, clock_())) {
}
Records::~Records() = default;

std::string Records::path() const { return file_ ? file_->path().string() : std::string(); }

void Records::scalar(std::string_view tag, std::int64_t step, double value) {
  add({clock_(), step, std::string(tag), value});
}

void Records::scalar(std::string_view tag, std::int64_t step, const Tensor& value) {
  if (value.elements() != 1)
    throw Error(
        Code::invalid_argument,
        fmt::format(
            "a scalar '{}' has one element, not {} of shape {}; record a histogram, or a mean", tag,
            value.elements(), value.shape().text()));
  scalar(tag, step, value.at(0));
}

void Records::histogram(std::string_view tag, std::int64_t step, const Tensor& values) {
  add({clock_(), step, std::string(tag), histogram_of(values, kBuckets)});
}

void Records::text(std::string_view tag, std::int64_t step, std::string_view text) {
  add({clock_(), step, std::string(tag), std::string(text)});
}

void Records::progress(TrainingProgress progress) {
  constexpr std::size_t kMostUnit = 64;
  if (progress.unit.size() > kMostUnit) progress.unit.resize(kMostUnit);
  const std::int64_t wall_ns = clock_();
  std::lock_guard lock(mutex_);
  if (!began_) began_ = {progress.step, wall_ns};
  progress_ = {wall_ns, std::move(progress)};
}

void Records::add(TrainingRecord record) {
  if (record.tag.empty())
    throw Error(Code::invalid_argument, "a record needs a tag, such as 'loss'");
  const std::size_t kind = record.value.index();
  std::lock_guard lock(mutex_);
  auto at = series_.find(record.tag);
  if (at != series_.end() && at->second.kind != kind)
    throw Error(
        Code::invalid_argument,
        fmt::format(
            "'{}' was recorded as a {} before, so it cannot be a {}; name this one otherwise",
            record.tag, kKinds[at->second.kind], kKinds[kind]));
  if (at == series_.end()) {
    if (series_.size() >= kMostTags)
      throw Error(Code::resource_exhausted,
                  fmt::format("{} tags are recorded already, and '{}' would be one more; do not "
                              "put steps or numbers into tags",
                              kMostTags, record.tag));
    at = series_.try_emplace(record.tag).first;
    at->second.kind = kind;
  }
  if (file_) file_->append(record);
  if (auto* text = std::get_if<std::string>(&record.value); text && text->size() > kMostText)
    text->resize(kMostText);
  at->second.add(std::move(record));
}

std::string Records::json(std::int64_t since, std::size_t most) const {
  auto all = nlohmann::json::array();
  std::lock_guard lock(mutex_);
  const std::size_t share = most / std::max<std::size_t>(1, series_.size());
  for (const auto& [tag, series] : series_) {
    auto points = nlohmann::json::array();
    const auto add = [&](const TrainingRecord& r) {
      if (r.step > since)
        points.push_back(
            {r.step, r.wall_ns, std::visit([](const auto& v) { return value_of(v); }, r.value)});
    };
    for (const TrainingRecord& r : series.points) add(r);
    if (series.has_last()) add(series.last);
    if (most > 0) thin(points, series.kind == 0, share);
    all.push_back({{"name", tag}, {"kind", kKinds[series.kind]}, {"points", std::move(points)}});
  }
  if (began_) {
    const auto& [wall_ns, p] = progress_;
    const nlohmann::json value = {{"steps", p.steps},
                                  {"loss", value_of(p.loss)},
                                  {"validation", value_of(p.validation)},
                                  {"rate", value_of(p.rate)},
                                  {"unit", p.unit},
                                  {"began_step", began_->first},
                                  {"began_ns", began_->second}};
    all.push_back({{"name", "progress"},
                   {"kind", "progress"},
                   {"points", nlohmann::json::array({{p.step, wall_ns, value}})}});
  }
  return json_text(all);
}

}  // namespace troupe
