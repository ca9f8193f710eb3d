#include <troupe/cluster/training/queued_gradients.hpp>

#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/checkpoint/saved_states.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
namespace {

bool is_i64(const Tensor& t, std::int64_t elements) {
  return t.dtype() == DType::i64 && t.elements() == elements;
}

}  // namespace

std::string name_of_life(const std::string& queue) {
  return fmt::format("{}{}life", queue, kOfState);
}

std::vector<std::int64_t> adopt_gradients(std::map<std::string, Tensor>& values,
                                          const std::string& queue, std::size_t replicas,
                                          std::int64_t now) {
  std::vector<std::int64_t> counts(replicas);
  const auto life = values.extract(name_of_life(queue));
  if (!life) return counts;
  const auto name_of = [&](std::size_t element, std::size_t component) {
    return fmt::format("{}{}{}.{}", queue, kOfState, element, component);
  };
  std::size_t kept = 0;
  for (std::size_t i = 0; values.contains(name_of(i, 0)); ++i) {
    std::vector<Tensor> parts;
    while (auto part = values.extract(name_of(i, parts.size())))
      parts.push_back(std::move(part.mapped()));
    if (parts.size() < 2 || !is_i64(parts[0], 2) || !is_i64(parts[1], 1) ||
        !is_i64(life.mapped(), 1))
      throw Error(Code::data_loss, fmt::format("'{}' is no gradient", name_of(i, 0)));
    const std::int64_t* const ticket = parts[0].data<std::int64_t>();
    const auto replica = static_cast<std::size_t>(parts[1].data<std::int64_t>()[0]);
    if (replica >= replicas)
      throw Error(Code::data_loss,
                  fmt::format("'{}' is of replica {} of {}", name_of(i, 0), replica, replicas));
    if (ticket[0] != life.mapped().data<std::int64_t>()[0]) continue;
    parts[0] = Tensor::of<std::int64_t>({now, ticket[1]}, {2});
    for (std::size_t c = 0; c < parts.size(); ++c)
      values.insert_or_assign(name_of(kept, c), std::move(parts[c]));
    ++counts[replica];
    ++kept;
  }
  return counts;
}

}  // namespace troupe::detail
