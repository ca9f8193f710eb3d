#include <troupe/cluster/transport/transport.hpp>

#include <fmt/format.h>

namespace troupe {

std::string_view engine_version() { return TROUPE_VERSION; }

namespace detail {

Status check_peer(const PeerInfo& self, const PeerInfo& peer) {
  if (peer.name.empty()) return Status(Code::invalid_argument, "a node needs a name");
  if (peer.name == self.name)
    return Status(Code::already_exists,
                  peer.incarnation == self.incarnation
                      ? fmt::format("{} is this node itself", peer.name)
                      : fmt::format("another node has the name {} too", peer.name));
  if (peer.engine != self.engine)
    return Status(Code::failed_precondition,
                  fmt::format("{} runs Troupe {}, and {} runs {}", peer.name, peer.engine,
                              self.name, self.engine));
  return Status();
}

void check_sendable(const Message& message) {
  for (const Tensor& tensor : message.tensors) {
    if (!tensor.has_value())
      throw Error(Code::invalid_argument, "an empty tensor handle cannot be sent");
    if (!tensor.is_on_host())
      throw Error(Code::invalid_argument,
                  "a tensor on a device cannot be sent; copy it to the host first");
  }
}

std::uint64_t bytes_of(const Message& message) {
  std::uint64_t bytes = message.head.size();
  for (const Tensor& tensor : message.tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace detail

}  // namespace troupe
