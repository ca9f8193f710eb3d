// troupe top: nodes, queues of devices, runs and the busiest actors on a full screen, once a
// second, until q, Ctrl-C or SIGTERM. Without a terminal, or as JSON, it prints one second once, or
// repeatedly (`--watch`). Lines are cut at the terminal's width, and tables at its height, also
// when that changes. One thread sends the requests (for several plans at a time, with others), and
// the first thread draws and reads keys: a silent node delays neither.
#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/ops/format/json_text.hpp>

namespace troupe::verbs {
namespace {

using json = nlohmann::json;

termios as_it_was{};
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l", kLeave[] = "\x1b[?25h\x1b[?1049l";

// Also runs in a signal handler, so it calls only functions that are safe there. It does not wait
// for requests in flight.
[[noreturn]] void leave(int = 0) {
  (void)!write(STDOUT_FILENO, kLeave, sizeof kLeave - 1);
  tcsetattr(STDIN_FILENO, TCSANOW, &as_it_was);
  _exit(0);
}

/// Keys come one by one and are not shown; `leave` brings the screen back that was there.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &as_it_was);
    struct sigaction on {};
    on.sa_handler = leave;
    for (const int ending : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaction(ending, &on, nullptr);
    // it interrupts `ppoll`, and nothing else: it is blocked elsewhere, and in threads to come
    on.sa_handler = [](int) {};
    sigaction(SIGWINCH, &on, nullptr);
    sigset_t resized;
    sigemptyset(&resized);
    sigaddset(&resized, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &resized, &waiting_);
    termios raw = as_it_was;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::fputs(kEnter, stdout);
  }
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static winsize size() {
    winsize s{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &s);
    if (s.ws_row == 0) s.ws_row = 24;
    if (s.ws_col == 0) s.ws_col = 80;
    return s;
  }
  /// Lines, none longer than the terminal is wide: each where it belongs, so that a full one wraps
  /// nothing.
  static void draw(const std::string& text) {
    std::string out;
    std::size_t begin = 0;
    for (int row = 1, rows = size().ws_row; row <= rows && begin < text.size(); ++row) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      out += fmt::format("\x1b[{};1H\x1b[K", row) + text.substr(begin, end - begin);
      begin = end + 1;
      if (row < rows) out += fmt::format("\x1b[{};1H\x1b[J", row + 1);
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }
  enum class Event { time, told, key, resized, gone };
  /// `told`: a descriptor that is readable when there is something new.
  Event wait(int told, std::chrono::steady_clock::time_point until, char& key) const {
    const auto left = std::max<std::int64_t>(
        0, std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())
               .count());
    const timespec time{static_cast<time_t>(left / 1000),
                        static_cast<long>(left % 1000 * 1'000'000)};
    pollfd in[] = {{STDIN_FILENO, POLLIN, 0}, {told, POLLIN, 0}};
    const int n = ppoll(in, 2, &time, &waiting_);
    if (n < 0) return Event::resized;
    if (n == 0) return Event::time;
    if (in[0].revents == 0) return Event::told;
    return read(STDIN_FILENO, &key, 1) == 1 ? Event::key : Event::gone;
  }

 private:
  sigset_t waiting_{};  // the signals that are blocked while it waits
};

struct Busy {
  std::string id, state, op, name;
  double fires = 0, share = 0;
};

/// The work of a plan's actors since the last look.
class Watched {
 public:
  explicit Watched(std::string life) : life_(std::move(life)) {}
  /// Returns true for this life of the owner, which counts its plans from 1.
  bool is_of(const std::string& life) const { return life_ == life; }
  void update(const LookFlags& flags, const std::string& plan, double seconds,
              std::vector<Busy>& busy) {
    if (name_.empty()) {
      const json description = parsed(fetch(flags, "/api/plan?id=" + encoded(plan), 60));
      for (const json& row : description.at("actors").at("rows"))
        name_[row.at(0).get<std::string>()] = {row.at(1), row.at(2)};
    }
    const json c = parsed(
        fetch(flags, fmt::format("/api/counters?plan={}&since={}", encoded(plan), seq_), 10));
    for (const json& row : c.at("actors").at("rows")) {
      const auto fires = row.at(1).get<double>(), busy_ns = row.at(3).get<double>();
      const std::string id = row.at(0);
      auto [it, is_new] = last_.try_emplace(id, fires, busy_ns);
      if (!is_new && seconds > 0)
        busy.push_back({id, row.at(5), name_[id].first, name_[id].second,
                        (fires - it->second.first) / seconds,
                        (busy_ns - it->second.second) * 1e-9 / seconds});
      it->second = {fires, busy_ns};
    }
    seq_ = c.at("seq");
  }

 private:
  std::string life_;
  std::uint64_t seq_ = 0;
  std::map<std::string, std::pair<double, double>> last_;            // fires and busy time by actor
  std::map<std::string, std::pair<std::string, std::string>> name_;  // operation and name by actor
};

/// The work of devices' queues between two looks, by names of device and queue.
class WatchedQueues {
 public:
  /// Adds a row for each queue of an answer, and one for each device without any.
  void add_rows(const json& state, Table& table) {
    const double now = state.at("time_ns").get<double>();
    std::map<std::string, Counts> seen;
    for (const json& n : state.at("nodes")) {
      if (!n.at("reachable").get<bool>()) continue;
      for (const json& d : n.at("devices")) {
        std::vector<std::string> memory = {bytes_text(d.at("in_use")), bytes_text(d.at("free")),
                                           bytes_text(d.at("swapped"))};
        if (d.at("queues").empty())
          add(table, {d.at("name"), "-", "-", "-", "-", "-", "-"}, memory);
        for (const json& q : d.at("queues")) {
          const std::string device = d.at("name"), queue = q.at("name");
          const Counts counts{now, q.at("busy_ns").get<double>(), q.at("launches").get<double>(),
                              q.at("replayed").get<double>()};
          seen[device + "\n" + queue] = counts;
          add(table, row_of(device, queue, q, counts), memory);
        }
      }
    }
    last_ = std::move(seen);
  }

 private:
  struct Counts {
    double time_ns = 0, busy_ns = 0, launches = 0, replayed = 0;
  };

  std::vector<std::string> row_of(const std::string& device, const std::string& queue,
                                  const json& q, const Counts& counts) const {
    std::string busy = "-", launches = "-", replayed = "-";
    const auto it = last_.find(device + "\n" + queue);
    if (it != last_.end() && counts.time_ns > it->second.time_ns) {
      const Counts& before = it->second;
      const double passed = counts.time_ns - before.time_ns;
      const auto grown = [](double after, double then) { return std::max(0.0, after - then); };
      const double made = grown(counts.launches, before.launches);
      busy = fmt::format("{:.1f} %",
                         100 * std::min(1.0, grown(counts.busy_ns, before.busy_ns) / passed));
      launches = count_text(made / (passed * 1e-9));
      if (made > 0)
        replayed = fmt::format("{:.0f} %", 100 * grown(counts.replayed, before.replayed) / made);
    }
    return {device,   queue,   busy, count_text(q.at("depth")), count_text(q.at("events")),
            launches, replayed};
  }
  /// The first row of a device has its memory.
  static void add(Table& table, std::vector<std::string> row, std::vector<std::string>& memory) {
    for (std::string& text : memory) row.push_back(std::exchange(text, ""));
    table.add(std::move(row));
  }

  std::map<std::string, Counts> last_;
};

/// The contents to show, whatever the size of the terminal.
struct View {
  std::string title;
  std::string state;       // from the node's answer
  std::vector<Busy> busy;  // the busiest first
  Table nodes{{"NODE", "STATE", "CPU", "MEMORY", "QUEUED", "UNACKED", "ROUND TRIP"}},
      devices{{"DEVICE", "QUEUE", "BUSY", "OPEN", "EVENTS", "LAUNCHES/S", "REPLAYED", "IN USE",
               "FREE", "SWAPPED"}},
      runs{{"RUN", "FOR", "FIRED", "WHAT"}}, actors{{"ACTOR", "BUSY", "FIRES/S", "STATE", "WHAT"}},
      operators{{"OPERATOR", "STATE", "BLOCKED", "EVENTS", "OUT", "RETRACTED", "LIVE", "PEAK"}};
  json of_operators = json::array();  // running queries, as the node answers

  /// `age`: seconds since the answer, if that is long ago; `amiss`: why.
  std::string text(std::int64_t age, const std::string& amiss) const {
    const winsize size = Screen::size();
    // nodes, devices and runs leave a quarter to the actors
    const std::size_t rows = size.ws_row, share = rows / 4;
    const std::string first =
        title + (age > 0 ? fmt::format("; updated {} s ago", age) : "") + "; q leaves";
    std::string out = cut(first, size.ws_col) + "\n" + in(Colour::red, cut(amiss, size.ws_col)) +
                      "\n" + nodes.text(size.ws_col, std::max<std::size_t>(share, 3)) + "\n" +
                      devices.text(size.ws_col, std::max<std::size_t>(share, 3)) + "\n" +
                      runs.text(size.ws_col, std::max<std::size_t>(share, 3)) + "\n";
    if (!of_operators.empty())
      out += operators.text(size.ws_col, std::max<std::size_t>(share / 2, 3)) + "\n";
    const auto used = static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n'));
    return used < rows ? out + actors.text(size.ws_col, rows - used) : out;
  }
  /// The text for output without a terminal.
  std::string plain_text() const {
    constexpr std::size_t kMostLines = 100;
    return title + "\n\n" + nodes.text() + "\n" + devices.text(SIZE_MAX, kMostLines) + "\n" +
           runs.text() + "\n" +
           (of_operators.empty() ? "" : operators.text(SIZE_MAX, kMostLines) + "\n") +
           actors.text(SIZE_MAX, kMostLines);
  }
  /// On one line.
  std::string json_line() const {
    json rows = json::array();
    for (const Busy& b : busy)
      rows.push_back({{"id", b.id},
                      {"op", b.op},
                      {"name", b.name},
                      {"state", b.state},
                      {"busy", b.share},
                      {"fires_per_s", b.fires}});
    const std::string queries =
        of_operators.empty() ? "" : ", \"operators\": " + json_text(of_operators);
    return fmt::format("{{\"state\": {}, \"actors\": {}{}}}\n", state, json_text(rows), queries);
  }
};

/// Returns the work of these plans' actors, by id, in so many seconds. Several plans are requested
/// at a time: if a node is silent, each answer takes as long as the others wait for it. Plans that
/// have ended since the node listed them are left out, and forgotten.
std::vector<Busy> busy_of(const LookFlags& flags, std::map<std::string, Watched>& plans,
                          const std::vector<std::string>& ids, double seconds) {
  // as many as a node serves at a time (InspectionOptions::serve): more would only wait there
  constexpr std::size_t kAtOnce = 4;
  struct Part {
    std::vector<Busy> busy;
    bool is_gone = false;
    std::exception_ptr amiss;
  };
  std::vector<Part> parts(ids.size());
  // publishes nothing: parts are read when the threads have ended
  std::atomic<std::size_t> next{0};
  // publishes nothing: a thread that sees it late asks once more
  std::atomic<bool> is_amiss{false};
  const auto ask = [&] {
    for (std::size_t i; !is_amiss.load(std::memory_order_relaxed) &&
                        (i = next.fetch_add(1, std::memory_order_relaxed)) < ids.size();) {
      try {
        plans.at(ids[i]).update(flags, ids[i], seconds, parts[i].busy);
      } catch (const Misuse&) { parts[i].is_gone = true; } catch (...) {
        parts[i].amiss = std::current_exception();
        is_amiss.store(true, std::memory_order_relaxed);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(kAtOnce, ids.size()); ++i) others.emplace_back(ask);
    ask();
  }
  std::vector<Busy> all;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (parts[i].amiss) std::rethrow_exception(parts[i].amiss);
    if (parts[i].is_gone) plans.erase(ids[i]);
    else std::move(parts[i].busy.begin(), parts[i].busy.end(), std::back_inserter(all));
  }
  return all;
}

/// Adds the operators of running queries, the largest state first.
void add_operators(const LookFlags& flags, View& view) {
  json& all = view.of_operators;
  const json answer = parsed(fetch(flags, "/api/queries"));
  for (const json& q : answer.at("queries"))
    for (json o : q.at("operators")) {
      o["query"] = q.at("id");
      all.push_back(std::move(o));
    }
  std::stable_sort(all.begin(), all.end(), [](const json& a, const json& b) {
    return a.at("live_bytes") > b.at("live_bytes");
  });
  for (const json& o : all)
    view.operators.add({o.at("query").get<std::string>() + " " + o.at("name").get<std::string>(),
                        o.at("state"), count_text(o.at("blocked")), count_text(o.at("state_size")),
                        count_text(o.at("events_out")), count_text(o.at("retractions_out")),
                        bytes_text(o.at("live_bytes")), bytes_text(o.at("peak_bytes"))});
}

/// Plans of queries have numbers beyond those of others (actors/engine/reporters.hpp).
bool is_query(const std::string& plan) {
  constexpr std::size_t kDigits = 10;
  return plan.size() - plan.rfind('/') > kDigits;
}

/// Values of the looks so far.
struct Watching {
  std::map<std::string, Watched> plans;
  WatchedQueues queues;
  double last = 0;  // time of the last answer, in s; 0: none
};

View look(const LookFlags& flags, Watching& watching) {
  auto& [plans, queues, last] = watching;
  View view;
  view.state = fetch(flags, "/api/state");
  const json s = parsed(view.state);
  const double now = s.at("time_ns").get<double>() * 1e-9;
  for (const json& n : s.at("nodes")) {
    if (!n.at("reachable").get<bool>()) {
      view.nodes.add({n.at("name"), n.at("state"), "-", "-", "-", "-", n.at("why")}, Colour::red);
      continue;
    }
    const json& t = n.at("transport");
    view.nodes.add({n.at("name"), n.at("state"),
                    fmt::format("{:.2f}/{}", n.at("cpu").get<double>(), n.at("cores").get<int>()),
                    bytes_text(n.at("memory").at("resident")), bytes_text(t.at("queued_bytes")),
                    bytes_text(t.at("unacknowledged_bytes")),
                    n.at("round_trip_ns") == 0 ? "-" : time_text(n.at("round_trip_ns"))});
  }
  queues.add_rows(s, view.devices);
  for (const json& r : s.at("runs"))
    view.runs.add(
        {r.at("id"), time_text(r.at("for_ns")), count_text(r.at("fired")),
         r.at("verdicts").empty() ? std::string() : r.at("verdicts")[0].get<std::string>()});
  std::vector<std::string> ids;
  for (const json& p : s.at("plans")) {
    const std::string id = p.at("id");
    auto it = plans.find(id);
    if (it != plans.end() && !it->second.is_of(p.at("incarnation").get<std::string>()))
      plans.erase(it), it = plans.end();
    if (it == plans.end()) plans.emplace(id, Watched(p.at("incarnation").get<std::string>()));
    ids.push_back(id);
  }
  if (std::any_of(ids.begin(), ids.end(), is_query)) add_operators(flags, view);
  std::vector<Busy>& busy = view.busy;
  busy = busy_of(flags, plans, ids, last > 0 ? now - last : 0);
  std::stable_sort(busy.begin(), busy.end(), [](const Busy& a, const Busy& b) {
    return a.share != b.share ? a.share > b.share : a.fires > b.fires;
  });
  for (const Busy& b : busy)
    view.actors.add({b.id, fmt::format("{:.1f} %", 100 * b.share), count_text(b.fires), b.state,
                     b.op + " " + b.name});
  last = now;
  view.title =
      printable(fmt::format("troupe top: node '{}', {} run{}", s.at("node").get<std::string>(),
                            s.at("runs").size(), s.at("runs").size() == 1 ? "" : "s"));
  return view;
}

/// Sends requests repeatedly on a thread of its own, which lives as long as the process.
class Asker {
 public:
  struct Heard {
    View view;
    std::string amiss;  // why the last request failed; empty: it did not
    std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
  };
  explicit Asker(const LookFlags& flags)
      : flags_(flags), told_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    heard_.view.title = "troupe top: asks " + printable(flags_.node);
    std::thread([this] { ask(); }).detach();
  }
  /// A descriptor that is readable when there is a new result.
  int told() const { return told_; }
  Heard heard() {
    eventfd_t count = 0;
    // first: a notification from here on is read below, or notified again
    eventfd_read(told_, &count);
    std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  [[noreturn]] void ask() {
    Watching watching;
    for (;;) {
      const auto next = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(flags_.every));
      try {
        Heard now{look(flags_, watching), {}};
        std::lock_guard lock(mutex_);
        heard_ = std::move(now);
      } catch (const std::exception& e) {
        std::lock_guard lock(mutex_);
        heard_.amiss = printable(e.what());
      }
      eventfd_write(told_, 1);
      std::this_thread::sleep_until(next);
    }
  }

  const LookFlags flags_;
  const int told_;
  std::mutex mutex_;  // guards heard_
  Heard heard_;
};

/// Prints the work done between two looks, if there is a pipe, --json or no keyboard: once, or
/// after every look but the first.
int print_looks(const LookFlags& flags) {
  Watching watching;
  bool is_first = true;
  const auto draw = [&] {
    const View view = look(flags, watching);
    if (std::exchange(is_first, false)) return 0;
    const std::string text = flags.json ? view.json_line() : view.plain_text();
    std::fwrite(text.data(), 1, text.size(), stdout);  // main looks whether it was written
    return 0;
  };
  if (flags.watch > 0) return repeat(flags, draw);
  draw();
  std::this_thread::sleep_for(std::chrono::duration<double>(flags.every));
  return draw();
}

}  // namespace

int top(const LookFlags& given) {
  LookFlags flags = given;
  if (flags.watch > 0) flags.every = flags.watch;
  if (flags.json || !is_terminal() || isatty(STDIN_FILENO) == 0) return print_looks(flags);
  fetch(flags, "/api/state");  // complains before the screen is taken
  const Screen screen;         // first: it blocks signals, in threads to come too
  Asker asker(flags);
  Asker::Heard heard = asker.heard();
  for (;;) {
    // The next answer is due after `every`. If it is more than a second late, the screen says so,
    // and since when, once a second.
    const auto now = std::chrono::steady_clock::now();
    const double age = std::chrono::duration<double>(now - heard.at).count();
    const bool is_late = age >= flags.every + 1;
    Screen::draw(heard.view.text(is_late ? static_cast<std::int64_t>(age) : 0, heard.amiss));
    const auto until =
        now + std::chrono::milliseconds(
                  is_late ? 1000 : static_cast<std::int64_t>(1000 * (flags.every + 1 - age)) + 1);
    char key = 0;
    Screen::Event event = Screen::Event::key;
    while (event == Screen::Event::key && key != 'q') event = screen.wait(asker.told(), until, key);
    // leaves here, while the objects of the asking thread exist
    if (event == Screen::Event::key || event == Screen::Event::gone) leave();
    if (event == Screen::Event::told) heard = asker.heard();
  }
}

}  // namespace troupe::verbs
