#include <troupe/apps/verbs/status_page.hpp>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

namespace troupe::verbs {

namespace {

constexpr std::size_t kServed = 2, kWaiting = 8;  // connections; further ones wait unaccepted, in the kernel
constexpr time_t kPatience = 2;                   // seconds for each read and write
constexpr std::size_t kMostBytes = 4096;          // of a request's body

// A few threads and a bounded queue: who accepts waits for room.
class FewThreads final : public httplib::TaskQueue {
 public:
  FewThreads() {
    for (std::size_t i = 0; i < kServed; ++i) threads_.emplace_back([this] { work(); });
  }
  void enqueue(std::function<void()> job) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.size() < kWaiting || is_ending_; });
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void shutdown() override {
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
      changed_.notify_all();
    }
    for (std::thread& t : threads_) t.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !jobs_.empty() || is_ending_; });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      changed_.notify_all();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards jobs_ and is_ending_
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

nlohmann::json labels_of(const std::string& text) {
  auto labels = nlohmann::json::object();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string label = text.substr(begin, end - begin);
    if (const auto equals = label.find('='); equals != std::string::npos) labels[label.substr(0, equals)] = label.substr(equals + 1);
    begin = end + 1;
  }
  return labels;
}

// Whoever is a member speaks this node's version, or it would not have been let in.
nlohmann::json members_of(const ClusterNode& node) {
  auto members = nlohmann::json::array();
  for (const Member& m : node.members())
    members.push_back({{"name", m.name}, {"address", m.address}, {"state", name_of(m.state)}, {"incarnation", std::to_string(m.incarnation)},
                       {"labels", labels_of(m.labels)}, {"engine", engine_version()}});
  return {{"node", node.name()}, {"members", std::move(members)}};
}

}  // namespace

class StatusPage::Server {
 public:
  Server(const ClusterNode& node, const std::string& host, int port) : host_(host) {
    http_.new_task_queue = [] { return new FewThreads; };
    http_.set_read_timeout(kPatience);
    http_.set_write_timeout(kPatience);
    http_.set_keep_alive_max_count(16);
    http_.set_keep_alive_timeout(kPatience);
    http_.set_payload_max_length(kMostBytes);
    // Not SO_REUSEPORT, which it would set: two nodes would share a port unknowingly.
    http_.set_socket_options([](socket_t s) {
      const int yes = 1;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.Get("/healthz", [&node](const httplib::Request&, httplib::Response& out) {
      const Status status = node.status();
      out.status = status.ok() && node.has_joined() ? 200 : 503;
      out.set_content(!status.ok() ? status.message() + "\n" : node.has_joined() ? "ok\n" : "not in the cluster yet\n", "text/plain");
    });
    http_.Get("/members", [&node](const httplib::Request&, httplib::Response& out) {
      out.set_content(members_of(node).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", "application/json");
    });
    port_ = port == 0 ? http_.bind_to_any_port(host) : http_.bind_to_port(host, port) ? port : -1;
    if (port_ < 0) throw Error(Code::unavailable, fmt::format("the address {}:{} of --http is taken, or not this machine's", host, port));
    thread_ = std::thread([this] { http_.listen_after_bind(); });
  }
  ~Server() {
    while (!http_.is_running()) std::this_thread::yield();  // `stop` is lost on one that has not begun
    http_.stop();
    thread_.join();
  }
  std::string address() const { return fmt::format("http://{}:{}", host_, port_); }

 private:
  httplib::Server http_;
  const std::string host_;
  int port_ = -1;
  std::thread thread_;
};

StatusPage::StatusPage(const ClusterNode& node, const std::string& host, int port) : server_(std::make_unique<Server>(node, host, port)) {}
StatusPage::~StatusPage() = default;
std::string StatusPage::address() const { return server_->address(); }

}  // namespace troupe::verbs
