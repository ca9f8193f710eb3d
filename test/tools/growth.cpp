// Counts what building, differentiating and compiling nested programs allocates, at one size and at
// twice that: no more than four times as much, for work that grows no faster than the square.
//
//   growth            exit status 0, or 1 and the counts
//   growth print      the counts in any case
//
// A program of its own because it replaces operator new. Allocations stand for work: all analyses
// and passes keep what they find in memory.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/troupe.hpp>

namespace {

thread_local long allocations = 0;  // by the thread that builds and compiles

void* count_and_allocate(std::size_t bytes, std::size_t alignment) {
  allocations += 1 + static_cast<long>(bytes / 64);  // cache lines
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
using One = GraphFunction<Expr(Expr)>;

const ValueSpec kReal{DType::f64, Shape{}};

struct Work {
  long build, differentiate, compile;
};

/// Makes y of x and k.
using Nest = std::function<Expr(Graph&, int n, const Expr& x, const Expr& k)>;

Work work_of(const Nest& program, int n, Engine& engine) {
  Work work{};
  long start = allocations;
  const auto lap = [&] {
    const long now = allocations, passed = now - start;
    start = now;
    return passed;
  };
  Graph g;
  Expr x = g.input("x", DType::f64, Shape{}), k = g.input("k", DType::f64, Shape{});
  Expr y = program(g, n, x, k);
  work.build = lap();
  Expr dy = gradients(y, x)[0];
  work.differentiate = lap();
  Function f = engine.compile(g, {x, k}, {y, dy});
  work.compile = lap();
  return work;
}

Expr nested_conditionals(int n, const Expr& v, const Expr& k) {
  if (n == 0) return v * k;
  return cond(
      v > 0.0, [&] { return nested_conditionals(n - 1, v * 1.001, k); }, [&] { return v; });
}

Expr chain_of_functions(Graph& g, int n, const Expr& x, const Expr& k) {
  std::vector<One> all;
  for (int i = 0; i < n; ++i)
    all.emplace_back(g, "f" + std::to_string(i), std::vector<ValueSpec>{kReal},
                     [&](Expr v) { return all.empty() ? v * k : all.back()(v) * 1.001; });
  return all.back()(x);
}

// Each is declared before any is defined.
Expr chain_of_declared_functions(Graph& g, int n, const Expr& x, const Expr& k) {
  std::vector<One> all;
  for (int i = 0; i < n; ++i)
    all.emplace_back(g, "f" + std::to_string(i), std::vector<ValueSpec>{kReal},
                     std::vector<ValueSpec>{kReal});
  for (std::size_t i = all.size(); i-- > 0;)
    all[i].define([&](Expr v) { return i == 0 ? v * k : all[i - 1](v) * 1.001; });
  return all.back()(x);
}

// Each uses an outer value of its own.
Expr chain_of_captures(Graph& g, int n, const Expr& x, const Expr& k) {
  std::vector<One> all;
  for (int i = 0; i < n; ++i) {
    Expr mine = k * (1.0 + i);
    all.emplace_back(g, "f" + std::to_string(i), std::vector<ValueSpec>{kReal},
                     [&](Expr v) { return all.empty() ? v * mine : all.back()(v) * mine; });
  }
  return all.back()(x);
}

// Each calls the one before twice: put in the place of their calls, the bodies would double.
Expr tree_of_functions(Graph& g, int n, const Expr& x, const Expr& k) {
  std::vector<One> all;
  for (int i = 0; i < n; ++i)
    all.emplace_back(g, "f" + std::to_string(i), std::vector<ValueSpec>{kReal}, [&](Expr v) {
      return all.empty() ? v * k : all.back()(v * 0.5) + all.back()(v * k);
    });
  return all.back()(x);
}

bool is_quadratic(const char* name, const Nest& program, int n, Engine& engine, bool prints) {
  const Work one = work_of(program, n, engine), two = work_of(program, 2 * n, engine);
  bool is_fine = true;
  const auto look = [&](const char* phase, long a, long b) {
    const double ratio = static_cast<double>(b) / static_cast<double>(a);
    // The square, and a tenth for what grows by steps.
    const bool fits = ratio <= 4.4;
    is_fine = is_fine && fits;
    if (prints || !fits)
      std::printf("%s, %s: %ld at %d, %ld at %d, %.2f times\n", name, phase, a, n, b, 2 * n, ratio);
  };
  look("building", one.build, two.build);
  look("differentiating", one.differentiate, two.differentiate);
  look("compiling", one.compile, two.compile);
  return is_fine;
}

}  // namespace

int main(int argc, char**) {
  const bool prints = argc > 1;
  Engine engine({.workers = 1});
  bool is_fine = true;
  const auto look = [&](const char* name, int n, const Nest& program) {
    is_fine = is_quadratic(name, program, n, engine, prints) && is_fine;
  };
  // D7
  look("nested conditionals", 60,
       [](Graph&, int n, const Expr& x, const Expr& k) { return nested_conditionals(n, x, k); });
  // D8
  look("functions in a chain", 150, chain_of_functions);
  look("declared functions in a chain", 150, chain_of_declared_functions);
  look("functions with an outer value each", 60, chain_of_captures);
  look("functions that call the one before twice", 32, tree_of_functions);
  return is_fine ? 0 : 1;
}
