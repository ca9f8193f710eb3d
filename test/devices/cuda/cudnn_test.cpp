// Convolutions by cuDNN: over a stand-in that interprets its descriptors, against the CPU device;
// and the plans that the real library makes for a GPU which is not here.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/devices/cuda/examine.hpp>
#include <troupe/devices/cuda/libraries/convolution_plan.hpp>
#include <troupe/devices/cuda/primitives.hpp>
#include <troupe/devices/device/choices.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/window.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cpu.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/cuda/fake_cudnn.hpp>
#include <troupe/test/support/on_device.hpp>
#include <troupe/test/support/source_dir.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

struct ConvolutionAxis {
  std::int64_t in, size, stride = 1, dilation = 1, before = 0, after = 0;
};

struct ConvolutionProblem {
  Windows windows;
  std::int64_t channels, filters, groups = 1;
  ConvolutionProblem(const std::vector<ConvolutionAxis>& axes, std::int64_t c, std::int64_t f,
                     std::int64_t g = 1)
      : channels(c), filters(f), groups(g) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const ConvolutionAxis& a = axes[i];
      const std::int64_t room = a.in + a.before + a.after - (a.size - 1) * a.dilation - 1;
      windows.axis[3 - axes.size() + i] = {a.in,     room / a.stride + 1, a.size,
                                           a.stride, a.dilation,          a.before};
    }
  }
  static constexpr std::int64_t kBatch = 2;
  Shape x() const {
    const auto& a = windows.axis;
    return {kBatch, a[0].in, a[1].in, a[2].in, channels};
  }
  Shape y() const {
    const auto& a = windows.axis;
    return {kBatch, a[0].out, a[1].out, a[2].out, filters};
  }
  Shape w() const {
    const auto& a = windows.axis;
    return {a[0].size, a[1].size, a[2].size, channels / groups, filters};
  }
  ConvolveArgs args(Convolve what, ConstView a, ConstView b, View out) const {
    return {what, a, b, out, windows, kBatch, channels, filters, groups};
  }
};

struct Gpu : Cpu {
  Gpu() { begin({}); }
  ~Gpu() {
    end();
    BOOST_TEST(fake_cudnn::report().live_descriptors == 0);
    BOOST_TEST(fake_cudnn::report().live_handles == 0);
    fake_cudnn::reset();
    fake_cuda::reset();
  }
  void begin(const fake_cudnn::Options& options, const GpuOptions& of_gpu = {}) {
    end();
    fake_cuda::reset({.seed = 5, .max_delay_us = 5});
    fake_cudnn::reset(options);
    GpuOptions how = of_gpu;
    how.poisons = true;
    if (how.cache_folder.empty()) how.cache_folder = folder / "cache";
    gpu = make_device("gpu:0", {.seed = 1, .gpu = how});
    queue = gpu->compute_stream();
  }
  void end() {
    queue.reset();
    gpu.reset();
    for (const std::string& v : fake_cuda::report().violations) BOOST_ERROR("violation: " << v);
  }
  Tensor there(const Tensor& host) {
    Tensor t = gpu->empty(host.dtype(), host.shape());
    gpu->copy_from_host(*queue, host, View(t));
    return t;
  }
  // f32 with all its bits, to see them rounded.
  Tensor draw(DType dtype, const Shape& shape) {
    Tensor t = random_tensor(random, dtype, shape, -1, 1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    if (dtype == DType::f32)
      for (std::int64_t i = 0; i < t.elements(); ++i) t.mutable_data<float>()[i] = uniform(random);
    return t;
  }
  // The largest difference of the three convolutions between the GPU and the CPU.
  double difference(const ConvolutionProblem& problem, DType dtype) {
    const Tensor x = draw(dtype, problem.x()), w = draw(dtype, problem.w()),
                 dy = draw(dtype, problem.y());
    double most = 0;
    const auto compare = [&](Convolve what, const Tensor& a, const Tensor& b, const Shape& shape) {
      Tensor expected = Tensor::zeros(dtype, shape), made = gpu->empty(dtype, shape);
      const Tensor a_there = there(a), b_there = there(b);
      p().convolve(*stream, problem.args(what, a, b, View(expected)));
      gpu->primitives().convolve(*queue, problem.args(what, a_there, b_there, View(made)));
      const Tensor found = fetch(*gpu, *queue, made);
      for (std::int64_t i = 0; i < found.elements(); ++i) {
        const double off = std::fabs(found.at(i) - expected.at(i));
        most = std::max(most, std::isnan(off) ? 1e9 : off);
      }
    };
    compare(Convolve::output, x, w, problem.y());
    compare(Convolve::input, dy, w, problem.x());
    compare(Convolve::filter, x, dy, problem.w());
    return most;
  }
  std::string choice() const {
    return dynamic_cast<const ChoosingDevice&>(*gpu).choice(Primitive::convolve);
  }
  using DnnCounters = cuda::DnnCounters;
  DnnCounters forms() const {
    return static_cast<const cuda::CudaPrimitives&>(gpu->primitives()).dnn().counters();
  }

  Folder folder;
  std::unique_ptr<Device> gpu;
  std::unique_ptr<Stream> queue;
};

const ConvolutionProblem& square() {
  static const ConvolutionProblem p({{6, 3, 1, 1, 1, 1}, {5, 3, 1, 1, 1, 1}}, 3, 4);
  return p;
}

std::vector<ConvolutionProblem> problems() {
  return {square(),
          {{{7, 3, 2, 1, 1, 0}, {8, 2, 2, 1, 0, 1}}, 2, 3},          // padding of one side
          {{{7, 2, 1, 3}, {6, 3, 1, 2, 2, 2}}, 2, 2},                // dilation
          {{{6, 2, 3}, {8, 3, 3}}, 2, 2},                            // an end that is not covered
          {{{6, 3, 1, 1, 1, 1}, {6, 3, 1, 1, 1, 1}}, 4, 6, 2},       // groups
          {{{5, 3, 1, 1, 1, 1}, {5, 3, 1, 1, 1, 1}}, 4, 4, 4},       // a group a channel
          {{{9, 4, 2, 1, 1, 1}}, 2, 3},                              // one axis
          {{{4, 2}, {5, 3, 2, 1, 1, 1}, {4, 2, 1, 1, 0, 1}}, 2, 3},  // three axes
          {{{5, 1, 2}, {6, 1, 2}}, 3, 4}};                           // windows with gaps
}

constexpr DType kConvolutionTypes[] = {DType::f16, DType::bf16, DType::f32};

double convolution_tolerance(DType dtype) {
  return dtype == DType::f16 ? 2e-2 : dtype == DType::bf16 ? 2e-1 : 1e-4;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_cudnn_test, Gpu)

BOOST_AUTO_TEST_CASE(convolutions_equal_the_cpus) {
  std::uint64_t run = 0;
  for (const DType dtype : kConvolutionTypes)
    for (const ConvolutionProblem& problem : problems()) {
      BOOST_TEST(difference(problem, dtype) < convolution_tolerance(dtype));
      run += 3;
    }
  BOOST_TEST(fake_cudnn::report().executed == run);
}

// As products with columns, or element by element.
BOOST_AUTO_TEST_CASE(convolutions_without_the_library_equal_the_cpus) {
  begin({.is_missing = true});
  for (const DType dtype : kConvolutionTypes)
    for (const ConvolutionProblem& problem : problems())
      BOOST_TEST(difference(problem, dtype) < convolution_tolerance(dtype));
  BOOST_TEST(fake_cudnn::report().executed == 0u);
  BOOST_TEST(choice().find("as products with columns, for cuDNN cannot be used: libcudnn.so.9") ==
             0u);
}

BOOST_AUTO_TEST_CASE(windows_of_one_element_are_products) {
  BOOST_TEST(difference({{{5, 1}, {6, 1}}, 4, 5}, DType::f32) < 1e-4);
  BOOST_TEST(fake_cudnn::report().executed == 0u);
}

// The stand-in recommends engines that give NaN, and that want more memory than the GPU has, first.
BOOST_AUTO_TEST_CASE(a_plan_is_deterministic_and_exact_unless_tf32_is_allowed) {
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(forms().planned == 3u);
  begin({}, {.tf32 = true});
  const double rounded = difference(square(), DType::f32);
  BOOST_TEST(rounded > 1e-4);
  BOOST_TEST(rounded < 1e-1);
}

BOOST_AUTO_TEST_CASE(the_fallback_serves_forms_without_a_recommendation) {
  begin({.recommends = false});
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(fake_cudnn::report().executed == 3u);
}

BOOST_AUTO_TEST_CASE(forms_without_an_engine_are_products) {
  begin({.recommends = false, .has_fallback = false});
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(fake_cudnn::report().executed == 0u);
  BOOST_TEST(forms().without_engine == 3u);  // each is asked for once
  begin({});                                 // the stand-in has no engine for f64
  BOOST_TEST(difference(square(), DType::f64) < 1e-12);
  BOOST_TEST(forms().without_engine == 3u);
}

BOOST_AUTO_TEST_CASE(plans_are_read_back_from_files) {
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(forms().planned == 3u);
  const auto again = [&](const fake_cudnn::Options& how, const GpuOptions& of_gpu = {}) {
    begin(how, of_gpu);
    BOOST_TEST(difference(square(), DType::f32) < (of_gpu.tf32 ? 1e-1 : 1e-5));
    return forms();
  };
  const DnnCounters known = again({});
  BOOST_TEST(known.from_files == 3u);
  BOOST_TEST(known.planned == 0u);
  BOOST_TEST(fake_cudnn::report().planned == 0u);
  BOOST_TEST(again({.version = 92000}).planned == 3u);
  BOOST_TEST(again({}, {.tf32 = true}).planned == 3u);
  BOOST_TEST(again({.restores = false}).planned == 3u);
  BOOST_TEST(again({}).from_files == 3u);
  for (const auto& file : std::filesystem::directory_iterator(folder / "cache"))
    std::ofstream(file.path()) << "damaged";
  BOOST_TEST(again({}).planned == 3u);
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_costs_plans_alone) {
  std::ofstream(folder / "file") << "in the way";
  begin({}, {.cache_folder = folder / "file"});
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(forms().planned == 3u);
}

BOOST_AUTO_TEST_CASE(operands_that_are_not_aligned_are_copied) {
  const ConvolutionProblem& problem = square();
  const std::int64_t in = problem.x().elements(), out = problem.y().elements();
  const Tensor x = random_tensor(random, DType::f32, Shape{in + 1}, -1, 1),
               w = random_tensor(random, DType::f32, problem.w(), -1, 1);
  const Tensor x_there = there(x), w_there = there(w);
  Tensor expected = Tensor::zeros(DType::f32, Shape{out});
  Tensor made = gpu->empty(DType::f32, Shape{out + 1});
  p().convolve(*stream, problem.args(Convolve::output,
                                     ConstView(x.data<float>() + 1, DType::f32, problem.x()), w,
                                     View(expected.raw_mutable(), DType::f32, problem.y())));
  gpu->primitives().convolve(
      *queue,
      problem.args(Convolve::output,
                   ConstView(static_cast<const float*>(x_there.raw()) + 1, DType::f32, problem.x()),
                   w_there,
                   View(static_cast<float*>(made.raw_mutable()) + 1, DType::f32, problem.y())));
  const Tensor found = fetch(*gpu, *queue, made);
  for (std::int64_t i = 0; i < out; ++i)
    BOOST_REQUIRE(std::fabs(found.at(i + 1) - expected.at(i)) < 1e-4);
  BOOST_TEST(fake_cudnn::report().executed == 1u);
}

BOOST_AUTO_TEST_CASE(a_library_that_does_not_start_is_named) {
  begin({.created = CUDNN_STATUS_NOT_INITIALIZED});
  BOOST_TEST(difference(square(), DType::f32) < 1e-4);
  BOOST_TEST(choice().find("opening cuDNN failed: CUDNN_STATUS_NOT_INITIALIZED") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_execution_that_fails_is_an_error_of_the_call) {
  begin({.executed = CUDNN_STATUS_BAD_PARAM});
  BOOST_CHECK_EXCEPTION(difference(square(), DType::f32), Error, [](const Error& e) {
    return e.code() == Code::internal &&
           std::string(e.what()).find("a convolution by cuDNN failed: CUDNN_STATUS_BAD_PARAM") !=
               std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(explain_and_doctor_name_the_library) {
  const auto explained = [&] {
    EngineOptions options;
    options.default_device = "gpu:0";
    options.gpu.cache_folder = folder / "cache";
    Engine engine(options);
    Graph g;
    const Expr x = g.input("x", DType::f32, {1, 6, 6, 2}),
               w = g.input("w", DType::f32, {3, 3, 2, 4});
    const Function f = engine.compile(g, {x, w}, {conv(x, w) * 2.0});
    f({Tensor::zeros(DType::f32, Shape{1, 6, 6, 2}), Tensor::zeros(DType::f32, Shape{3, 3, 2, 4})});
    return f.explain();
  };
  const auto part = [] {
    for (const PluginPart& p : cuda::examine())
      if (p.name == std::string("cuDNN")) return p;
    return PluginPart{};
  };
  BOOST_TEST(explained().find("on gpu:0, convolve: by cuDNN 9.19.0; 1 plans made") !=
             std::string::npos);
  BOOST_TEST(part().problem.empty());
  begin({.is_missing = true});
  BOOST_TEST(explained().find("on gpu:0, convolve: as products with columns") != std::string::npos);
  BOOST_TEST(part().problem.find("install cuDNN 9") != std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// cuDNN makes plans for a described device where none is.
BOOST_AUTO_TEST_CASE(the_real_library_plans_for_an_h200_without_a_device) {
  cuda::CudnnLibrary library;
  try {
    library = cuda::load_cudnn();
  } catch (const Error& e) {
    BOOST_TEST_MESSAGE("skipped: " << e.what());
    return;
  }
  const std::string json = read_file(std::string(kSourceDir) + "/test/support/cuda/h200.json");
  cuda::Descriptor properties(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 std::span<const char>(json.c_str(), json.size() + 1));
  properties.finalize();
  const cuda::PlanTarget target{.properties = &properties};
  // ResNet-50's stem, one of its blocks, and a strided one
  for (const ConvolutionProblem& problem :
       {ConvolutionProblem({{224, 7, 2, 1, 3, 3}, {224, 7, 2, 1, 3, 3}}, 4, 64),
        ConvolutionProblem({{56, 3, 1, 1, 1, 1}, {56, 3, 1, 1, 1, 1}}, 64, 64),
        ConvolutionProblem({{56, 3, 2, 1, 1, 1}, {56, 3, 2, 1, 1, 1}}, 128, 128)})
    for (const Convolve what : {Convolve::output, Convolve::input, Convolve::filter})
      for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
        Tensor none = Tensor::zeros(dtype, Shape{1});
        ConvolveArgs args = problem.args(what, none, none, View(none));
        args.batch = 32;
        auto form = cuda::ConvolutionForm::of(args);
        BOOST_REQUIRE(form);
        const auto plan = cuda::plan_convolution(library, target, *form, {});
        BOOST_TEST_CONTEXT(form->text()) {
          BOOST_REQUIRE(plan.has_value());
          const std::string text = plan->serialized();
          const auto restored = cuda::restore_convolution(library, target, what, text);
          BOOST_REQUIRE(restored.has_value());
          BOOST_TEST(restored->workspace_bytes() == plan->workspace_bytes());
          BOOST_TEST(!cuda::restore_convolution(library, target, what, text.substr(0, 9)));
        }
        ++form->out[0];  // the control: extents that do not follow from each other
        BOOST_CHECK_THROW(cuda::plan_convolution(library, target, *form, {}), Error);
      }
}

#endif

BOOST_AUTO_TEST_SUITE_END()
