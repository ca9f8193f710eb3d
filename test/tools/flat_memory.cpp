// Counts the blocks of memory that are in use while eager ops and traced functions meet shape after
// shape: from some number on they are as many as before. The caches of both are bounded.
//
//   flat_memory            8,000 shapes eagerly, 2,000 traced; exit status 0, or 1: it grows
//   flat_memory 100000     that many of each
//
// A program of its own because it replaces malloc.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/functions.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace troupe::test {

std::atomic<long> blocks{0};  // in use; publishes nothing but itself

inline void note_made(const void* block) {
  if (block) blocks.fetch_add(1, std::memory_order_relaxed);
}
inline void note_freed(const void* block) {
  if (block) blocks.fetch_sub(1, std::memory_order_relaxed);
}
// A realloc that fails leaves the old block, unless it was to free it.
inline void note_remade(const void* old, const void* block, std::size_t bytes) {
  if (block || bytes == 0) note_freed(old);
  note_made(block);
}

}  // namespace troupe::test

#include <troupe/test/support/replaced_malloc.hpp>

extern "C" {
void __libc_free(void*);
void free(void* memory) {
  troupe::test::note_freed(memory);
  __libc_free(memory);
}
}

namespace {

using namespace troupe;
using test::blocks;

constexpr std::int64_t kEager = 8000, kTraced = 2000;

// 103,823 shapes of at most as many elements.
Tensor of_shape(std::int64_t i) {
  constexpr std::int64_t kSide = 47;
  return Tensor::zeros(DType::f32,
                       {2 + i % kSide, 2 + i / kSide % kSide, 2 + i / (kSide * kSide) % kSide});
}

// Compares the most blocks in use in the second half of the shapes with that in the first, in which
// every cache has been full: caches empty themselves at their bound, so that the number rises and
// falls. A cycle holds some more blocks than another; a leak of one block in 100 shapes is more.
bool is_flat(const char* name, std::int64_t shapes,
             const std::function<void(std::int64_t shape)>& work) {
  long most[2] = {0, 0};
  for (std::int64_t shape = 0; shape < shapes; ++shape) {
    work(shape);
    long& here = most[2 * shape / shapes];
    here = std::max(here, blocks.load(std::memory_order_relaxed));
  }
  std::printf("%s: at most %ld blocks in use in %ld shapes, %ld in as many more\n", name, most[0],
              static_cast<long>(shapes / 2), most[1]);
  return most[1] <= most[0] + shapes / 200;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t asked = argc > 1 ? std::atol(argv[1]) : 0;
  bool is_fine = true;
  FunctionOptions exact;
  exact.relax_shapes = false;
  exact.max_traces = 64;
  exact.warn = [](const std::string&) {};

  const auto look = [&](const std::string& where, Eager& e) {
    const auto code = [](const Expr& x) { return tanh(x * 2.0 + x); };
    const auto is_flat_for = [&](const char* what, std::int64_t shapes,
                                 const std::function<void(const Expr& x)>& work) {
      is_fine = is_flat((where + ", " + what).c_str(), shapes,
                        [&](std::int64_t i) { work(e.constant(of_shape(i))); }) &&
                is_fine;
    };
    // a shape takes three kernels or more
    static_assert(3 * kEager / 2 > static_cast<std::int64_t>(detail::KernelCache::kLimit));
    is_flat_for("eager", asked ? asked : kEager, [&](const Expr& x) { code(x); });
    is_flat_for("eager with gradients", asked ? asked : kEager, [&](const Expr& x) {
      GradientTape tape;
      tape.watch(x);
      tape.gradient(sum(code(x)), x);
    });
    auto relaxed = function("relaxed", code);
    is_flat_for("one relaxed graph", asked ? asked : kTraced, [&](const Expr& x) { relaxed(x); });
    auto traced = function("traced", code, exact);
    is_flat_for("a graph a shape", asked ? asked : kTraced, [&](const Expr& x) { traced(x); });
    // kernels of its eager ops are of scalars
    auto taped = function(
        "taped", [&](const Expr& x) { return sum(code(x)); }, exact);
    is_flat_for("a graph a shape with gradients", asked ? asked / 4 : kTraced, [&](const Expr& x) {
      GradientTape tape;
      tape.watch(x);
      tape.gradient(taped(x), x);
    });
  };
  {
    Eager alone;
    look("alone", alone);
  }
  EngineOptions options;
  options.workers = 1;
  options.deterministic = true;
  Engine engine(options);
  Eager e(engine);
  look("in an engine", e);
  return is_fine ? 0 : 1;
}
