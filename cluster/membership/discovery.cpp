#include <troupe/cluster/membership/discovery.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <arpa/inet.h>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::invalid_argument, why); }

bool is_digits(std::string_view s) {
  return !s.empty() &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
}

std::optional<long> number(std::string_view s) {
  long n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (!is_digits(s) || error != std::errc() || end != s.data() + s.size()) return {};
  return n;
}

int rank_of(const Environment& environment, const char* name) {
  const std::string text = *environment(name);
  const auto rank = number(text);
  if (!rank || *rank > 1'000'000) refuse(fmt::format("{}='{}' is no rank", name, text));
  return static_cast<int>(*rank);
}

// 0: not given.
int ranks_of(const Environment& environment, const char* name, int rank) {
  const auto text = environment(name);
  if (!text) return 0;
  const auto ranks = number(*text);
  if (!ranks || *ranks > 1'000'000)
    refuse(fmt::format("{}='{}' is no number of ranks", name, *text));
  if (rank >= *ranks) refuse(fmt::format("there is no rank {} of {}='{}'", rank, name, *text));
  return static_cast<int>(*ranks);
}

// Turns any text into a name that a node can have, unless it is no UTF-8.
std::string as_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return c <= ' ' || c == 127 || c == '*' || c == '/'; }, '-');
  return text;
}

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> addresses_of(std::string_view list) {
  std::vector<std::string> all;
  while (!list.empty()) {
    const auto comma = list.find(',');
    if (const std::string_view one = trimmed(list.substr(0, comma)); !one.empty())
      all.push_back(full_address(one));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return all;
}

// Refuses an IPv6 address without brackets: with a port behind it, it may be another address.
void demand_brackets(std::string_view given, std::string_view rest) {
  const auto is_ipv6 = [](std::string_view host) {
    in6_addr bytes;
    const std::string text(host.substr(0, host.find('%')));
    return inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
  };
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || rest.find(':') == colon) return;
  std::string_view host = rest;
  std::string port = std::to_string(kDefaultPort);
  // The last group is meant as a port if it is the default one, or if all of it is no address.
  const std::string_view last = rest.substr(colon + 1);
  if (is_ipv6(rest.substr(0, colon)) && is_digits(last) && (last == port || !is_ipv6(rest)))
    host = rest.substr(0, colon), port = last;
  if (!is_ipv6(host)) return;
  refuse(fmt::format("'{}' has an IPv6 address without brackets; write tcp://[{}]:{}", given, host,
                     port));
}

}  // namespace

Environment environment_of_process() {
  return [](const char* name) -> std::optional<std::string> {
    const char* text = std::getenv(name);
    if (!text || !*text) return {};
    return std::string(text);
  };
}

std::vector<std::string> expand_hosts(std::string_view list) {
  constexpr std::size_t kMost = 100'000, kBrackets = 16;
  std::vector<std::string> hosts;
  auto add = [&](std::string host) {
    if (host.empty()) refuse(fmt::format("'{}' is no list of hosts: a name is missing", list));
    if (hosts.size() == kMost) refuse(fmt::format("a list of more than {} hosts", kMost));
    hosts.push_back(std::move(host));
  };
  // Expands one bracket, then calls itself for the text that follows it.
  std::function<void(const std::string&, std::string_view)> expand = [&](const std::string& before,
                                                                         std::string_view rest) {
    const auto open = rest.find('[');
    if (open == std::string_view::npos) {
      if (rest.find(']') != std::string_view::npos)
        refuse(fmt::format("'{}' is no list of hosts: ']' without '['", list));
      return add(before + std::string(rest));
    }
    const auto close = rest.find(']', open);
    if (close == std::string_view::npos)
      refuse(fmt::format("'{}' is no list of hosts: '[' without ']'", list));
    std::string_view ranges = rest.substr(open + 1, close - open - 1);
    for (;;) {
      const auto comma = ranges.find(',');
      const std::string_view range = ranges.substr(0, comma);
      const auto dash = range.find('-');
      const std::string_view low = range.substr(0, dash),
                             high = dash == std::string_view::npos ? low : range.substr(dash + 1);
      const auto first = number(low), last = number(high);
      if (!first || !last || *first > *last || *last == std::numeric_limits<long>::max())
        refuse(fmt::format("'{}' is no list of hosts: '{}' is no range", list, range));
      for (long k = *first; k <= *last; ++k)  // 01-03 keeps its zeros
        expand(before + std::string(rest.substr(0, open)) + fmt::format("{:0{}}", k, low.size()),
               rest.substr(close + 1));
      if (comma == std::string_view::npos) break;
      ranges = ranges.substr(comma + 1);
    }
  };
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    const std::string_view one = trimmed(list.substr(begin, i - begin));
    if (static_cast<std::size_t>(std::count(one.begin(), one.end(), '[')) > kBrackets)
      refuse(fmt::format("a host's name with more than {} ranges", kBrackets));
    expand("", one);
    begin = i + 1;
  }
  return hosts;
}

std::string full_address(std::string_view address) {
  if (const auto scheme = address.find("://");
      scheme != std::string_view::npos && address.substr(0, scheme) != "tcp")
    return std::string(address);
  std::string_view rest = address.starts_with("tcp://") ? address.substr(6) : address;
  // An IPv6 address stands in brackets.
  const auto bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const auto colon = bracket != std::string_view::npos ? rest.find(':', bracket) : rest.rfind(':');
  if (bracket == std::string_view::npos) demand_brackets(address, rest);
  std::string_view host = rest.substr(0, colon);
  // `tcp://[$(POD_IP)]:7117` serves clusters of both kinds.
  if (bracket != std::string_view::npos && host.size() > 2 && host.back() == ']' &&
      host.find(':') == std::string_view::npos)
    host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of(" \t/,") != std::string_view::npos ||
      (bracket == std::string_view::npos && host.find(':') != std::string_view::npos))
    refuse(fmt::format("'{}' is no address; write HOST, HOST:PORT or tcp://HOST:PORT", address));
  if (colon == std::string_view::npos) return fmt::format("tcp://{}:{}", host, kDefaultPort);
  const auto port = number(rest.substr(colon + 1));
  if (!port || *port > 65535)
    refuse(fmt::format("'{}': '{}' is no port", address, rest.substr(colon + 1)));
  return fmt::format("tcp://{}:{}", host, *port);
}

std::vector<std::string> read_peer_list(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error(Code::not_found, fmt::format("the list of peers '{}' cannot be read", path));
  if (std::filesystem::is_directory(path))
    throw Error(Code::not_found,
                fmt::format("the list of peers '{}' cannot be read: it is a folder", path));
  constexpr std::size_t kMost = 1 << 20;
  std::string text(kMost + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMost)
    refuse(
        fmt::format("the list of peers '{}' is longer than {} MiB: it takes addresses, one a line",
                    path, kMost >> 20));
  std::istringstream lines(text);
  return parse_peer_list(lines, path);
}

std::vector<std::string> parse_peer_list(std::istream& text, const std::string& where) {
  std::vector<std::string> all;
  std::string line;
  for (int n = 1; std::getline(text, line); ++n) {
    // the mark that editors of Windows begin a text with
    if (n == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    const std::string_view address = trimmed(std::string_view(line).substr(0, line.find('#')));
    if (address.empty()) continue;
    try {
      all.push_back(full_address(address));
    } catch (const Error& e) { refuse(fmt::format("{}:{}: {}", where, n, e.what())); }
  }
  return all;
}

void require_company(const Discovery& found) {
  if (found.rank <= 0 || !found.join.empty()) return;
  const std::string way = found.from == "MPICH"
                              ? fmt::format("mpirun -genv TROUPE_JOIN HOST:{} ...", kDefaultPort)
                              : fmt::format("mpirun -x TROUPE_JOIN=HOST:{} ...", kDefaultPort);
  throw Error(
      Code::failed_precondition,
      fmt::format("this is rank {}{}, and {} does not name the other nodes, so each would be a "
                  "cluster of its own; give the address of rank 0, '{}', or --join or --peers",
                  found.rank, found.ranks > 0 ? fmt::format(" of {}", found.ranks) : "", found.from,
                  way));
}

std::vector<std::string> joined_by(const Environment& environment) {
  const auto join = environment("TROUPE_JOIN");
  try {
    return join ? addresses_of(*join) : std::vector<std::string>();
  } catch (const Error& e) { refuse(fmt::format("TROUPE_JOIN: {}", e.what())); }
}

Discovery discover(const Environment& environment) {
  Discovery d;
  // The inner of two launchers counts: processes that mpirun starts within a job of Slurm share the
  // SLURM_PROCID of mpirun's own process. If Slurm speaks PMI itself, the two ranks are equal.
  const auto slurm = environment("SLURM_PROCID"), pmi = environment("PMI_RANK");
  if (environment("OMPI_COMM_WORLD_RANK")) {
    d.from = "Open MPI";
    d.rank = rank_of(environment, "OMPI_COMM_WORLD_RANK");
    d.ranks = ranks_of(environment, "OMPI_COMM_WORLD_SIZE", d.rank);
    d.name = fmt::format("rank-{}", d.rank);
  } else if (pmi && pmi != slurm) {
    d.from = "MPICH";
    d.rank = rank_of(environment, "PMI_RANK");
    d.ranks = ranks_of(environment, "PMI_SIZE", d.rank);
    d.name = fmt::format("rank-{}", d.rank);
  } else if (slurm) {
    d.from = "Slurm";
    d.rank = rank_of(environment, "SLURM_PROCID");
    const char* variable =
        environment("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    const auto list = environment(variable);
    if (!list)
      refuse("SLURM_PROCID is set, but neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST");
    d.name = fmt::format("{}-{}", as_name(environment("SLURM_JOB_NAME").value_or("task")), d.rank);
    try {
      if (d.rank > 0) d.join = {full_address(expand_hosts(*list).front())};
    } catch (const Error& e) { refuse(fmt::format("{}: {}", variable, e.what())); }
  } else if (const auto service = environment("TROUPE_SERVICE")) {
    d.from = "Kubernetes";
    for (const char* variable : {"KUBERNETES_SERVICE_HOST", "HOSTNAME"})
      if (!environment(variable))
        refuse(
            fmt::format("TROUPE_SERVICE is set, but not {}: it is for the pods of a StatefulSet, "
                        "which have both",
                        variable));
    const auto pod = environment("HOSTNAME");
    const auto dash = pod->rfind('-');
    const auto ordinal =
        dash == std::string::npos ? std::nullopt : number(std::string_view(*pod).substr(dash + 1));
    if (!ordinal)
      refuse(fmt::format("HOSTNAME='{}' is no pod of a StatefulSet; their names end in -0, -1, ...",
                         *pod));
    d.rank = static_cast<int>(*ordinal);
    d.name = *pod;
    if (d.rank > 0) d.join = {full_address(fmt::format("{}-0.{}", pod->substr(0, dash), *service))};
  }
  const auto name = environment("TROUPE_NAME");
  const bool joins = environment("TROUPE_JOIN").has_value();
  if (d.from.empty() && (joins || name)) d.from = "environment";
  if (name) d.name = *name;
  if (joins) d.join = joined_by(environment);
  return d;
}

}  // namespace troupe
