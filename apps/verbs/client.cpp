#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <chrono>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/apps/verbs/service.hpp>

namespace troupe::verbs {

std::string fetch(const LookFlags& flags, const std::string& path, int least_s) {
  std::string at = flags.node.starts_with("http://") ? flags.node.substr(7) : flags.node;
  while (at.ends_with('/')) at.pop_back();
  if (!at.empty() && at.find_first_not_of("0123456789") == std::string::npos) {  // a port alone, as for --http
    if (at.size() > 5 || std::stoi(at) > 65535) throw Misuse(fmt::format("--node takes a port up to 65535, not '{}'", at));
    at = "127.0.0.1:" + at;
  }
  const std::string url = "http://" + at;
  if (at.find("://") != std::string::npos) throw Misuse(fmt::format("--node takes an address over http://, not '{}'", flags.node));
  httplib::Client http(url);
  if (at.empty() || !http.is_valid()) throw Misuse(fmt::format("--node takes where a node serves --http, such as http://127.0.0.1:7200, not '{}'", flags.node));
  http.set_connection_timeout(5);
  const int patience = std::max(flags.patience, least_s);
  http.set_read_timeout(patience);
  if (const std::string token = token_of(flags.token); !token.empty()) http.set_default_headers({{"Authorization", "Bearer " + token}});
  const auto began = std::chrono::steady_clock::now();
  const auto answer = http.Get(path);
  const auto silent = std::chrono::steady_clock::now() - began >= std::chrono::seconds(patience);
  if (!answer && answer.error() == httplib::Error::Read && silent)
    throw std::runtime_error(fmt::format("{} is connected but has not answered for {} s: it is stopped or overloaded", url, patience));
  if (!answer) throw std::runtime_error(fmt::format("nobody answers at {} ({}): start a node with 'troupe node --http 7200', or name one with --node", url, httplib::to_string(answer.error())));
  if (answer->status == 200) return answer->body;
  const auto said = nlohmann::json::parse(answer->body, nullptr, false);
  std::string why = fmt::format("{} answers {}", url, answer->status);
  if (said.is_object() && said.contains("error") && said["error"].is_string()) why = said["error"];
  if (answer->status == 404 || answer->status == 400) throw Misuse(printable(why));
  throw std::runtime_error(printable(answer->status == 401 ? why + " (--token-file)" : why));
}

std::string encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '~' || c == '/' || c == ':') out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Output::Output(std::string name) : name_(std::move(name)) {
  if (name_.empty()) return;
  file_.open(name_, std::ios::binary | std::ios::app);  // what it holds stays, until there is something else
  if (!file_) throw Misuse(fmt::format("'{}' cannot be written: {}", name_, std::strerror(errno)));
}

void Output::write(const std::string& text) {
  if (name_.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // main looks whether it was written
    return;
  }
  file_.close();
  file_.open(name_, std::ios::binary | std::ios::trunc);
  if (!(file_ << text).flush()) throw std::runtime_error(fmt::format("'{}' cannot be written: {}", name_, std::strerror(errno)));
}

int repeat(const LookFlags& flags, const std::function<int()>& draw) {
  if (flags.watch <= 0) return draw();
  const sigset_t endings = block_endings();
  const timespec pause{static_cast<time_t>(flags.watch), static_cast<long>((flags.watch - static_cast<double>(static_cast<time_t>(flags.watch))) * 1e9)};
  for (;;) {
    if (is_terminal() && !flags.json) std::fputs("\x1b[H\x1b[2J", stdout);
    const int status = draw();
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      if (errno == EPIPE) std::clearerr(stdout);  // nobody reads it any more, which is no mistake
      return status;
    }
    if (sigtimedwait(&endings, nullptr, &pause) >= 0) return status;
  }
}

std::string nearest(const std::string& name, const std::vector<std::string>& all) {
  std::string best;
  std::size_t least = name.size() / 2 + 2;
  for (const std::string& other : all) {
    std::vector<std::size_t> row(other.size() + 1);
    for (std::size_t j = 0; j <= other.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= other.size(); ++j) {
        const std::size_t above = row[j];
        row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (name[i - 1] != other[j - 1])});
        diagonal = above;
      }
    }
    if (row.back() < least) least = row.back(), best = other;
  }
  return best;
}

}  // namespace troupe::verbs
