// Counts what messages, blocks of kernels, firings, iterations of loops and eager ops, also under a
// tape, allocate once they are warm: nothing.
//
//   no_allocation     exit status 0, or 1 and the counts
//
// A program of its own because it replaces operator new.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <new>

namespace {

std::atomic<long> allocations{0};

void* count_and_allocate(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return count_and_allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return count_and_allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using namespace troupe;

struct Latches {
  std::latch* gate = nullptr;      // holds the receiver of a negative number
  std::latch* finished = nullptr;  // counts tokens that have run out
};

class Runner : public LeanActor<long> {
 public:
  Runner(caf::actor_config& config, Latches& latches) : LeanActor(config), latches_(latches) {}
  LeanRef<Runner> next;

  void receive(long& left) override {
    if (left < 0) latches_.gate->wait();
    else if (left == 0) latches_.finished->count_down();
    else next->send(left - 1);
  }

 private:
  Latches& latches_;
};

/// Allocations in `rounds` of work after as many to warm up.
template <class Work>
long allocated_by(Work work) {
  work();
  const long before = allocations.load();
  work();
  return allocations.load() - before;
}

/// The least of five: where a thread is put off the core between two of its steps, what hands its
/// run on may allocate a message.
template <class Run>
long least_of(Run run) {
  long least = run();
  for (int i = 1; i < 5; ++i) least = std::min(least, run());
  return least;
}

}  // namespace

int main() {
  bool clean = true;
  for (const int workers : {1, 2}) {
    WorkerPool pool(workers);
    caf::actor_system_config config;
    SchedulerModule::load(config, pool);
    caf::actor_system system(config);
    Latches latches;
    auto one = lean_spawn<Runner>(system, latches), two = lean_spawn<Runner>(system, latches);
    one->next = two;
    two->next = one;
    const auto run_tokens = [&](int tokens, long hops, std::latch* gate = nullptr) {
      std::latch finished(tokens);
      latches.finished = &finished;
      for (int i = 0; i < tokens; ++i) one->send(hops);
      if (gate != nullptr) gate->count_down();
      finished.wait();
    };
    // a thousand messages at once end in the shared depot, from which this thread then draws
    std::latch held(1);
    latches.gate = &held;
    one->send(-1);
    run_tokens(1'000, 0, &held);
    const long by_messages = allocated_by([&] { run_tokens(2, 200'000); });
    std::atomic<int> blocks{0};
    const long by_loops = allocated_by([&] {
      for (int i = 0; i < 20'000; ++i)
        pool.parallel_for(4, [&](int) { blocks.fetch_add(1, std::memory_order_relaxed); });
    });
    one->next = {};
    two->next = {};
    std::printf("%d workers: %ld allocations by 400,000 messages, %ld by 20,000 loops\n", workers,
                by_messages, by_loops);
    clean = clean && by_messages == 0 && by_loops == 0;
  }
  // A chain without a loop: its length is no matter.
  {
    EngineOptions plain;
    plain.workers = 1;
    plain.optimize = false;  // as many firings as there are operations
    Engine engine(plain);
    const auto allocated_by_run_of = [&](int ops) {
      Graph g;
      Expr x = g.input("x", DType::f32, Shape{}), y = x;
      for (int i = 0; i < ops; ++i) y = i % 2 == 0 ? y + x : y * x;
      Function f = engine.compile(g, {x}, {y});
      const auto allocated_by_one = [&] {
        const long before = allocations.load();
        f({Tensor::scalar(1.f)});
        return allocations.load() - before;
      };
      allocated_by_one();
      return least_of(allocated_by_one);
    };
    const long few = allocated_by_run_of(10), many = allocated_by_run_of(1000);
    std::printf("%ld allocations by 10 firings, %ld by 1,000\n", few, many);
    clean = clean && few == many;
  }
  // Iterations of loops, nested and with captures: many allocate no more than few.
  {
    Graph g;
    Expr n = g.input("n", DType::i32, Shape{}), a = g.input("a", DType::f32, Shape{});
    auto [count, total] = while_loop(
        [&](Expr i, Expr) { return i < n; },
        [&](Expr i, Expr s) {
          Expr inner =
              while_loop([&](Expr y) { return y < s + a * 3.0; }, [&](Expr y) { return y + a; }, s);
          return std::tuple{i + 1, cond(
                                       i > 5, [&] { return inner - a; }, [&] { return inner; })};
        },
        std::tuple{g.constant(0), g.constant(0.f)});
    EngineOptions one;
    one.workers = 1;
    Engine engine(one);
    Function f = engine.compile(g, {n, a}, {count, total});
    const auto allocated_by_run = [&](int iterations) {
      const long before = allocations.load();
      f({Tensor::scalar(iterations), Tensor::scalar(1.f)});
      return allocations.load() - before;
    };
    allocated_by_run(20'000);
    const long few = least_of([&] { return allocated_by_run(100); }),
               many = least_of([&] { return allocated_by_run(20'000); });
    std::printf("%ld allocations by 100 iterations, %ld by 20,000\n", few, many);
    clean = clean && few == many;
  }
  // Calls, nested deep and many of them.
  {
    Graph g;
    const ValueSpec count{DType::i32, Shape{}};
    Expr n = g.input("n", DType::i32, Shape{});
    GraphFunction<Expr(Expr)> fibonacci(g, "fibonacci", {count}, {count});
    fibonacci.define([&](Expr k) {
      return cond(
          k < 2, [&] { return k; }, [&] { return fibonacci(k - 1) + fibonacci(k - 2); });
    });
    Expr r = fibonacci(n);
    EngineOptions one;
    one.workers = 1;
    Engine engine(one);
    Function f = engine.compile(g, {n}, {r});
    const auto allocated_by_run = [&](int of) {
      const long before = allocations.load();
      f({Tensor::scalar(of)});
      return allocations.load() - before;
    };
    allocated_by_run(18);
    const long few = least_of([&] { return allocated_by_run(3); }),
               many = least_of([&] { return allocated_by_run(18); });
    std::printf("%ld allocations by 5 calls, %ld by 8,361\n", few, many);
    clean = clean && few == many;
  }
  // Ops that compute at once; a tape takes the memory of the one before it.
  {
    EngineOptions one;
    one.workers = 1;
    Engine engine(one);
    Eager e(engine);
    const Expr start = e.constant(Tensor::of<float>({1}));
    const auto add = [&](int ops) {
      Expr x = start;
      for (int i = 0; i < ops; ++i) x = x + start;
    };
    const auto add_taped = [&](int ops) {
      GradientTape tape;
      tape.watch(start);
      add(ops);
    };
    const auto allocated_by_ops = [](const auto& of, int ops) {
      of(1'000);
      const long before = allocations.load();
      of(ops);
      return allocations.load() - before;
    };
    const long plain = allocated_by_ops(add, 1'000);
    const long few = allocated_by_ops(add_taped, 10), many = allocated_by_ops(add_taped, 1'000);
    std::printf("%ld allocations by 1,000 eager ops; under a tape %ld by 10, %ld by 1,000\n", plain,
                few, many);
    clean = clean && plain == 0 && few == many;
    // The backward sweep of a step like the one before.
    const Expr w = e.constant(Tensor::of<float>({1, 2, 3, 4}, {2, 2}));
    const auto allocated_by_sweep = [&](int layers) {
      GradientTape tape;
      tape.watch(w);
      Expr h = w;
      for (int i = 0; i < layers; ++i) h = tanh(matmul(h, w)) * 0.5 + w;
      const Expr loss = mean(square(h));
      const long before = allocations.load();
      tape.gradient(loss, w);
      return allocations.load() - before;
    };
    for (int i = 0; i < 3; ++i) allocated_by_sweep(10), allocated_by_sweep(110);
    const long shallow = allocated_by_sweep(10), deep = allocated_by_sweep(110);
    std::printf(
        "backward sweeps: %ld allocations by 10 layers, %ld by 110, %ld in a second sweep\n",
        shallow, deep, allocated_by_sweep(110));
  }
  return clean ? 0 : 1;
}
