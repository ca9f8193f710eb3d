// The host's side of a GPU, over the fake runtime of the tests without delays: what a worker spends
// on a launch beside the runtime's own call, what a firing allocates, and what it takes to find a
// compiled program again when a plan is made.
//
//   gpu_host             # one worker; the fake's streams have threads of their own
//
// `launch_*`: ns a call of a primitive, less the runtime's ns for the same launches, measured in
// turns. A launch of the fake is a function that is queued; so many are enqueued at a time that its
// thread keeps up, and the time until they are done is not counted.
#include <cstdio>

#if defined(TROUPE_WITH_FAKE_GPU)

#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/programs/compiled.hpp>
#include <troupe/devices/cuda/programs/print.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/count_allocations.hpp>
#include <troupe/test/bench/peer.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/on_device.hpp>

namespace {

using namespace troupe;

constexpr int kRounds = 40, kTogether = 64, kWarmUp = 5;
constexpr std::int64_t kElements = 64;

using Call = std::function<void()>;

// ns of each of `kTogether` calls, medians over rounds, of both sides in turns.
struct Times {
  std::vector<double> ours, theirs;
};
Times in_turns(const Call& ours, const Call& theirs, const Call& drain) {
  Times times;
  for (int round = 0; round < kWarmUp + kRounds; ++round)
    for (const bool is_ours : {true, false}) {
      const Call& call = is_ours ? ours : theirs;
      const double begin = bench::now_ns();
      for (int i = 0; i < kTogether; ++i) call();
      const double ns = (bench::now_ns() - begin) / kTogether;
      drain();
      if (round >= kWarmUp) (is_ours ? times.ours : times.theirs).push_back(ns);
    }
  return times;
}

// Allocations of the calling thread in each of `kTogether` calls: the fake's streams allocate too.
double allocations_of(const Call& call, const Call& drain) {
  for (int i = 0; i < kTogether; ++i) call();
  drain();
  const std::int64_t before = bench::own_allocations();
  for (int i = 0; i < kTogether; ++i) call();
  const std::int64_t made = bench::own_allocations() - before;
  drain();
  return static_cast<double>(made) / kTogether;
}

void print_launch(const char* name, const Times& times, double ours_allocate,
                  double runtime_allocates) {
  const double ours = bench::median(times.ours), theirs = bench::median(times.theirs);
  bench::Comparison c{.name = fmt::format("launch_{}", name),
                      .unit = "ns beside the runtime's",
                      .peer = "the fake runtime's launch",
                      .budget_value = 1500,
                      .note = "budget on a machine of one core a thread"};
  c.ours = {std::max(0.0, ours - theirs)};
  c.also = {{"call_ns", ours},
            {"runtime_ns", theirs},
            {"allocations_a_call", ours_allocate - runtime_allocates}};
  c.print();
}

// ---- launches of primitives

// Returns what the fake runtime allocates for a launch of a scalar program.
double launches() {
  const auto device = make_device("gpu:0", {});
  const auto stream = device->compute_stream();
  const Call drain = [&] { stream->synchronize(); };
  cudaStream_t bare = nullptr;
  if (cudaStreamCreateWithFlags(&bare, cudaStreamNonBlocking) != cudaSuccess) std::exit(1);
  const Call drain_bare = [&] { cudaStreamSynchronize(bare); };
  const Call drain_both = [&] { drain(), drain_bare(); };

  Tensor x = device->empty(DType::f32, {kElements}), y = device->empty(DType::f32, {kElements}),
         z = device->empty(DType::f32, {});
  device->primitives().fill(*stream, Tensor::scalar(0.5f), View(x));
  const void* const in = x.raw();
  void* const out = y.raw_mutable();

  const Tensor one = Tensor::scalar(1.f);
  cuda::Element element;
  const float value = 1;
  std::memcpy(element.bytes, &value, sizeof value);
  const View to(y);
  const auto against = [&](const char* name, const Call& ours, const Call& theirs) {
    const Times times = in_turns(ours, theirs, drain_both);
    print_launch(name, times, allocations_of(ours, drain_both), allocations_of(theirs, drain_both));
  };
  const Call bare_fill = [&] { cuda::fill(bare, element, 4, out, kElements); };
  against(
      "fill", [&] { device->primitives().fill(*stream, one, to); }, bare_fill);
  against(
      "sum", [&] { device->primitives().reduce(*stream, Reduction::sum, x, View(z), 1); },
      [&] {
        cuda::reduce(bare, cuda::ReduceOp::sum, DType::f32, in, out, 1, kElements, 1, nullptr);
      });
  const ScalarProgram program = test::increment();
  cuda::ProgramForm form;
  form.is_vectorized = true;
  form.by_value = {false};
  cuda::ProgramCache cache({});
  const auto compiled = cuda::compile_program(cache, program, form);
  cuda::ProgramArguments arguments(form, 1, 1);
  arguments.set_elements(kElements);
  cuda::StridedProgramInput input;
  input.data = in;
  arguments.set_input(0, input);
  cuda::StridedProgramResult result;
  result.data = out;
  arguments.set_result(0, result);
  const ConstView from(x);
  against(
      "pointwise",
      [&] {
        device->primitives().pointwise(*stream, program, {&from, 1}, {&to, 1});
      },
      [&] { compiled->launch(bare, 1, 256, arguments); });
  const double of_a_program =
      allocations_of([&] { compiled->launch(bare, 1, 256, arguments); }, drain_both);
  cudaStreamDestroy(bare);
  return of_a_program;
}

// ---- firings of an engine

// A chain of ops that nothing fuses, so that each firing is one launch, in an engine that works on
// the calling thread: two lengths, so that the allocations of a run itself cancel out.
void firings(double of_a_launch) {
  const auto allocated = [](int ops) {
    EngineOptions options;
    options.deterministic = true;
    options.default_device = "gpu:0";
    options.optimize = false;
    Engine engine(options);
    Graph g;
    const Variable x = g.variable("x", Tensor::zeros(DType::f32, {kElements}));
    Expr y = x.read();
    for (int i = 0; i < ops; ++i) y = y + 1.0;
    const Function f = engine.compile(g, {}, {sum(y)});
    for (int i = 0; i < kWarmUp; ++i) f({});
    constexpr int kRuns = 10;
    const std::int64_t before = bench::own_allocations();
    for (int i = 0; i < kRuns; ++i) f({});
    return static_cast<double>(bench::own_allocations() - before) / kRuns;
  };
  constexpr int kShort = 50, kLong = 250;
  const double a_firing = (allocated(kLong) - allocated(kShort)) / (kLong - kShort);
  bench::Comparison c{.name = "firing_allocations",
                      .unit = "a firing",
                      .peer = "the fake runtime's launch",
                      .note = "of the engine and the plug-in, with the result's tensor"};
  c.ours = {std::max(0.0, a_firing - of_a_launch)};
  c.also = {{"with_the_runtime", a_firing}, {"runtime", of_a_launch}};
  c.print();
}

// ---- compiled programs

// Programs of one constant each, so that their texts differ.
std::vector<ScalarProgram> some_programs(int count) {
  std::vector<ScalarProgram> programs;
  for (int i = 0; i < count; ++i) {
    Recorder r(1);
    r.finish(r.input(0) + (1.0 + i));
    programs.push_back(r.typed(std::array{DType::f32}));
  }
  return programs;
}

void programs() {
  constexpr int kPrograms = 8;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("troupe-gpu-host-{}", getpid());
  const cuda::ProgramCacheOptions options{.folder = folder.string(), .architecture = 90};
  const std::vector<ScalarProgram> all = some_programs(kPrograms);
  cuda::ProgramForm form;
  form.by_value = {false};
  // us a program, its text printed and its machine code found
  const auto find_all = [&](cuda::ProgramCache& cache) {
    const double begin = bench::now_ns();
    for (const ScalarProgram& program : all) {
      const cuda::PrintedProgram printed = cuda::print_program(program, form);
      cache.get(printed.text, printed.name);
    }
    return (bench::now_ns() - begin) / kPrograms / 1e3;
  };
  bench::Comparison hit{.name = "program_hit",
                        .unit = "us",
                        .peer = "none",
                        .budget_value = 5,
                        .note = "text printed, machine code found in memory"};
  bench::Comparison file{.name = "program_hit_file",
                         .unit = "us",
                         .peer = "none",
                         .note = "found in the folder, by a cache that has nothing in memory"};
  try {
    cuda::ProgramCache cache(options);
    find_all(cache);
    for (int i = 0; i < kRounds; ++i) hit.ours.push_back(find_all(cache));
    for (int i = 0; i < 5; ++i) {
      cuda::ProgramCache fresh(options);
      file.ours.push_back(find_all(fresh));
    }
  } catch (const Error& e) { hit.note = e.what(); }  // no NVRTC
  hit.print();
  file.print();
  std::filesystem::remove_all(folder);
}

}  // namespace

int main() {
  setenv("TROUPE_DEVICE_PLUGINS", TROUPE_WITH_FAKE_GPU, 1);
  fake_cuda::reset({.seed = 0, .max_delay_us = 0});
  firings(launches());
  programs();
}

#else

int main() { std::fprintf(stderr, "gpu_host: this build has no headers of CUDA\n"); }

#endif
