// Keys of nodes, which decide the nodes that may join a cluster. A process
// without an authorized key receives no data. A folder with
//
//   node.key      this node's public and secret key; readable by its owner alone
//   authorized    the public keys that may connect, one a line, with a name or a comment behind
//
//   // `troupe keygen --keys keys --name alpha`
//   KeyPair own = make_keys("keys", "alpha");
//   // `troupe node --keys keys` starts with these
//   Keys keys = read_keys("keys");
//   // `troupe keygen --keys keys --authorize KEY --name beta`
//   authorize("keys", public_key_of_beta, "beta");
//
// Keys are those of CurveZMQ (Curve25519), in Z85: 40 printable characters. A node is authorised by
// its key alone, so nodes that share a folder of keys are one party. A node's own key is in its
// list from the start, so that they may connect.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>

namespace troupe {

struct KeyPair {
  std::string public_key, secret_key;
};

struct Keys {
  KeyPair own;
  std::map<std::string, std::string> authorized;  // public key: name
  std::filesystem::path folder = {};              // the folder that was read; empty: none
};
inline constexpr const char* kAuthorizedFile = "authorized";

/// A new pair. Throws unavailable if this build of ZeroMQ has no CURVE.
KeyPair generate_keys();

/// Writes a new pair and a list with it alone. Throws already_exists if there is a key already,
/// unavailable if the folder cannot be written, invalid_argument for a name that a line of the list
/// cannot hold.
KeyPair make_keys(const std::filesystem::path& folder, std::string_view name);

/// Throws not_found without a key, failed_precondition if others can read it, or can write to it,
/// to the list or to the folder, data_loss if a line makes no sense, naming file and line.
Keys read_keys(const std::filesystem::path& folder);
/// The list alone, as it is now.
std::map<std::string, std::string> read_authorized(const std::filesystem::path& folder);

/// Parse the two files. Throw data_loss, naming `where` and the line.
KeyPair parse_key_pair(std::istream& text, const std::string& where);
std::map<std::string, std::string> parse_authorized(std::istream& text, const std::string& where);

/// One more that may connect; nothing changes if it may already. Throws invalid_argument for what
/// is no public key, or no name, and already_exists if it is in the list by another name.
void authorize(const std::filesystem::path& folder, std::string_view public_key,
               std::string_view name);

/// 40 characters of Z85?
bool is_key(std::string_view text);

}  // namespace troupe
