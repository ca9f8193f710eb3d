#include <troupe/actors/events/partition.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/events/query.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

/// Columns of a stream whose values say which partition a row is in; nothing: no columns do.
using PartitionColumns = std::optional<std::vector<std::size_t>>;

std::uint64_t partition_mixed(std::uint64_t h) {
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDULL;
  return h ^ (h >> 29);
}

/// Returns the column of the output, of position `k`.
PartitionColumns partition_made(const Division& division, const std::vector<std::size_t>& at) {
  std::vector<std::size_t> columns;
  for (const std::size_t k : at) {
    if (k >= division.made.size() || division.made[k] < 0) return std::nullopt;
    columns.push_back(static_cast<std::size_t>(division.made[k]));
  }
  return columns;
}

/// Finds the fields of sources that keep all rows together which depend on each other.
class PartitionPlanner {
 public:
  explicit PartitionPlanner(const Query& query) : query_(query) {}

  /// Returns the columns by source.
  std::vector<std::vector<std::size_t>> plan() {
    const std::size_t sources = query_.sources().size();
    std::vector<std::vector<std::size_t>> all(sources);
    try_all(std::vector<std::vector<std::size_t>>(sources));
    if (valid_.empty() && tries_ > kMostTries)
      throw Error(Code::invalid_argument,
                  fmt::format("the first {} choices of one field of each source do not divide the "
                              "query by key, and others are not tried; give the sources fewer "
                              "fields, or run the query in 1 partition",
                              kMostTries));
    if (valid_.empty())
      throw Error(Code::invalid_argument,
                  fmt::format("{} relates events that agree in no field, so they cannot be divided "
                              "by key; run the query in 1 partition",
                              query_.steps()[failed_].name));
    for (const auto& one : valid_) {
      bool is_new = true;  // in all sources, so that the k-th columns belong together
      for (std::size_t s = 0; s < sources; ++s)
        is_new &= std::find(all[s].begin(), all[s].end(), one[s][0]) == all[s].end();
      for (std::size_t s = 0; is_new && s < sources; ++s) all[s].push_back(one[s][0]);
    }
    return fails(all) ? valid_.front() : all;
  }

 private:
  static constexpr std::size_t kMostTries = 100'000;

  /// Extends an assignment of a column a source in all ways, up to kMostTries in all.
  void try_all(std::vector<std::vector<std::size_t>> chosen) {
    if (tries_ > kMostTries) return;
    const auto next = std::find_if(chosen.begin(), chosen.end(), [](auto& c) { return c.empty(); });
    if (next == chosen.end()) {
      if (++tries_ <= kMostTries && !fails(chosen)) valid_.push_back(std::move(chosen));
      return;
    }
    const auto source = static_cast<std::size_t>(next - chosen.begin());
    const Schema& schema = query_.steps()[query_.sources()[source].step].schema;
    for (std::size_t c = 0; c < schema.size(); ++c) {
      *next = {c};
      try_all(chosen);
    }
  }

  /// Returns whether an operator needs rows of two partitions.
  bool fails(const std::vector<std::vector<std::size_t>>& chosen) {
    std::vector<PartitionColumns> known(query_.steps().size());
    for (std::size_t s = 0; s < query_.steps().size(); ++s) {
      const Query::Step& step = query_.steps()[s];
      if (step.inputs.empty()) {
        for (std::size_t p = 0; p < query_.sources().size(); ++p)
          if (query_.sources()[p].step == s) known[s] = chosen[p];
        continue;
      }
      std::vector<PartitionColumns> inputs;
      for (const std::size_t input : step.inputs) inputs.push_back(known[input]);
      if (step.division.sides.empty()) {
        const bool are_equal = std::all_of(inputs.begin(), inputs.end(),
                                           [&](const auto& in) { return in == inputs[0]; });
        if (are_equal && inputs[0]) known[s] = partition_made(step.division, *inputs[0]);
        continue;
      }
      const auto at = positions(step.division, inputs);
      if (!at) {
        failed_ = std::max(failed_, s);
        return true;
      }
      known[s] = partition_made(step.division, *at);
    }
    return false;
  }

  /// Returns the positions of the partition's columns in the sides; nothing unless all agree.
  static PartitionColumns positions(const Division& division,
                                    const std::vector<PartitionColumns>& inputs) {
    PartitionColumns all;
    for (const Division::Side& side : division.sides) {
      if (!inputs[side.input]) return std::nullopt;
      std::vector<std::size_t> at;
      for (const std::size_t column : *inputs[side.input]) {
        const auto it = std::find(side.columns.begin(), side.columns.end(), column);
        if (it == side.columns.end()) return std::nullopt;
        at.push_back(static_cast<std::size_t>(it - side.columns.begin()));
      }
      if (all && *all != at) return std::nullopt;
      all = std::move(at);
    }
    return all;
  }

  const Query& query_;
  std::vector<std::vector<std::vector<std::size_t>>> valid_;  // columns by source, each
  std::size_t failed_ = 0;  // the farthest operator that a try has failed at
  std::size_t tries_ = 0;
};

}  // namespace

Division Division::by_row(std::size_t columns) {
  Division division;
  division.made.resize(columns);
  std::iota(division.made.begin(), division.made.end(), 0);
  return division;
}

Division Division::by(std::vector<std::size_t> columns, std::vector<int> made) {
  return {{{0, std::move(columns)}}, std::move(made)};
}

std::vector<Batch> Split::divide(const Batch& batch) const {
  std::vector<std::uint64_t> hash(batch.size());
  for (const std::size_t c : columns)
    std::visit(
        [&](const auto& values) {
          for (std::size_t i = 0; i < hash.size(); ++i)
            hash[i] = partition_mixed(hash[i] ^ hash_of(values[i]));
        },
        batch.columns[c]);
  std::vector<std::vector<std::uint32_t>> rows(partitions);
  for (auto& some : rows) some.resize(batch.size());
  std::vector<std::size_t> counts(partitions);
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const std::size_t p = (hash[i] >> 32) * partitions >> 32;  // without a division
    rows[p][counts[p]++] = static_cast<std::uint32_t>(i);
  }
  std::vector<Batch> all(partitions);
  for (std::size_t p = 0; p < partitions; ++p) {
    for (const Column& column : batch.columns)
      all[p].columns.push_back(column_of(static_cast<Type>(column.index())));
    all[p].append(batch, {rows[p].data(), counts[p]});
    all[p].guarantee = batch.guarantee;
  }
  return all;
}

namespace {

void check_partitions(std::size_t partitions) {
  // Each creator of rows has a number a partition in the merge, which has Union::kCreators.
  constexpr std::size_t kMostPartitions = Union::kCreators / 4;
  if (partitions < 1 || partitions > kMostPartitions)
    throw Error(Code::invalid_argument, fmt::format("a query runs in {} partitions; give 1 to {}",
                                                    partitions, kMostPartitions));
}

}  // namespace

Query partitioned(const Query& query, std::size_t partitions) {
  check_partitions(partitions);
  const auto is_free = [](const Query::Step& step) { return step.division.sides.empty(); };
  if (partitions == 1 || std::all_of(query.steps().begin(), query.steps().end(), is_free))
    return query;
  return query.divided(PartitionPlanner(query).plan(), partitions);
}

Query placed(const Query& query, const std::vector<std::string>& nodes, std::size_t partitions) {
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (std::find(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(n), nodes[n]) !=
        nodes.begin() + static_cast<std::ptrdiff_t>(n))
      throw Error(Code::invalid_argument,
                  fmt::format("a query names node '{}' twice; give it more partitions on each node",
                              nodes[n]));
  const std::size_t all = nodes.size() * partitions;
  check_partitions(all);
  // One partition has all rows, whatever divides them.
  Query out = query.divided(all == 1 ? std::vector<std::vector<std::size_t>>(query.sources().size())
                                     : PartitionPlanner(query).plan(),
                            all);
  for (Query::Step& step : out.steps_)
    if (step.partition >= 0)
      step.node = nodes[static_cast<std::size_t>(step.partition) / partitions];
  return out;
}

PartitionShape shape_of(const Query& query, std::size_t partition) {
  PartitionShape shape;
  const auto is_inside = [&](std::size_t s) {
    return query.steps()[s].partition == static_cast<int>(partition);
  };
  std::vector<bool> is_entry(query.steps().size()), is_exit(query.steps().size());
  for (std::size_t s = 0; s < query.steps().size(); ++s) {
    if (is_inside(s)) shape.steps.push_back(s);
    for (const std::size_t input : query.steps()[s].inputs) {
      is_entry[input] = is_entry[input] || (is_inside(s) && !is_inside(input));
      is_exit[input] = is_exit[input] || (!is_inside(s) && is_inside(input));
    }
  }
  for (std::size_t s = 0; s < query.steps().size(); ++s) {
    if (is_entry[s]) shape.entries.push_back(s);
    if (is_exit[s]) shape.exits.push_back(s);
  }
  return shape;
}

/// `columns`: by source, those that its rows are divided by.
Query Query::divided(const std::vector<std::vector<std::size_t>>& columns,
                     std::size_t partitions) const {
  Query out;
  out.level_ = level_;
  out.next_creator_ = next_creator_;
  std::vector<std::vector<std::size_t>> copies(steps_.size());  // one, or one a partition
  const auto add = [&](Step step, std::size_t of, std::size_t partition) {
    for (std::size_t& input : step.inputs)
      input = copies[input][copies[input].size() == 1 ? 0 : partition];
    copies[of].push_back(out.steps_.size());
    out.steps_.push_back(std::move(step));
  };
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    const auto source = std::find_if(sources_.begin(), sources_.end(), [&](const Port& port) {
      return port.step == s || (!step.inputs.empty() && port.step == step.inputs[0]);
    });
    const auto port = std::find_if(outputs_.begin(), outputs_.end(),
                                   [s](const Port& output) { return output.step == s; });
    if (source != sources_.end()) {
      add(step, s, 0);
      const auto of = static_cast<std::size_t>(source - sources_.begin());
      if (source->step == s)
        out.sources_.push_back({source->name, copies[s][0], source->idle_after});
      else out.steps_.back().split = std::make_shared<const Split>(Split{columns[of], partitions});
    } else if (port != outputs_.end()) {
      const std::vector<std::size_t> made = copies[step.inputs[0]];
      Step merged = step;
      if (made.size() > 1) {
        merged.inputs = {
            out.add_named(step.name + ".merge", "merge", made,
                          [schema = step.schema, n = made.size(),
                           k = out.creators(Union::kCreators)](const std::string& name) {
                            return std::make_unique<Union>(name, schema, n, k);
                          })
                .step_};
      } else {
        merged.inputs = made;
      }
      copies[s] = {out.steps_.size()};
      out.steps_.push_back(std::move(merged));
      out.outputs_.push_back({port->name, copies[s][0]});
    } else {
      for (std::size_t p = 0; p < partitions; ++p) {
        Step copy = step;
        copy.name = fmt::format("{}/{}", step.name, p);
        copy.partition = static_cast<int>(p);
        add(std::move(copy), s, p);
      }
    }
  }
  return out;
}

}  // namespace troupe::events
