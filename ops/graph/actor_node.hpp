// A user's own actor as a node: a class or a lambda with state that fires when its inputs have
// arrived and emits outputs: a simulator, a data source, a sink, a callback to the host.
//
//   struct Counter : NodeActor {
//     std::int64_t n = 0;
//     void receive(std::span<const Tensor>, std::span<Tensor> out) override {
//       out[0] = Tensor::scalar(n++);
//     }
//   };
//   Expr n = actor_node<Counter>(g, "counter", {}, {{DType::i64, Shape{}}})[0];
//
// Name: the open scopes prefix it. Nodes of one graph, and graphs of one engine, that name the same
// actor share it. Its class or function, the values that a function has captured, its options and
// outputs must agree, else already_exists. Captured values are compared as bytes; captured strings,
// vectors and the like never agree, because they cannot be compared: capture a pointer to them.
// Ownership: the engine makes the actor at its first firing and keeps it between runs.
// Threads: one firing at a time, in program order within a run, in every iteration of the branch
// that is taken; on a worker, or on a thread of its own if `blocks` is set (a deterministic engine
// has no other threads). The actor runs on the host. Trouble: an exception fails the run of that
// firing and names the actor and the user's line. The code is that of an `Error`, else
// invalid_argument, because the actor is part of the program. The supervisor makes a fresh actor
// for the next firing, `max_restarts` times in a row: with 3 restarts the actor stays down after
// the 4th failure, and every firing fails. Queued firings are not lost.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <troupe/ops/graph/graph.hpp>

namespace troupe {

class NodeActor {
 public:
  virtual ~NodeActor() = default;
  /// One firing. Every output must be set, with the dtype and shape declared.
  virtual void receive(std::span<const Tensor> inputs, std::span<Tensor> outputs) = 0;
};

struct ActorOptions {
  bool blocks = false;   // the actor waits for the outside world and gets its own thread
  int max_restarts = 3;  // in a row; it stays down after one failure more than that; 0 or more
};

namespace detail {

/// The values in a function object: their bytes, with zeros between them; or the mere fact that
/// there are some, which cannot be compared.
struct CapturedValues {
  std::string bytes = {};
  bool is_comparable = true;
};

/// The factory and options of a user's actor; other nodes refer to it by name, it is never
/// serialised.
struct ActorDefinition {
  std::function<std::unique_ptr<NodeActor>()> make;
  ActorOptions options;
  // Distinguish actors: the type of the class, function or factory, null if it is not known; and
  // what a function or factory has captured.
  const std::type_info* source = nullptr;
  CapturedValues captured = {};
};

/// False if the two differ in class, function, captured values or options, or if both are not one
/// definition and have captured values that cannot be compared.
bool is_same_actor(const ActorDefinition& a, const ActorDefinition& b);
/// Returns how two actors that are not the same differ, as an object of `has`.
const char* difference_of_actors(const ActorDefinition& a, const ActorDefinition& b);

}  // namespace detail

/// Makes an actor known by its name to graphs of other nodes, whose programs name it and whose
/// factory stays where it is. Throws already_exists, and invalid_argument for an empty factory. Any
/// thread.
void register_actor(const std::string& name, std::function<std::unique_ptr<NodeActor>()> make,
                    ActorOptions options = {});
namespace detail {

/// Null if no actor of that name is registered.
std::shared_ptr<const ActorDefinition> find_actor(const std::string& name);

/// The state behind an actor node; each ActorHost makes its own kind.
class ActorState : public State {
 public:
  /// Ends `completion` with the outputs, or with the error. Any thread.
  virtual void fire(std::uint64_t run_id, std::vector<Value> inputs, Completion completion) = 0;
};

/// Returns the error of a firing whose actor failed more often in a row than it may be restarted.
Status actor_is_down(const std::string& name, int failures);
/// Never null. Throws Error, naming the actor.
std::unique_ptr<NodeActor> make_actor(const std::string& name, const ActorDefinition& definition);
/// Runs one firing of `actor` and checks its results against `outputs`. Throws Error, naming the
/// actor.
std::vector<Value> fire_actor(NodeActor& actor, const std::string& name,
                              std::span<const ValueSpec> outputs, std::vector<Value> inputs);

Exprs actor_node(Reader& reader, const std::string& name, std::vector<Expr> inputs,
                 std::vector<ValueSpec> outputs, ActorDefinition definition,
                 std::source_location at);

/// Returns the values in a function object. They are comparable if objects of its type are copied
/// as bytes and the bytes between values are known: there are none, or the compiler can clear them.
template <class F>
CapturedValues captured_by(const F& f) {
  if constexpr (std::is_empty_v<F>) return {};
  else if constexpr (!std::is_trivially_copyable_v<F>) return {{}, false};
  else {
    alignas(F) unsigned char bytes[sizeof(F)];
    std::memcpy(bytes, static_cast<const void*>(&f), sizeof(F));
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(reinterpret_cast<F*>(bytes));
#else
    constexpr bool is_one_number = sizeof(F) == alignof(F) && sizeof(F) <= sizeof(double);
    if (!std::has_unique_object_representations_v<F> && !is_one_number) return {{}, false};
#endif
    return {std::string(reinterpret_cast<const char*>(bytes), sizeof(F)), true};
  }
}

}  // namespace detail

/// Makes the node. `name` is the actor's. Throws already_exists, naming both lines, if the graph
/// has another state or another actor of that name; invalid_argument for an empty factory or a
/// negative number of restarts.
Exprs actor_node(detail::Reader& reader, const std::string& name, std::vector<Expr> inputs,
                 std::vector<ValueSpec> outputs, std::function<std::unique_ptr<NodeActor>()> make,
                 ActorOptions options = {},
                 std::source_location at = std::source_location::current());

/// An actor class with a default constructor.
template <class Actor>
Exprs actor_node(detail::Reader& reader, const std::string& name, std::vector<Expr> inputs,
                 std::vector<ValueSpec> outputs, ActorOptions options = {},
                 std::source_location at = std::source_location::current()) {
  return detail::actor_node(reader, name, std::move(inputs), std::move(outputs),
                            {[] { return std::make_unique<Actor>(); }, options, &typeid(Actor), {}},
                            at);
}

namespace detail {

/// A function (inputs, outputs); each fresh actor starts from a copy of it as it is now.
template <class F>
requires std::is_invocable_v<F&, std::span<const Tensor>, std::span<Tensor>> Exprs
actor_node(Reader& reader, const std::string& name, std::vector<Expr> inputs,
           std::vector<ValueSpec> outputs, F f, ActorOptions options = {},
           std::source_location at = std::source_location::current()) {
  struct Wrapped final : NodeActor {
    explicit Wrapped(F g) : function(std::move(g)) {}
    void receive(std::span<const Tensor> in, std::span<Tensor> out) override { function(in, out); }
    F function;
  };
  CapturedValues captured = captured_by(f);
  return detail::actor_node(
      reader, name, std::move(inputs), std::move(outputs),
      {[f] { return std::make_unique<Wrapped>(f); }, options, &typeid(F), std::move(captured)}, at);
}

/// A factory of actors.
template <class F>
requires(std::is_class_v<F>&& std::is_invocable_r_v<std::unique_ptr<NodeActor>, F&>) Exprs
    actor_node(Reader& reader, const std::string& name, std::vector<Expr> inputs,
               std::vector<ValueSpec> outputs, F make, ActorOptions options = {},
               std::source_location at = std::source_location::current()) {
  CapturedValues captured = captured_by(make);
  return detail::actor_node(reader, name, std::move(inputs), std::move(outputs),
                            {std::move(make), options, &typeid(F), std::move(captured)}, at);
}

}  // namespace detail

}  // namespace troupe
