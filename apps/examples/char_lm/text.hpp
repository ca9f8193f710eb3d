// The text a model learns from: its symbols are the distinct bytes, and its last tenth is held out.
//
//   Text text = Text::of(read_file("kjv.txt"), "kjv.txt");
//   text.symbol(i);  text.held_out_begin();  conditional_entropy(text);
#pragma once

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/troupe.hpp>

namespace troupe::char_lm {

class Text {
 public:
  /// Throws invalid_argument, naming `source`, if there is nothing to learn in it.
  static Text of(const std::string& bytes, const std::string& source) {
    if (bytes.empty())
      throw Error(
          Code::invalid_argument,
          fmt::format("{} is empty; give a text of some thousand characters with --text FILE",
                      source));
    std::array<int, 256> index;
    index.fill(-1);
    Text t;
    for (unsigned char c : bytes) index[c] = 0;
    for (int c = 0; c < 256; ++c)
      if (index[c] == 0) {
        index[c] = static_cast<int>(t.alphabet_.size());
        t.alphabet_ += static_cast<char>(c);
      }
    if (t.alphabet_.size() == 1)
      throw Error(
          Code::invalid_argument,
          fmt::format("{} holds one character only, repeated {} times: there is nothing to learn; "
                      "give another text with --text FILE",
                      source, bytes.size()));
    t.symbols_.reserve(bytes.size());
    for (unsigned char c : bytes) t.symbols_.push_back(static_cast<std::uint8_t>(index[c]));
    t.checksum_ = crc64(bytes.data(), bytes.size());
    return t;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(symbols_.size()); }
  /// In [0, alphabet().size()).
  int symbol(std::int64_t i) const { return symbols_[i]; }
  /// The distinct bytes, in order.
  const std::string& alphabet() const { return alphabet_; }
  std::int64_t held_out_begin() const { return size() - std::max<std::int64_t>(1, size() / 10); }
  std::int64_t held_out_size() const { return size() - held_out_begin(); }
  std::uint64_t checksum() const { return checksum_; }

 private:
  std::vector<std::uint8_t> symbols_;
  std::string alphabet_;
  std::uint64_t checksum_ = 0;
};

inline constexpr std::size_t kMaxText = std::size_t{4} << 30;  // bytes

/// Throws not_found or failed_precondition in a sentence that names the file.
inline std::string read_file(const std::string& path) {
  auto refuse = [&](Code code, const std::string& why) {
    throw Error(
        code,
        fmt::format("cannot read the text '{}': {}; give a readable text file with --text FILE",
                    path, why));
  };
  // The open of a pipe, and its end, do not wait for a writer; a pipe that has a writer is read as
  // the writer writes.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) fcntl(fd, F_SETFL, 0);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      fd < 0 ? nullptr : fdopen(fd, "rb"), [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  if (!file)
    refuse(errno == ENOENT ? Code::not_found : Code::failed_precondition, std::strerror(errno));
  struct stat info {};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode))
    refuse(Code::failed_precondition, "it is a directory");
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode))
    refuse(Code::failed_precondition, "it is a device, and may never end");
  std::string bytes;
  char block[1 << 16];
  while (std::size_t n = std::fread(block, 1, sizeof block, file.get())) {
    if (bytes.size() > kMaxText) refuse(Code::failed_precondition, "it is longer than 4 GiB");
    bytes.append(block, n);
  }
  if (std::ferror(file.get())) refuse(Code::failed_precondition, std::strerror(errno));
  if (bytes.empty() && S_ISFIFO(info.st_mode))
    refuse(Code::failed_precondition, "it is a pipe without a writer");
  return bytes;
}

/// The King James Bible, as Debian's package bible-kjv prints it: one verse a line.
inline std::string read_bible() {
  std::FILE* pipe = popen("bible -f gen1:1-rev22:21 2>/dev/null </dev/null", "r");
  std::string bytes;
  char block[1 << 16];
  while (std::size_t n = pipe ? std::fread(block, 1, sizeof block, pipe) : 0)
    bytes.append(block, n);
  if (!pipe || pclose(pipe) != 0 || bytes.empty())
    throw Error(Code::not_found,
                "the default text, the King James Bible, comes from the program `bible`, which is "
                "not there or failed; "
                "install it with `apt install bible-kjv`, or give a text with --text FILE");
  return bytes;
}

/// Bits a symbol of the held-out part, when each symbol's frequency there is known.
inline double entropy(const Text& text) {
  std::vector<double> count(text.alphabet().size());
  for (std::int64_t i = text.held_out_begin(); i < text.size(); ++i) ++count[text.symbol(i)];
  double bits = 0, n = static_cast<double>(text.held_out_size());
  for (double c : count)
    if (c > 0) bits -= c / n * std::log2(c / n);
  return bits;
}

/// The entropy if the frequency of each symbol after each other one is known: the bound of a
/// perfect bigram model of the held-out part.
inline double conditional_entropy(const Text& text) {
  std::size_t k = text.alphabet().size();
  std::vector<double> pair(k * k), first(k);
  for (std::int64_t i = text.held_out_begin(); i + 1 < text.size(); ++i) {
    ++pair[text.symbol(i) * k + text.symbol(i + 1)];
    ++first[text.symbol(i)];
  }
  double bits = 0, n = static_cast<double>(text.held_out_size() - 1);
  for (std::size_t i = 0; i < pair.size(); ++i)
    if (pair[i] > 0) bits -= pair[i] / n * std::log2(pair[i] / first[i / k]);
  return bits;
}

}  // namespace troupe::char_lm
