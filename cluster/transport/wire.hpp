// The wire format: the contents of one wire frame between two nodes. WIRE.md is its page,
// test/cluster/golden/ its golden files.
//
//   std::vector<std::byte> bytes = wire::encode(wire::Ack{.received = {3, 17}});
//   wire::Decoded d;
//   // throws only std::bad_alloc; touches nothing beyond `bytes`
//   Status s = wire::decode(bytes, limits, d);
//
// A wire frame is a header (one msgpack array, then raw bytes called inline) and perhaps a second,
// raw part called bulk. Only Data has inline bytes and bulk. A Data frame carries the next piece of
// its priority's stream: the heads and tensors of the priority's messages, one after another
// without gaps. Inline comes before bulk.
//
// The decoder trusts nothing. Every length is checked against the bytes that have arrived, every
// number against its bound. It allocates at most a constant times the bytes that it was given.
// Announced sizes of a message are checked against `Limits` before memory is allocated for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <troupe/cluster/transport/transport.hpp>

namespace troupe::detail::wire {

/// Another one speaks another protocol: the two do not connect. It goes up with every change of a
/// wire frame or of a message's fields (messages.cpp).
inline constexpr std::uint32_t kVersion = 24;
inline constexpr std::size_t kLanes = 2;

/// Wire frames received of each priority since the session began: cumulative, so that a repetition
/// does no harm.
using Received = std::array<std::uint64_t, kLanes>;

/// Returns the memory that a wire frame costs its keeper, whatever it carries. Session quotas and
/// buffers are bounded by it, so that wire frames without payload are bounded too.
constexpr std::uint64_t cost_of(std::size_t header_bytes, std::size_t bulk_bytes) {
  return 128 + header_bytes + bulk_bytes;
}

/// The two ends' fields for the bulk channel beside the connection. WIRE.md lists the fields that
/// each kind uses.
struct Bulk {
  static constexpr std::size_t kSecretBytes = 32;
  using Secret = std::array<std::byte, kSecretBytes>;

  std::uint8_t kinds = 0;  // a bit for each possible kind; an answer has the chosen kind's bit
  std::string host;        // a value that only processes of one host and user have in common
  std::string where;       // in an answer: the address to connect to
  Secret ticket{};         // in an answer: the secret to present there, once
  Secret share{};          // for the keys under which payload is sealed

  bool operator==(const Bulk&) const = default;
};

/// The first wire frame of a connection, from the one that dialled, and the answer to it.
struct Hello {
  bool is_answer = false;
  std::uint32_t version = kVersion;  // if it is another one, nothing that follows here is known
  PeerInfo info;
  std::uint64_t session = 0;  // chosen by the one that dialled
  bool resumes = false;       // a connection of this session broke
  // session quota: bytes a priority that the other may have sent and not seen acknowledged
  std::uint64_t window = 0;
  Received received = {};
  Bulk bulk = {};
};
/// The third step of the handshake: both now know that there is a session.
struct Ready {};
/// The end of a handshake that came to nothing. Redundant: another connection of the two goes on.
struct Refuse {
  std::string name;  // name of the node that refuses
  Status why;
  bool redundant = false;
};

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
};
/// A message whose bytes begin in this wire frame.
struct MessageType {
  std::uint64_t head_bytes = 0;
  std::vector<TensorType> tensors;
};
struct Data {
  Lane lane = Lane::data;
  std::uint64_t sequence = 0;  // number among the wire frames of its priority, from 0
  Received received = {};
  std::vector<MessageType> messages;
};
/// Without other traffic it also shows that its sender is alive.
struct Ack {
  Received received = {};
};
/// Ends the session: `why` for the peer's listener, behind everything that was sent, which is so
/// many wire frames of each priority.
struct Bye {
  Status why;
  Received sent = {};
};
/// The answer: the session is forgotten.
struct Gone {};

using Frame = std::variant<Hello, Ready, Refuse, Data, Ack, Bye, Gone>;

struct Limits {
  // head and tensors of one message together
  std::uint64_t message_bytes = std::uint64_t(1) << 36;
  std::uint64_t text_bytes = 4096;  // a name, an address or a reason
};

struct Decoded {
  Frame frame;
  std::size_t header_bytes = 0;  // inline bytes follow
};

/// The header, without inline bytes.
std::vector<std::byte> encode(const Frame& frame);
/// Appends a Data header for the first `messages` of data's messages. It equals the result of
/// `encode`, without a copy of their types.
void encode_data(const Data& data, std::size_t messages, std::vector<std::byte>& out);
/// Decodes a wire frame. Returns data_loss for bytes that are no wire frame, resource_exhausted
/// beyond a limit. A Data frame is read into the memory of one that `out` has from before.
Status decode(std::span<const std::byte> part, const Limits& limits, Decoded& out);

}  // namespace troupe::detail::wire
