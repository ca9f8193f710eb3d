#include <troupe/cluster/protocol/program_codec.hpp>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <troupe/actors/plan/instances.hpp>
#include <troupe/actors/plan/plan_part.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/mesh/instances.hpp>

namespace troupe {

template <>
inline constexpr std::uint64_t kValues<StateSpec::Kind> = 5;
template <>
inline constexpr std::uint64_t kValues<Initializer::Kind> = 6;
template <>
inline constexpr std::uint64_t kValues<ScalarOp> = kScalarOps;

template <class A>
void fields(A& a, Edge& e) {
  a(e.node), a(e.output);
}

template <class A>
void fields(A& a, PlanPart::Partition& p) {
  a(p.device), a(p.number);
}

template <class A>
void fields(A& a, PlanPart::Out& o) {
  a(o.node), a(o.output), a(o.partition);
}

template <class A>
void fields(A& a, PlanPart::Wait& w) {
  a(w.node), a(w.ended_by);
}

template <class A>
void fields(A& a, PlanPart& p) {
  a(p.nodes), a(p.numbers), a(p.partitions), a(p.outs), a(p.queues.filled), a(p.queues.emptied),
      a(p.waits), a(p.receives), a(p.sends);
}

template <class A>
void fields(A& a, Initializer& i) {
  // The sender's engine has filled in its own seed where there was none (Graph::seed_states).
  std::uint64_t seed = i.seed.value_or(0);
  a(i.kind), a(i.value), a(i.a), a(i.b), a(seed);
  if constexpr (A::reads) i.seed = seed;
}

template <class A>
void fields(A& a, ScalarInstruction& i) {
  a(i.op), a(i.type), a(i.operand[0]), a(i.operand[1]), a(i.operand[2]), a(i.constant);
}

template <class A>
void fields(A& a, mesh::Dim& d) {
  a(d.name), a(d.size);
}

namespace {

constexpr std::size_t kMostDevices = 1 << 12;  // in a mesh

template <class A>
void state_fields(A& a, StateSpec& s) {
  a(s.kind), a(s.name), a(s.values), a(s.initial), a(s.capacity), a(s.min_after_dequeue), a(s.seed),
      a(s.device);
}

enum class Object : std::uint8_t { program, specs, function, opaque, mesh };

// An attribute that only the sender can use: a user's gradient, which was used before.
class Opaque final : public AttrObject {
 public:
  std::string text() const override { return "left where it was made"; }
};

// Strings that come often, each in full once.
class Dictionary {
 public:
  void write(MessageWriter& w, const std::string& s) {
    auto [it, is_new] = numbers_.emplace(s, numbers_.size());
    w(static_cast<std::uint64_t>(it->second));
    if (is_new) w(s);
  }
  const std::string& read(MessageReader& r) {
    const std::uint64_t n = r.unsigned_number();
    if (n > strings_->size()) MessageReader::malformed("a string of no number");
    if (n == strings_->size()) strings_->push_back(r.text());
    return (*strings_)[n];
  }
  /// Returns the owner of the strings to which sites refer.
  std::shared_ptr<const void> strings() const { return strings_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::shared_ptr<std::deque<std::string>> strings_ = std::make_shared<std::deque<std::string>>();
};

// The node whose value an Identity, or several, pass on.
std::int32_t repeated(const Graph& g, std::int32_t id) {
  while (g.node(id).op->name == "Identity" || g.node(id).op->name == "LoopCond")
    id = g.node(id).inputs[0].node;
  return id;
}

// True if a node makes kernels for a device: its own, or that of a mesh's instances.
bool is_made_on(const std::string& device, const std::string& node) {
  return node_of(device) == node || is_of_instances(device);
}

// ---- writing

class ProgramWriter {
 public:
  ProgramWriter(MessageWriter& w, const Placed& placed, const std::string& to)
      : w_(w), placed_(placed), wants_(constants_for(placed, to)) {}

  void write() {
    const Graph& g = placed_.program.graph;
    w_(g.states());
    w_(static_cast<std::uint64_t>(g.functions().size()));
    for (const auto& f : g.functions()) {
      functions_.emplace(f.get(), functions_.size());
      w_(f->name)(f->parameters)(f->results);
      site(f->site);
    }
    w_(static_cast<std::uint64_t>(g.size()));
    for (std::int32_t id = 0; id < g.size(); ++id)
      node(g.node(id), placed_.device[at(id)], wants_[at(id)]);
    w_(placed_.program.feeds)(placed_.program.fetches)(placed_.default_device)(placed_.edge_bytes)(
        placed_.edge_ahead);
    w_(placed_.part != nullptr);
    if (placed_.part) w_(*placed_.part);
  }

 private:
  void site(const Site& s) {
    strings_.write(w_, s.file);
    strings_.write(w_, s.function);
    w_(s.line);
  }

  // A node that uses a constant has its value (actors/plan/plan.hpp): other nodes need none.
  static std::vector<char> constants_for(const Placed& placed, const std::string& to) {
    const Graph& g = placed.program.graph;
    std::vector<char> wanted(at(g.size()), to.empty());
    for (std::int32_t id = 0; id < g.size(); ++id) {
      if (!is_made_on(placed.device[at(id)], to)) continue;
      wanted[at(id)] = 1;
      for (Edge e : g.node(id).inputs) wanted[at(repeated(g, e.node))] = 1;
    }
    return wanted;
  }

  void node(const Node& n, const std::string& device, bool has_value) {
    strings_.write(w_, n.op->name);
    site(n.site);
    w_(n.inputs)(n.controls)(n.outputs)(n.name)(n.state)(n.origin);
    strings_.write(w_, n.scope ? *n.scope : std::string());
    strings_.write(w_, device);
    w_(static_cast<std::uint64_t>(n.attrs.entries().size()));
    for (const auto& [name, value] : n.attrs.entries()) {
      strings_.write(w_, name);
      w_(static_cast<std::uint64_t>(value.index()));
      if (!has_value && n.op->name == "Constant" && std::holds_alternative<Tensor>(value))
        attribute(Tensor());
      else std::visit([&](const auto& v) { attribute(v); }, value);
    }
  }

  template <class T>
  void attribute(const T& value) {
    w_(value);
  }

  void attribute(const std::shared_ptr<const AttrObject>& object) {
    if (const auto* program = dynamic_cast<const ProgramAttr*>(object.get())) {
      w_(static_cast<std::uint64_t>(Object::program))(program->program->inputs)(
          program->program->code)(program->program->results);
    } else if (const auto* specs = dynamic_cast<const SpecsAttr*>(object.get())) {
      w_(static_cast<std::uint64_t>(Object::specs))(specs->specs);
    } else if (const auto* function = dynamic_cast<const FunctionDef*>(object.get())) {
      w_(static_cast<std::uint64_t>(Object::function))(
          static_cast<std::uint64_t>(functions_.at(function)));
    } else if (const auto* of_mesh = dynamic_cast<const mesh::detail::MeshAttr*>(object.get())) {
      const auto [known, is_new] = meshes_.emplace(of_mesh, meshes_.size());
      w_(static_cast<std::uint64_t>(Object::mesh))(static_cast<std::uint64_t>(known->second));
      if (is_new) w_(of_mesh->mesh.axes())(of_mesh->mesh.devices());
    } else {
      w_(static_cast<std::uint64_t>(Object::opaque));
    }
  }

  MessageWriter& w_;
  const Placed& placed_;
  const std::vector<char> wants_;
  Dictionary strings_;
  std::map<const FunctionDef*, std::size_t> functions_;
  std::map<const mesh::detail::MeshAttr*, std::size_t> meshes_;  // each in full once
};

// ---- reading

// Every instruction as `Recorder::typed` would have made it: kernels look at nothing again.
void check(const ScalarProgram& p) {
  auto demand = [](bool holds) {
    if (!holds) MessageReader::malformed("a scalar program that computes nothing");
  };
  demand(p.code.size() <= 0x7FFF && !p.results.empty());
  for (std::size_t at = 0; at < p.code.size(); ++at) {
    const ScalarInstruction& i = p.code[at];
    if (i.op == ScalarOp::input) {
      demand(i.operand[0] >= 0 && static_cast<std::size_t>(i.operand[0]) < p.inputs.size());
      demand(p.inputs[static_cast<std::size_t>(i.operand[0])] == i.type);
      continue;
    }
    const int first = i.op == ScalarOp::select ? 1 : 0;
    for (int k = 0; k < arity(i.op); ++k)
      demand(i.operand[static_cast<std::size_t>(k)] >= 0 &&
             static_cast<std::size_t>(i.operand[static_cast<std::size_t>(k)]) < at);
    auto type = [&](int k) {
      return p.code[static_cast<std::size_t>(i.operand[static_cast<std::size_t>(k)])].type;
    };
    if (i.op == ScalarOp::constant || i.op == ScalarOp::cast) continue;
    for (int k = first + 1; k < arity(i.op); ++k) demand(type(k) == type(first));
    if (first == 1) demand(type(0) == DType::boolean);
    demand(i.type == (yields_bool(i.op) ? DType::boolean : type(first)));
    demand(type(first) != DType::f16 && type(first) != DType::bf16);
  }
  for (std::int16_t result : p.results)
    demand(result >= 0 && static_cast<std::size_t>(result) < p.code.size());
}

bool works_on(const OpDef& op, StateSpec::Kind kind) {
  using enum StateSpec::Kind;
  if (op.name == "Actor") return kind == actor;
  if (op.name == "Print") return kind == console;
  const bool is_queue = op.name == "Enqueue" || op.name == "Dequeue" || op.name == "QueueSize" ||
                        op.name == "QueueClose";
  return is_queue ? kind == fifo_queue || kind == shuffling_queue : kind == variable;
}

bool has_program(const std::string& op) {
  return op == "Fused" || op == "FusedSlices" || op == "FusedReduce" || op == "UpdateVariable";
}

class ProgramReader {
 public:
  ProgramReader(MessageReader& r, Placed& placed, const std::string& here)
      : r_(r), placed_(placed), here_(here) {}

  void read() {
    std::vector<StateSpec> states;
    r_(states);
    for (const StateSpec& s : states) graph().declare(s, Site());
    if (graph().states().size() != states.size())
      MessageReader::malformed("a state that stands there twice");
    read_functions();
    std::size_t nodes = 0;
    r_.count(nodes);
    for (std::size_t i = 0; i < nodes; ++i) read_node();
    r_(placed_.program.feeds)(placed_.program.fetches)(placed_.default_device)(placed_.edge_bytes)(
        placed_.edge_ahead);
    read_part();
    const auto is_of_others = [&](Edge e) { return placed_.part && e == Edge{-1, 0}; };
    for (Edge e : placed_.program.feeds)
      if (!is_of_others(e))
        if (graph_check(e); graph().node(e.node).op->name != "Input")
          MessageReader::malformed("a feed of what takes none");
    for (Edge e : placed_.program.fetches)
      if (!is_of_others(e)) graph_check(e);
    placed_.keep = strings_.strings();
    for (std::int32_t id = 0; id < graph().size(); ++id) {
      if (!is_made_on(placed_.device[at(id)], here_)) continue;
      bool is_whole = !absent_.contains(id);
      for (Edge e : graph().node(id).inputs)
        is_whole = is_whole && !absent_.contains(repeated(graph(), e.node));
      if (!is_whole) MessageReader::malformed("a constant that is used here and has no value");
    }
    refuse_missing();
  }

 private:
  Graph& graph() { return placed_.program.graph; }

  void graph_check(Edge e) {
    if (e.node < 0 || e.node >= graph().size() || e.output < 0 ||
        static_cast<std::size_t>(e.output) >= graph().node(e.node).outputs.size())
      MessageReader::malformed("an edge from nowhere");
  }

  // Checks that positions of a part's nodes and partitions in the whole increase, and that edges
  // out of the part go to other nodes. The other nodes check the numbers of their ends.
  void read_part() {
    bool is_part = false;
    if (r_(is_part); !is_part) return;
    auto part = std::make_shared<PlanPart>();
    r_(*part);
    const auto goes_up = [](const auto& all, auto number) {
      std::int32_t before = -1;
      return std::all_of(all.begin(), all.end(), [&](const auto& one) {
        return number(one) > std::exchange(before, number(one));
      });
    };
    const bool is_ordered =
        part->numbers.size() == at(graph().size()) &&
        goes_up(part->numbers, [](std::int32_t n) { return n; }) &&
        goes_up(part->partitions, [](const PlanPart::Partition& p) { return p.number; });
    if (!is_ordered || part->numbers.empty())
      MessageReader::malformed("a part of a program that is in no order");
    for (const PlanPart::Out& out : part->outs) {
      const bool is_there =
          out.node >= 0 && out.node < graph().size() && out.output >= -1 &&
          (out.output < 0 || at(out.output) < graph().node(out.node).outputs.size());
      const bool goes_out = is_there && out.partition >= 0 &&
                            at(out.partition) < part->partitions.size() &&
                            node_of(part->partitions[at(out.partition)].device) != here_;
      if (!goes_out)
        MessageReader::malformed("a value that leaves a part of a program for nowhere");
    }
    const auto waits = [&](std::int32_t id) {
      const Node* const n = id >= 0 && id < graph().size() ? &graph().node(id) : nullptr;
      return n && n->state >= 0 &&
             (n->op->effect == Effect::enqueue || n->op->effect == Effect::dequeue);
    };
    for (const PlanPart::Wait& w : part->waits) {
      const bool is_there =
          waits(w.node) && std::all_of(w.ended_by.begin(), w.ended_by.end(), [&](std::int32_t id) {
            return id >= -1 && id < graph().size();
          });
      if (!is_there)
        MessageReader::malformed(
            "a part of a program that lists the producers of queues that do not exist");
    }
    placed_.part = std::move(part);
  }

  Site read_site() {
    Site s;
    s.file = strings_.read(r_).c_str();
    s.function = strings_.read(r_).c_str();
    r_(s.line);
    return s;
  }

  void read_functions() {
    std::size_t count = 0;
    r_.count(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto f = std::make_shared<FunctionDef>();
      r_(f->name)(f->parameters)(f->results);
      f->site = read_site();
      functions_.push_back(std::move(f));
    }
    graph().set_functions(functions_);
  }

  void read_node() {
    Node n;
    const std::string& op = strings_.read(r_);
    n.site = read_site();
    r_(n.inputs)(n.controls)(n.outputs)(n.name)(n.state)(n.origin);
    if (const std::string& scope = strings_.read(r_); !scope.empty())
      n.scope = std::make_shared<const std::string>(scope);
    placed_.device.push_back(strings_.read(r_));
    read_attributes(n.attrs);
    for (Edge e : n.inputs) graph_check(e);
    for (std::int32_t c : n.controls)
      if (c < 0 || c >= graph().size()) MessageReader::malformed("a control edge from nowhere");
    try {
      n.op = &find_op(op);
    } catch (const Error&) {
      missing_.insert(fmt::format("op '{}' ({})", op, n.site.text()));
      n.op = &find_op("Input");  // stands in until all that is missing is known
      graph().append(std::move(n));
      return;
    }
    const AttrValue* value = op == "Constant" ? n.attrs.find("value") : nullptr;
    const auto* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (tensor && !tensor->has_value()) {  // a constant of other nodes
      if (!n.inputs.empty() || n.outputs.size() != 1 || n.outputs[0].is_list() || n.state >= 0)
        MessageReader::malformed("a constant of no kind");
      absent_.insert(graph().append(std::move(n)));
      return;
    }
    check(n);
    graph().append(std::move(n));
  }

  void read_attributes(Attrs& attrs) {
    std::size_t count = 0;
    r_.count(count);
    std::vector<Attrs::Entry> entries;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = strings_.read(r_);
      attrs.set(name, read_attribute(r_.unsigned_number()));
    }
  }

  template <std::size_t I = 0>
  AttrValue read_attribute(std::uint64_t index) {
    if constexpr (I == std::variant_size_v<AttrValue>) {
      MessageReader::malformed("an attribute of no type");
    } else {
      if (index != I) return read_attribute<I + 1>(index);
      std::variant_alternative_t<I, AttrValue> value{};
      if constexpr (std::is_same_v<decltype(value), std::shared_ptr<const AttrObject>>)
        value = read_object();
      else r_(value);
      return AttrValue(std::in_place_index<I>, std::move(value));
    }
  }

  std::shared_ptr<const AttrObject> read_object() {
    switch (static_cast<Object>(r_.unsigned_number())) {
      case Object::program: {
        auto program = std::make_shared<ScalarProgram>();
        r_(program->inputs)(program->code)(program->results);
        troupe::check(*program);
        return std::make_shared<ProgramAttr>(std::move(program));
      }
      case Object::specs: {
        std::vector<ValueSpec> specs;
        r_(specs);
        return make_specs_attr(std::move(specs));
      }
      case Object::function: {
        const std::uint64_t n = r_.unsigned_number();
        if (n >= functions_.size()) MessageReader::malformed("a function that is not there");
        return refer_to(*functions_[n]);
      }
      case Object::opaque: return std::make_shared<Opaque>();
      case Object::mesh: return read_mesh();
    }
    MessageReader::malformed("an attribute's object of no kind");
  }

  std::shared_ptr<const AttrObject> read_mesh() {
    const std::uint64_t n = r_.unsigned_number();
    if (n > meshes_.size()) MessageReader::malformed("a mesh of no number");
    if (n < meshes_.size()) return meshes_[n];
    mesh::Dims axes;
    std::vector<std::string> devices;
    r_(axes)(devices);
    const auto is_device = [](const std::string& name) {
      return looks_like_device(short_name(name)) && !is_any_index(name);
    };
    if (devices.size() > kMostDevices || !std::all_of(devices.begin(), devices.end(), is_device))
      MessageReader::malformed("a mesh of what are no devices, or of too many");
    return meshes_.emplace_back(std::make_shared<const mesh::detail::MeshAttr>(
        mesh::Mesh(std::move(axes), std::move(devices))));
  }

  // Checks attributes that users cannot write, as ops take them for granted.
  void check_objects(const Node& n) {
    auto is = [&]<class T>(const char* name, type_tag<T>) {
      const AttrValue* value = n.attrs.find(name);
      const auto* object = value ? std::get_if<std::shared_ptr<const AttrObject>>(value) : nullptr;
      return object && dynamic_cast<const T*>(object->get());
    };
    const std::string& op = n.op->name;
    bool fits = true;
    if (has_program(op)) fits = is("program", type_tag<ProgramAttr>{});
    if (op == "Actor") fits = is("outputs", type_tag<SpecsAttr>{});
    if (op == "Dequeue") fits = is("components", type_tag<SpecsAttr>{});
    if (op == "Elsewhere")
      fits = is("outputs", type_tag<SpecsAttr>{}) && node_of(placed_.device.back()) != here_;
    if (op == "MeshGive" || op == "MeshTake")
      fits =
          is("taken", type_tag<SpecsAttr>{}) && is("instances", type_tag<mesh::detail::MeshAttr>{});
    if (op == "Switch")
      fits = n.attrs.get<std::int64_t>("branches") == static_cast<std::int64_t>(n.outputs.size());
    if (op == "Argument" || op == "Return" || op == "Call")
      fits = is("function", type_tag<FunctionDef>{});
    if (fits && (op == "Argument" || op == "Return")) {
      const FunctionDef& f = *function_of(n);
      const std::int64_t i = n.attrs.get<std::int64_t>("index");
      fits = i >= 0 &&
             static_cast<std::size_t>(i) < (op == "Return" ? f.results : f.parameters).size();
    }
    if (n.op->evaluate && op != "Call") fits = false;  // lowering leaves none
    if (!fits) MessageReader::malformed(fmt::format("a node of {} that is none", op));
  }

  // Checks that a node's attributes match the state that was made from them.
  static bool is_of(const Node& n, const StateSpec& state) {
    if (state.kind == StateSpec::Kind::variable)
      return n.attrs.get<DType>("dtype") == state.values[0].dtype &&
             n.attrs.get<Shape>("shape") == state.values[0].shape;
    const char* said = n.op->name == "Dequeue" ? "components"
                       : n.op->name == "Actor" ? "outputs"
                                               : nullptr;
    return !said ||
           static_cast<const SpecsAttr&>(*n.attrs.get<std::shared_ptr<const AttrObject>>(said))
                   .specs == state.values;
  }

  // A fused program's operands are the variable that it updates, if it does, and the node's inputs;
  // kernels have room for so many results, and for as many inputs where these are sliced.
  static void check_program(const Node& n, const std::vector<ValueSpec>& inputs) {
    constexpr std::size_t kMost = 16;
    const ScalarProgram& program = program_of(n.attrs);
    std::vector<DType> operands;
    if (n.state >= 0) operands.push_back(n.attrs.get<DType>("dtype"));
    bool fits = program.results.size() <= kMost;
    for (const ValueSpec& in : inputs) {
      operands.push_back(in.dtype);
      fits = fits && !in.is_list();
    }
    fits = fits && program.inputs == operands;
    if (n.op->name == "FusedSlices")
      fits = fits && inputs.size() <= kMost && slices_fit(n, inputs, program);
    if (!fits) MessageReader::malformed(fmt::format("a program that is not of {}", n.op->name));
  }

  // Slices lie within their inputs. An input that is not sliced is as wide as they are, or has one
  // element. Results beside each other are alike.
  static bool slices_fit(const Node& n, const std::vector<ValueSpec>& inputs,
                         const ScalarProgram& program) {
    const auto columns = n.attrs.get<std::int64_t>("columns");
    const auto starts = n.attrs.get<std::vector<std::int64_t>>("starts"),
               outputs = n.attrs.get<std::vector<std::int64_t>>("outputs");
    if (columns <= 0 || starts.size() != inputs.size() || outputs.size() != program.results.size())
      return false;
    bool has_rows = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Shape& shape = inputs[i].shape;
      if (!shape.has_rank()) return false;
      const std::int64_t wide = shape.rank() > 0 ? shape[shape.rank() - 1] : 1;
      if (starts[i] != -1
              ? starts[i] < 0 || shape.rank() == 0 || wide < columns || starts[i] > wide - columns
              : wide != columns && shape.elements() != 1)
        return false;
      has_rows = has_rows || (shape.rank() > 0 && (starts[i] >= 0 || wide == columns));
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const std::int64_t before = k > 0 ? outputs[k - 1] : -1;
      if (outputs[k] != before && outputs[k] != before + 1) return false;
      if (k > 0 && outputs[k] == before &&
          program.result_type(static_cast<int>(k)) != program.result_type(static_cast<int>(k) - 1))
        return false;
    }
    return has_rows && outputs[0] == 0;
  }

  void check(Node& n) {
    check_objects(n);
    if ((n.state >= 0) != (n.op->effect != Effect::none) ||
        n.state >= static_cast<std::int32_t>(graph().states().size()))
      MessageReader::malformed(fmt::format("{} without its state", n.op->name));
    if (n.state >= 0) {
      const StateSpec& state = graph().states()[static_cast<std::size_t>(n.state)];
      if (!works_on(*n.op, state.kind))
        MessageReader::malformed(
            fmt::format("{} of '{}', which is something else", n.op->name, state.name));
      if (!is_of(n, state))
        MessageReader::malformed(
            fmt::format("{} of '{}', as what it is not", n.op->name, state.name));
      if (state.kind == StateSpec::Kind::actor && node_of(placed_.device.back()) == here_ &&
          !find_actor(state.name))
        missing_.insert(fmt::format("user actor '{}' ({})", state.name, n.site.text()));
    }
    std::vector<ValueSpec> inputs;
    for (Edge e : n.inputs) inputs.push_back(graph().spec(e));
    if (has_program(n.op->name)) check_program(n, inputs);
    const std::vector<ValueSpec> inferred = infer(n, inputs);
    bool fits = inferred.size() == n.outputs.size();
    for (std::size_t o = 0; fits && o < inferred.size(); ++o)
      // an Input has no attribute for depth: what is fed is compared with its output
      fits = inferred[o].dtype == n.outputs[o].dtype &&
             (inferred[o].depth == n.outputs[o].depth || n.op->name == "Input") &&
             inferred[o].shape.is_compatible(n.outputs[o].shape);
    if (n.op->name == "MeshTake") {  // a pass states what it takes
      const auto& taken = n.attrs.get<std::shared_ptr<const AttrObject>>("taken");
      fits = n.outputs == static_cast<const SpecsAttr&>(*taken).specs && n.outputs.size() == 1;
    }
    if (!fits) MessageReader::malformed(fmt::format("outputs that {} does not have", n.op->name));
  }

  // The pass `instances` adds attributes that no op declares; their kernels check them.
  std::vector<ValueSpec> infer(Node& n, const std::vector<ValueSpec>& inputs) const {
    if (!n.attrs.has("instances")) return infer_outputs(*n.op, inputs, n.attrs);
    constexpr std::string_view kAdded[] = {"instances", "key",           "to_instances",
                                           "has_value", "taken",         "mesh_axes",
                                           "cut_axes",  "cut_mesh_axes", "piece"};
    const auto is_declared = [&](const std::string& name) {
      return std::any_of(n.op->attrs.begin(), n.op->attrs.end(),
                         [&](const AttrSpec& spec) { return spec.name == name; });
    };
    Attrs declared;
    std::vector<Attrs::Entry> added;
    for (const Attrs::Entry& entry : n.attrs.entries())
      if (!is_declared(entry.first) &&
          std::find(std::begin(kAdded), std::end(kAdded), entry.first) != std::end(kAdded))
        added.push_back(entry);
      else declared.set(entry.first, entry.second);
    std::vector<ValueSpec> inferred = infer_outputs(*n.op, inputs, declared);
    for (Attrs::Entry& entry : added) declared.set(entry.first, std::move(entry.second));
    n.attrs = std::move(declared);
    return inferred;
  }

  void refuse_missing() {
    if (missing_.empty()) return;
    std::string all;
    for (const std::string& m : missing_) all += (all.empty() ? "" : ", ") + m;
    throw Error(Code::not_found, "it has no " + all);
  }

  MessageReader& r_;
  Placed& placed_;
  const std::string& here_;
  Dictionary strings_;
  std::vector<std::shared_ptr<FunctionDef>> functions_;
  std::set<std::string> missing_;
  std::set<std::int32_t> absent_;  // constants without a value
  std::vector<std::shared_ptr<const mesh::detail::MeshAttr>> meshes_;
};

}  // namespace

void write(MessageWriter& w, const Placed& placed, const std::string& to) {
  ProgramWriter(w, placed, to).write();
}
void read(MessageReader& r, Placed& placed, const std::string& here) {
  ProgramReader(r, placed, here).read();
}

void write(MessageWriter& w, const StateSpec& spec) {
  state_fields(w, const_cast<StateSpec&>(spec));
}

void read(MessageReader& r, StateSpec& spec) {
  state_fields(r, spec);
  const bool has_value = spec.kind == StateSpec::Kind::actor ||
                         spec.kind == StateSpec::Kind::console || !spec.values.empty();
  if (!has_value || (spec.kind == StateSpec::Kind::variable && spec.values.size() != 1))
    MessageReader::malformed("a state without its values");
  const bool is_queue =
      spec.kind == StateSpec::Kind::fifo_queue || spec.kind == StateSpec::Kind::shuffling_queue;
  if (is_queue &&
      (spec.capacity < 1 || spec.min_after_dequeue < 0 || spec.min_after_dequeue >= spec.capacity))
    MessageReader::malformed("a queue that keeps nothing, or gives what it has not got");
  if (spec.kind == StateSpec::Kind::variable) {  // kernels rely on its shape and dtype
    if (!spec.values[0].shape.is_known()) MessageReader::malformed("a variable of no known shape");
    const bool is_right =
        spec.values[0].depth == 0 && (spec.initial.kind != Initializer::Kind::tensor ||
                                      fits(spec.initial.value, spec.values[0]));
    if (spec.initial.kind == Initializer::Kind::orthogonal &&
        (spec.values[0].shape.rank() < 1 || !is_floating(spec.values[0].dtype)))
      MessageReader::malformed("an orthogonal variable that is no matrix");
    if (!is_right)
      MessageReader::malformed("a variable whose initial value differs from its description");
  }
  if (spec.kind == StateSpec::Kind::actor) spec.actor = find_actor(spec.name);
}

}  // namespace troupe
