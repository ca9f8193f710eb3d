#include <troupe/controlflow/resident/resident_program.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/controlflow/resident/choose_small.hpp>
#include <troupe/controlflow/resident/keep_resident.hpp>
#include <troupe/controlflow/resident/small_steps.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {

// Emits a loop's steps. A region is a sub-graph that runs as one sequence: what is outside of the
// loop, a condition, a body, a branch.
class ResidentProgram::Builder {
 public:
  Builder(ResidentProgram& program, Device& device)
      : p_(program), code_(program.code_), small_(program.code_), device_(device) {}

  void build(const Attrs& attrs, std::uint64_t origin, std::span<const ValueSpec> inputs) {
    region_ = add_region(-1);
    Node loop;
    loop.attrs = attrs;
    loop.origin = origin;
    loop.inputs.resize(inputs.size());
    p_.most_elements_ = attrs.get<std::int64_t>("small");
    for (const ValueSpec& spec : inputs) p_.inputs_.push_back(new_place(spec));
    next_frame_ = attrs.get<std::int64_t>("frame");
    p_.outputs_ = emit_loop(loop, p_.inputs_);
    code_.halt();
    for (std::size_t v = 0; v < last_.size(); ++v)
      if (last_[v].call >= 0) p_.calls_[at(last_[v].call)].inputs[last_[v].input].is_last = true;
    for (const ResidentCall& call : p_.calls_) {
      p_.most_operands_ = std::max(p_.most_operands_, call.inputs.size());
      p_.most_results_ = std::max(p_.most_results_, call.outputs.size());
    }
    find_closes();
  }

 private:
  using Places = std::vector<ResidentPlace>;

  // ---- slots

  ResidentPlace new_place(const ValueSpec& spec) {
    if (is_resident_scalar(spec)) return {true, code_.add_register(), spec.dtype};
    if (is_small(spec, p_.most_elements_)) {
      SmallSteps::Registers registers;
      for (std::int64_t e = 0; e < spec.shape.elements(); ++e)
        registers.push_back(code_.add_register());
      return small_place(spec, std::move(registers));
    }
    owner_.push_back(region_);
    last_.push_back({});
    return {false, p_.values_++, spec.dtype};
  }
  ResidentPlace small_place(const ValueSpec& spec, SmallSteps::Registers registers) {
    if (is_resident_scalar(spec)) return {true, registers[0], spec.dtype};
    p_.small_.push_back({spec.shape, std::move(registers)});
    return {false, static_cast<std::int32_t>(p_.small_.size()) - 1, spec.dtype, true};
  }
  /// None for a value in a slot.
  SmallSteps::Registers registers_of(const ResidentPlace& place) const {
    if (place.is_scalar) return {place.index};
    if (place.is_small) return p_.small_[at(place.index)].registers;
    return {};
  }
  ResidentPlace constant(const Node& node) {
    const auto& value = node.attrs.get<Tensor>("value");
    if (is_resident_scalar(node.outputs[0]))
      return {true, code_.add_constant(value), value.dtype()};
    if (is_small(node.outputs[0], p_.most_elements_))
      return small_place(node.outputs[0], small_.constant(value));
    const ResidentPlace place = new_place(node.outputs[0]);
    owner_.back() = -1;
    p_.constants_.emplace_back(place.index, value);
    return place;
  }

  // ---- which step reads a tensor last, and may have it

  struct Use {
    std::int32_t call = -1;
    std::size_t input = 0;
  };
  std::int32_t add_region(std::int32_t parent) {
    parents_.push_back(parent);
    return static_cast<std::int32_t>(parents_.size()) - 1;
  }
  bool is_within(std::int32_t region, std::int32_t outer) const {
    while (region >= 0 && region != outer) region = parents_[at(region)];
    return region == outer;
  }
  // A region within may run any number of times, so its steps share what the regions around it own.
  void note_use(const ResidentPlace& place, Use use) {
    if (!place.has_slot() || owner_[at(place.index)] < 0) return;
    const std::int32_t owner = owner_[at(place.index)];
    if (region_ == owner) last_[at(place.index)] = use;
    else if (is_within(region_, owner)) last_[at(place.index)] = {};
  }
  void keep(const ResidentPlace& place) { note_use(place, {}); }

  ResidentCall& add_call(const Places& inputs, const Places& outputs) {
    const auto number = static_cast<std::int32_t>(p_.calls_.size());
    ResidentCall& call = p_.calls_.emplace_back();
    for (const ResidentPlace& place : inputs) {
      note_use(place, {number, call.inputs.size()});
      call.inputs.push_back({place});
    }
    call.outputs = outputs;
    call.loops = loops_;
    code_.call(number);
    return call;
  }
  void move(const ResidentPlace& to, const ResidentPlace& from) {
    if (to == from) return keep(from);
    if (to.has_slot()) {
      add_call({from}, {to}).kind = ResidentCall::Kind::move;
      return;
    }
    const SmallSteps::Registers into = registers_of(to), of = registers_of(from);
    for (std::size_t e = 0; e < into.size(); ++e)
      if (into[e] != of[e]) code_.copy(into[e], of[e]);
  }

  // ---- regions

  Places emit(const SubGraph& sub, const Places& arguments) {
    std::vector<Places> places(at(sub.graph.size()));
    for (std::size_t i = 0; i < sub.inputs.size(); ++i)
      places[at(sub.inputs[i].node)] = {arguments[i]};
    const auto of = [&](Edge e) { return places[at(e.node)][at(e.output)]; };
    std::vector<int> readers(at(sub.graph.size()), 0);
    std::vector<char> is_kept(at(sub.graph.size()), 0);
    for (const Node& node : sub.graph.nodes())
      for (Edge e : node.inputs) ++readers[at(e.node)];
    for (const std::vector<Edge>* kept : {&sub.inputs, &sub.outputs})
      for (Edge e : *kept) is_kept[at(e.node)] = 1;
    // Observers read the condition's operands after an iteration.
    const bool releases = p_.most_elements_ > 0 && region_ != compared_region_;
    const auto release = [&](std::int32_t id) {
      if (!releases || is_kept[at(id)] || readers[at(id)] > 0) return;
      for (const ResidentPlace& place : places[at(id)]) small_.release(registers_of(place));
    };
    for (std::int32_t id = 0; id < sub.graph.size(); ++id) {
      if (!places[at(id)].empty()) continue;
      const Node& node = sub.graph.node(id);
      Places inputs;
      for (Edge e : node.inputs) inputs.push_back(of(e));
      places[at(id)] = emit_node(sub.graph, id, inputs, is_kept[at(id)] || !releases);
      release(id);
      for (Edge e : node.inputs) {
        --readers[at(e.node)];
        release(e.node);
      }
    }
    Places outputs;
    for (Edge e : sub.outputs) outputs.push_back(of(e));
    return outputs;
  }

  Places emit_node(const Graph& graph, std::int32_t id, const Places& inputs, bool is_kept) {
    const Node& node = graph.node(id);
    if (node.op->name == "Constant") return {constant(node)};
    if (node.op->name == "Identity") {
      small_.hold(registers_of(inputs[0]));
      return inputs;
    }
    if (is_resident_loop(node)) return emit_loop(node, inputs);
    if (node.op->name == "Case") return emit_case(node, inputs);
    if (is_scalar_step(graph, node)) {
      if (region_ == compared_region_) note_compared(node, inputs);
      return emit_steps(graph, node, inputs, is_kept);
    }
    if (is_small_step(graph, node, p_.most_elements_))
      return emit_steps(graph, node, inputs, is_kept);
    Places outputs;
    for (const ValueSpec& spec : node.outputs) outputs.push_back(new_place(spec));
    ResidentCall& call = add_call(inputs, outputs);
    call.graph = &graph;
    call.node = id;
    // as lowering has it: the product packs what is the same in every iteration
    const bool b_recurs =
        node.op->name == "MatMul" && inputs[1].has_slot() && owner_[at(inputs[1].index)] != region_;
    const bool is_product =
        node.op->name == "MatMul" && (!b_recurs || is_small_product(graph, node));
    if (add_direct(graph, node, is_product, call)) return outputs;
    const NodeTypes types(graph, node);
    Node mine = node;
    if (b_recurs) mine.attrs.set("b_recurs", true);
    p_.kernels_.push_back(make_node_kernel(*node.op, types.setup(mine, device_, {})));
    call.kernel = p_.kernels_.back().get();
    const std::string& op = node.op->name;
    if (op == "ListPush" && !inputs[1].has_slot()) call.kind = ResidentCall::Kind::push;
    if (op == "ListPop" && !outputs[1].has_slot()) call.kind = ResidentCall::Kind::pop;
    if (op == "ListRead" && !outputs[0].has_slot()) call.kind = ResidentCall::Kind::read;
    return outputs;
  }

  // A step without a kernel; false, with nothing done, if it needs one.
  bool add_direct(const Graph& graph, const Node& node, bool is_product, ResidentCall& call) {
    const bool is_rows = node.op->name == "FusedSlices";
    if (!is_product && !is_rows && !is_tensor_step(node)) return false;
    call.kind = is_product ? ResidentCall::Kind::product
                : is_rows  ? ResidentCall::Kind::rows
                           : ResidentCall::Kind::pointwise;
    call.direct = static_cast<std::int32_t>(p_.direct_.size());
    ResidentProgram::Direct& made = p_.direct_.emplace_back();
    if (is_product) {
      made.transpose_a = node.attrs.get<bool>("transpose_a");
      made.transpose_b = node.attrs.get<bool>("transpose_b");
    } else if (is_rows) {
      made.rows = std::make_shared<const SlicedRows>(node.attrs);
    } else {
      made.program = program_of(graph, node);
    }
    for (Edge e : node.inputs) made.inputs.push_back(graph.spec(e));
    made.outputs = node.outputs;
    return true;
  }

  // A variable's register has its next value by then.
  void note_compared(const Node& node, const Places& inputs) {
    const bool is_changed =
        p_.is_compared_late_ && std::any_of(inputs.begin(), inputs.end(), [&](const auto& place) {
          const auto& variables = p_.variables_;
          return std::find(variables.begin(), variables.end(), place) != variables.end();
        });
    if (!is_changed) p_.compared_.push_back({node.origin, node.op, inputs});
  }

  // Nothing is packed of operands as small as these.
  static bool is_small_product(const Graph& graph, const Node& node) {
    constexpr std::int64_t kSmall = 4096;  // multiplications
    const Shape &a = graph.spec(node.inputs[0]).shape, &product = node.outputs[0].shape;
    const int inner = node.attrs.get<bool>("transpose_a") ? a.rank() - 2 : a.rank() - 1;
    return product.elements() * a[inner] <= kSmall;
  }

  // A pointwise node on tensors, all results of one shape.
  static bool is_tensor_step(const Node& node) {
    return (node.op->pointwise || node.op->name == "Fused") && !node.inputs.empty() &&
           !find_device_kernel(kind_of(kHostDevice), node.op->name) &&
           std::all_of(node.outputs.begin(), node.outputs.end(), [&](const ValueSpec& spec) {
             return !is_resident_scalar(spec) && spec.shape == node.outputs[0].shape;
           });
  }

  // Steps on registers, by element.
  Places emit_steps(const Graph& graph, const Node& node, const Places& inputs, bool is_kept) {
    std::vector<SmallSteps::Registers> operands;
    for (const ResidentPlace& place : inputs) operands.push_back(registers_of(place));
    auto results = small_.emit(graph, node, operands, is_kept);
    Places outputs;
    for (std::size_t o = 0; o < results.size(); ++o)
      outputs.push_back(small_place(node.outputs[o], std::move(results[o])));
    return outputs;
  }

  Places emit_case(const Node& node, const Places& inputs) {
    const auto branches = subgraphs_of(node);
    Places outputs;
    for (const ValueSpec& spec : node.outputs) outputs.push_back(new_place(spec));
    const ScalarCode::Label choose =
        code_.choose(inputs[0].index, inputs[0].type, static_cast<std::int32_t>(branches.size()));
    const std::int32_t outside = region_;
    std::vector<ScalarCode::Label> ends;
    for (std::size_t b = 0; b < branches.size(); ++b) {
      code_.bind_branch(choose, static_cast<std::int32_t>(b));
      region_ = add_region(outside);
      const Places results = emit(*branches[b], {inputs.begin() + 1, inputs.end()});
      for (std::size_t o = 0; o < outputs.size(); ++o) move(outputs[o], results[o]);
      if (b + 1 < branches.size()) ends.push_back(code_.jump());
    }
    region_ = outside;
    for (const ScalarCode::Label end : ends) code_.bind(end);
    return outputs;
  }

  //   cond; unless it holds: end          of scalars: cond; unless it holds: end
  // top:                                top: body; next values
  //   ...                                 cond; if it holds: count, top
  Places emit_loop(const Node& node, const Places& inputs) {
    const auto graphs = subgraphs_of(node);
    const SubGraph &condition = *graphs[0], &body = *graphs[1];
    const std::size_t variables = body.outputs.size();
    const auto given = static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables"));
    const auto& implicit = static_cast<const SpecsAttr&>(
                               *node.attrs.get<std::shared_ptr<const AttrObject>>("implicit"))
                               .specs;
    const std::int32_t outside = region_;
    const std::int32_t in_condition = add_region(outside), in_body = add_region(outside);
    const auto number = static_cast<std::int32_t>(p_.loops_.size());
    InnerLoop made;
    made.name = fmt::format("{}/{}", node.attrs.get<std::string>("label"), next_frame_++);
    made.key = node.origin;
    made.parent = loops_.empty() ? -1 : loops_.back();
    made.counter = code_.add_register();
    made.predicate = condition.graph.describe(condition.outputs[0].node);
    made.is_endless = is_same_for_ever(condition, body);
    p_.loops_.push_back(std::move(made));
    const ScalarCode::Register counter = p_.loops_[at(number)].counter;

    Places arguments;
    for (std::size_t k = 0; k < variables; ++k) {
      region_ = in_body;
      const ResidentPlace variable = new_place(body.graph.spec(body.inputs[k]));
      region_ = outside;
      if (k < given) move(variable, inputs[k]);
      else set_first(variable, implicit[k - given]);
      arguments.push_back(variable);
    }
    arguments.insert(arguments.end(), inputs.begin() + static_cast<std::ptrdiff_t>(given),
                     inputs.end());
    code_.set_zero(counter);
    p_.loops_[at(number)].first = code_.here();
    loops_.push_back(number);

    const bool is_quick = condition.outputs.size() == 1 && is_all_scalar(condition);
    if (number == 0) {
      p_.variables_.assign(arguments.begin(),
                           arguments.begin() + static_cast<std::ptrdiff_t>(variables));
      p_.is_compared_late_ = !is_quick;
      compared_region_ = in_condition;
    }
    const ScalarCode::Label top = code_.here();
    region_ = in_condition;
    const Places told = emit(condition, arguments);
    for (const ResidentPlace& place : told) keep(place);
    const ScalarCode::Label end = code_.jump_unless(told[0].index);
    const ScalarCode::Label start = code_.here();
    region_ = in_body;
    Places results = emit(body, arguments);
    next_values(arguments, results, start);
    if (is_quick) {
      region_ = in_condition;
      if (number == 0) p_.compared_.clear();
      const Places again = emit(condition, arguments);
      code_.again_if(again[0].index, start, counter);
      // The last iteration counts as well.
      const ScalarCode::Register yes = always();
      code_.again_if(yes, code_.here() + 1, counter);
    } else {
      code_.again_if(always(), top, counter);
    }
    code_.bind(end);
    loops_.pop_back();
    p_.loops_[at(number)].last = code_.here();

    region_ = outside;
    Places outputs;
    for (std::size_t k = 0; k < variables; ++k) {
      if (!arguments[k].has_slot()) {
        outputs.push_back(arguments[k]);
        continue;
      }
      outputs.push_back(new_place(body.graph.spec(body.inputs[k])));
      ResidentCall& moved = add_call({arguments[k]}, {outputs.back()});
      moved.kind = ResidentCall::Kind::move;
      moved.inputs[0].is_last = true;
    }
    if (graphs.size() > 2) emit_check(node, *graphs[2], outputs, inputs, given, told);
    outputs.insert(outputs.end(), told.begin() + 1, told.end());
    return outputs;
  }

  // An implicit variable starts as zero or as an empty list.
  void set_first(const ResidentPlace& variable, const ValueSpec& spec) {
    if (variable.is_scalar) return code_.set_zero(variable.index);
    Node empty;
    empty.op = &find_op("ListEmpty");
    empty.attrs = attrs_of(spec);
    empty.attrs.set("saved", true);
    empty.outputs = {spec};
    const std::vector<ValueSpec> specs{spec};
    const NodeTypes types({}, specs);
    ResidentCall& call = add_call({}, {variable});
    p_.kernels_.push_back(
        make_node_kernel(*empty.op, types.setup(*empty.op, empty.attrs, device_, 0, {})));
    call.kernel = p_.kernels_.back().get();
    name(call, std::move(empty));
  }
  // A node that is in no sub-graph, for errors.
  void name(ResidentCall& call, Node node) {
    auto graph = std::make_unique<Graph>();
    call.node = graph->append(std::move(node));
    call.graph = graph.get();
    p_.added_.push_back(std::move(graph));
  }

  // All next values are read before any variable changes. Small tensors change element by element,
  // as scalars do.
  void next_values(const Places& of_arguments, const Places& of_results, ScalarCode::Label start) {
    Places arguments, results;
    for (std::size_t k = 0; k < of_results.size(); ++k) {
      add_elements(of_arguments[k], arguments);
      add_elements(of_results[k], results);
    }
    const std::size_t variables = results.size();
    const auto is_variable_of_others = [&](std::size_t k) {
      for (std::size_t j = 0; j < variables; ++j)
        if (j != k && results[k] == arguments[j]) return true;
      return false;
    };
    for (std::size_t k = 0; k < variables; ++k) {
      if (!is_variable_of_others(k)) continue;
      ResidentPlace kept = results[k];
      if (kept.is_scalar) {
        kept.index = code_.add_register();
      } else {
        owner_.push_back(region_);
        last_.push_back({});
        kept.index = p_.values_++;
      }
      move(kept, results[k]);
      results[k] = kept;
    }
    // Lists come first: a push that is a step is no call, which would keep scalars from that.
    for (const bool scalars : {false, true})
      for (std::size_t k = 0; k < variables; ++k) {
        const ResidentPlace result = results[k], variable = arguments[k];
        if (result.is_scalar != scalars) continue;
        const auto uses = std::count(results.begin(), results.end(), result);
        const bool is_moved_on =
            std::find(results.begin(), results.end(), variable) != results.end();
        if (uses == 1 && !is_moved_on &&
            (scalars ? code_.redirect(start, result.index, variable.index)
                     : change_in_place(result, variable, start)))
          continue;
        move(variable, result);
      }
  }

  void add_elements(const ResidentPlace& place, Places& to) const {
    if (place.has_slot()) return to.push_back(place);
    for (const ScalarCode::Register r : registers_of(place)) to.push_back({true, r, place.type});
  }

  // A list that a push or a pop makes of a variable, which nothing reads after it, is the variable.
  bool change_in_place(const ResidentPlace& result, const ResidentPlace& variable,
                       ScalarCode::Label start) {
    if (owner_[at(result.index)] != region_) return false;
    for (std::size_t c = p_.calls_.size(); c-- > 0;) {
      ResidentCall& call = p_.calls_[c];
      if (!call.outputs.empty() && call.outputs[0] == result) {
        if (!makes_list(call) || call.inputs[0].place != variable) return false;
        call.outputs[0] = variable;
        step_by_cursor(static_cast<std::int32_t>(c), start);
        return true;
      }
      for (const ResidentCall::Input& in : call.inputs)
        if (in.place == result || in.place == variable) return false;
    }
    return false;
  }
  // A push or a pop in place becomes a step, unless its elements are of another size.
  void step_by_cursor(std::int32_t number, ScalarCode::Label start) {
    ResidentCall& call = p_.calls_[at(number)];
    const bool pushes = call.kind == ResidentCall::Kind::push;
    if (!pushes && call.kind != ResidentCall::Kind::pop) return;
    const ResidentPlace& element = pushes ? call.inputs[1].place : call.outputs[1];
    const std::size_t bytes = size_of(element.type);
    if (element.has_slot() || !ScalarCode::has_cursors_of(bytes)) return;
    p_.cursors_.resize(at(p_.values_), -1);
    std::int32_t& cursor = p_.cursors_[at(call.outputs[0].index)];
    if (cursor < 0) cursor = code_.add_register();
    call.cursor = cursor;
    const SmallSteps::Registers values = registers_of(element);
    code_.move_by(pushes ? ScalarCode::Move::push : ScalarCode::Move::pop, start, number, cursor,
                  values, bytes);
  }
  // Every other step on such a list needs the list's own length.
  void find_closes() {
    p_.cursors_.resize(at(p_.values_), -1);
    for (ResidentCall& call : p_.calls_) {
      const auto see = [&](const ResidentPlace& place) {
        if (!place.has_slot() || p_.cursors_[at(place.index)] < 0) return;
        call.closes.push_back(place.index);
      };
      for (const ResidentCall::Input& in : call.inputs) see(in.place);
      for (const ResidentPlace& out : call.outputs) see(out);
    }
  }
  static bool makes_list(const ResidentCall& call) {
    if (call.kind == ResidentCall::Kind::push || call.kind == ResidentCall::Kind::pop) return true;
    if (call.kind != ResidentCall::Kind::kernel) return false;
    const std::string& op = call.graph->node(call.node).op->name;
    return op == "ListPush" || op == "ListPop";
  }

  // As lowering has it: the loop has failed if it would have gone on, had comparisons with NaN been
  // true.
  void emit_check(const Node& loop, const SubGraph& check, const Places& ended,
                  const Places& inputs, std::size_t given, const Places& told) {
    if (loop.op == nullptr) return;  // the whole: what runs after it checks
    Places arguments = ended;
    arguments.insert(arguments.end(), inputs.begin() + static_cast<std::ptrdiff_t>(given),
                     inputs.end());
    arguments.insert(arguments.end(), told.begin() + 1, told.end());
    const Places results = emit(check, arguments);
    Node node;
    node.op = &find_op("CheckComparisons");
    node.attrs =
        Attrs{{"loop", name_of_loop(loop)}, {"compared", loop.attrs.get<std::string>("compared")}};
    node.site = loop.site;
    node.scope = loop.scope;
    node.origin = loop.origin;
    std::vector<ValueSpec> specs;
    for (Edge e : check.outputs) specs.push_back(check.graph.spec(e));
    const NodeTypes types(specs, {});
    p_.kernels_.push_back(
        make_node_kernel(*node.op, types.setup(*node.op, node.attrs, device_, node.origin, {})));
    ResidentCall& call = add_call(results, {});
    call.kernel = p_.kernels_.back().get();
    name(call, std::move(node));
  }

  ScalarCode::Register always() {
    if (always_ < 0) always_ = code_.add_constant(Tensor::scalar(true));
    return always_;
  }

  // Does the predicate depend on variables that keep their value, captures and constants alone?
  static bool is_same_for_ever(const SubGraph& condition, const SubGraph& body) {
    std::vector<char> changes(at(condition.graph.size()), 0);
    for (std::size_t k = 0; k < body.outputs.size(); ++k)
      changes[at(condition.inputs[k].node)] = body.outputs[k] != body.inputs[k];
    for (std::int32_t id = 0; id < condition.graph.size(); ++id) {
      const Node& node = condition.graph.node(id);
      for (Edge e : node.inputs) changes[at(id)] |= changes[at(e.node)];
      changes[at(id)] |= node.op->random;
      if (!subgraphs_of(node).empty()) changes[at(id)] = 1;
    }
    return changes[at(condition.outputs[0].node)] == 0;
  }

  ResidentProgram& p_;
  ScalarCode& code_;
  SmallSteps small_;
  Device& device_;
  std::int64_t next_frame_ = 0;
  std::int32_t region_ = 0;
  std::int32_t compared_region_ = -1;  // the condition of the whole loop
  ScalarCode::Register always_ = -1;
  std::vector<std::int32_t> parents_;  // by region
  std::vector<std::int32_t> owner_;    // by tensor: a region; -1: it is a constant
  std::vector<Use> last_;              // by tensor
  std::vector<std::int32_t> loops_;    // being emitted, outermost first
};

ResidentProgram::ResidentProgram(const Attrs& attrs, std::uint64_t origin,
                                 std::span<const ValueSpec> inputs, Device& device)
    : graphs_(attrs.get<std::shared_ptr<const AttrObject>>("graphs")) {
  Builder(*this, device).build(attrs, origin, inputs);
  if (attrs.get<bool>("compiled")) machine_code_ = MachineCode::of(code_);
}

}  // namespace troupe
