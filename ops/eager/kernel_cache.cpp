#include <troupe/ops/eager/kernel_cache.hpp>

#include <functional>

#include <troupe/devices/list/list.hpp>

namespace troupe::detail {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t with) {
  hash ^= with + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  return hash * 0xBF58476D1CE4E5B9ull;
}

std::uint64_t mixed(std::uint64_t hash, const Shape& shape) {
  hash = mixed(hash, static_cast<std::uint64_t>(shape.rank()));
  for (std::int64_t extent : shape) hash = mixed(hash, static_cast<std::uint64_t>(extent));
  return hash;
}

std::uint64_t hash_of_value(const AttrValue& value) {
  return std::visit(
      []<class T>(const T& v) -> std::uint64_t {
        if constexpr (std::is_same_v<T, Shape>) return mixed(1, v);
        else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          std::uint64_t hash = v.size();
          for (std::int64_t i : v) hash = mixed(hash, static_cast<std::uint64_t>(i));
          return hash;
        } else if constexpr (std::is_same_v<T, DType>) return static_cast<std::uint64_t>(v);
        else if constexpr (std::is_same_v<T, Tensor> ||
                           std::is_same_v<T, std::shared_ptr<const AttrObject>>)
          return 0;
        else return std::hash<T>()(v);
      },
      value);
}

std::uint64_t hash_of_call(const OpDef& op, const Attrs& attrs, std::span<const Expr> inputs) {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(&op);
  for (const Expr& e : inputs) {
    const Value& v = e.held();
    hash = mixed(hash, static_cast<std::uint64_t>(v.dtype()));
    hash = v.is_list() ? mixed(hash, v.list().element_shape()) : mixed(hash, v.tensor().shape());
  }
  if (!attrs.empty())
    for (const auto& [name, value] : attrs.entries()) hash = mixed(hash, hash_of_value(value));
  return hash;
}

bool is_of(const Value& value, const ValueSpec& spec) {
  if (value.is_list()) return spec == spec_of_value(value);
  return spec.depth == 0 && value.dtype() == spec.dtype && value.tensor().shape() == spec.shape;
}

}  // namespace

KernelCache::Prepared::Prepared(const OpDef& of, Attrs given_attrs, Attrs all_attrs,
                                std::vector<ValueSpec> in, std::vector<ValueSpec> out,
                                Device& device)
    : op(of), given(std::move(given_attrs)), all(std::move(all_attrs)), inputs(std::move(in)),
      outputs(std::move(out)), types(inputs, outputs),
      kernel(make_node_kernel(op, types.setup(op, all, device, 0, {}))) {}

KernelCache::Prepared::Prepared(const OpDef& of, Attrs given_attrs, Attrs all_attrs,
                                std::vector<ValueSpec> in, std::vector<ValueSpec> out,
                                std::unique_ptr<Kernel> of_another_node)
    : op(of), given(std::move(given_attrs)), all(std::move(all_attrs)), inputs(std::move(in)),
      outputs(std::move(out)), types(inputs, outputs), kernel(std::move(of_another_node)) {}

bool KernelCache::can_keep(const OpDef& op, const Attrs& attrs) {
  return !op.random && op.effect == Effect::none && !op.side_effect && !op.evaluate &&
         is_plain(attrs);
}

bool KernelCache::is_plain(const Attrs& attrs) {
  if (!attrs.empty())
    for (const auto& [name, value] : attrs.entries())
      if (std::holds_alternative<Tensor>(value) ||
          std::holds_alternative<std::shared_ptr<const AttrObject>>(value))
        return false;
  return true;
}

KernelCache::Prepared* KernelCache::find(const OpDef& op, const Attrs& attrs,
                                         std::span<const Expr> inputs) {
  const std::uint64_t hash = hash_of_call(op, attrs, inputs);
  for (const auto& p : buckets_[hash & (kBuckets - 1)]) {
    if (p->hash != hash || &p->op != &op || p->inputs.size() != inputs.size()) continue;
    bool is_same = p->given == attrs;
    for (std::size_t i = 0; is_same && i < inputs.size(); ++i)
      is_same = is_of(inputs[i].held(), p->inputs[i]);
    if (is_same) return p.get();
  }
  return nullptr;
}

KernelCache::Prepared& KernelCache::add(std::unique_ptr<Prepared> prepared) {
  if (size_ >= kLimit) {
    for (auto& bucket : buckets_) bucket.clear();
    dropped_ += size_;
    size_ = 0;
  }
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(&prepared->op);
  for (const ValueSpec& s : prepared->inputs)
    hash = mixed(mixed(hash, static_cast<std::uint64_t>(s.dtype)), s.shape);
  if (!prepared->given.empty())
    for (const auto& [name, value] : prepared->given.entries())
      hash = mixed(hash, hash_of_value(value));
  prepared->hash = hash;
  ++size_;
  ++made_;
  auto& bucket = buckets_[hash & (kBuckets - 1)];
  bucket.push_back(std::move(prepared));
  return *bucket.back();
}

}  // namespace troupe::detail
