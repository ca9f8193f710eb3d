#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/primitives.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

// The executor (actors/) runs these: it matches, forwards and counts tokens. No primitive has a
// kernel.

namespace troupe {
namespace {

void primitive(OpBuilder& op, const char* doc) {
  op.doc(doc);
  op.side_effect();  // dead tokens are part of the semantics: never folded, never merged
  op.takes_lists();
  op.takes_strings();
  op.gradient([](Gradient&) {
    throw Error(Code::unimplemented,
                "gradients go through cond, while_loop and their like, not through the primitives "
                "they are made of");
  });
}

void require_predicate(const Inference& c, int i, bool or_index) {
  DType t = c.dtype(i);
  c.require(!c.input(i).is_list() &&
                (t == DType::boolean || (or_index && (t == DType::i32 || t == DType::i64))),
            "the predicate must be bool, not " + c.input(i).text());
  c.require(!c.shape(i).has_rank() || c.shape(i).is_scalar(),
            "the predicate must be a scalar, not " + c.input(i).text());
}

}  // namespace

TROUPE_OP(Switch) {
  primitive(op, "Its first input on the output that the second names, dead tokens on the others.");
  op.inputs(2);
  op.attr<std::int64_t>("branches", 2);
  op.infer([](Inference& c) {
    require_predicate(c, 1, true);
    for (std::int64_t i = 0; i < c.attrs().get<std::int64_t>("branches"); ++i) c.output(c.input(0));
  });
}

TROUPE_OP(Merge) {
  primitive(op, "The first live input, and which it was; dead if all are.");
  op.inputs(1, -1);
  op.infer([](Inference& c) {
    ValueSpec spec = c.input(0);
    for (int i = 1; i < c.inputs(); ++i) {
      try {
        spec = common_spec(spec, c.input(i));
      } catch (const Error&) {
        throw Error(Code::invalid_argument, fmt::format("inputs {} and {} are {} and {}", 0, i,
                                                        c.input(0).text(), c.input(i).text()));
      }
    }
    c.output(spec);
    c.output(DType::i32, Shape{});
  });
}

TROUPE_OP(Enter) {
  primitive(op, "Its input in iteration 0 of a frame; in every iteration if it is constant.");
  op.inputs(1);
  op.attr<std::string>("frame");
  op.attr<bool>("constant", false);
  op.attr<std::int64_t>("parallel_iterations", 32);
  op.attr<std::int64_t>("key", 0);  // the loop's key, for random draws in it
  op.infer([](Inference& c) {
    c.require(c.attrs().get<std::int64_t>("parallel_iterations") >= 1,
              "parallel_iterations must be at least 1");
    c.output(c.input(0));
  });
}

TROUPE_OP(Exit) {
  primitive(op, "Its input outside the frame, once it is live.");
  op.inputs(1);
  op.infer([](Inference& c) { c.output(c.input(0)); });
}

TROUPE_OP(NextIteration) {
  primitive(
      op, "Its first input becomes, one iteration on, the value of the Merge that is its second.");
  op.inputs(2);
  op.infer([](Inference& c) {
    c.require(
        c.dtype(0) == c.dtype(1) && c.input(0).depth == c.input(1).depth,
        fmt::format("the loop's value is {} and becomes {}", c.input(1).text(), c.input(0).text()));
    c.output(c.input(0));
  });
}

TROUPE_OP(LoopCond) {
  primitive(op, "A loop's predicate.");
  op.inputs(1);
  // true: only the loop's own Switches and those of its branches make dead values in it
  op.attr<bool>("structured", false);
  op.infer([](Inference& c) {
    require_predicate(c, 0, false);
    c.output(DType::boolean, Shape{});
  });
}

TROUPE_OP(Elsewhere) {
  primitive(
      op, "In a node's part of a program (actors/plan/plan_part.hpp): a node of the others' part.");
  op.inputs(0);
  op.attr<std::string>("op");  // the op of the node there
  // an Exit: it has one token, for users of its value and for nodes that wait for it alike
  op.attr<bool>("leaves_loop");
  op.attr<std::shared_ptr<const AttrObject>>("outputs");
  op.infer([](Inference& c) {
    auto object = c.attrs().get<std::shared_ptr<const AttrObject>>("outputs");
    for (const ValueSpec& s : static_cast<const SpecsAttr&>(*object).specs) c.output(s);
  });
}

TROUPE_OP(ControlTrigger) {
  primitive(op, "True once all inputs have arrived, dead or live.");
  op.inputs(1, -1);
  op.infer([](Inference& c) { c.output(DType::boolean, Shape{}); });
}

TROUPE_OP(Argument) {
  primitive(op, "In a function's frame: what the call gives for a parameter.");
  op.inputs(0);
  op.attr<std::shared_ptr<const AttrObject>>("function");
  op.attr<std::int64_t>("index");
  op.infer([](Inference& c) {
    c.output(function_of(c.attrs())
                 ->parameters[static_cast<std::size_t>(c.attrs().get<std::int64_t>("index"))]);
  });
}

TROUPE_OP(Return) {
  primitive(op, "In a function's frame: its input becomes a result of the call.");
  op.inputs(1);
  op.attr<std::shared_ptr<const AttrObject>>("function");
  op.attr<std::int64_t>("index");
  op.infer([](Inference&) {});
}

namespace control {

Switched switch_(Operand data, Operand predicate) {
  Exprs out = bind_op("Switch", {data, predicate});
  return {out[0], out[1]};
}
Exprs switch_n(Operand data, Operand index, int branches) {
  return bind_op("Switch", {data, index}, Attrs{{"branches", std::int64_t{branches}}});
}
Merged merge(const std::vector<Expr>& inputs, std::source_location at) {
  Operands operands;
  for (const Expr& e : inputs) operands.emplace_back(e, at);
  Exprs out = bind_op("Merge", operands, {}, at);
  return {out[0], out[1]};
}
Expr enter(Operand data, const std::string& frame, const EnterOptions& options) {
  return bind1("Enter", {data},
               Attrs{{"frame", frame},
                     {"constant", options.constant},
                     {"parallel_iterations", std::int64_t{options.parallel_iterations}}});
}
Expr exit(Operand data) { return bind1("Exit", {data}); }
Expr next_iteration(Operand value, Operand merge) {
  if (!merge.is_expr() || value.is_number())
    throw Error(
        Code::invalid_argument,
        fmt::format("NextIteration at {}: takes a value and the Merge that it closes the loop at",
                    value.site().text()));
  auto& graph = dynamic_cast<Graph&>(merge.expr().reader());
  if (graph.node(merge.expr().edge().node).op->name != "Merge" || merge.expr().edge().output != 0)
    throw Error(Code::invalid_argument,
                fmt::format("NextIteration at {}: {} is no Merge", value.site().text(),
                            graph.describe(merge.expr().edge().node)));
  return bind1("NextIteration", {value, merge});
}
Expr loop_cond(Operand predicate) { return bind1("LoopCond", {predicate}); }
Expr trigger(const std::vector<Expr>& after, std::source_location at) {
  Operands operands;
  for (const Expr& e : after) operands.emplace_back(e, at);
  return bind1("ControlTrigger", operands, {}, at);
}

}  // namespace control
}  // namespace troupe
