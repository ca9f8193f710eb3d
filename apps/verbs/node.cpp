// troupe node: this machine as a node of a cluster, until SIGTERM or SIGINT.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <troupe/apps/verbs/service.hpp>
#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/net/file_rights.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::verbs {

namespace {

// seconds for runs to end, and for other nodes to process the messages
constexpr int kToLeave = 20;

void demand_address(const std::string& address, const char* flag) {
  if (!address.starts_with("tcp://") || address.rfind(':') <= 5)
    throw Misuse(
        fmt::format("{} takes an address such as tcp://127.0.0.1:7117, not '{}'", flag, address));
  try {
    static_cast<void>(full_address(address));
  } catch (const Error& error) { throw Misuse(fmt::format("{}: {}", flag, error.what())); }
}

int port_of(const std::string& address) {
  return std::atoi(address.c_str() + address.rfind(':') + 1);
}

// One write a line, so that lines of several threads do not mix; names that users and peers gave
// forge none.
void write_log(const LogRecord& r, bool is_json) {
  constexpr const char* levels[] = {"info", "warning", "error"};
  std::string line = r.run.empty()
                         ? fmt::format("troupe: {}\n", printable(r.text))
                         : fmt::format("troupe: run {}: {}\n", printable(r.run), printable(r.text));
  if (is_json) {
    const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
    nlohmann::json j = {{"time_ns", r.time_ns ? r.time_ns : now},
                        {"level", levels[static_cast<std::size_t>(r.level)]},
                        {"text", r.text}};
    for (const auto& [name, value] : {std::pair{"node", &r.node}, std::pair{"run", &r.run},
                                      std::pair{"plan", &r.plan}, std::pair{"actor", &r.actor}})
      if (!value->empty()) j[name] = *value;
    line = json_text(j) + "\n";
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// The folder that outlives this process: for a service the folder that systemd gives it (the first
// of several), else the folder that XDG defines. Empty: there is no home.
std::string state_folder(const Environment& environment) {
  if (const auto of_service = environment("STATE_DIRECTORY"))
    return of_service->substr(0, of_service->find(':'));
  if (const auto xdg = environment("XDG_STATE_HOME"); xdg && xdg->starts_with('/'))
    return *xdg + "/troupe";
  const auto home = environment("HOME");
  return home ? *home + "/.local/state/troupe" : std::string();
}

// The folder for records that lead up to failures. The default folder was not requested, so if it
// cannot be written, the node only logs that.
std::string flight_folder(const std::string& given,
                          const std::function<void(const LogRecord&)>& log) {
  namespace fs = std::filesystem;
  if (!given.empty()) return given == kNoFlight ? std::string() : given;
  const std::string state = state_folder(environment_of_process()), folder = state + "/flight";
  std::error_code error;
  if (state.empty()) error = std::make_error_code(std::errc::no_such_file_or_directory);
  else if (fs::create_directories(folder, error))
    fs::permissions(folder, fs::perms::owner_all, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error) return folder;
  log({LogRecord::Level::warning,
       0,
       {},
       {},
       {},
       {},
       fmt::format(
           "flight records cannot be written to '{}' ({}); name a folder with --flight, or '{}'",
           folder, error.message(), kNoFlight)});
  return {};
}

// The folder for shards of checkpoints: a service has one. It was not requested, so a node that
// cannot write there only logs that.
std::string checkpoint_folder(const std::string& given, const std::string& node,
                              const std::function<void(const LogRecord&)>& log) {
  namespace fs = std::filesystem;
  const Environment environment = environment_of_process();
  if (!given.empty() || !environment("STATE_DIRECTORY")) return given;
  const std::string folder = fmt::format("{}/checkpoints/{}", state_folder(environment), node);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error) return folder;
  log({LogRecord::Level::warning,
       0,
       {},
       {},
       {},
       {},
       fmt::format("checkpoints cannot be kept in '{}' ({}): name a folder with --state", folder,
                   error.message())});
  return {};
}

bool is_asked_to_end(const sigset_t& endings) {
  const timespec now{0, 0};
  return sigtimedwait(&endings, nullptr, &now) >= 0;
}

// Until it is asked to end, or has no place in the cluster any more; the exit status.
int stay(const ClusterNode& here, const sigset_t& endings) {
  const timespec now_and_then{1, 0};
  bool was_drained = false;  // twice: an owner may have begun one more run before it was told
  for (;;) {
    if (sigtimedwait(&endings, nullptr, &now_and_then) >= 0) return 0;
    if (const bool is_drained = here.is_drained(); !is_drained) {
      was_drained = false;
    } else if (std::exchange(was_drained, true)) {
      fmt::print("node '{}' is drained\n", here.name());
      return 0;
    }
    if (const Status status = here.status(); !status.ok()) {
      fmt::print(stderr, "troupe: {}\n", status.message());
      return 1;
    }
  }
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "node";
}

std::string token_of(const std::string& file) {
  if (file.empty()) return {};
  constexpr std::size_t kMost = 1 << 20;
  std::ifstream in(file);
  if (!in || in.peek() == std::ifstream::traits_type::eof())
    throw Misuse(
        fmt::format("no token can be read from '{}'; name a file that holds one, of 16 "
                    "characters or more",
                    file));
  std::string text(kMost + 1, '\0'), token;
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMost)
    throw Misuse(fmt::format(
        "the file '{}' is longer than {} MiB: it must hold a token of 16 characters or more", file,
        kMost >> 20));
  if (const std::string why = why_others_can_write(file); !why.empty()) throw Misuse(why);
  if (!(std::istringstream(text) >> token) || token.size() < 16)
    throw Misuse(fmt::format("the file '{}' must hold a token of 16 characters or more", file));
  return token;
}

Endpoint endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string digits = colon == std::string::npos ? text : text.substr(colon + 1);
  const bool is_port = !digits.empty() && digits.size() <= 5 &&
                       digits.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoi(digits) <= 65535;
  // an IPv6 address
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    throw Misuse(
        fmt::format("--http takes an IPv6 address in brackets, '[ADDRESS]:PORT', not '{}'", text));
  if (!is_port || host.empty())
    throw Misuse(
        fmt::format("--http takes a port, which is on loopback, or HOST:PORT, not '{}'", text));
  return {host, std::stoi(digits)};
}

int node(const NodeFlags& given) {
  demand_address(given.listen, "--listen");
  NodeFlags flags = given;
  flags.listen = full_address(given.listen);
  if (flags.standalone > 0) return standalone(flags);
  NodeOptions options;
  ZeroMqOptions tcp;
  options.engine.log = [is_json = flags.log == "json"](const LogRecord& r) {
    write_log(r, is_json);
  };
  tcp.log = [log = options.engine.log](const std::string& line) {
    log({LogRecord::Level::info, 0, {}, {}, {}, {}, line});
  };
  try {
    if (!flags.keys.empty()) tcp.keys = read_keys(flags.keys);
    Discovery found = discover(environment_of_process());
    options.name = !flags.name.empty()   ? flags.name
                   : !found.name.empty() ? found.name
                                         : host_name();
    for (const std::string& address : flags.join) options.join.push_back(full_address(address));
    if (!flags.peers.empty())
      for (const std::string& address : read_peer_list(flags.peers))
        if (address != flags.listen) options.join.push_back(address);
    if (flags.join.empty() && flags.peers.empty()) options.join = found.join;
    found.join = options.join;
    require_company(found);
    // A name is looked at later, when it resolves.
    if (flags.keys.empty())
      for (const std::string& address : options.join)
        if (is_in_numbers(address) && !is_loopback(address))
          throw Misuse(
              fmt::format("{} is not on loopback, and without keys nothing is encrypted; 'troupe "
                          "keygen' makes keys, --keys uses them",
                          address));
  } catch (const Error& error) { throw Misuse(error.what()); }
  options.log = tcp.log;
  options.labels = flags.labels;
  std::replace(options.labels.begin(), options.labels.end(), ',', ' ');
  // Large payload goes by the port after that of --listen, or by the next if inspections are to be
  // there.
  if (const int next = port_of(flags.listen) + 1;
      next > 1 && !flags.http.empty() && endpoint(flags.http).port == next && next < 65535)
    tcp.bulk_port = next + 1;
  options.membership = suspecting_after(
      std::chrono::nanoseconds(static_cast<std::int64_t>(flags.suspect_after * 1e9)));
  const sigset_t endings = block_endings();
  options.engine.workers = flags.workers;
  options.engine.flight = flight_folder(flags.flight, options.engine.log);
  options.state = checkpoint_folder(flags.state, options.name, options.engine.log);
  options.transport = [&](PeerInfo self) {
    self.address = flags.listen;
    return make_zeromq_transport(std::move(self), tcp);
  };
  std::unique_ptr<ClusterNode> here;
  std::unique_ptr<InspectionServer> page;
  bool has_joined = false;
  const auto start = [&] {
    here = std::make_unique<ClusterNode>(options);
    if (!flags.http.empty()) {
      const Endpoint at = endpoint(flags.http);
      InspectionOptions inspection;
      inspection.host = at.host;
      inspection.port = at.port;
      inspection.token = token_of(flags.http_token);
      page = std::make_unique<InspectionServer>(*here, std::move(inspection));
    }
    has_joined = here->wait_joined(std::chrono::seconds(flags.patience),
                                   [&] { return is_asked_to_end(endings); });
  };
  try {
    try {
      start();
      here->status().throw_if_error();
    } catch (const Error& error) {
      if (!here || here->outdated_by() == 0) throw;
      // This machine's clock went back. The node replaces its earlier life all the same.
      options.incarnation = here->outdated_by() + 1;
      options.engine.log({LogRecord::Level::warning,
                          0,
                          {},
                          {},
                          {},
                          {},
                          fmt::format("{}; it joins as the later one now", error.what())});
      page.reset();
      here.reset();
      start();
    }
  } catch (const Error& error) {
    // An address that is taken, or a peer out of reach, may be different at the next start, as a
    // supervisor makes one; the command line is not.
    if (error.code() == Code::unavailable) throw std::runtime_error(printable(error.what()));
    if (error.code() != Code::invalid_argument && error.code() != Code::failed_precondition) throw;
    throw Misuse(error.what());
  }
  int status = 0;
  if (has_joined) {
    fmt::print("node '{}' listens at {}{}\n", here->name(), here->address(),
               page ? " and " + page->address() : "");
    std::fflush(stdout);
    notify_service("READY=1");
    status = stay(*here, endings);
  }
  notify_service("STOPPING=1");
  if (has_joined) fmt::print("node '{}' leaves\n", here->name());
  std::fflush(stdout);
  const Deadline deadline(kToLeave);
  page.reset();
  here.reset();
  return status;
}

}  // namespace troupe::verbs
