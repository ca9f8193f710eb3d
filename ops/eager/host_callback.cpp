#include <troupe/ops/eager/host_callback.hpp>

#include <atomic>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe {
namespace {

// Calls of one name in several traces have code of their own, so each node is an actor of its own.
std::string unique_name(const std::string& name) {
  static std::atomic<std::uint64_t> next{1};  // publishes nothing but itself
  return fmt::format("{}#{}", name, next.fetch_add(1, std::memory_order_relaxed));
}

class Callback final : public NodeActor {
 public:
  explicit Callback(HostFunction function) : function_(std::move(function)) {}
  void receive(std::span<const Tensor> inputs, std::span<Tensor> outputs) override {
    outputs[0] = function_(inputs);
  }

 private:
  const HostFunction function_;
};

// The innermost reader of the operands, as it binds now.
Reader& reader_of(const std::vector<Expr>& xs) {
  Reader* reader = &xs[0].reader();
  for (const Expr& x : xs)
    if (x.reader().depth() > reader->depth()) reader = &x.reader();
  return reader->current();
}

Expr call_now(Eager& scope, const std::string& name, const std::vector<Expr>& xs,
              const ValueSpec& result, HostFunction function, const Site& at) {
  std::vector<Value> inputs;
  for (const Expr& x : xs) inputs.push_back(scope.on_host(x));
  Callback callback(std::move(function));
  Eager::Comparisons effect;
  effect.has_effect = true;
  const Eager::Watching watching(scope, effect);
  try {
    return scope.constant(fire_actor(callback, name, {&result, 1}, std::move(inputs))[0].tensor());
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("host callback at {}: {}", at.text(), e.what()));
  }
}

}  // namespace

Expr host_callback(const std::string& name, const std::vector<Expr>& xs, const ValueSpec& result,
                   HostFunction function, HostCallbackOptions options, std::source_location at) {
  const auto refuse = [&](const std::string& why, Code code = Code::invalid_argument) {
    throw Error(code, fmt::format("host callback '{}' at {}: {}", name, Site(at).text(), why));
  };
  if (name.empty()) refuse("it has no name; give one");
  if (!function) refuse("its function is empty; give one");
  if (xs.empty()) refuse("it has no inputs; give an expression, which orders and places it");
  for (std::size_t i = 0; i < xs.size(); ++i)
    if (xs[i].is_empty())
      refuse(fmt::format("input {} is an empty expression; take what an op returned", i),
             Code::failed_precondition);
  Reader& reader = reader_of(xs);
  Expr y;
  if (auto* scope = dynamic_cast<Eager*>(&reader)) {
    y = call_now(*scope, name, xs, result, std::move(function), at);
  } else {
    const auto named = static_cast<Graph&>(reader).node_scope(name);
    ActorDefinition definition;
    definition.make = [f = std::move(function)] { return std::make_unique<Callback>(f); };
    definition.options.blocks = options.blocks;
    y = detail::actor_node(reader, unique_name(name), xs, {result}, std::move(definition), at)[0];
  }
  const bool carries_gradient = is_floating(result.dtype) || is_complex(result.dtype);
  // in a graph the actor itself ends a path, and only a gradient that needs it is refused
  const bool is_eager = y.reader().depth() == 0;
  if (!carries_gradient || (!is_eager && !options.gradient)) return y;
  GradientFunction gradient = std::move(options.gradient);
  if (!gradient)
    gradient = [name, line = Site(at).text()](const Expr&, const std::vector<Expr>&,
                                              const Expr&) -> std::vector<Expr> {
      throw Error(Code::unimplemented,
                  fmt::format("host callback '{}' at {} has no gradient; give "
                              "HostCallbackOptions::gradient, or use stop_gradient",
                              name, line));
    };
  return detail::with_gradient_of(Operand(y, at), xs, std::move(gradient));
}

}  // namespace troupe
