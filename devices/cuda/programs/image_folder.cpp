#include <troupe/devices/cuda/programs/image_folder.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <fmt/format.h>

namespace troupe::cuda {

std::string variable_or_nothing(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

namespace {

namespace fs = std::filesystem;

// A file has this header, then the image.
struct ImageHeader {
  char kind[8];
  TextHash key, image;
  std::uint64_t bytes;
};
constexpr char kImageKind[8] = {'T', 'R', 'O', 'U', 'P', 'E', 'C', '1'};
constexpr const char* kImageEnding = ".image";

std::string default_image_folder() {
  if (const std::string cache = variable_or_nothing("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/troupe/cuda";
  if (const std::string home = variable_or_nothing("HOME"); !home.empty())
    return home + "/.cache/troupe/cuda";
  return "";
}

}  // namespace

ImageFolder::ImageFolder(const std::string& folder, std::uint64_t limit)
    : folder_(folder.empty() ? default_image_folder() : folder), limit_(limit) {}

ImageFolder::Found ImageFolder::read(const TextHash& key, std::string& image) const {
  if (folder_.empty()) return Found::no;
  const fs::path path = path_of(key);
  std::ifstream in(path, std::ios::binary);
  if (!in) return Found::no;
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  ImageHeader header{};
  if (bytes.size() < sizeof header) return Found::damaged;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view rest = std::string_view(bytes).substr(sizeof header);
  if (std::memcmp(header.kind, kImageKind, sizeof kImageKind) != 0 || header.key != key ||
      header.bytes != rest.size() || header.image != hash_of(rest))
    return Found::damaged;
  image = rest;
  std::error_code none;
  fs::last_write_time(path, fs::file_time_type::clock::now(), none);
  return Found::yes;
}

std::string ImageFolder::write(const TextHash& key, const std::string& image) const {
  if (folder_.empty()) return "neither XDG_CACHE_HOME nor HOME is set";
  if (sizeof(ImageHeader) + image.size() > limit_) return "";  // it would have to go at once
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return fmt::format("{}: {}", folder_, failed.message());
  static std::atomic<unsigned> turn{0};  // counts; publishes nothing
  const fs::path path = path_of(key),
                 beside = fs::path(folder_) /
                          fmt::format(".{}.{}.{}", hex_of(key), getpid(), turn.fetch_add(1));
  ImageHeader header{{}, key, hash_of(image), image.size()};
  std::memcpy(header.kind, kImageKind, sizeof kImageKind);
  {
    std::ofstream out(beside, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&header), sizeof header);
    out.write(image.data(), static_cast<std::streamsize>(image.size()));
    if (!out.flush()) {
      fs::remove(beside, failed);
      return fmt::format("{} cannot be written", beside.string());
    }
  }
  fs::rename(beside, path, failed);
  if (failed) {
    const std::string why = fmt::format("{}: {}", path.string(), failed.message());
    fs::remove(beside, failed);
    return why;
  }
  stay_below_limit();
  return "";
}

std::string ImageFolder::path_of(const TextHash& key) const {
  return (fs::path(folder_) / (hex_of(key) + kImageEnding)).string();
}

// Other processes may remove files meanwhile: missing files are skipped.
void ImageFolder::stay_below_limit() const {
  struct File {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  std::error_code failed;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& entry : fs::directory_iterator(folder_, failed)) {
    std::error_code gone;
    const File file{entry.last_write_time(gone), entry.file_size(gone), entry.path()};
    if (gone) continue;
    if (file.path.extension() == kImageEnding) {
      files.push_back(file);
      total += file.bytes;
    } else if (file.used < old) {
      fs::remove(file.path, gone);  // left behind by a process that died
    }
  }
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(),
            [](const File& x, const File& y) { return x.used < y.used; });
  for (const File& file : files) {
    if (total <= limit_) break;
    std::error_code gone;
    fs::remove(file.path, gone);
    total -= file.bytes;
  }
}

}  // namespace troupe::cuda
