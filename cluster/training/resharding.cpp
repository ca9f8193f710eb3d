#include <troupe/cluster/training/resharding.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
namespace {

// The places of rows, as ShardedVariable spreads them.
struct RowLayout {
  Partitioner::Kind kind;
  std::int64_t rows, shards;

  std::int64_t most() const { return (rows + shards - 1) / shards; }
  std::int64_t rows_of(std::int64_t shard) const {
    return kind == Partitioner::Kind::modulo
               ? rows / shards + (shard < rows % shards ? 1 : 0)
               : std::clamp<std::int64_t>(rows - shard * most(), 0, most());
  }
  std::int64_t shard_of(std::int64_t row) const {
    return kind == Partitioner::Kind::modulo ? row % shards : row / most();
  }
  std::int64_t place_of(std::int64_t row) const {
    return kind == Partitioner::Kind::modulo ? row / shards : row % most();
  }
};

std::string shard_prefix(const std::string& name, std::int64_t shard) {
  return fmt::format("{}/shard-{}", name, shard);
}

bool has_a_row_each(const std::vector<Tensor>& parts, const RowLayout& layout) {
  for (std::size_t s = 0; s < parts.size(); ++s)
    if (parts[s].shape().rank() < 1 ||
        parts[s].shape()[0] != layout.rows_of(static_cast<std::int64_t>(s)))
      return false;
  return true;
}

std::vector<Tensor> cut_anew(const std::vector<Tensor>& parts, const RowLayout& from,
                             const RowLayout& to) {
  const Tensor& first = parts[0];
  const std::size_t row_bytes =
      first.bytes() / static_cast<std::size_t>(std::max<std::int64_t>(1, first.shape()[0]));
  std::vector<Tensor> made;
  for (std::int64_t s = 0; s < to.shards; ++s) {
    Shape shape = first.shape();
    shape.set(0, to.rows_of(s));
    made.push_back(Tensor::empty(first.dtype(), shape));
  }
  const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row) * row_bytes; };
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const Tensor& part = parts[static_cast<std::size_t>(from.shard_of(row))];
    Tensor& into = made[static_cast<std::size_t>(to.shard_of(row))];
    std::memcpy(static_cast<char*>(into.raw_mutable()) + at(to.place_of(row)),
                static_cast<const char*>(part.raw()) + at(from.place_of(row)), row_bytes);
  }
  return made;
}

}  // namespace

void reshard(std::map<std::string, Tensor>& values, const ShardedRows& of, std::int64_t shards) {
  std::int64_t saved = 0;
  while (values.contains(shard_prefix(of.name, saved))) ++saved;
  if (saved == 0 || saved == shards) return;
  const RowLayout from{of.kind, of.rows, saved}, to{of.kind, of.rows, shards};
  // Endings of names; each shard has the same.
  std::vector<std::string> endings;
  const std::string first = shard_prefix(of.name, 0);
  for (auto it = values.lower_bound(first); it != values.end() && it->first.starts_with(first);
       ++it)
    if (it->first.size() == first.size() || it->first[first.size()] == '/')
      endings.push_back(it->first.substr(first.size()));
  for (const std::string& ending : endings) {
    std::vector<Tensor> parts;
    for (std::int64_t s = 0; s < saved; ++s) {
      const auto part = values.find(shard_prefix(of.name, s) + ending);
      if (part == values.end())
        throw Error(Code::data_loss,
                    fmt::format("the checkpoint lacks '{}{}'", shard_prefix(of.name, s), ending));
      parts.push_back(std::move(part->second));
      values.erase(part);
    }
    const bool is_of_rows = has_a_row_each(parts, from);
    if (ending.empty() && !is_of_rows)
      throw Error(Code::data_loss,
                  fmt::format("the {} shards of '{}' in the checkpoint do not have its {} rows",
                              saved, of.name, of.rows));
    const std::vector<Tensor> made = is_of_rows ? cut_anew(parts, from, to) : std::vector<Tensor>();
    for (std::int64_t s = 0; s < shards; ++s)
      values[shard_prefix(of.name, s) + ending] =
          is_of_rows ? made[static_cast<std::size_t>(s)] : parts[0];
  }
}

}  // namespace troupe::detail
