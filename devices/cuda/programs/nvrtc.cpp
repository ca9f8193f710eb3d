#include <troupe/devices/cuda/programs/nvrtc.hpp>

#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/cuda/programs/hash.hpp>
#include <troupe/devices/cuda/programs/image_folder.hpp>
#include <troupe/devices/cuda/programs/print.hpp>

namespace troupe::cuda {
namespace {

namespace fs = std::filesystem;

// ---- Libraries

// The folders that may hold CUDA's libraries, in the order of open_cuda_library.
std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> folders;
  if (const std::string home = variable_or_nothing("CUDA_HOME"); !home.empty())
    folders.push_back(home + "/lib64");
  folders.push_back("/usr/local/cuda/lib64");
  const std::string listed = variable_or_nothing("TROUPE_CUDA_LIBRARIES");
  for (std::size_t begin = 0; begin < listed.size();) {
    const std::size_t end = std::min(listed.find(':', begin), listed.size());
    const std::string folder = listed.substr(begin, end - begin);
    begin = end + 1;
    if (folder.empty()) continue;
    folders.push_back(folder);
    std::vector<std::string> wheels;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder + "/nvidia", none))
      wheels.push_back((entry.path() / "lib").string());
    std::sort(wheels.begin(), wheels.end());
    folders.insert(folders.end(), wheels.begin(), wheels.end());
  }
  return folders;
}

struct NvrtcFunctions {
  decltype(&nvrtcVersion) version;
  decltype(&nvrtcGetErrorString) error_text;
  decltype(&nvrtcGetNumSupportedArchs) count_architectures;
  decltype(&nvrtcGetSupportedArchs) architectures;
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcDestroyProgram) destroy;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcGetPTXSize) ptx_size;
  decltype(&nvrtcGetPTX) ptx;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
};

// The opened NVRTC, and the architectures that it compiles for.
class Nvrtc {
 public:
  Nvrtc(const std::string& path, int architecture) {
    std::string looked;
    void* const library =
        path.empty()
            ? open_cuda_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, &looked)
            : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw Error(Code::failed_precondition,
                  path.empty()
                      ? fmt::format("NVRTC, which compiles CUDA kernels, was not found; looked for "
                                    "{}; name its folder in TROUPE_CUDA_LIBRARIES",
                                    looked)
                      : fmt::format("NVRTC, which compiles CUDA kernels, cannot be opened: {}",
                                    error_of_dl()));
    const auto find = [&](auto& function, const char* name) {
      void* const symbol = dlsym(library, name);
      if (!symbol)
        throw Error(Code::failed_precondition,
                    fmt::format("{} has no {}; a newer NVRTC is needed",
                                path.empty() ? "libnvrtc.so" : path, name));
      std::memcpy(&function, &symbol, sizeof symbol);
    };
    find(call_.version, "nvrtcVersion");
    find(call_.error_text, "nvrtcGetErrorString");
    find(call_.count_architectures, "nvrtcGetNumSupportedArchs");
    find(call_.architectures, "nvrtcGetSupportedArchs");
    find(call_.create, "nvrtcCreateProgram");
    find(call_.destroy, "nvrtcDestroyProgram");
    find(call_.compile, "nvrtcCompileProgram");
    find(call_.ptx_size, "nvrtcGetPTXSize");
    find(call_.ptx, "nvrtcGetPTX");
    find(call_.cubin_size, "nvrtcGetCUBINSize");
    find(call_.cubin, "nvrtcGetCUBIN");
    find(call_.log_size, "nvrtcGetProgramLogSize");
    find(call_.log, "nvrtcGetProgramLog");
    choose_architecture(architecture);
  }

  /// Names the parts of NVRTC that a compiled image depends on, beside the text.
  std::string identity() const {
    int major = 0, minor = 0;
    check(call_.version(&major, &minor), "nvrtcVersion");
    std::string text = fmt::format("NVRTC {}.{}", major, minor);
    for (const std::string& option : options_) text += ' ' + option;
    return text;
  }

  std::string compile(const std::string& text, const std::string& name) const {
    std::string source{prelude()};
    source += text;
    nvrtcProgram program = nullptr;
    check(call_.create(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr),
          "nvrtcCreateProgram");
    const auto destroy = [this](nvrtcProgram* p) { call_.destroy(p); };
    const std::unique_ptr<nvrtcProgram, decltype(destroy)> owner(&program, destroy);
    std::vector<const char*> options;
    for (const std::string& option : options_) options.push_back(option.c_str());
    const bool has_complex =
        text.find("c64") != std::string::npos || text.find("c128") != std::string::npos;
    if (!has_complex) options.push_back("-DTROUPE_WITHOUT_COMPLEX");
    const nvrtcResult result =
        call_.compile(program, static_cast<int>(options.size()), options.data());
    if (result != NVRTC_SUCCESS)
      throw Error(Code::internal, fmt::format("NVRTC does not compile {} ({}):\n{}", name,
                                              call_.error_text(result), log_of(program)));
    std::size_t size = 0;
    check(is_ptx_ ? call_.ptx_size(program, &size) : call_.cubin_size(program, &size), "the size");
    std::string image(size, '\0');
    check(is_ptx_ ? call_.ptx(program, image.data()) : call_.cubin(program, image.data()),
          "the image");
    return image;
  }

 private:
  static std::string error_of_dl() {
    const char* text = dlerror();
    return text ? text : "unknown error";
  }
  void check(nvrtcResult result, const char* call) const {
    if (result != NVRTC_SUCCESS)
      throw Error(Code::internal,
                  fmt::format("NVRTC fails at {}: {}", call, call_.error_text(result)));
  }
  std::string log_of(nvrtcProgram program) const {
    std::size_t size = 0;
    if (call_.log_size(program, &size) != NVRTC_SUCCESS || size == 0) return "no log";
    std::string log(size, '\0');
    if (call_.log(program, log.data()) != NVRTC_SUCCESS) return "no log";
    log.pop_back();  // the terminator
    return log;
  }
  // Machine code if NVRTC supports the architecture, else PTX of the newest one before it, which
  // the driver compiles further.
  void choose_architecture(int wanted) {
    int count = 0;
    check(call_.count_architectures(&count), "nvrtcGetNumSupportedArchs");
    std::vector<int> known(static_cast<std::size_t>(count));
    check(call_.architectures(known.data()), "nvrtcGetSupportedArchs");
    int best = 0;
    for (const int a : known)
      if (a <= wanted) best = std::max(best, a);
    if (best == 0)
      throw Error(Code::failed_precondition,
                  fmt::format("this NVRTC compiles for none of the architectures up to sm_{}; "
                              "an older one does",
                              wanted));
    is_ptx_ = best != wanted;
    options_ = {"-w", "--fmad=false", "-std=c++17",
                fmt::format("--gpu-architecture={}_{}", is_ptx_ ? "compute" : "sm", best)};
  }

  NvrtcFunctions call_{};
  std::vector<std::string> options_;
  bool is_ptx_ = false;
};

}  // namespace

void* open_cuda_library(std::initializer_list<const char*> names, std::string* looked) {
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  const std::vector<std::string> folders = cuda_library_folders();
  for (const std::string& folder : folders)
    for (const char* name : names)
      if (void* library = dlopen((folder + '/' + name).c_str(), RTLD_NOW | RTLD_LOCAL))
        return library;
  if (looked) {
    std::string text;
    for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
    text += " in the system's search path";
    for (const std::string& folder : folders) text += ", " + folder;
    *looked = text;
  }
  return nullptr;
}

struct ProgramCache::State {
  using Image = std::shared_ptr<const std::string>;

  explicit State(const ProgramCacheOptions& o)
      : options(o), folder(options.folder, options.limit) {}

  /// NVRTC, opened at the first call; a failure is tried again at the next.
  const Nvrtc& nvrtc() {
    const std::lock_guard lock(mutex);
    if (!opened) {
      opened = std::make_unique<const Nvrtc>(options.library, options.architecture);
      identity = opened->identity();
    }
    return *opened;
  }

  Image find_or_compile(const std::string& text, const std::string& name) {
    const Nvrtc& compiler = nvrtc();
    std::string all{prelude()};
    all += text;
    all += identity;
    const TextHash key = hash_of(all);
    std::string image;
    const ImageFolder::Found found = folder.read(key, image);
    if (found == ImageFolder::Found::yes) {
      const std::lock_guard lock(mutex);
      ++counters.from_files;
      return std::make_shared<const std::string>(std::move(image));
    }
    image = compiler.compile(text, name);
    std::string why = folder.write(key, image);
    const std::lock_guard lock(mutex);
    counters.damaged += found == ImageFolder::Found::damaged;
    ++counters.compiled;
    problem = std::move(why);
    return std::make_shared<const std::string>(std::move(image));
  }

  const ProgramCacheOptions options;
  const ImageFolder folder;

  std::mutex mutex;  // guards everything below; `opened` and `identity` are constant once set
  std::unique_ptr<const Nvrtc> opened;
  std::string identity;
  std::unordered_map<std::string, std::shared_future<Image>> images;  // by text
  ProgramCacheCounters counters;
  std::string problem;
};

ProgramCache::ProgramCache(ProgramCacheOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
ProgramCache::~ProgramCache() = default;

// The first request for a text leaves a future in `images`, then compiles without the lock; the
// others wait for the future. A failure reaches all waiting requests, and is then removed.
std::shared_ptr<const std::string> ProgramCache::get(const std::string& text,
                                                     const std::string& name) {
  std::promise<State::Image> promise;
  {
    std::unique_lock lock(state_->mutex);
    const auto [at, is_first] = state_->images.try_emplace(text);
    if (!is_first) {
      const std::shared_future<State::Image> image = at->second;
      ++state_->counters.from_memory;
      lock.unlock();
      return image.get();
    }
    at->second = promise.get_future().share();
  }
  try {
    State::Image image = state_->find_or_compile(text, name);
    promise.set_value(image);
    return image;
  } catch (...) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->images.erase(text);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

ProgramCacheCounters ProgramCache::counters() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

std::string ProgramCache::problem() const {
  const std::lock_guard lock(state_->mutex);
  return state_->problem;
}

}  // namespace troupe::cuda
