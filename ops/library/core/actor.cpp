#include <map>
#include <mutex>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {

namespace {

struct Actors {
  std::mutex mutex;  // guards known
  std::map<std::string, std::shared_ptr<const ActorDefinition>> known;
};

Actors& actors() {
  static Actors all;
  return all;
}

// Returns the fault of a definition, as the end of a sentence; empty if there is none.
std::string fault_of(const std::function<std::unique_ptr<NodeActor>()>& make,
                     const ActorOptions& options) {
  if (!make) return "has an empty factory";
  if (options.max_restarts < 0)
    return fmt::format("cannot be restarted {} times: max_restarts must be 0 or more",
                       options.max_restarts);
  return {};
}

// Calls the user's code. Its exceptions become errors that name the actor, not internal ones.
template <class F>
auto call_user(const std::string& name, F f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("actor '{}': {}", name, e.what()));
  } catch (...) {
    const Status s = Status::from_current_exception();
    throw Error(s.code() == Code::internal ? Code::invalid_argument : s.code(),
                fmt::format("actor '{}': {}", name, s.message()));
  }
}

}  // namespace

void register_actor(const std::string& name, std::function<std::unique_ptr<NodeActor>()> make,
                    ActorOptions options) {
  if (const std::string fault = fault_of(make, options); !fault.empty())
    throw Error(Code::invalid_argument, fmt::format("actor '{}' {}", name, fault));
  auto definition =
      std::make_shared<const ActorDefinition>(ActorDefinition{std::move(make), options, {}, {}});
  std::lock_guard lock(actors().mutex);
  if (!actors().known.emplace(name, std::move(definition)).second)
    throw Error(Code::already_exists, fmt::format("an actor '{}' is registered already", name));
}

namespace detail {

std::shared_ptr<const ActorDefinition> find_actor(const std::string& name) {
  std::lock_guard lock(actors().mutex);
  auto it = actors().known.find(name);
  return it == actors().known.end() ? nullptr : it->second;
}

Status actor_is_down(const std::string& name, int failures) {
  return Status(Code::failed_precondition,
                fmt::format("actor '{}' is down: it failed {} times in a row", name, failures));
}

std::unique_ptr<NodeActor> make_actor(const std::string& name, const ActorDefinition& definition) {
  std::unique_ptr<NodeActor> actor = call_user(name, [&] { return definition.make(); });
  if (!actor)
    throw Error(Code::invalid_argument, fmt::format("the factory of actor '{}' made none", name));
  return actor;
}

std::vector<Value> fire_actor(NodeActor& actor, const std::string& name,
                              std::span<const ValueSpec> outputs, std::vector<Value> inputs) {
  std::vector<Tensor> in, out(outputs.size());
  for (Value& v : inputs) in.push_back(std::move(v.tensor()));
  call_user(name, [&] { actor.receive(in, out); });
  std::vector<Value> emitted;
  for (std::size_t i = 0; i < out.size(); ++i) {
    bool fits = out[i].has_value() && out[i].dtype() == outputs[i].dtype &&
                outputs[i].shape.is_compatible(out[i].shape());
    if (!fits)
      throw Error(
          Code::invalid_argument,
          fmt::format("actor '{}': output {} must be {}, not {}", name, i, outputs[i].text(),
                      out[i].has_value() ? ValueSpec{out[i].dtype(), out[i].shape()}.text()
                                         : "left unset"));
    emitted.push_back(std::move(out[i]));
  }
  return emitted;
}

bool is_same_actor(const ActorDefinition& a, const ActorDefinition& b) {
  if (&a == &b || !a.source || !b.source) return true;
  return *a.source == *b.source && a.captured.is_comparable && b.captured.is_comparable &&
         a.captured.bytes == b.captured.bytes && a.options.blocks == b.options.blocks &&
         a.options.max_restarts == b.options.max_restarts;
}

const char* difference_of_actors(const ActorDefinition& a, const ActorDefinition& b) {
  return a.source && b.source && *a.source == *b.source &&
                 !(a.captured.is_comparable && b.captured.is_comparable)
             ? "captured values that cannot be compared, such as a string or a function; capture a "
               "pointer to them"
             : "another class, function, captured values, options or outputs";
}

}  // namespace detail

Exprs actor_node(Reader& reader, const std::string& name, std::vector<Expr> inputs,
                 std::vector<ValueSpec> outputs, std::function<std::unique_ptr<NodeActor>()> make,
                 ActorOptions options, std::source_location at) {
  const std::type_info& source = make.target_type();
  // The target's size is not known, unless it is a plain function.
  detail::CapturedValues captured{{}, false};
  if (const auto* plain = make.target<std::unique_ptr<NodeActor> (*)()>())
    captured = detail::captured_by(*plain);
  return detail::actor_node(reader, name, std::move(inputs), std::move(outputs),
                            {std::move(make), options, &source, std::move(captured)}, at);
}

Exprs detail::actor_node(Reader& reader, const std::string& name, std::vector<Expr> inputs,
                         std::vector<ValueSpec> outputs, ActorDefinition definition,
                         std::source_location at) {
  if (const std::string fault = fault_of(definition.make, definition.options); !fault.empty())
    throw Error(Code::invalid_argument,
                fmt::format("Actor at {}: actor '{}' {}", reader.site_for(at).text(), name, fault));
  if (name.empty())
    throw Error(Code::invalid_argument,
                fmt::format("Actor at {}: it needs a name", reader.site_for(at).text()));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_empty())
      throw Error(Code::failed_precondition,
                  fmt::format("Actor at {}: input {} of actor '{}' is an empty expression; take "
                              "what an op returned",
                              reader.site_for(at).text(), i, name));
  StateSpec spec;
  spec.kind = StateSpec::Kind::actor;
  spec.name = name;
  spec.values = outputs;
  spec.actor = std::make_shared<const ActorDefinition>(std::move(definition));
  const int state = reader.declare_new(std::move(spec), at);
  for (Expr& e : inputs)
    if (&e.reader() != &reader) e = reader.adopt(e, at);
  return reader.bind(find_op("Actor"), inputs,
                     Attrs{{"outputs", make_specs_attr(std::move(outputs))}}, at, state);
}

TROUPE_OP(Actor) {
  op.doc("A user's own actor.");
  op.inputs(0, -1);
  op.attr<std::shared_ptr<const AttrObject>>("outputs");
  op.effect(Effect::write);
  op.not_differentiable();
  op.infer([](Inference& c) {
    auto object = c.attrs().get<std::shared_ptr<const AttrObject>>("outputs");
    for (const ValueSpec& s : static_cast<const SpecsAttr&>(*object).specs)
      c.output(s.dtype, s.shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state](KernelContext& c) {
      std::vector<Value> inputs;
      for (Value& v : c.all_inputs()) inputs.push_back(std::move(v));
      static_cast<ActorState&>(*state).fire(c.run().id, std::move(inputs), c.defer());
      // A cancellation before the firing was registered did not find it: it is checked again here.
      if (c.run().cancelled.load(std::memory_order_seq_cst)) state->cancel(c.run().id, given_up());
    });
  });
}

}  // namespace troupe
