// Programs that NVRTC compiled, loaded by the runtime.
#include <map>
#include <mutex>

#include <troupe/devices/cuda/programs/compiled.hpp>
#include <troupe/devices/cuda/programs/print.hpp>
#include <troupe/devices/cuda/runtime/call.hpp>

namespace troupe::cuda {
namespace {

class LoadedProgram final : public CompiledProgram {
 public:
  LoadedProgram(std::shared_ptr<const std::string> image, const std::string& name)
      : image_(std::move(image)) {
    check(cudaLibraryLoadData(&library_, image_->data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "loading a compiled program");
    check(cudaLibraryGetKernel(&kernel_, library_, name.c_str()), "finding a compiled program");
  }
  // Never unloaded: launches may be in flight as long as the process lives.

  cudaError_t launch(cudaStream_t stream, unsigned blocks, unsigned threads,
                     ProgramArguments& arguments) const override {
    void* argument = arguments.data();
    return cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(blocks), dim3(threads),
                            &argument, 0, stream);
  }

 private:
  const std::shared_ptr<const std::string> image_;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

// By image: two devices of one architecture share one.
struct LoadedPrograms {
  std::mutex mutex;  // guards by_image; held while one is loaded
  std::map<const std::string*, std::shared_ptr<const CompiledProgram>> by_image;
  static LoadedPrograms& all() {
    static auto* const programs = new LoadedPrograms;
    return *programs;
  }
};

}  // namespace

std::shared_ptr<const CompiledProgram> compile_program(ProgramCache& cache,
                                                       const ScalarProgram& program,
                                                       const ProgramForm& form) {
  const PrintedProgram printed = print_program(program, form);
  const std::shared_ptr<const std::string> image = cache.get(printed.text, printed.name);
  LoadedPrograms& loaded = LoadedPrograms::all();
  const std::lock_guard lock(loaded.mutex);
  std::shared_ptr<const CompiledProgram>& known = loaded.by_image[image.get()];
  if (!known) known = std::make_shared<LoadedProgram>(image, printed.name);
  return known;
}

}  // namespace troupe::cuda
