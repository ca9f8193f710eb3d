#include <troupe/cluster/node/remote_devices.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/devices/list/list.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {
namespace {

using Id = EagerCalls::Id;
using StepKind = EagerStep::Kind;

void* address_of(Id id) { return reinterpret_cast<void*>(id); }
Id id_at(const void* address) { return reinterpret_cast<Id>(address); }

// A state on another node, as tapes and scopes here identify it.
class StateElsewhere final : public State {};

}  // namespace

/// Memory that is numbers of values. It lives until its device and its last value are gone.
class RemoteDevices::HandleAllocator final : public Allocator {
 public:
  explicit HandleAllocator(std::shared_ptr<EagerCalls> calls) : calls_(std::move(calls)) {}
  void* allocate(std::size_t) override {
    users_.fetch_add(1, std::memory_order_relaxed);
    return address_of(calls_->fresh());
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    calls_->release(id_at(memory), bytes);
    leave();
  }
  /// Ends one use: the device's, or a value's.
  void leave() noexcept {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  bool has_room(std::size_t) const override { return true; }
  AllocatorCounters counters() const override { return {}; }

 private:
  ~HandleAllocator() override = default;

  const std::shared_ptr<EagerCalls> calls_;
  std::atomic<std::size_t> users_{1};  // publishes the last use to the destruction
};

/// The work of one scope there, in order.
class RemoteDevices::Stream final : public detail::Stream {
 public:
  Stream(OfNode& device, std::shared_ptr<EagerCalls> calls, const std::string& node)
      : device_(device), calls_(std::move(calls)),
        node_(node), asked_{.what = {}, .stream = calls_->fresh()} {}
  ~Stream() override {
    if (session_ != 0) calls_->finish(session_, StepKind::end, asked_.stream);
  }

  Device& device() override;
  std::shared_ptr<Event> record() override { refuse("events"); }
  void wait(const std::shared_ptr<Event>&) override { refuse("events"); }
  void synchronize() override {}  // a read waits for its value

  void name(const std::string& what, const Site& site) {
    asked_.what = what;
    asked_.site = site;
  }
  const EagerCalls::Asked& asked() const { return asked_; }
  /// The session with the node as it is now.
  Peer session() { return uses(calls_->session_with(node_)); }
  /// The stream has steps in the session, and ends there.
  Peer uses(Peer session) { return session_ = session; }
  EagerStep step(StepKind kind, Id of) const { return {kind, 0, asked_.stream, of}; }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw Error(Code::unimplemented,
                fmt::format("a device of node '{}' has no {} here", node_, what));
  }

  OfNode& device_;
  const std::shared_ptr<EagerCalls> calls_;
  const std::string node_;
  EagerCalls::Asked asked_;
  Peer session_ = 0;
};

class RemoteDevices::OfNode final : public RemoteDevice {
 public:
  OfNode(const NodeParts& parts, std::shared_ptr<EagerCalls> calls, std::string name)
      : parts_(parts), calls_(std::move(calls)), name_(std::move(name)), node_(node_of(name_)),
        allocator_(new HandleAllocator(calls_)) {}
  ~OfNode() override { allocator_->leave(); }

  const std::string& name() const override { return name_; }
  const std::string& kind() const override {
    static const std::string kind = "remote";
    return kind;
  }
  Allocator& allocator() override { return *allocator_; }
  const Primitives& primitives() const override {
    throw Error(Code::internal, name_ + " is another node's, and has no primitives here");
  }
  std::unique_ptr<detail::Stream> make_stream() override {
    return std::make_unique<Stream>(*this, calls_, node_);
  }
  void copy_from_host(detail::Stream& stream, const Tensor& host, View on_device) override {
    auto& s = static_cast<Stream&>(stream);
    EagerStep put = s.step(StepKind::put, id_at(on_device.data));
    put.value = host;
    calls_->add(s.session(), std::move(put), s.asked());
  }
  void copy_to_host(detail::Stream&, ConstView on_device, View host) override {
    Stream mine(*this, calls_, node_);
    mine.name("a copy", Site());
    const Tensor value = fetch(mine, id_at(on_device.data()));
    if (value.bytes() != host.bytes() || value.dtype() != host.dtype) refuse_value();
    std::memcpy(host.data, value.raw(), value.bytes());
  }

  std::unique_ptr<Kernel> make_kernel(detail::Program program) override;
  std::unique_ptr<Kernel> stage(const Graph& graph, const std::vector<Edge>& feeds,
                                const std::vector<Edge>& fetches, Keep keep) override;
  void attribute(detail::Stream& stream, const std::string& what, const Site& site) override {
    static_cast<Stream&>(stream).name(what, site);
  }
  Tensor read(detail::Stream& stream, const Tensor& there) override {
    Tensor value = fetch(static_cast<Stream&>(stream), id_of(there));
    if (value.dtype() != there.dtype() || value.shape() != there.shape()) refuse_value();
    return value;
  }
  Ref<State> state(const StateSpec& spec) override;

  /// The number of the value behind a tensor of a device of this node.
  Id id_of(const Tensor& there) const {
    const Ref<Buffer> buffer = there.buffer();
    if (!buffer || there.raw() != buffer->data())
      throw Error(Code::internal, "a part of a value of another node is used as a whole");
    return id_at(buffer->data());
  }
  bool has(const Tensor& t) const {
    const auto* of = dynamic_cast<const OfNode*>(t.device());
    return of && of->node_ == node_;
  }
  /// A tensor that stands for a value there.
  Tensor handle(Ref<Buffer> buffer, const ValueSpec& spec) {
    if (!spec.shape.is_known() || spec.is_list()) refuse_value();
    return Tensor::on_buffer(std::move(buffer), 0, this, spec.dtype, spec.shape);
  }
  Ref<Buffer> fresh_handle(const ValueSpec& spec) {
    const std::size_t bytes =
        spec.shape.is_known()
            ? static_cast<std::size_t>(spec.shape.elements()) * size_of(spec.dtype)
            : 0;
    return Buffer::allocate(*allocator_, bytes);
  }
  [[noreturn]] void refuse_value() const {
    throw Error(Code::data_loss,
                fmt::format("node '{}' answered with another value than it has", node_));
  }
  EngineImpl& engine() const { return parts_.engine; }

 private:
  std::unique_ptr<Kernel> prepared(Placed placed, bool counts_steps);
  Tensor fetch(Stream& stream, Id value) {
    const Peer holder = stream.uses(calls_->holder_of(value));
    EagerStep step = stream.step(StepKind::read, value);
    step.number = calls_->fresh();
    Value result = calls_->ask(holder, std::move(step), stream.asked()).value;
    if (!result.has_value() || result.is_list()) refuse_value();
    return std::move(result.tensor());
  }

  const NodeParts parts_;
  const std::shared_ptr<EagerCalls> calls_;
  const std::string name_, node_;
  HandleAllocator* const allocator_;
  std::mutex mutex_;  // guards states_
  std::map<std::string, std::pair<StateSpec, Ref<State>>> states_;
};

Device& RemoteDevices::Stream::device() { return device_; }

/// A program that the other node has made, or makes when it is first used in a session.
class RemoteDevices::Program final : public Kernel {
 public:
  Program(OfNode& device, std::shared_ptr<EagerCalls> calls, Placed placed, bool counts_steps)
      : device_(device), calls_(std::move(calls)), placed_(std::move(placed)), id_(calls_->fresh()),
        counts_steps_(counts_steps) {
    for (const Edge e : placed_.program.fetches) {
      results_.push_back(placed_.program.graph.spec(e));
      is_told_ = is_told_ || results_.back().is_list() || !results_.back().shape.is_known();
    }
    for (const Node& node : placed_.program.graph.nodes())
      acts_ = acts_ || (node.op->effect != Effect::none && node.op->effect != Effect::read);
  }
  ~Program() override {
    if (session_ != 0) calls_->finish(session_, StepKind::drop, id_);
  }

  void run(KernelContext& c) override {
    auto& stream = static_cast<Stream&>(c.stream());
    const Peer to = stream.session();
    define(to);
    EagerStep call = stream.step(StepKind::call, id_);
    call.number = calls_->fresh();
    EagerCalls::Asked asked = stream.asked();
    call.acts = asked.acts = acts_;
    call.is_told = is_told_;
    call.step = counts_steps_ ? device_.engine().step_.fetch_add(1, std::memory_order_relaxed)
                              : c.run().step;
    call.seed = counts_steps_ ? device_.engine().options().seed : c.run().seed;
    std::vector<Ref<Buffer>> kept;  // inputs that are made for this call
    for (const Value& v : c.all_inputs()) call.in.push_back(input(v, stream, to, kept));
    std::vector<Ref<Buffer>> made;
    for (const ValueSpec& spec : results_) {
      made.push_back(device_.fresh_handle(spec));
      call.out.push_back(id_at(made.back()->data()));
    }
    if (!is_told_) {
      calls_->add(to, std::move(call), asked);
      for (std::size_t i = 0; i < made.size(); ++i)
        c.set(static_cast<int>(i), device_.handle(std::move(made[i]), results_[i]));
      return;
    }
    const EagerResult r = calls_->ask(to, std::move(call), asked);
    Told told{r.told, ends_of(r.told)};
    for (std::size_t i = 0; i < made.size(); ++i)
      c.set(static_cast<int>(i), value_of(told, std::move(made[i]), stream, to));
  }

 private:
  /// Values as the other node describes them: a list before its elements.
  struct Told {
    const std::vector<EagerSpec>& specs;
    const std::vector<std::size_t> ends;  // behind each value and its elements
    std::size_t next = 0;
  };
  /// A list of this node, and the step that makes it there from its elements up to `next`.
  struct Packing {
    List list;
    EagerStep step;
    std::int64_t next = 0;
  };
  /// A list, and the handles on those of its elements that are not in it yet.
  struct Open {
    List list;
    std::vector<Ref<Buffer>> elements;  // null: never written
    std::size_t next = 0;
  };

  void define(Peer to) {
    std::lock_guard lock(mutex_);
    if (session_ == to) return;
    calls_->send_program(to, id_, placed_);
    session_ = to;
  }

  // The number of an input, which is put there if it is not. Lists that are open are kept on the
  // heap, because the program decides how deep they nest.
  Id input(const Value& value, Stream& stream, Peer to, std::vector<Ref<Buffer>>& kept) const {
    if (!value.is_list()) return tensor_input(value, stream, to, kept);
    std::vector<Packing> open;
    open.push_back(packing(value, stream, kept));
    for (;;) {
      Packing& top = open.back();
      if (top.next < top.list.length()) {
        const Value element = top.list.peek(top.next++);
        if (element.is_list()) open.push_back(packing(element, stream, kept));
        else
          top.step.in.push_back(element.has_value() ? tensor_input(element, stream, to, kept) : 0);
        continue;
      }
      const Id id = top.step.of;
      calls_->add(to, std::move(top.step), stream.asked());
      open.pop_back();
      if (open.empty()) return id;
      open.back().step.in.push_back(id);
    }
  }

  Id tensor_input(const Value& value, Stream& stream, Peer to,
                  std::vector<Ref<Buffer>>& kept) const {
    if (value.kind() == Value::Kind::tensor && device_.has(value.tensor())) {
      const Id id = device_.id_of(value.tensor());
      calls_->holder_of(id);
      return id;
    }
    kept.push_back(device_.fresh_handle({}));
    EagerStep put = stream.step(StepKind::put, id_at(kept.back()->data()));
    put.value = value.tensor();
    const Id id = put.of;
    calls_->add(to, std::move(put), stream.asked());
    return id;
  }

  Packing packing(const Value& list, Stream& stream, std::vector<Ref<Buffer>>& kept) const {
    kept.push_back(device_.fresh_handle({}));
    Packing made{list.list(), stream.step(StepKind::pack, id_at(kept.back()->data()))};
    made.step.list = spec_of_value(list);
    return made;
  }

  std::vector<std::size_t> ends_of(const std::vector<EagerSpec>& specs) const {
    std::vector<std::size_t> ends(specs.size());
    struct OpenList {
      std::size_t at;
      std::int64_t left;
    };
    std::vector<OpenList> open;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].spec.is_list() && specs[i].length > 0) {
        open.push_back({i, specs[i].length});
        continue;
      }
      ends[i] = i + 1;
      while (!open.empty() && --open.back().left == 0) {
        ends[open.back().at] = i + 1;
        open.pop_back();
      }
    }
    if (!open.empty()) device_.refuse_value();
    return ends;
  }

  // The next value that the other node describes: a handle, or a list of handles on its elements.
  // Lists that are open are kept on the heap, because the other node says how deep they nest.
  Value value_of(Told& told, Ref<Buffer> made, Stream& stream, Peer to) const {
    std::vector<Open> open;
    for (;;) {
      if (told.next == told.specs.size()) device_.refuse_value();
      Value value;  // none: a list whose elements follow
      if (told.specs[told.next].spec.is_list())
        open.push_back(unpacked(told, id_at(made->data()), stream, to));
      else value = device_.handle(std::move(made), told.specs[told.next++].spec);
      for (;;) {
        if (open.empty()) return value;
        Open& top = open.back();
        if (value.has_value())
          top.list.put(static_cast<std::int64_t>(top.next++), std::exchange(value, {}));
        for (; top.next < top.elements.size() && !top.elements[top.next]; ++top.next) ++told.next;
        if (top.next < top.elements.size()) {
          made = std::move(top.elements[top.next]);
          break;
        }
        value = std::move(top.list);
        open.pop_back();
      }
    }
  }

  // Has the other node take a list apart, whose elements are the next that are told.
  Open unpacked(Told& told, Id id, Stream& stream, Peer to) const {
    const EagerSpec& is = told.specs[told.next];
    const std::size_t end = told.ends[told.next++];
    if (is.length < 0) device_.refuse_value();
    const std::uint8_t depth = is.spec.element().depth;
    EagerStep unpack = stream.step(StepKind::unpack, id);
    Open open{List(is.spec.dtype, is.spec.shape, is.spec.depth), {}};
    for (std::size_t i = told.next; i < end; i = told.ends[i]) {
      const EagerSpec& element = told.specs[i];
      const bool is_written = element.length != EagerSpec::kUnwritten;
      if (is_written && depth != ValueSpec::kAnyDepth && element.spec.depth != depth)
        device_.refuse_value();
      open.elements.push_back(is_written ? device_.fresh_handle(element.spec) : Ref<Buffer>());
      unpack.out.push_back(is_written ? id_at(open.elements.back()->data()) : 0);
    }
    calls_->add(to, std::move(unpack), stream.asked());
    open.list.grow(is.length);
    return open;
  }

  OfNode& device_;
  const std::shared_ptr<EagerCalls> calls_;
  const Placed placed_;
  const Id id_;
  const bool counts_steps_;
  std::vector<ValueSpec> results_;
  bool is_told_ = false, acts_ = false;
  std::mutex mutex_;  // guards session_
  Peer session_ = 0;  // has the program
};

std::unique_ptr<Kernel> RemoteDevices::OfNode::prepared(Placed placed, bool counts_steps) {
  return std::make_unique<Program>(*this, calls_, std::move(placed), counts_steps);
}

std::unique_ptr<Kernel> RemoteDevices::OfNode::make_kernel(detail::Program program) {
  Placed placed;
  placed.device.assign(static_cast<std::size_t>(program.graph.size()), name_);
  placed.default_device = name_;
  placed.program = std::move(program);
  return prepared(std::move(placed), false);
}

std::unique_ptr<Kernel> RemoteDevices::OfNode::stage(const Graph& graph,
                                                     const std::vector<Edge>& feeds,
                                                     const std::vector<Edge>& fetches, Keep keep) {
  const Tracing::Suspended untraced;  // passes compute on eager scopes
  detail::Program program = optimize(graph, feeds, fetches,
                                     {.optimize = engine().options().optimize,
                                      .keep = keep,
                                      .takes_lists = true,
                                      .resident = {false, "it runs on another node"}});
  const auto is_here = [&](const std::string& device) { return node_of(device) == node_; };
  for (const StateSpec& spec : program.graph.states())
    if (!is_here(spec.device)) return nullptr;
  program.graph.seed_states(engine().options().seed);
  PlacementOptions where;
  where.default_device = name_;
  where.here = parts_.self.name;
  where.nodes = engine().peers()->nodes_with_labels();
  Placed placed = place(std::move(program), where);
  if (!std::all_of(placed.device.begin(), placed.device.end(), is_here)) return nullptr;
  return prepared(std::move(placed), true);
}

Ref<State> RemoteDevices::OfNode::state(const StateSpec& spec) {
  std::lock_guard lock(mutex_);
  const auto known = states_.find(spec.name);
  if (known != states_.end()) {
    if (!known->second.first.is_same(spec))
      throw Error(Code::already_exists,
                  fmt::format("{}: node '{}' has {} for this one", spec.text(), node_,
                              known->second.first.text()));
    return known->second.second;
  }
  if (spec.kind == StateSpec::Kind::variable) engine().settle(spec);
  return states_.emplace(spec.name, std::pair(spec, Ref<State>(new StateElsewhere)))
      .first->second.second;
}

RemoteDevices::RemoteDevices(const NodeParts& node)
    : node_(node), calls_(std::make_shared<EagerCalls>(node)) {}
RemoteDevices::~RemoteDevices() = default;

RemoteDevice& RemoteDevices::device(const std::string& full_name) {
  calls_->session_with(std::string(node_of(full_name)));
  std::lock_guard lock(mutex_);
  std::unique_ptr<OfNode>& known = devices_[full_name];
  if (!known) known = std::make_unique<OfNode>(node_, calls_, full_name);
  return *known;
}

}  // namespace troupe
