#include <troupe/controlflow/resident/resident_run.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/list/packed_list.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {

namespace {

// As `Value::set_scalar`, written as wide as it is copied next: a load wider than the store before
// it waits until that has left the core's buffer.
[[gnu::always_inline]] inline void set_scalar(Value& value, DType type, const std::byte* element) {
  using Word = long long __attribute__((vector_size(16)));
  Word bits{0, 0};
  switch (type) {
    case DType::f32:
    case DType::i32: {
      std::uint32_t narrow;
      std::memcpy(&narrow, element, sizeof narrow);
      bits[0] = narrow;
      break;
    }
    case DType::f64:
    case DType::i64: {
      long long wide;
      std::memcpy(&wide, element, sizeof wide);
      bits[0] = wide;
      break;
    }
    default: return value.set_scalar(type, element, size_of(type));
  }
  value.set_padded_scalar(type, &bits);
}

}  // namespace

ResidentRun::ResidentRun(const ResidentProgram& program, ResidentCounts& counts)
    : program_(program), counts_(counts), values_(static_cast<std::size_t>(program.values_)),
      operands_(program.most_operands_), results_(program.most_results_),
      iterations_(program.loops_.size()) {
  for (const ResidentProgram::Direct& step : program.direct_) {
    Views& views = views_.emplace_back();
    for (const ValueSpec& spec : step.inputs)
      views.in.emplace_back(nullptr, spec.dtype, spec.shape);
    for (const ValueSpec& spec : step.outputs)
      views.out.emplace_back(nullptr, spec.dtype, spec.shape);
    if (step.rows) views.rows = step.rows->views_of(views.in, views.out);
    if (!step.program && !step.rows)
      views.product = {views.in[0], views.in[1], views.out[0], step.transpose_a, step.transpose_b};
  }
  for (const ResidentCall& step : program_.calls_)
    if (step.direct >= 0) add_memory(step);
}

// An execution that was abandoned, or that failed, has iterations that `publish` has not seen.
ResidentRun::~ResidentRun() { count(); }

// Small operands are gathered there, and small results scattered from there.
void ResidentRun::add_memory(const ResidentCall& call) {
  Views& views = views_[at(call.direct)];
  constexpr std::size_t kPadding = 16;  // elements that a tile may touch behind the last
  std::vector<std::size_t> begins;
  std::size_t size = 0;
  const auto add = [&](const ResidentPlace& place) {
    begins.push_back(size);
    if (!place.is_small) return;
    const std::size_t bytes =
        (program_.small_[at(place.index)].registers.size() + kPadding) * size_of(place.type);
    size += (bytes + sizeof(ScalarRegister) - 1) / sizeof(ScalarRegister);
  };
  for (const ResidentCall::Input& in : call.inputs) add(in.place);
  for (const ResidentPlace& out : call.outputs) add(out);
  views.memory.resize(size);
  std::size_t next = 0;
  const auto memory_of = [&](const ResidentPlace& place) -> void* {
    const std::size_t begin = begins[next++];
    return place.is_small ? views.memory.data() + begin : nullptr;
  };
  for (const ResidentCall::Input& in : call.inputs) views.in_memory.push_back(memory_of(in.place));
  for (const ResidentPlace& out : call.outputs) views.out_memory.push_back(memory_of(out));
}

void ResidentRun::start(KernelContext& c, std::function<void()> resume) {
  device_ = &c.device();
  stream_ = &c.stream();
  run_ = &c.run();
  outer_tag_ = c.tag();
  resume_ = std::move(resume);
  frame_.start(program_.code_);
  current_ = -1;
  has_deferred_ = false;
  shown_ = -1;
  for (const auto& [place, value] : program_.constants_) values_[at(place)].share(value);
  for (std::size_t i = 0; i < program_.inputs_.size(); ++i)
    store(program_.inputs_[i], std::move(c.all_inputs()[i]));
  counts_.executions.fetch_add(1, std::memory_order_relaxed);
  counted_ = 0;
  publish();
}

ResidentRun::Outcome ResidentRun::advance(const Slice& slice) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kShort = 20'000, kLong = 60'000;  // ns between two looks at the clock
  // A step on tensors may come to take long, so that their loops look at the clock more often.
  const std::int64_t most_jumps = program_.direct_.empty() ? std::int64_t{1} << 20 : 256;
  const auto ns = [](Clock::duration d) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
  };
  if (std::exchange(has_deferred_, false)) {
    publish();  // each slice of a loop may end at such a kernel
    end_deferred();
  }
  const auto began = Clock::now();
  auto before = began;
  std::int64_t left = slice.iterations;
  while (!run_->cancelled.load(std::memory_order_relaxed)) {
    const bool observes = observes_.load(std::memory_order_relaxed) > 0;
    const std::int64_t jumps = observes ? 1 : left > 0 ? std::min<std::int64_t>(left, 64) : chunk_;
    const int how = program_.run(frame_, jumps, *this);
    // One that waits may already go on, on another thread.
    if (how > 0) return static_cast<Outcome>(how - 1);
    publish();
    if (how == ScalarCode::kHalted) return Outcome::done;
    if (observes) show();
    if (slice.iterations > 0) {
      if ((left -= jumps) <= 0) return Outcome::more;
      continue;
    }
    const auto now = Clock::now();
    if (ns(now - before) < kShort && chunk_ < most_jumps) chunk_ *= 2;
    else if (ns(now - before) > kLong && chunk_ > 1) chunk_ /= 2;
    if (ns(now - began) >= slice.nanoseconds) return Outcome::more;
    before = now;
  }
  return Outcome::abandoned;
}

void ResidentRun::take(std::span<Value> outputs) {
  for (std::size_t o = 0; o < outputs.size(); ++o) load(program_.outputs_[o], true, outputs[o]);
  clear();
}

void ResidentRun::observe(std::shared_ptr<ResidentObserver> observer, int iterations) {
  const std::lock_guard lock(mutex_);
  observer_ = std::move(observer);
  observes_.store(iterations, std::memory_order_relaxed);
}

// A jump back may be that of a loop within.
void ResidentRun::show() {
  std::shared_ptr<ResidentObserver> observer;
  {
    const std::lock_guard lock(mutex_);
    observes_.fetch_sub(1, std::memory_order_relaxed);
    observer = observer_;
  }
  for (std::size_t slot = 0; slot < values_.size(); ++slot)
    close_cursor(static_cast<std::int32_t>(slot));
  const std::int64_t now = iterations();
  if (observer && std::exchange(shown_, now) != now) observer->see(*this);
}

// Elements of a small tensor, one behind the other.
void ResidentRun::gather(const ResidentPlace& place, std::byte* to) const {
  const std::size_t bytes = size_of(place.type);
  for (const ScalarCode::Register r : program_.small_[at(place.index)].registers) {
    std::memcpy(to, frame_.at(r), bytes);
    to += bytes;
  }
}
void ResidentRun::scatter(const ResidentPlace& place, const std::byte* from) {
  const std::size_t bytes = size_of(place.type);
  for (const ScalarCode::Register r : program_.small_[at(place.index)].registers) {
    std::memcpy(frame_.at(r), from, bytes);
    from += bytes;
  }
}
Tensor ResidentRun::gathered(const ResidentPlace& place) const {
  Tensor made = Tensor::empty(place.type, program_.small_[at(place.index)].shape);
  gather(place, static_cast<std::byte*>(made.raw_mutable()));
  return made;
}

Value ResidentRun::value(const ResidentPlace& place) const {
  if (place.is_small) return gathered(place);
  if (!place.is_scalar) return values_[at(place.index)];
  Value scalar;
  scalar.set_scalar(place.type, frame_.at(place.index), size_of(place.type));
  return scalar;
}

void ResidentRun::clear() {
  count();
  observe(nullptr, 0);
  for (auto* values : {&values_, &operands_, &results_})
    for (Value& v : *values) v.reset();
  thrown_ = deferred_status_ = Status();
  resume_ = nullptr;
}

int ResidentRun::call(std::int32_t number) {
  const ResidentCall& call = program_.calls_[at(number)];
  for (const std::int32_t slot : call.closes) close_cursor(slot);
  switch (call.kind) {
    case ResidentCall::Kind::move: {
      Value& from = values_[at(call.inputs[0].place.index)];
      Value& to = values_[at(call.outputs[0].index)];
      // a tensor that was there is where the next result goes
      if (!call.inputs[0].is_last) to.share(from);
      else if (to.kind() == Value::Kind::tensor) std::swap(from, to);
      else to = std::move(from);
      return 0;
    }
    case ResidentCall::Kind::pointwise:
    case ResidentCall::Kind::rows:
    case ResidentCall::Kind::product:
      if (run_->cancelled.load(std::memory_order_relaxed))
        return static_cast<int>(Outcome::abandoned) + 1;
      current_ = number;
      run_direct(call);
      return 0;
    case ResidentCall::Kind::push:
      current_ = number;
      if (push_scalar(call)) return 0;
      break;
    case ResidentCall::Kind::pop:
      current_ = number;
      if (pop_scalar(call)) return 0;
      break;
    case ResidentCall::Kind::read:
      current_ = number;
      if (read_scalar(call)) return 0;
      break;
    case ResidentCall::Kind::kernel: break;
  }
  return run_kernel(number);
}

// The memory of a result: that of the iteration before, if nothing else holds it.
void* ResidentRun::room_of(const ResidentPlace& place, const View& out) {
  Value& to = values_[at(place.index)];
  if (to.kind() != Value::Kind::tensor || !to.tensor().is_sole_holder() ||
      to.dtype() != out.dtype || to.tensor().shape() != out.shape)
    to = device_->empty(out.dtype, out.shape);
  return to.tensor().raw_mutable();
}

void ResidentRun::run_direct(const ResidentCall& call) {
  Views& views = views_[at(call.direct)];
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    if (void* const memory = views.in_memory[i])
      gather(call.inputs[i].place, static_cast<std::byte*>(memory));
  compute_direct(call, views);
  for (std::size_t o = 0; o < call.outputs.size(); ++o)
    if (const void* const memory = views.out_memory[o])
      scatter(call.outputs[o], static_cast<const std::byte*>(memory));
}

void ResidentRun::compute_direct(const ResidentCall& call, Views& views) {
  const auto point = [&](ConstView& in, std::size_t i) {
    const ResidentPlace& place = call.inputs[i].place;
    const void* data = place.is_small    ? views.in_memory[i]
                       : place.is_scalar ? frame_.at(place.index)
                                         : values_[at(place.index)].tensor().raw();
    if (in.data() != data) in = ConstView(data, in.dtype, in.shape);
  };
  const auto room = [&](std::size_t o, const View& out) {
    return views.out_memory[o] ? views.out_memory[o] : room_of(call.outputs[o], out);
  };
  if (call.kind == ResidentCall::Kind::product) {
    point(views.product.a, 0);
    point(views.product.b, 1);
    views.product.out.data = room(0, views.product.out);
    device_->primitives().matmul(*stream_, views.product);
    return;
  }
  const bool is_rows = call.kind == ResidentCall::Kind::rows;
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    point(is_rows ? views.rows.in[i].of : views.in[i], i);
  for (std::size_t o = 0; o < call.outputs.size(); ++o) views.out[o].data = room(o, views.out[o]);
  const ResidentProgram::Direct& step = program_.direct_[at(call.direct)];
  if (!is_rows)
    return device_->primitives().pointwise(*stream_, *step.program, views.in, views.out);
  for (std::size_t r = 0; r < views.rows.out.size(); ++r)
    views.rows.out[r].of.data = views.out[static_cast<std::size_t>(step.rows->outputs()[r])].data;
  step.rows->run(device_->primitives(), *stream_, views.rows);
}

// Further elements need no call until their chunk ends.
void ResidentRun::open_cursor(const ResidentCall& call) {
  const bool pushes = call.kind == ResidentCall::Kind::push;
  const DType type = pushes ? call.inputs[1].place.type : call.outputs[1].type;
  PackedList& list = PackedList::of(values_[at(call.outputs[0].index)]);
  ElementCursor cursor;
  if (list.dtype() != type || !list.open(cursor)) return;
  std::memcpy(frame_.at(call.cursor), &cursor, sizeof cursor);
}

void ResidentRun::close_cursor(std::int32_t slot) {
  const ScalarCode::Register at_cursor = program_.cursors_[at(slot)];
  if (at_cursor < 0) return;
  ElementCursor cursor;
  std::memcpy(&cursor, frame_.at(at_cursor), sizeof cursor);
  if (!cursor.begin) return;
  PackedList::of(values_[at(slot)]).close(cursor);
  std::memcpy(frame_.at(at_cursor), &cursor, sizeof cursor);
}

// The three below return false, with nothing done, if an element is not what they are made for.
bool ResidentRun::push_scalar(const ResidentCall& call) {
  const ResidentCall::Input& list = call.inputs[0];
  Value& held = values_[at(list.place.index)];
  Value& to = values_[at(call.outputs[0].index)];
  Value value;
  load(call.inputs[1].place, false, value);
  if (&to != &held) {
    if (list.is_last) to = std::move(held);
    else to.share(held);
  }
  to.list().push(std::move(value));
  if (call.cursor >= 0) open_cursor(call);
  return true;
}

bool ResidentRun::pop_scalar(const ResidentCall& call) {
  const ResidentCall::Input& list = call.inputs[0];
  Value& held = values_[at(list.place.index)];
  const std::int64_t length = held.list().length();
  if (length == 0) return false;
  if (!read_element(held.list().slot(length - 1), call.outputs[1])) return false;
  Value& to = values_[at(call.outputs[0].index)];
  if (&to != &held) {
    if (list.is_last) to = std::move(held);
    else to.share(held);
  }
  (void)to.list().pop();
  if (call.cursor >= 0) open_cursor(call);
  return true;
}

bool ResidentRun::read_element(const Value& element, const ResidentPlace& to) {
  if (to.is_small) {
    if (element.kind() != Value::Kind::tensor || element.dtype() != to.type ||
        !element.tensor().is_on_host() ||
        element.tensor().shape() != program_.small_[at(to.index)].shape)
      return false;
    scatter(to, static_cast<const std::byte*>(element.tensor().raw()));
    return true;
  }
  if (!element.is_inline() || element.dtype() != to.type) return false;
  std::memcpy(frame_.at(to.index), element.scalar_bits(), 16);
  return true;
}

bool ResidentRun::read_scalar(const ResidentCall& call) {
  const ResidentCall::Input& list = call.inputs[0];
  Value& held = values_[at(list.place.index)];
  const ResidentPlace& index = call.inputs[1].place;
  std::int64_t i;
  if (index.type == DType::i64) {
    std::memcpy(&i, frame_.at(index.index), sizeof i);
  } else {
    std::int32_t narrow;
    std::memcpy(&narrow, frame_.at(index.index), sizeof narrow);
    i = narrow;
  }
  if (!read_element(held.list().slot(i), call.outputs[0])) return false;
  if (list.is_last) held.reset();
  return true;
}

int ResidentRun::run_kernel(std::int32_t number) {
  const ResidentCall& call = program_.calls_[at(number)];
  if (run_->cancelled.load(std::memory_order_relaxed))
    return static_cast<int>(Outcome::abandoned) + 1;
  current_ = number;
  const std::span operands(operands_.data(), call.inputs.size());
  for (std::size_t i = 0; i < operands.size(); ++i)
    load(call.inputs[i].place, call.inputs[i].is_last, operands[i]);
  const std::span results(results_.data(), call.outputs.size());
  KernelContext c(operands, results, *device_, *stream_, *run_);
  c.set_tag(tag_of(call));
  c.set_sink(this, nullptr);
  try {
    call.kernel->run(c);
  } catch (...) {
    if (!c.was_deferred()) throw;
    thrown_ = Status::from_current_exception();  // its Completion may be anywhere
  }
  for (Value& v : operands) v.reset();
  if (!c.was_deferred()) {
    store_results(call);
    return 0;
  }
  has_deferred_ = true;
  if (deferral_.exchange(kParked, std::memory_order_acq_rel) != kCompleted)
    return static_cast<int>(Outcome::waiting) + 1;
  deferral_.store(kRunning, std::memory_order_relaxed);
  has_deferred_ = false;
  end_deferred();
  return 0;
}

void ResidentRun::end_deferred() {
  for (const Status* status : {&thrown_, &deferred_status_})
    if (!status->ok()) throw Error(status->code(), status->message());
  store_results(program_.calls_[at(current_)]);
}

void ResidentRun::complete(void*, Status status, std::span<Value> outputs) {
  deferred_status_ = std::move(status);
  for (std::size_t o = 0; o < outputs.size(); ++o) results_[o] = std::move(outputs[o]);
  if (deferral_.exchange(kCompleted, std::memory_order_acq_rel) != kParked) return;
  deferral_.store(kRunning, std::memory_order_relaxed);
  resume_();
}

void ResidentRun::store_results(const ResidentCall& call) {
  for (std::size_t o = 0; o < call.outputs.size(); ++o)
    store(call.outputs[o], std::move(results_[o]));
}

void ResidentRun::load(const ResidentPlace& place, bool is_last, Value& to) {
  if (place.is_scalar) {
    set_scalar(to, place.type, frame_.at(place.index));
  } else if (place.is_small) {
    to = gathered(place);
  } else if (is_last) {
    to = std::move(values_[at(place.index)]);
  } else {
    to.share(values_[at(place.index)]);
  }
}

void ResidentRun::store(const ResidentPlace& place, Value&& from) {
  if (place.is_scalar) {
    std::memcpy(frame_.at(place.index), from.tensor().raw(), size_of(place.type));
    from.reset();
  } else if (place.is_small) {
    scatter(place, static_cast<const std::byte*>(from.tensor().raw()));
    from.reset();
  } else {
    values_[at(place.index)] = std::move(from);
  }
}

std::int64_t ResidentRun::iteration_of(const InnerLoop& loop) const {
  std::int64_t n;
  std::memcpy(&n, frame_.at(loop.counter), sizeof n);
  return n;
}

std::uint64_t ResidentRun::tag_of(const ResidentCall& call) const {
  std::uint64_t tag = outer_tag_;
  for (const std::int32_t l : call.loops) {
    const InnerLoop& loop = program_.loops_[at(l)];
    tag = fold_tag(tag, loop.key, static_cast<std::uint64_t>(iteration_of(loop)));
  }
  return tag;
}

// On the thread that advances the execution, or after its end.
void ResidentRun::count() {
  if (counted_ < 0) return;
  const std::int64_t now = iterations(), fresh = now - std::exchange(counted_, now);
  if (fresh > 0)
    counts_.iterations.fetch_add(static_cast<std::uint64_t>(fresh), std::memory_order_relaxed);
}

void ResidentRun::publish() {
  count();
  place_.store(frame_.place(), std::memory_order_relaxed);
  for (std::size_t l = 0; l < iterations_.size(); ++l)
    iterations_[l].store(iteration_of(program_.loops_[l]), std::memory_order_relaxed);
}

std::vector<ResidentRun::Open> ResidentRun::open() const {
  std::vector<Open> loops;
  const std::int32_t place = place_.load(std::memory_order_relaxed);
  for (std::size_t l = 0; l < iterations_.size(); ++l)
    if (const InnerLoop& loop = program_.loops_[l];
        l == 0 || (place >= loop.first && place < loop.last))
      loops.push_back({&loop, iterations_[l].load(std::memory_order_relaxed)});
  return loops;
}

std::string ResidentRun::where() const {
  if (current_ < 0) return {};
  const ResidentCall& call = program_.calls_[at(current_)];
  return call.graph->describe(call.node);
}

std::string ResidentRun::tag() const {
  if (current_ < 0) return {};
  std::string tag;
  for (const std::int32_t l : program_.calls_[at(current_)].loops) {
    const InnerLoop& loop = program_.loops_[at(l)];
    tag += fmt::format("{}iteration {} of loop '{}'", tag.empty() ? "" : ", ", iteration_of(loop),
                       loop.name);
  }
  return tag;
}

}  // namespace troupe
