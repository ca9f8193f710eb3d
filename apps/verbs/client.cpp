#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <unistd.h>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/apps/verbs/service.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>

namespace troupe::verbs {

namespace {

/// The address of a node's --http server.
struct Place {
  std::string host;  // an IPv6 address without its brackets
  int port = 80;
  std::string url;
};

/// `[http://]HOST[:PORT]`, or a port alone, which is on this machine, as for --http. Throws Misuse.
Place place_of(const std::string& node) {
  constexpr std::string_view kDigits = "0123456789";
  const auto demand = [&](bool holds) {
    if (!holds)
      throw Misuse(fmt::format(
          "--node takes where a node serves --http, such as http://127.0.0.1:7200, not '{}'",
          node));
  };
  std::string at = node.starts_with("http://") ? node.substr(7) : node;
  if (at.find("://") != std::string::npos)
    throw Misuse(fmt::format("--node takes an address over http://, not '{}'", node));
  while (at.ends_with('/')) at.pop_back();
  if (!at.empty() && at.find_first_not_of(kDigits) == std::string::npos) at = "127.0.0.1:" + at;
  const bool is_v6 = at.starts_with('[');
  const auto end = is_v6 ? at.find(']') : std::min(at.find(':'), at.size());
  demand(end != std::string::npos);
  Place place{is_v6 ? at.substr(1, end - 1) : at.substr(0, end), 80, "http://" + at};
  demand(!place.host.empty() &&
         std::all_of(place.host.begin(), place.host.end(), [](unsigned char c) {
           return c > ' ' && c != 127 && std::strchr("/?#@[]", c) == nullptr;
         }));
  const std::string rest = at.substr(is_v6 ? end + 1 : end);
  if (rest.empty()) return place;
  const std::string port = rest.substr(1);
  demand(rest.front() == ':' && !port.empty() &&
         port.find_first_not_of(kDigits) == std::string::npos);
  if (port.size() > 5 || std::stoi(port) > 65535)
    throw Misuse(fmt::format("--node takes a port up to 65535, not '{}'", port));
  place.port = std::stoi(port);
  return place;
}

/// While this object lives SIGINT and SIGTERM have their usual effect, although `repeat` blocks
/// them: the server may be silent for the whole patience.
class Interruptible {
 public:
  Interruptible() {
    sigset_t endings;
    sigemptyset(&endings);
    sigaddset(&endings, SIGTERM);
    sigaddset(&endings, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &endings, &before_);
  }
  ~Interruptible() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  sigset_t before_{};
};

constexpr std::size_t kMostBytes = std::size_t(1) << 30;  // limit of an answer, unpacked

/// The bytes of an answer, up to a bound that no node exceeds. httplib matches the first line by a
/// regular expression that recurses once a character, and again after each `100 Continue`; and it
/// gathers lines without end. Bytes that httplib reads one by one are counted as lines.
class BoundedStream final : public httplib::Stream {
 public:
  BoundedStream(httplib::Stream& from, bool& is_nonsense)
      : from_(from), is_nonsense_(is_nonsense) {}
  bool is_readable() const override { return from_.is_readable(); }
  bool is_writable() const override { return from_.is_writable(); }
  ssize_t read(char* to, std::size_t size) override {
    constexpr std::size_t kMostOfLines = std::size_t(1) << 20;
    const ssize_t n = from_.read(to, size);
    if (n <= 0) return n;
    std::size_t& count = size == 1 ? of_lines_ : of_body_;
    count += static_cast<std::size_t>(n);
    is_nonsense_ |= of_lines_ > kMostOfLines || of_body_ > kMostBytes;
    for (ssize_t i = 0; i < n && !has_line_; ++i) hear(to[i]);
    return is_nonsense_ ? -1 : n;
  }
  ssize_t write(const char* from, std::size_t size) override { return from_.write(from, size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    from_.get_remote_ip_and_port(ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    from_.get_local_ip_and_port(ip, port);
  }
  socket_t socket() const override { return from_.socket(); }

 private:
  void hear(char c) {
    constexpr std::string_view kBegins = "HTTP/1.";
    constexpr std::size_t kMost = 1024, kCode = kBegins.size() + 2;
    line_ += c;
    has_line_ = c == '\n' || line_.size() > kMost;
    if (has_line_)
      is_nonsense_ |= line_.size() > kMost || !line_.starts_with(kBegins) ||
                      line_.size() <= kCode || line_[kCode] == '1';
  }

  httplib::Stream& from_;
  bool& is_nonsense_;
  std::string line_;  // the first
  bool has_line_ = false;
  std::size_t of_lines_ = 0, of_body_ = 0;
};

/// An HTTP client that reads answers through BoundedStream only.
class BoundedClient final : public httplib::ClientImpl {
 public:
  using ClientImpl::ClientImpl;
  bool heard_nonsense() const { return is_nonsense_; }

 private:
  bool process_socket(const Socket& socket, std::function<bool(httplib::Stream&)> use) override {
    return httplib::detail::process_client_socket(socket.sock, read_timeout_sec_,
                                                  read_timeout_usec_, write_timeout_sec_,
                                                  write_timeout_usec_, [&](httplib::Stream& from) {
                                                    BoundedStream bounded(from, is_nonsense_);
                                                    return use(bounded);
                                                  });
  }

  bool is_nonsense_ = false;
};

volatile std::sig_atomic_t last_status = 0;  // exit status of the looks that have ended

}  // namespace

std::string fetch(const LookFlags& flags, const std::string& path, int least_s) {
  const Place place = place_of(flags.node);
  const std::string& url = place.url;
  BoundedClient http(place.host, place.port);
  const int patience = std::max(flags.patience, least_s);
  http.set_connection_timeout(std::min(5, patience));
  http.set_read_timeout(patience + 1);  // it bounds silence; the deadline ends slow answers
  if (const std::string token = token_of(flags.token); !token.empty())
    http.set_default_headers({{"Authorization", "Bearer " + token}});
  std::atomic<bool> is_late{false};  // publishes nothing but itself
  std::string body;
  bool is_too_much = false;
  const auto gathered = [&](const char* bytes, std::size_t n) {
    is_too_much = n > kMostBytes - body.size();
    if (!is_too_much) body.append(bytes, n);
    return !is_too_much;
  };
  const auto answer = [&] {
    const Interruptible leaves_at_once;
    const Deadline deadline(patience, [&] {
      is_late.store(true, std::memory_order_relaxed);
      http.stop();  // as if the node had hung up
    });
    return http.Get(path, gathered);
  }();
  const bool is_connected = answer.error() != httplib::Error::Connection &&
                            answer.error() != httplib::Error::ConnectionTimeout;
  if (is_connected && is_late.load(std::memory_order_relaxed))
    throw std::runtime_error(
        fmt::format("{} is connected but has not answered for {} s: it is stopped or overloaded",
                    url, patience));
  if (is_too_much)
    throw std::runtime_error(
        fmt::format("the server at {} sends more than {} MiB and is not a node of Troupe", url,
                    kMostBytes >> 20));
  // A server that is too busy answers before it has read the request.
  if (http.heard_nonsense() || (answer && answer->status < 405 &&
                                answer->get_header_value(kInspectionHeader) != kInspectionVersion))
    throw std::runtime_error(
        fmt::format("the server at {} is no node of Troupe of this version; give --node the "
                    "--http address of such a node",
                    url));
  if (!answer)
    throw std::runtime_error(
        fmt::format("no node answers at {} ({}); start one with 'troupe node --http 7200', or name "
                    "one with --node",
                    url, httplib::to_string(answer.error())));
  if (answer->status == 200) return body;
  const auto said = nlohmann::json::parse(body, nullptr, false);
  std::string why = fmt::format("{} answers {}", url, answer->status);
  if (said.is_object() && said.contains("error") && said["error"].is_string()) why = said["error"];
  if (answer->status == 404 || answer->status == 400) throw Misuse(printable(why));
  throw std::runtime_error(printable(answer->status == 401 ? why + " (--token-file)" : why));
}

std::string sentence_of(const std::exception& error) {
  const bool is_of_json = dynamic_cast<const nlohmann::json::exception*>(&error) != nullptr;
  return is_of_json
             ? fmt::format("the answer of the node is not one of this version: {}", error.what())
             : error.what();
}

nlohmann::json parsed(const std::string& said) {
  constexpr int kDeepest = 64;
  // Fractions are shares and counts of cores: any reader's type holds numbers below this.
  constexpr double kMost = 2'147'483'648.0;
  const auto is_said = [&](int depth, nlohmann::json::parse_event_t event,
                           const nlohmann::json& value) {
    const bool is_known = event != nlohmann::json::parse_event_t::value ||
                          !value.is_number_float() || (value >= 0.0 && value < kMost);
    if (depth > kDeepest || !is_known)
      throw std::runtime_error("the answer of the node is not one of this version");
    return true;
  };
  return nlohmann::json::parse(said, is_said);
}

std::string encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
        c == '~' || c == '/' || c == ':')
      out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Output::Output(std::string name) : name_(std::move(name)) {
  if (name_.empty()) return;
  is_made_ = ::access(name_.c_str(), F_OK) != 0;
  // the old contents stay until there are new ones
  file_.open(name_, std::ios::binary | std::ios::app);
  if (!file_) throw Misuse(fmt::format("'{}' cannot be written: {}", name_, std::strerror(errno)));
}

Output::~Output() {
  if (is_made_) ::unlink(name_.c_str());
}

void Output::write(const std::string& text) {
  if (name_.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // main looks whether it was written
    return;
  }
  is_made_ = false;
  file_.close();
  file_.open(name_, std::ios::binary | std::ios::trunc);
  if (!(file_ << text).flush())
    throw std::runtime_error(
        fmt::format("'{}' cannot be written: {}", name_, std::strerror(errno)));
}

/// After the first answer a failed look is reported, and does not end the program.
static int drawn_or_complained(const std::function<int()>& draw) {
  const auto complained = [](const std::exception& error, int status) {
    std::fputs(fmt::format("troupe: {}\n", printable(sentence_of(error))).c_str(), stderr);
    return status;
  };
  try {
    return draw();
  } catch (const Misuse& error) {  // the requested object is gone
    return complained(error, 2);
  } catch (const std::exception& error) { return complained(error, 1); }
}

// The printed text and its exit status belong together: a signal ends a look during a request
// (`fetch`), and at no other time.
int repeat(const LookFlags& flags, const std::function<int()>& draw) {
  if (flags.watch <= 0) return draw();
  const sigset_t endings = block_endings();
  const timespec pause{
      static_cast<time_t>(flags.watch),
      static_cast<long>((flags.watch - static_cast<double>(static_cast<time_t>(flags.watch))) *
                        1e9)};
  for (bool is_first = true;; is_first = false) {
    if (is_terminal() && !flags.json) std::fputs("\x1b[H\x1b[2J", stdout);
    const int status = is_first ? draw() : drawn_or_complained(draw);
    last_status = status;
    if (is_first) {  // before, they end it as they would without --watch: there is no status yet
      struct sigaction on {};
      on.sa_handler = [](int) { _exit(last_status); };  // all output is written
      for (const int ending : {SIGINT, SIGTERM}) sigaction(ending, &on, nullptr);
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      if (errno == EPIPE) std::clearerr(stdout);  // the reader is gone, which is no error
      return status;
    }
    if (sigtimedwait(&endings, nullptr, &pause) >= 0) return status;
  }
}

}  // namespace troupe::verbs
