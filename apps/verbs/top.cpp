// troupe top: nodes, runs and the busiest actors on a full screen, once a second, until q or SIGINT.
#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace troupe::verbs {
namespace {

using json = nlohmann::json;

volatile std::sig_atomic_t must_end = 0;

/// Keys come one by one and are not shown; the screen that was there is back in the end.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::fputs("\x1b[?1049h\x1b[?25l", stdout);
  }
  ~Screen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  void draw(const std::string& text) const {
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    std::size_t rows = size.ws_row ? size.ws_row : 24, begin = 0;
    std::string out = "\x1b[H";
    for (; rows > 1 && begin < text.size(); --rows) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      out += text.substr(begin, end - begin) + "\x1b[K\n";
      begin = end + 1;
    }
    out += "\x1b[J";
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }
  /// For a second, or until a key is hit: which; 0: none.
  static char key() {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    char c = 0;
    if (poll(&in, 1, 1000) > 0 && read(STDIN_FILENO, &c, 1) == 1) return c;
    return 0;
  }

 private:
  termios before_{};
};

struct Busy {
  std::string id, state;
  double fires = 0, share = 0;
};

/// What the actors of a plan have done since the last time.
struct Watched {
  std::uint64_t seq = 0;
  std::map<std::string, std::pair<double, double>> last;  // fires and busy time by actor
  std::map<std::string, std::string> name;

  std::vector<Busy> update(const LookFlags& flags, const std::string& plan, double seconds) {
    if (name.empty())
      for (const json& row : json::parse(fetch(flags, "/api/plan?id=" + encoded(plan)))["actors"]["rows"]) name[row[0].get<std::string>()] = fmt::format("{} {}", row[1].get<std::string>(), row[2].get<std::string>());
    const json c = json::parse(fetch(flags, fmt::format("/api/counters?plan={}&since={}", encoded(plan), seq)));
    std::vector<Busy> busy;
    for (const json& row : c["actors"]["rows"]) {
      auto [it, is_new] = last.try_emplace(row[0].get<std::string>(), row[1].get<double>(), row[3].get<double>());
      if (!is_new && seconds > 0) busy.push_back({row[0], row[5], (row[1].get<double>() - it->second.first) / seconds, (row[3].get<double>() - it->second.second) * 1e-9 / seconds});
      it->second = {row[1].get<double>(), row[3].get<double>()};
    }
    seq = c["seq"];
    return busy;
  }
};

}  // namespace

int top(const LookFlags& flags) {
  if (!is_terminal() || isatty(STDIN_FILENO) == 0) throw Misuse("top draws on a terminal; 'troupe ps' prints to a pipe");
  fetch(flags, "/api/state");  // complains before the screen is taken
  struct sigaction ending{};
  ending.sa_handler = [](int) { must_end = 1; };
  sigaction(SIGINT, &ending, nullptr);
  sigaction(SIGTERM, &ending, nullptr);
  const Screen screen;
  std::map<std::string, Watched> plans;
  double last = 0;
  for (; !must_end;) {
    try {
      const json s = json::parse(fetch(flags, "/api/state"));
      const double now = s["time_ns"].get<double>() * 1e-9;
      Table nodes({"NODE", "STATE", "CPU", "MEMORY", "QUEUED", "ROUND TRIP"});
      for (const json& n : s["nodes"])
        if (n["reachable"].get<bool>()) nodes.add({n["name"], n["state"], fmt::format("{:.2f}/{}", n["cpu"].get<double>(), n["cores"].get<int>()), bytes_text(n["memory"]["resident"]), bytes_text(n["transport"]["queued_bytes"]), time_text(n["round_trip_ns"])});
        else nodes.add({n["name"], n["state"], "-", "-", "-", n["why"]}, Colour::red);
      Table runs({"RUN", "FOR", "FIRED", "WHAT"});
      for (const json& r : s["runs"]) runs.add({r["id"], time_text(r["for_ns"]), count_text(r["fired"]), r["verdicts"].empty() ? std::string() : r["verdicts"][0].get<std::string>()});
      std::vector<std::pair<Busy, std::string>> busy;
      for (const json& p : s["plans"])
      {
        Watched& plan = plans[p["id"].get<std::string>()];
        for (Busy& b : plan.update(flags, p["id"], last > 0 ? now - last : 0)) busy.emplace_back(b, plan.name[b.id]);
      }
      std::stable_sort(busy.begin(), busy.end(), [](const auto& a, const auto& b) { return a.first.share != b.first.share ? a.first.share > b.first.share : a.first.fires > b.first.fires; });
      Table actors({"ACTOR", "BUSY", "FIRES/S", "STATE", "WHAT"});
      for (std::size_t i = 0; i < std::min<std::size_t>(busy.size(), 30); ++i)
        actors.add({busy[i].first.id, fmt::format("{:.1f} %", 100 * busy[i].first.share), count_text(busy[i].first.fires), busy[i].first.state, busy[i].second});
      last = now;
      screen.draw(fmt::format("troupe top: node '{}', {} runs; q leaves\n\n", s["node"].get<std::string>(), s["runs"].size()) + nodes.text() + "\n" + runs.text() + "\n" + actors.text());
    } catch (const std::exception& e) {
      screen.draw(printable(e.what()) + "\n");
    }
    if (Screen::key() == 'q') break;
  }
  return 0;
}

}  // namespace troupe::verbs
