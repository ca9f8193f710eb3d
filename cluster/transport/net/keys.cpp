#include <troupe/cluster/transport/net/keys.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <zmq.h>

#include <troupe/cluster/transport/net/file_rights.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/ops/format/replaced_file.hpp>

namespace troupe {
namespace {

constexpr const char* kKeyFile = "node.key";
constexpr std::size_t kLength = 40;

// Written whole or not at all; never readable by others, not even for a moment.
void write(const std::filesystem::path& path, const std::string& text, ::mode_t mode) {
  // A link's target is replaced, not the link. A narrower mode is kept.
  ReplacedFile old = replaced_file(path.string());
  if (mode == 0600) old.mode &= mode;
  const std::filesystem::path temporary = old.path + ".new";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                          old.is_there ? old.mode : mode);
  bool ok = file >= 0 && old.hand_on(file);
  for (std::size_t at = 0; ok && at < text.size();) {
    const ssize_t n = ::write(file, text.data() + at, text.size() - at);
    ok = n > 0;
    if (ok) at += static_cast<std::size_t>(n);
  }
  ok = ok && ::fsync(file) == 0;
  const int why = errno;
  if (file >= 0) ::close(file);
  if (ok && ::rename(temporary.c_str(), old.path.c_str()) == 0) return;
  const int reason = ok ? errno : why;
  ::unlink(temporary.c_str());
  throw Error(Code::unavailable,
              fmt::format("{} cannot be written: {}", path.string(), std::strerror(reason)));
}

struct AllowedKey {
  int number;
  std::string first, rest;
};

std::ifstream open(const std::filesystem::path& path) {
  std::error_code unknown;
  // To open a pipe would block until a writer opens it.
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown))
    throw Error(
        Code::failed_precondition,
        fmt::format("{} is not a file; 'troupe keygen --keys {}' makes one in an empty folder",
                    path.string(), path.parent_path().string()));
  errno = 0;
  std::ifstream file(path);
  if (!file && errno != 0 && errno != ENOENT && errno != ENOTDIR)
    throw Error(Code::failed_precondition,
                fmt::format("{} cannot be read: {}", path.string(), std::strerror(errno)));
  if (!file)
    throw Error(Code::not_found, fmt::format("there is no {}; 'troupe keygen --keys {}' makes one",
                                             path.string(), path.parent_path().string()));
  return file;
}

// A list or a key that others can change lets them in.
void demand_own(const std::filesystem::path& path) {
  if (const std::string why = detail::why_others_can_write(path); !why.empty())
    throw Error(Code::failed_precondition, why);
}

std::vector<AllowedKey> lines_of(std::istream& file) {
  std::vector<AllowedKey> lines;
  std::string text;
  for (int n = 1; std::getline(file, text); ++n) {
    std::istringstream words(text.substr(0, text.find(" # ")));
    AllowedKey line{n, {}, {}};
    if (!(words >> line.first) || line.first == "#") continue;
    std::getline(words >> std::ws, line.rest);
    while (!line.rest.empty() && std::isspace(static_cast<unsigned char>(line.rest.back())))
      line.rest.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

// A key with its name, as the list has it. Throws invalid_argument for a name that would be read as
// another, or as more than a name.
std::string list_line(std::string_view key, std::string_view name) {
  const std::string line = fmt::format("{} {}\n", key, name);
  std::istringstream text(line);
  const std::vector<AllowedKey> read = lines_of(text);
  const bool has_controls =
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 127; });
  if (has_controls || read.size() != 1 || read[0].rest != name)
    throw Error(Code::invalid_argument,
                "the name of a key stands in a line of a file: it has no control characters, no ' "
                "# ', and no spaces at its ends");
  return line;
}

}  // namespace

bool is_key(std::string_view text) {
  constexpr std::string_view z85 =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
  return text.size() == kLength && std::all_of(text.begin(), text.end(), [&](char c) {
           return z85.find(c) != std::string_view::npos;
         });
}

KeyPair generate_keys() {
  char open[kLength + 1] = {}, secret[kLength + 1] = {};
  if (zmq_curve_keypair(open, secret) != 0)
    throw Error(Code::unavailable, "this build of ZeroMQ makes no keys: it has no CURVE");
  return {open, secret};
}

KeyPair make_keys(const std::filesystem::path& folder, std::string_view name) {
  const KeyPair own = generate_keys();
  const std::string line = list_line(own.public_key, name);
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) ::chmod(folder.c_str(), 0700);
  if (error)
    throw Error(Code::unavailable,
                fmt::format("{} cannot be made: {}", folder.string(), error.message()));
  if (std::filesystem::exists(folder / kKeyFile))
    throw Error(Code::already_exists,
                fmt::format("{} is there already; a new key would lock this node out, so take it "
                            "away first if that is meant",
                            (folder / kKeyFile).string()));
  write(folder / kAuthorizedFile,
        "# Public keys of nodes that may connect, each with a name.\n" + line, 0644);
  write(folder / kKeyFile,
        fmt::format("# The key of node {}. A process with the secret can act as this node.\n"
                    "public {}\nsecret {}\n",
                    name, own.public_key, own.secret_key),
        0600);
  return own;
}

KeyPair parse_key_pair(std::istream& text, const std::string& where) {
  KeyPair own;
  for (const AllowedKey& line : lines_of(text)) {
    std::string* part = line.first == "public"   ? &own.public_key
                        : line.first == "secret" ? &own.secret_key
                                                 : nullptr;
    if (!part || !is_key(line.rest))
      throw Error(Code::data_loss, fmt::format("{}:{} is neither 'public KEY' nor 'secret KEY'",
                                               where, line.number));
    *part = line.rest;
  }
  char derived[kLength + 1] = {};
  if (own.public_key.empty() || own.secret_key.empty() ||
      zmq_curve_public(derived, own.secret_key.c_str()) != 0 || own.public_key != derived)
    throw Error(Code::data_loss,
                fmt::format("{} does not hold a pair of keys that belong together", where));
  return own;
}

std::map<std::string, std::string> parse_authorized(std::istream& text, const std::string& where) {
  std::map<std::string, std::string> authorized;
  for (const AllowedKey& line : lines_of(text)) {
    if (!is_key(line.first))
      throw Error(Code::data_loss,
                  fmt::format("{}:{}: '{}' is no public key, which has {} characters", where,
                              line.number, line.first, kLength));
    authorized[line.first] = line.rest;
  }
  return authorized;
}

std::map<std::string, std::string> read_authorized(const std::filesystem::path& folder) {
  std::ifstream file = open(folder / kAuthorizedFile);
  demand_own(folder / kAuthorizedFile);
  return parse_authorized(file, (folder / kAuthorizedFile).string());
}

Keys read_keys(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kKeyFile;
  std::ifstream file = open(path);
  struct ::stat about {};
  // Root may decide that one group reads a file of root's, as Kubernetes does with a secret for a
  // pod's fsGroup.
  const bool is_known = ::stat(path.c_str(), &about) == 0,
             is_given_by_root = is_known && about.st_uid == 0 && ::geteuid() != 0;
  if (is_known && (about.st_mode & (is_given_by_root ? 037 : 077)) != 0)
    throw Error(
        Code::failed_precondition,
        fmt::format(
            "others can read the secret in {}: 'chmod {} {}', and make a new key if they may have",
            path.string(), is_given_by_root ? "640" : "600", path.string()));
  demand_own(path);
  KeyPair own = parse_key_pair(file, path.string());
  return {std::move(own), read_authorized(folder), folder};
}

void authorize(const std::filesystem::path& folder, std::string_view public_key,
               std::string_view name) {
  if (!is_key(public_key))
    throw Error(
        Code::invalid_argument,
        fmt::format("'{}' is no public key, which has {} characters; 'troupe keygen' prints it",
                    public_key, kLength));
  const std::string line = list_line(public_key, name);
  const Keys keys = read_keys(folder);
  if (const auto known = keys.authorized.find(std::string(public_key));
      known != keys.authorized.end()) {
    if (known->second == name) return;
    throw Error(
        Code::already_exists,
        fmt::format(
            "the key may connect already, as '{}'; to give it another name, change its line in {}",
            known->second, (folder / kAuthorizedFile).string()));
  }
  std::ifstream file(folder / kAuthorizedFile);
  std::stringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  if (!all.empty() && all.back() != '\n') all += '\n';
  write(folder / kAuthorizedFile, all + line, 0644);
}

}  // namespace troupe
