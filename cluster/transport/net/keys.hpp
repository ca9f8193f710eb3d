// Keys of nodes: who may join a cluster, and who does not get to say a word. A folder with
//
//   node.key      this node's public and secret key; readable by its owner alone
//   authorized    the public keys that may connect, one a line, with a name or a comment behind
//
//   KeyPair own = make_keys("keys", "alpha");        // `troupe keygen --keys keys --name alpha`
//   Keys keys = read_keys("keys");                   // what `troupe node --keys keys` starts with
//   authorize("keys", public_key_of_beta, "beta");   // `troupe keygen --keys keys --authorize KEY --name beta`
//
// Keys are those of CurveZMQ (Curve25519), in Z85: 40 printable characters. A node is authorised by
// its key alone, so nodes that share a folder of keys are one party; its own key is in its list
// from the start, so that they may connect.
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
  std::filesystem::path folder = {};              // where they were read; empty: nowhere
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

/// What the two files say. Throws data_loss, naming `where` and the line.
KeyPair parse_key_pair(std::istream& text, const std::string& where);
std::map<std::string, std::string> parse_authorized(std::istream& text, const std::string& where);

/// One more that may connect; nothing changes if it may already. Throws invalid_argument for what
/// is no public key, or no name, and already_exists if it is in the list by another name.
void authorize(const std::filesystem::path& folder, std::string_view public_key,
               std::string_view name);

/// 40 characters of Z85?
bool is_key(std::string_view text);

}  // namespace troupe
