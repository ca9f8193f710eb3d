#include <troupe/devices/cuda/examine.hpp>

#include <functional>
#include <string>

#include <dlfcn.h>

#include <fmt/format.h>

#include <troupe/devices/cuda/primitives.hpp>
#include <troupe/devices/cuda/programs/nvrtc.hpp>
#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::cuda {
namespace {

// 13020 is 13.2.
std::string cuda_version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string driver_versions() {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  return fmt::format("serves CUDA {}; the plug-in has CUDA {}", cuda_version(driver),
                     cuda_version(runtime));
}

// The file of an opened library, behind its version.
std::string with_file(const std::string& version, void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || !info.dli_fname) return version;
  return fmt::format("{} in {}", version, info.dli_fname);
}

std::string nvrtc_version() {
  void* const library =
      open_cuda_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, nullptr);
  void* const function = library ? dlsym(library, "nvrtcVersion") : nullptr;
  if (!function) return {};
  int major = 0, minor = 0;
  reinterpret_cast<int (*)(int*, int*)>(function)(&major, &minor);
  return with_file(fmt::format("{}.{}", major, minor), function);
}

// `name` returns major * `thousand` * thousand + minor * thousand + patch, or with 100 for the
// minor.
std::string version_of(std::initializer_list<const char*> names, const char* name,
                       std::size_t major, std::size_t minor) {
  void* const library = open_cuda_library(names, nullptr);
  void* const function = library ? dlsym(library, name) : nullptr;
  if (!function) return {};
  const std::size_t number = reinterpret_cast<std::size_t (*)()>(function)();
  return with_file(fmt::format("{}.{}.{}", number / major, number % major / minor, number % minor),
                   function);
}

// One small computation on a device of its own.
class Trial {
 public:
  Trial() : device_(make_device("gpu:0", {})), stream_(device_->compute_stream()) {}

  // Each throws unless its result is right.
  void reduce() {
    const Tensor in = on_device(Tensor::of<float>({1, 2, 3, 4}));
    Tensor out = device_->empty(DType::f32, Shape{1});
    device_->primitives().reduce(*stream_, Reduction::sum, in, View(out), 1);
    expect(out, 0, 10);
  }
  void pointwise() {
    Recorder r(1);
    r.finish(r.input(0) * 2.0 + 1.0);
    const ScalarProgram program = r.typed(std::array{DType::f32});
    const Tensor in = on_device(Tensor::of<float>({1, 2, 3, 4}));
    Tensor out = device_->empty(DType::f32, Shape{4});
    const ConstView from(in);
    const View to(out);
    device_->primitives().pointwise(*stream_, program, {&from, 1}, {&to, 1});
    expect(out, 3, 9);
  }
  void multiply() {
    const Tensor a = on_device(Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2}));
    Tensor out = device_->empty(DType::f32, Shape{2, 2});
    device_->primitives().matmul(*stream_, {a, a, View(out)});
    expect(out, 3, 22);
  }
  // A window of two elements over [1, 2, 3]. Without cuDNN the result is right too, and the
  // problem is reported.
  void convolve() {
    const Tensor x = on_device(Tensor::of<float>({1, 2, 3}, Shape{1, 3, 1})),
                 w = on_device(Tensor::of<float>({10, 1}, Shape{2, 1, 1}));
    Tensor out = device_->empty(DType::f32, Shape{1, 2, 1});
    ConvolveArgs args{Convolve::output, x, w, View(out), {}, 1, 1, 1, 1};
    args.windows.axis[2] = {.in = 3, .out = 2, .size = 2};
    device_->primitives().convolve(*stream_, args);
    expect(out, 1, 23);
    const std::string problem =
        static_cast<const CudaPrimitives&>(device_->primitives()).dnn().problem();
    if (!problem.empty())
      throw Error(Code::failed_precondition,
                  problem + "; until then convolutions are matrix products");
  }

 private:
  Tensor on_device(const Tensor& host) {
    Tensor there = device_->empty(host.dtype(), host.shape());
    device_->copy_from_host(*stream_, host, View(there));
    return there;
  }
  void expect(const Tensor& t, std::int64_t at, double value) {
    Tensor host = device_->host_empty(t.dtype(), t.shape());
    device_->copy_to_host(*stream_, t, View(host));
    stream_->synchronize();
    if (host.at(at) != value)
      throw Error(Code::internal, fmt::format("a computation of a few elements gives {} for {}",
                                              host.at(at), value));
  }

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
};

PluginPart part_of(const char* name, const std::function<std::string()>& version,
                   const std::function<void()>& work) {
  PluginPart part{.name = name, .version = {}, .problem = {}};
  try {
    part.version = version();
    work();
  } catch (const std::exception& e) { part.problem = e.what(); }
  return part;
}

}  // namespace

std::vector<PluginPart> examine() {
  std::unique_ptr<Trial> trial;
  const auto try_it = [&](void (Trial::*work)()) {
    return [&trial, work] {
      if (!trial) trial = std::make_unique<Trial>();
      (*trial.*work)();
    };
  };
  return {
      part_of("driver", driver_versions, [] {}),
      part_of(
          "kernels", [] { return std::string("of the plug-in"); }, try_it(&Trial::reduce)),
      part_of("NVRTC", nvrtc_version, try_it(&Trial::pointwise)),
      part_of(
          "cuBLASLt",
          [] {
            return version_of({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion",
                              10000, 100);
          },
          try_it(&Trial::multiply)),
      part_of(
          "cuDNN", [] { return version_of({"libcudnn.so.9"}, "cudnnGetVersion", 10000, 100); },
          try_it(&Trial::convolve)),
  };
}

}  // namespace troupe::cuda
