#include <troupe/cluster/bulk_channels.hpp>

#include <bit>

namespace troupe {

namespace {

constexpr bool has(std::uint8_t kinds, BulkKind kind) { return (kinds & static_cast<std::uint8_t>(kind)) != 0; }

std::optional<SealKeys> keys_of(std::uint8_t kind, const wire::Bulk& mine, const wire::Bulk& theirs, bool dialled) {
  if (!has(kind, BulkKind::sealed_tcp)) return {};
  return derive_seal_keys(mine.share, theirs.share, dialled);
}

}  // namespace

wire::Bulk BulkChannels::ask(Connection connection, bool is_authenticated) {
  wire::Bulk terms;
  terms.kinds = static_cast<std::uint8_t>(is_authenticated ? BulkKind::sealed_tcp : BulkKind::tcp);
  if (is_authenticated) terms.share = random_share();
  return asked_[connection] = terms;
}

wire::Bulk BulkChannels::answer(Connection connection, const wire::Bulk& ask, bool is_authenticated) {
  const BulkKind kind = is_authenticated ? BulkKind::sealed_tcp : BulkKind::tcp;
  if (!tcp_.is_listening() || !has(ask.kinds, kind)) return {};
  wire::Bulk terms;
  if (is_authenticated) terms.share = random_share();
  const wire::Bulk offered = tcp_.offer(connection, keys_of(static_cast<std::uint8_t>(kind), terms, ask, false));
  terms.kinds = static_cast<std::uint8_t>(kind);
  terms.where = offered.where;
  terms.ticket = offered.ticket;
  return terms;
}

void BulkChannels::open(Connection connection, const std::string& dialled, const wire::Bulk& answer) {
  const auto asked = asked_.extract(connection);
  if (!asked || std::popcount(answer.kinds) != 1 || (answer.kinds & asked.mapped().kinds) == 0) return;
  tcp_.open(connection, dialled, answer, keys_of(answer.kinds, asked.mapped(), answer, true));
}

void BulkChannels::close(Connection connection) {
  asked_.erase(connection);
  tcp_.close(connection);
}

}  // namespace troupe
