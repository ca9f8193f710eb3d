#include <troupe/cluster/inspect/inspection_server.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <httplib.h>

#include <troupe/actors/engine/reporters.hpp>
#include <troupe/actors/runtime/clock.hpp>
#include <troupe/cluster/inspect/event_feed.hpp>
#include <troupe/cluster/inspect/http_acceptor.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/cluster/inspect/inspection_reporters.hpp>
#include <troupe/cluster/inspect/page_assets.hpp>
#include <troupe/cluster/node/checkpoint_service.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/ops/format/records.hpp>

namespace troupe {
namespace {

constexpr auto kReaderPatience = std::chrono::seconds(2);  // with a client that does not read on
constexpr auto kAnswer = std::chrono::seconds(30);         // for all of an answer to be read
constexpr auto kAsk = std::chrono::milliseconds(400);      // other nodes
// The least weight of a plan: with 400,000 rows no more than 4000 plans are remembered. A limit of
// 16 plans by number is too low: a client that watches all plans of a cluster asks for them in
// turn, and finds each of them gone at its next request.
constexpr std::size_t kLeastRows = 100;
constexpr std::int64_t kMostSeconds = 60;  // length of a trace

bool is_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

bool is_loopback_name(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_address(host));
}

// Is `host`, as requests say it, with a port or without, a name of the Internet's? No name without
// a dot is, nor one below localhost.
bool is_domain(std::string host) {
  if (host.starts_with('[')) return false;
  host = host.substr(0, host.find(':'));
  return host.find('.') != std::string::npos && !host.ends_with(".localhost") && !is_address(host);
}

// Takes a time that does not depend on the number of right characters.
bool is_same(const std::string& a, const std::string& b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differs = static_cast<unsigned char>(differs | (a[i] ^ b[b.empty() ? 0 : i % b.size()]));
  return differs == 0;
}

std::int64_t number_in(const std::string& text, const char* name, std::int64_t least = 0) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least)
    throw Error(Code::invalid_argument, fmt::format("'{}' takes a number{}", name,
                                                    least == 0 ? " that is not negative" : ""));
  return n;
}

std::int64_t number_of(const httplib::Request& in, const char* name, std::int64_t otherwise) {
  return in.has_param(name) ? number_in(in.get_param_value(name), name) : otherwise;
}

// Parses a plan's id; it matches any life of its owner.
PlanName plan_of(const std::string& id) {
  const auto slash = id.rfind('/');
  PlanName name;
  if (slash == std::string::npos)
    throw Error(Code::invalid_argument,
                fmt::format("'{}' is no plan's id: it is NODE/NUMBER, as in 'a/3'", id));
  const auto [end, error] =
      std::from_chars(id.data() + slash + 1, id.data() + id.size(), name.number);
  if (error != std::errc() || end != id.data() + id.size())
    throw Error(Code::invalid_argument,
                fmt::format("'{}' is no plan's id: it is NODE/NUMBER, as in 'a/3'", id));
  name.owner = id.substr(0, slash);
  return name;
}

// A request with a complete head and no body: only GET and HEAD are answered, whose bodies no
// handler reads.
class HttpStream final : public httplib::Stream {
 public:
  HttpStream(socket_t socket, std::string head) : socket_(socket), head_(std::move(head)) {}
  bool is_readable() const override { return next_ < head_.size(); }
  bool is_writable() const override {
    const auto now = std::chrono::steady_clock::now();
    if (end_ == std::chrono::steady_clock::time_point()) end_ = now + kAnswer;
    const auto left = std::min<std::chrono::steady_clock::duration>(end_ - now, kReaderPatience);
    pollfd one{socket_, POLLOUT, 0};
    return left.count() > 0 &&
           ::poll(&one, 1,
                  static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count())) ==
               1;
  }
  ssize_t read(char* to, std::size_t size) override {
    const std::size_t n = head_.copy(to, size, next_);
    next_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, std::size_t size) override {
    return is_writable() ? ::send(socket_, from, size, MSG_NOSIGNAL) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  const socket_t socket_;
  const std::string head_;
  std::size_t next_ = 0;
  mutable std::chrono::steady_clock::time_point end_;  // set when the answer begins
};

// Returns where the next line begins whose header has this name, in lower case; npos: there is
// none. A line of httplib's ends with \n.
std::size_t find_header(const std::string& head, std::string_view name, std::size_t from = 0) {
  const std::string line = "\n" + std::string(name) + ":";
  const auto is_same_letter = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  const auto at = std::search(head.begin() + static_cast<std::ptrdiff_t>(from), head.end(),
                              line.begin(), line.end(), is_same_letter);
  return at == head.end() ? std::string::npos : static_cast<std::size_t>(at - head.begin()) + 1;
}

// The head of a request as if its browser took answers in this encoding alone, if it names any:
// httplib would choose Brotli, at its best and slowest, and a plan of 10,000 actors took it
// seconds. And as if it wanted all: httplib gives a range as often as it is named, and a head of 8
// KiB names all of an asset thousands of times.
std::string accepting(std::string head, std::string_view encoding) {
  constexpr std::string_view kEncoding = "accept-encoding", kRange = "range";
  for (std::size_t at = 0; (at = find_header(head, kEncoding, at)) != std::string::npos;) {
    at += kEncoding.size() + 1;
    const std::size_t line = std::min(head.find('\n', at), head.size()),
                      end = line > at && head[line - 1] == '\r' ? line - 1 : line;
    const bool is_taken = head.substr(at, end - at).find(encoding) != std::string::npos;
    head.replace(at, end - at, is_taken ? encoding : "identity");
  }
  for (std::size_t at; (at = find_header(head, kRange)) != std::string::npos;)
    head.erase(at, std::min(head.find('\n', at), head.size() - 1) + 1 - at);
  return head;
}

// Serves one request a connection, so that a client that asks often keeps no thread.
class Routes final : public httplib::Server {
 public:
  void answer(socket_t socket, std::string head) {
    asker_ = socket;
    HttpStream connection(socket, std::move(head));
    process(connection);
  }
  /// httplib makes tables at its first request. Here one thread makes them, before there are
  /// others. A guard inside httplib lets later threads see them whole, but TSan does not look into
  /// that library.
  void warm_up() {
    constexpr std::string_view kRequest = "OPTIONS * HTTP/1.1\r\n\r\n";
    httplib::detail::BufferStream heard;
    heard.write(kRequest.data(), kRequest.size());
    process(heard);
  }
  /// Returns true if the client that is served on this thread hangs up within that time. httplib's
  /// requests do not report it.
  static bool has_gone(std::chrono::milliseconds within) {
    pollfd one{asker_, POLLRDHUP, 0};
    return ::poll(&one, 1, static_cast<int>(within.count())) > 0;
  }

 private:
  void process(httplib::Stream& connection) {
    bool is_closed = false;
    process_request(connection, true, is_closed, nullptr);
  }

  inline static thread_local socket_t asker_ = -1;
};

}  // namespace

class InspectionServer::Server {
 public:
  Server(const ClusterNode& node, InspectionOptions options)
      : node_(node), options_(std::move(options)) {
    if (options_.token.empty() && !is_loopback_name(options_.host))
      throw Error(Code::invalid_argument,
                  fmt::format("the inspection address {} is not loopback; set --http-token-file",
                              options_.host));
    // Not SO_REUSEPORT, which it would set: two nodes would share a port unknowingly.
    http_.set_socket_options([this](socket_t s) {
      listening_ = s;
      const int yes = 1;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.set_pre_routing_handler(
        [this](const httplib::Request& in, httplib::Response& out) { return admit(in, out); });
    http_.set_error_handler([](const httplib::Request& in, httplib::Response& out) {
      if (out.body.empty())
        out.set_content(
            error_json(out.status == 404
                           ? fmt::format("there is nothing at '{}'", in.path)
                           : fmt::format("the request makes no sense ({})", out.status)),
            "application/json");
    });
    add_probes();
    add_answers();
    http_.warm_up();
    port_ = options_.port == 0 ? http_.bind_to_any_port(options_.host)
            : http_.bind_to_port(options_.host, options_.port) ? options_.port
                                                               : -1;
    if (port_ < 0)
      throw Error(Code::unavailable,
                  fmt::format("the address {}:{} of --http is taken, or not this machine's",
                              options_.host, options_.port));
    acceptor_.emplace(
        listening_, HttpAcceptor::Limits{options_.serve, options_.wait, options_.head},
        [this](int socket, std::string head) {
          // to this machine itself nothing is slow
          http_.answer(socket, accepting(std::move(head),
                                         is_loopback_name(options_.host) ? "identity" : "gzip"));
        });
  }
  ~Server() {
    is_ending_.store(true, std::memory_order_relaxed);  // no thread waits for the end of a trace
    for (const Records* records : records_) node_.forget(*records);
  }
  std::string address() const {
    const bool is_v6 = options_.host.find(':') != std::string::npos;
    return fmt::format("http://{}:{}", is_v6 ? "[" + options_.host + "]" : options_.host, port_);
  }

  /// Others' answers: looked up by path, for httplib's routes may not change while it serves.
  void serve(const std::string& path, std::function<std::string(const Query&)> answer) {
    std::lock_guard lock(mutex_);
    added_.insert_or_assign(path, std::move(answer));
  }
  void serve(const Records& records) {
    std::lock_guard lock(mutex_);
    records_.push_back(&records);
    node_.tell_of(records);
  }

 private:
  httplib::Server::HandlerResponse admit(const httplib::Request& in, httplib::Response& out) {
    using Handled = httplib::Server::HandlerResponse;
    const auto end = [&](int status, const char* sentence) {
      out.status = status;
      // a request with `Connection: close` gets that header from the library
      if (in.get_header_value("Connection") != "close") out.set_header("Connection", "close");
      out.set_content(error_json(sentence), "application/json");
      return Handled::Handled;
    };
    if (in.method != "GET" && in.method != "HEAD") {
      out.set_header("Allow", "GET, HEAD");
      return end(405, "it is only read here: GET");
    }
    for (const auto& [name, value] : in.params)
      if (value.find('\0') != std::string::npos)
        return end(400, "a NUL character is in no name and no number");
    if (in.get_header_value("Content-Length").find_first_not_of("0123456789") != std::string::npos)
      return end(400, "its Content-Length is no length");
    const bool is_page = in.path == "/" || in.path.starts_with("/assets/");  // which holds no data
    out.set_header(kInspectionHeader, kInspectionVersion);
    // Any page may have its own name resolve to this machine. Its browser then takes this node's
    // answers for that page's.
    if (options_.token.empty() && in.path != "/healthz" && !is_page &&
        is_domain(in.get_header_value("Host")))
      return end(403,
                 "without a token this node answers as 127.0.0.1 or localhost only; set "
                 "--http-token-file");
    if (!options_.token.empty() && in.path != "/healthz" && !is_page) {
      const std::string bearer = in.get_header_value("Authorization");
      const std::string said = bearer.starts_with("Bearer ") ? bearer.substr(7)
                               : in.has_param("token")       ? in.get_param_value("token")
                                                             : std::string();
      if (!is_same(said, options_.token))
        return end(
            401,
            "the request has no valid token; send 'Authorization: Bearer TOKEN' or '?token=TOKEN'");
    }
    out.set_header("X-Content-Type-Options", "nosniff");
    out.set_header("Referrer-Policy", "no-referrer");
    if (!is_page) out.set_header("Cache-Control", "no-store");
    return Handled::Unhandled;
  }

  /// A route that answers JSON; an exception becomes a status and a sentence.
  template <class Answer>
  void get(const char* path, Answer answer) {
    http_.Get(path, [answer](const httplib::Request& in, httplib::Response& out) {
      try {
        out.set_content(answer(in), "application/json");
      } catch (const Error& e) {
        out.status = e.code() == Code::not_found          ? 404
                     : e.code() == Code::invalid_argument ? 400
                                                          : 503;
        out.set_content(error_json(e.what()), "application/json");
      }
    });
  }

  void add_probes() {
    http_.Get("/healthz", [this](const httplib::Request&, httplib::Response& out) {
      const Status status = node_.status();
      out.status = status.ok() && node_.has_joined() ? 200 : 503;
      out.set_content(!status.ok()         ? status.message() + "\n"
                      : node_.has_joined() ? "ok\n"
                                           : "not in the cluster yet\n",
                      "text/plain");
    });
    http_.Get("/members", [this](const httplib::Request&, httplib::Response& out) {
      out.set_content(members_json(node_.name(), node_.members()), "application/json");
    });
    http_.Get("/metrics", [this](const httplib::Request&, httplib::Response& out) {
      const ClusterReport here = node_.inspect({}, kAsk, node_.name());
      out.set_content(metrics_text(here.at(0).report, node_.members(), node_.pool_counters(),
                                   node_.membership_counters()) +
                          training_metrics(node_.checkpoints().report()),
                      "text/plain; version=0.0.4; charset=utf-8");
    });
  }

  void add_answers() {
    get("/api/state", [this](const httplib::Request&) {
      return state_json(node_.name(), node_.inspect({}, kAsk));
    });
    get("/api/plan", [this](const httplib::Request& in) {
      return plan_json(cache_of(in.get_param_value("id"))->plan());
    });
    get("/api/counters", [this](const httplib::Request& in) {
      const auto since = static_cast<std::uint64_t>(number_of(in, "since", 0));
      const std::shared_ptr<CounterCache> cache = cache_of(in.get_param_value("plan"));
      update(*cache);
      return cache->changes(since);
    });
    get("/api/actor",
        [this](const httplib::Request& in) { return actor(in.get_param_value("id")); });
    get("/api/diagnose", [this](const httplib::Request&) {
      const std::vector<Diagnosis> verdicts = node_.diagnose();
      return diagnosis_json(node_.name(), verdicts, joined_runs(node_.inspect({}, kAsk)));
    });
    get("/api/events", [this](const httplib::Request& in) {
      const std::int64_t since = number_of(in, "since", 0),
                         until = number_of(in, "until", INT64_MAX),
                         limit = number_of(in, "limit", 10'000);
      const std::int64_t asked = epoch_ns();
      return events_json(
          node_.inspect({.kind = NodeQuestion::Kind::events, .since_ns = since}, kAsk), asked,
          since, until, static_cast<std::size_t>(limit));
    });
    get("/api/scalars", [this](const httplib::Request& in) {
      // also what was recorded at a step below 0, before training
      constexpr std::int64_t kAll = INT64_MIN;
      const std::int64_t since =
          in.has_param("since") ? number_in(in.get_param_value("since"), "since", kAll) : kAll;
      std::string said = scalars_json(
          node_.inspect({.kind = NodeQuestion::Kind::scalars, .since_step = since}, kAsk));
      if (said.empty())
        throw Error(
            Code::not_found,
            "no program records its training on any node: InspectionServer::serve(records) does");
      return said;
    });
    get("/api/stream", [this](const httplib::Request& in) {
      constexpr std::int64_t kMostEvents = 20'000;
      const auto after = static_cast<std::uint64_t>(number_of(in, "after", 0));
      const auto most = static_cast<std::size_t>(
          std::clamp<std::int64_t>(number_of(in, "limit", kMostEvents), 1, kMostEvents));
      EventFeed& feed = this->feed();
      const EventFeed::Part part = feed.after(after, most);
      return stream_json(part, feed.counts());
    });
    get("/api/dependence", [this](const httplib::Request&) {
      return dependence_json(node_.inspect(topic_question("dependence"), kAsk));
    });
    get("/api/queries", [this](const httplib::Request&) {
      return queries_json(node_.inspect(topic_question("queries"), kAsk));
    });
    get("/api/trace",
        [this](const httplib::Request& in) { return trace(number_of(in, "seconds", 1)); });
    const auto page = [](const httplib::Request& in, httplib::Response& out) {
      // after /assets/
      const PageAsset* asset =
          find_page_asset(in.path == "/" ? "index.html" : std::string_view(in.path).substr(8));
      if (!asset) {
        out.status = 404;
        return;
      }
      out.set_header("Content-Security-Policy", std::string(kPagePolicy));
      out.set_header("Cache-Control", "no-cache");
      out.set_header("ETag", std::string(asset->etag));
      if (in.get_header_value("If-None-Match") == asset->etag) out.status = 304;
      else out.set_content(asset->bytes.data(), asset->bytes.size(), std::string(asset->type));
    };
    http_.Get("/", page);
    http_.Get(R"(/assets/.*)", page);
    get(R"(/.*)", [this](const httplib::Request& in) {
      std::function<std::string(const Query&)> answer;
      {
        std::lock_guard lock(mutex_);
        if (const auto it = added_.find(in.path); it != added_.end()) answer = it->second;
      }
      if (!answer) throw Error(Code::not_found, fmt::format("there is nothing at '{}'", in.path));
      Query query;
      for (const auto& [name, value] : in.params) query.emplace(name, value);
      return answer(query);
    });
  }

  /// Returns the feed of all nodes, which begins with the first subscriber.
  EventFeed& feed() {
    std::lock_guard lock(mutex_);
    if (!feed_) feed_.emplace(node_, FeedOptions{});
    return *feed_;
  }

  /// Returns the counters of a plan, which are remembered between requests for as long as its owner
  /// lives. Throws not_found, with the plans there are. Throws unavailable if participants are
  /// there and the owner, which has the description, does not answer.
  std::shared_ptr<CounterCache> cache_of(const std::string& id) {
    PlanName name = plan_of(id);
    name.life = life_of(name.owner);
    {
      std::lock_guard lock(mutex_);
      if (const auto it = caches_.find(name); it != caches_.end()) {
        it->second.used = ++uses_;
        return it->second.cache;
      }
    }
    for (const NodeAnswer& a :
         node_.inspect({.kind = NodeQuestion::Kind::plan, .plan = name}, kAsk)) {
      if (!a.has_answered || a.report.plan.name != name) continue;
      auto cache = std::make_shared<CounterCache>(a.report.plan);
      std::lock_guard lock(mutex_);
      make_room(rows_of(*cache));
      return caches_.insert_or_assign(name, Cached{cache, ++uses_}).first->second.cache;
    }
    throw why_not_described(name, node_.inspect({}, kAsk));
  }

  static std::size_t rows_of(const CounterCache& cache) {
    return std::max(kLeastRows, cache.plan().actors.size() + cache.plan().edges.size());
  }

  /// Forgets the plans that were not requested for longest. Called under the lock.
  void make_room(std::size_t rows) {
    for (const auto& [name, known] : caches_) rows += rows_of(*known.cache);
    while (rows > options_.rows && !caches_.empty()) {
      const auto oldest = std::min_element(
          caches_.begin(), caches_.end(),
          [](const auto& x, const auto& y) { return x.second.used < y.second.used; });
      rows -= rows_of(*oldest->second.cache);
      caches_.erase(oldest);
    }
  }

  /// The incarnation of a node; 0: it is not known.
  std::uint64_t life_of(const std::string& node) const {
    for (const Member& m : node_.members())
      if (m.name == node) return m.incarnation;
    return 0;
  }

  void update(CounterCache& cache) {
    const std::uint64_t ticket = cache.begin();
    cache.update(
        node_.inspect({.kind = NodeQuestion::Kind::counters, .plan = cache.plan().name}, kAsk),
        ticket);
  }

  std::string actor(const std::string& id) {
    const auto colon = id.rfind(':');
    if (colon == std::string::npos)
      throw Error(Code::invalid_argument,
                  fmt::format("'{}' is no actor's id: it is PLAN:NUMBER, as in 'a/3:12'", id));
    const std::shared_ptr<CounterCache> cache = cache_of(id.substr(0, colon));
    std::int32_t node = -1;
    const auto [end, error] = std::from_chars(id.data() + colon + 1, id.data() + id.size(), node);
    if (error != std::errc() || end != id.data() + id.size() || node < 0 ||
        node >= static_cast<std::int32_t>(cache->plan().actors.size()))
      throw Error(Code::not_found,
                  fmt::format("there is no actor '{}': plan '{}' has {}:0 to {}:{}", id,
                              id.substr(0, colon), id.substr(0, colon), id.substr(0, colon),
                              cache->plan().actors.size() - 1));
    update(*cache);
    const ClusterReport state = node_.inspect({}, kAsk);
    std::vector<std::string> errors;
    std::set<std::uint64_t> told;  // runs: each of their nodes has what made them fail
    const ActorDescription& self = cache->plan().actors[static_cast<std::size_t>(node)];
    const std::string name = fmt::format("{} '{}' (", self.op, self.name);
    for (const NodeAnswer& a : state)
      for (const EndedRun& e : a.report.engine.errors)
        if (e.plan == cache->plan().name && actor_of(e.error).starts_with(name) &&
            told.insert(e.run).second)
          errors.push_back(e.error);
    const std::string actor = cache->actor_json(node, joined_runs(state), errors);
    if (cache->plan().name.number < kFirstReporter) return actor;
    return with_operator(actor, node_.inspect(topic_question("queries"), kAsk));
  }

  std::string trace(std::int64_t seconds) {
    if (seconds < 1 || seconds > kMostSeconds)
      throw Error(Code::invalid_argument,
                  fmt::format("a trace takes 1 to {} seconds, not {}", kMostSeconds, seconds));
    std::unique_lock lock(trace_mutex_, std::try_to_lock);
    if (!lock)
      throw Error(Code::unavailable,
                  "another trace through this node is in progress; try again when it has ended");
    const std::int64_t begin = epoch_ns();
    const auto number = static_cast<std::uint64_t>(begin);  // unique at this node
    node_.inspect({.kind = NodeQuestion::Kind::trace_on, .tracer = number}, kAsk);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    bool has_gone = false;
    while (!has_gone && std::chrono::steady_clock::now() < end &&
           !is_ending_.load(std::memory_order_relaxed))
      has_gone = Routes::has_gone(std::chrono::milliseconds(20));
    const std::int64_t until = epoch_ns();
    const ClusterReport traced =
        node_.inspect({.kind = NodeQuestion::Kind::trace_off, .since_ns = begin, .tracer = number},
                      std::chrono::seconds(10));
    if (has_gone) throw Error(Code::cancelled, "the client of the trace has disconnected");
    return trace_json(traced, begin, until);
  }

  struct Cached {
    std::shared_ptr<CounterCache> cache;
    std::uint64_t used = 0;
  };

  Routes http_;
  const ClusterNode& node_;
  const InspectionOptions options_;
  socket_t listening_ = -1;
  int port_ = -1;
  std::atomic<bool> is_ending_{false};  // publishes nothing but itself
  std::mutex trace_mutex_;              // held while a trace is taken
  std::mutex mutex_;                    // guards everything below
  std::map<PlanName, Cached> caches_;
  std::uint64_t uses_ = 0;
  std::map<std::string, std::function<std::string(const Query&)>> added_;
  std::vector<const Records*> records_;
  std::optional<EventFeed> feed_;
  std::optional<HttpAcceptor> acceptor_;  // last: its threads use the others
};

InspectionServer::InspectionServer(const ClusterNode& node, InspectionOptions options)
    : server_(std::make_unique<Server>(node, std::move(options))) {}
InspectionServer::~InspectionServer() = default;
std::string InspectionServer::address() const { return server_->address(); }
void InspectionServer::serve(const std::string& path,
                             std::function<std::string(const Query&)> answer) {
  server_->serve(path, std::move(answer));
}
void InspectionServer::serve(const Records& records) { server_->serve(records); }

}  // namespace troupe
