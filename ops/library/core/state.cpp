#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/update_rows.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/no_value.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/state.hpp>
#include <troupe/ops/graph/transfer.hpp>

// Reading and updating variables. Each runs with the variable's exclusive right. If another run
// holds the right, the thread that releases it continues the firing.

namespace troupe {

namespace {

void variable_attrs(OpBuilder& op) {
  op.attr<DType>("dtype");
  op.attr<Shape>("shape");
}

ValueSpec variable_spec(Inference& c) {
  return {c.attrs().get<DType>("dtype"), c.attrs().get<Shape>("shape")};
}

// Throws if the run was cancelled, because its caller may already have got the error. Call it with
// the right held. A use that began before the cancellation completes.
void require_wanted(const RunInfo& run) {
  if (run.cancelled.load(std::memory_order_seq_cst)) given_up().throw_if_error();
}

// How a firing uses a variable. Only `set` takes one that has no value.
enum class Access : std::uint8_t { read, update, set };

// Runs `use(context, variable)` with the right; at once in the common case.
template <class Use>
void with_variable(KernelContext& c, const Ref<State>& state, Access access, Use use) {
  auto& variable = static_cast<VariableState&>(*state);
  bool acquired = variable.try_acquire();
  // On a stream device the right is held while work is enqueued, no longer, and the stream's handle
  // must not pass to another thread: wait the microsecond.
  while (!acquired && !c.device().is_synchronous()) acquired = variable.try_acquire();
  if (acquired) {
    struct Right {
      VariableState& v;
      bool changed;
      ~Right() { v.release(changed); }
    } right{variable, false};
    require_wanted(c.run());
    if (access != Access::set) require_value(variable.value());
    right.changed = access != Access::read;
    use(c, variable);
    return;
  }
  struct Later {
    std::vector<Value> inputs;
    std::vector<Value> outputs;
    Device& device;
    Stream& stream;
    const RunInfo& run;
    Completion completion;
    Ref<State> state;
  };
  auto later = std::make_shared<Later>(Later{
      {}, std::vector<Value>(c.outputs()), c.device(), c.stream(), c.run(), c.defer(), state});
  for (Value& v : c.all_inputs()) later->inputs.push_back(std::move(v));
  variable.acquire(
      c.run(),
      [later, access, use](Tensor&) {
        auto& v = static_cast<VariableState&>(*later->state);
        Status status;
        try {
          require_wanted(later->run);
          if (access != Access::set) require_value(v.value());
          KernelContext context(later->inputs, later->outputs, later->device, later->stream,
                                later->run);
          use(context, v);
        } catch (...) { status = Status::from_current_exception(); }
        v.release(access != Access::read && status.ok());
        if (status.ok()) later->completion.fulfil(later->outputs);
        else later->completion.fail(status);
      },
      [later](const Status& status) { later->completion.fail(status); });
}

void check_fits(const VariableState& v, const Tensor& t) {
  if (t.shape() != v.shape())
    throw Error(Code::invalid_argument, "a value of shape " + t.shape().text() +
                                            " does not fit the variable's " + v.shape().text());
}

// Returns the variable's tensor, writable and on this device: in place if there is no other
// reference to it, else a copy.
View writable(KernelContext& c, VariableState& v) {
  Tensor& value = v.value();
  copy_to_device(value, c.device(), c.stream());
  if (!value.is_sole_holder() || (value.is_inline() && !c.device().is_synchronous())) {
    Tensor copy = c.allocate(value.dtype(), value.shape());
    c.primitives().copy(c.stream(), value, View(copy));
    value = std::move(copy);
  }
  return View(value);
}

// Declares the properties of all updates of a variable.
void declare_update(OpBuilder& op, int inputs, const char* doc) {
  op.doc(doc);
  op.inputs(inputs);
  variable_attrs(op);
  op.effect(Effect::write);
  op.not_differentiable();
}

void define_update(OpBuilder& op, ScalarOp arithmetic, const char* doc) {
  declare_update(op, 1, doc);
  op.infer([](Inference& c) {
    ValueSpec v = variable_spec(c);
    c.require_dtype(0, v.dtype, "the value");
    c.require(broadcast(c.shape(0), v.shape).is_compatible(v.shape) &&
                  (!c.shape(0).has_rank() || c.shape(0).rank() <= v.shape.rank()),
              [&] {
                return "a value of shape " + c.shape(0).text() +
                       " cannot be broadcast to the variable's " + v.shape.text();
              });
    c.output(v.dtype, v.shape);
  });
  op.kernel([arithmetic](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    Recorder r(2);
    Symbol old = r.input(0), delta = r.input(1);
    r.finish(r.record(arithmetic, {old, delta}));
    DType types[2] = {s.input_types[0], s.input_types[0]};
    auto program = std::make_shared<const ScalarProgram>(r.typed(types));
    return make_kernel([program, state = s.state](KernelContext& c) {
      with_variable(c, state, Access::update, [program](KernelContext& k, VariableState& v) {
        if (broadcast(v.shape(), k.input(0).shape()) != v.shape()) check_fits(v, k.input(0));
        if (v.value().is_inline() && k.input(0).is_inline()) {  // on the host for any device
          Value in[2] = {v.value(), k.input(0)}, out;
          evaluate_scalars(*program, in, out);
          v.value() = std::move(out.tensor());
          k.set(0, v.value());
          return;
        }
        View to = writable(k, v);
        ConstView in[2] = {ConstView(to.data, to.dtype, to.shape), ConstView(k.input(0))};
        k.primitives().pointwise(k.stream(), *program, in, {&to, 1});
        k.set(0, v.value());
      });
    });
  });
}

}  // namespace

TROUPE_OP(ReadVariable) {
  op.doc("A snapshot of a variable.");
  op.inputs(0);
  variable_attrs(op);
  op.effect(Effect::read);
  op.infer([](Inference& c) { c.outputs().push_back(variable_spec(c)); });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state](KernelContext& c) {
      with_variable(c, state, Access::read, [](KernelContext& k, VariableState& v) {
        copy_to_device(v.value(), k.device(), k.stream());
        k.set(0, v.value());
      });
    });
  });
}

TROUPE_OP(AssignVariable) {
  declare_update(op, 1, "Sets a variable; yields the new value.");
  op.infer([](Inference& c) {
    ValueSpec v = variable_spec(c);
    c.require_dtype(0, v.dtype, "the value");
    c.require(c.shape(0).is_compatible(v.shape), "the value must have the variable's shape " +
                                                     v.shape.text() + ", not " + c.shape(0).text());
    c.output(v.dtype, v.shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state](KernelContext& c) {
      with_variable(c, state, Access::set, [](KernelContext& k, VariableState& v) {
        check_fits(v, k.input(0));
        v.value() = k.take(0);
        k.set(0, v.value());
      });
    });
  });
}

TROUPE_OP(AssignAdd) {
  define_update(op, ScalarOp::add, "Adds to a variable; yields the new value.");
}
TROUPE_OP(AssignSub) {
  define_update(op, ScalarOp::sub, "Subtracts from a variable; yields the new value.");
}

TROUPE_OP(UpdateVariable) {
  op.doc(
      "Sets a variable to what a pointwise program makes of its old value and the inputs; yields "
      "the new value. Made by a pass, never by a user.");
  op.inputs(0, -1);
  variable_attrs(op);
  op.attr<std::shared_ptr<const AttrObject>>("program");
  op.effect(Effect::write);
  op.not_differentiable();
  op.infer([](Inference& c) {
    const ValueSpec v = variable_spec(c);
    const ScalarProgram& program = program_of(c.attrs());
    c.require(static_cast<int>(program.inputs.size()) == c.inputs() + 1 &&
                  program.results.size() == 1 && program.inputs[0] == v.dtype &&
                  program.result_type(0) == v.dtype,
              "the program does not fit the variable");
    c.output(v.dtype, v.shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    auto object = s.attrs.get<std::shared_ptr<const AttrObject>>("program");
    return make_kernel([program = static_cast<const ProgramAttr&>(*object).program,
                        state = s.state](KernelContext& c) {
      with_variable(c, state, Access::update, [program](KernelContext& k, VariableState& v) {
        for (int i = 0; i < k.inputs(); ++i)
          if (k.input(i).shape() != v.shape() &&
              broadcast(v.shape(), k.input(i).shape()) != v.shape())
            check_fits(v, k.input(i));
        View to = writable(k, v);
        std::vector<ConstView> in{ConstView(to.data, to.dtype, to.shape)};
        for (int i = 0; i < k.inputs(); ++i) in.emplace_back(k.input(i));
        k.primitives().pointwise(k.stream(), *program, in, {&to, 1});
        k.set(0, v.value());
      });
    });
  });
}

TROUPE_OP(ScatterVariable) {
  declare_update(
      op, 2, "Updates rows of a variable; yields the new value. mode 0: set, 1: add, 2: subtract.");
  op.attr<std::int64_t>("mode");
  op.infer([](Inference& c) {
    ValueSpec v = variable_spec(c);
    c.require_index(0, "indices");
    c.require_dtype(1, v.dtype, "updates");
    c.require(v.shape.rank() > 0, "a scalar variable has no rows");
    if (c.shape(0).has_rank()) {
      const Shape rows = update_rows(c.shape(0), v.shape);
      c.require(rows.is_compatible(c.shape(1)),
                "updates must have shape " + rows.text() + ", not " + c.shape(1).text());
    }
    c.output(v.dtype, v.shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    auto mode = static_cast<Scatter>(s.attrs.get<std::int64_t>("mode"));
    return make_kernel([mode, state = s.state](KernelContext& c) {
      with_variable(c, state, Access::update, [mode](KernelContext& k, VariableState& v) {
        const Shape rows = update_rows(k.input(0).shape(), v.shape());
        if (k.input(1).shape() != rows)
          throw Error(Code::invalid_argument, "updates must have shape " + rows.text() + ", not " +
                                                  k.input(1).shape().text());
        View to = writable(k, v);
        k.primitives().scatter(k.stream(), mode, k.input(0), k.input(1), to);
        k.set(0, v.value());
      });
    });
  });
}

}  // namespace troupe
