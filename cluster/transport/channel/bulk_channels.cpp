#include <troupe/cluster/transport/channel/bulk_channels.hpp>

#include <unistd.h>

#include <bit>
#include <fstream>

#include <fmt/format.h>

namespace troupe {

namespace {

constexpr std::uint8_t bit(BulkKind kind) { return static_cast<std::uint8_t>(kind); }
constexpr bool has(std::uint8_t kinds, BulkKind kind) { return (kinds & bit(kind)) != 0; }

constexpr BulkKind sealed_by(SealCipher cipher) {
  return cipher == SealCipher::aes_256_ocb ? BulkKind::ocb_tcp : BulkKind::gcm_tcp;
}

std::optional<SealKeys> keys_of(std::uint8_t kind, const wire::Bulk& mine, const wire::Bulk& theirs,
                                bool dialled, std::uint64_t boxes) {
  std::optional<SealKeys> keys;
  for (const SealCipher cipher : {SealCipher::aes_256_gcm, SealCipher::aes_256_ocb})
    if (has(kind, sealed_by(cipher)))
      keys = derive_seal_keys(cipher, mine.share, theirs.share, dialled);
  if (keys) keys->boxes = boxes;
  return keys;
}

/// Returns the fastest of the requested kinds here that suits an authenticated connection.
std::optional<BulkKind> sealed_kind(std::uint8_t asked) {
  for (const SealCipher cipher : seal_ciphers())
    if (has(asked, sealed_by(cipher))) return sealed_by(cipher);
  return {};
}

/// Returns a value that is equal in processes that can share memory; empty if it cannot be read.
std::string this_host() {
  std::string host;
  if (!(std::ifstream("/proc/sys/kernel/random/boot_id") >> host)) return {};
  for (const char* space : {"net", "pid", "ipc", "mnt", "user"}) {
    char name[64];
    const ssize_t n = readlink(fmt::format("/proc/self/ns/{}", space).c_str(), name, sizeof name);
    if (n <= 0) return {};
    host += ' ' + std::string(name, static_cast<std::size_t>(n));
  }
  return fmt::format("{} {}", host, geteuid());
}

}  // namespace

BulkChannels::BulkChannels(Router& router, const FrameLink& clock, DirectSenders& senders,
                           const BulkSocketOptions& options)
    : router_(router), sockets_(router, clock, senders, options),
      host_(options.shared_memory ? this_host() : std::string()), seal_boxes_(options.seal_boxes) {}

wire::Bulk BulkChannels::ask(Connection connection, bool is_authenticated) {
  wire::Bulk terms;
  if (is_authenticated) {
    for (const SealCipher cipher : seal_ciphers()) terms.kinds |= bit(sealed_by(cipher));
    terms.share = random_share();
  } else {
    terms.kinds = bit(BulkKind::tcp);
  }
  if (!host_.empty()) terms.kinds |= bit(BulkKind::shared_memory);
  terms.host = host_;
  return asked_[connection] = terms;
}

wire::Bulk BulkChannels::answer(Connection connection, const wire::Bulk& ask,
                                bool is_authenticated) {
  const bool is_local = has(ask.kinds, BulkKind::shared_memory) &&
                        sockets_.is_listening_locally() && !host_.empty() && ask.host == host_;
  const std::optional<BulkKind> kind = is_local           ? BulkKind::shared_memory
                                       : is_authenticated ? sealed_kind(ask.kinds)
                                                          : BulkKind::tcp;
  if (!kind || !sockets_.is_listening() || !has(ask.kinds, *kind)) return {};
  wire::Bulk terms;
  if (is_authenticated && !is_local) terms.share = random_share();
  const wire::Bulk offered =
      sockets_.offer(connection, is_local, keys_of(bit(*kind), terms, ask, false, seal_boxes_));
  terms.kinds = bit(*kind);
  terms.where = offered.where;
  terms.ticket = offered.ticket;
  return terms;
}

void BulkChannels::open(Connection connection, const std::string& dialled,
                        const wire::Bulk& answer) {
  const auto asked = asked_.extract(connection);
  if (!asked) return;
  if (std::popcount(answer.kinds) != 1 || (answer.kinds & asked.mapped().kinds) == 0)
    return router_.dropped("a bulk channel of a kind that was not requested");
  sockets_.open(connection, dialled, has(answer.kinds, BulkKind::shared_memory), answer,
                keys_of(answer.kinds, asked.mapped(), answer, true, seal_boxes_));
}

void BulkChannels::close(Connection connection) {
  asked_.erase(connection);
  sockets_.close(connection);
}

}  // namespace troupe
