#include <troupe/ops/collectives/sharded_variable.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The ids as i64 [n].
Expr flat_ids(const Expr& ids, const Graph& graph, const std::string& why) {
  if (ids.is_empty() || &ids.reader() != static_cast<const detail::Reader*>(&graph))
    throw Error(Code::invalid_argument, why + ": the ids must be an expression of its graph");
  if (ids.dtype() != DType::i32 && ids.dtype() != DType::i64)
    throw Error(Code::invalid_argument,
                fmt::format("{}: the ids are {}; give i32 or i64", why, name_of(ids.dtype())));
  return reshape(cast(ids, DType::i64), {kAny});
}

}  // namespace

int Partitioner::shards(std::int64_t rows, std::int64_t bytes_of_row, int devices) const {
  const auto refuse = [](const std::string& why) {
    throw Error(Code::invalid_argument, "the partitioner: " + why);
  };
  if (shards_ < 0) refuse(fmt::format("there are no {} shards; give 1 or more, or 0", shards_));
  std::int64_t count = shards_ > 0 ? shards_ : devices;
  if (bytes_ != 0) {
    if (bytes_ < bytes_of_row)
      refuse(fmt::format("a row has {} bytes, more than the {} of a shard", bytes_of_row, bytes_));
    count = ceil_div(rows, bytes_ / std::max<std::int64_t>(1, bytes_of_row));
  }
  const std::int64_t most = ceil_div(rows, count);
  const std::int64_t full = kind_ == Kind::modulo ? std::min(rows, count) : ceil_div(rows, most);
  if (full < count)
    refuse(fmt::format("{} rows over {} shards leave shard {} without a row; use {} or fewer", rows,
                       count, full, full));
  return static_cast<int>(count);
}

ShardedVariable::ShardedVariable(Graph& graph, const std::string& name, DType dtype,
                                 const Shape& shape, const Initializer& initial,
                                 const collective::Group& group, Partitioner partitioner, At at)
    : graph_(&graph), name_(name), shape_(shape), partitioner_(partitioner) {
  if (shape.rank() < 1 || !shape.is_known() || shape[0] < 1)
    throw Error(Code::invalid_argument,
                fmt::format("the sharded variable '{}' needs one row or more, and has shape {}",
                            name, shape.text()));
  const std::int64_t row = shape.elements() / shape[0] * static_cast<std::int64_t>(size_of(dtype));
  const int count = partitioner.shards(shape[0], row, group.size());
  most_ = ceil_div(shape[0], count);
  for (int s = 0; s < count; ++s) devices_.push_back(group.device(s % group.size()));
  for (int s = 0; s < count; ++s) {
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims[0] = shard_rows(static_cast<std::size_t>(s));
    const auto there = graph.on_device(devices_[static_cast<std::size_t>(s)]);
    Initializer part = initial;
    if (initial.kind == Initializer::Kind::tensor)
      throw Error(Code::invalid_argument,
                  fmt::format("the sharded variable '{}' starts as a tensor; give a constant or a "
                              "distribution, and set its shards by their handles",
                              name));
    shards_.push_back(graph.variable(fmt::format("{}/shard-{}", name, s), dtype,
                                     Shape(std::span<const std::int64_t>(dims)), part, at));
  }
}

std::int64_t ShardedVariable::shard_rows(std::size_t s) const {
  const auto at = static_cast<std::int64_t>(s);
  const auto count = static_cast<std::int64_t>(devices_.size());
  if (partitioner_.kind() == Partitioner::Kind::modulo)
    return shape_[0] / count + (at < shape_[0] % count ? 1 : 0);
  return std::min(most_, shape_[0] - at * most_);
}

ShardedVariable::Routes ShardedVariable::routes(const Expr& ids, At at) const {
  Routes r;
  r.why = fmt::format("{}({})", name_, Site(at).text());
  const Expr given = flat_ids(ids, *graph_, r.why);
  const Expr is_row = all(given >= 0 && given < shape_[0]);
  const Operand checked[] = {given, is_row};
  const Expr rows = detail::bind1(
      "Require", checked,
      Attrs{{"what", fmt::format("the table '{}' has the rows 0 to {}, and an id is another one",
                                 name_, shape_[0] - 1)}},
      Site(at));
  const auto count = static_cast<std::int64_t>(shards_.size());
  const bool is_modulo = partitioner_.kind() == Partitioner::Kind::modulo;
  // A shard's rows get successive places, so that sorting places sorts by shard.
  const Expr places = is_modulo ? mod(rows, count) * most_ + floor_div(rows, count) : rows;
  const Exprs different = unique(places);
  r.places = different[0];
  r.which = different[1];
  for (std::int64_t s = 0; s <= count; ++s) {
    const Expr edge = graph_->constant(Tensor::of<std::int64_t>({s * most_}, {1}));
    r.bounds.push_back(reshape(search_sorted(r.places, edge), Shape()));
  }
  return r;
}

Expr ShardedVariable::rows_of(const Routes& r, std::size_t s) const {
  const Expr part = r.places[{Interval{r.bounds[s], r.bounds[s + 1]}}];
  return part - static_cast<std::int64_t>(s) * most_;
}

Expr ShardedVariable::lookup(const Expr& ids, At at) const {
  const Routes r = routes(ids, at);
  Exprs parts;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    const Expr rows = rows_of(r, s);
    const auto there = graph_->on_device(devices_[s]);
    parts.push_back(gather(shards_[s], rows));
  }
  const Expr found = gather(parts.size() == 1 ? parts[0] : concat(parts, 0), r.which);
  if (ids.shape().has_rank() && ids.shape().rank() == 1) return found;
  std::vector<Expr> extents{shape_of(ids)};
  if (shape_.rank() > 1) {
    std::vector<std::int64_t> row(shape_.dims().begin() + 1, shape_.dims().end());
    extents.push_back(
        graph_->constant(Tensor::of<std::int64_t>(row, {static_cast<std::int64_t>(row.size())})));
  }
  return reshape(found, extents.size() == 1 ? extents[0] : concat(extents, 0));
}

Expr ShardedVariable::read(At at) const {
  Exprs parts;
  for (const Variable& v : shards_) parts.push_back(v.read(at));
  if (parts.size() == 1) return parts[0];
  if (partitioner_.kind() == Partitioner::Kind::range) return concat(parts, 0);
  // Row r is number r / shards of shard r mod shards, and shards lie one after the other.
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> first(shards_.size(), 0);
  for (std::size_t s = 1; s < shards_.size(); ++s) first[s] = first[s - 1] + shard_rows(s - 1);
  for (std::int64_t row = 0; row < shape_[0]; ++row) {
    const auto count = static_cast<std::int64_t>(shards_.size());
    order.push_back(first[static_cast<std::size_t>(row % count)] + row / count);
  }
  return gather(concat(parts, 0), graph_->constant(Tensor::of<std::int64_t>(order, {shape_[0]})));
}

Expr ShardedVariable::scatter_add(const Expr& ids, const Expr& updates, At at) const {
  const Routes r = routes(ids, at);
  std::vector<std::int64_t> row(shape_.dims().begin() + 1, shape_.dims().end());
  const Expr many = reshape(size_of(r.places), {1});
  const Expr extents = row.empty()
                           ? many
                           : concat({many, graph_->constant(Tensor::of<std::int64_t>(
                                               row, {static_cast<std::int64_t>(row.size())}))},
                                    0);
  const Expr sums =
      troupe::scatter_add(graph_->zeros(shards_[0].dtype(), extents), r.which, updates);
  Exprs done;
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    const Expr rows = rows_of(r, s);
    const Expr mine = sums[{Interval{r.bounds[s], r.bounds[s + 1]}}];
    const auto there = graph_->on_device(devices_[s]);
    done.push_back(shards_[s].scatter_add(rows, mine));
  }
  return group(done);
}

Expr sampled_softmax(const ShardedVariable& weights, const ShardedVariable& biases,
                     const Expr& inputs, const Expr& labels, std::int64_t sampled,
                     std::source_location at) {
  const std::int64_t classes = weights.shape()[0];
  const std::string why = fmt::format("sampled_softmax({})", Site(at).text());
  if (sampled < 1)
    throw Error(Code::invalid_argument,
                fmt::format("{}: {} sampled classes; give 1 or more", why, sampled));
  if (weights.shape().rank() != 2 || biases.shape().rank() != 1 || biases.shape()[0] != classes)
    throw Error(Code::invalid_argument,
                fmt::format("{}: weights {} and biases {} must be [classes, d] and [classes]", why,
                            weights.shape().text(), biases.shape().text()));
  const Expr own = cast(labels, DType::i64);
  auto& reader = inputs.reader();
  // P(class) = log((class + 2) / (class + 1)) / log(classes + 1), by inverting the distribution.
  const double range = std::log(static_cast<double>(classes) + 1);
  const Expr u = reader.random_uniform({sampled}, DType::f64);
  const Expr drawn =
      minimum(cast(floor(exp(u * range)), DType::i64) - std::int64_t{1}, classes - 1);
  const Expr p = log1p(1.0 / (cast(drawn, DType::f64) + 1.0)) / range;
  const Expr log_expected = cast(log(p * static_cast<double>(sampled)), inputs.dtype());
  const Expr own_logit = sum(inputs * weights.lookup(own, at), {1}) + biases.lookup(own, at);
  const Expr others = matmul(inputs, transpose(weights.lookup(drawn, at))) +
                      biases.lookup(drawn, at) - log_expected;
  const Expr is_own = expand_dims(own, 1) == expand_dims(drawn, 0);
  const Expr masked = where(is_own, -1e30, others);
  return logsumexp(concat({expand_dims(own_logit, 1), masked}, 1), {1}) - own_logit;
}

}  // namespace troupe
