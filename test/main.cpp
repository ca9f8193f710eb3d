// The main of every test binary, and a count of the threads that it begins.
#define BOOST_TEST_MODULE troupe
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstdlib>

#include <dlfcn.h>
#include <pthread.h>

#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/source_dir.hpp>

namespace {

std::atomic<long> begun{0};

#if defined(TROUPE_FAKE_GPU)
// Before main, and before the first look-up of a device: `gpu:0` is the plug-in over the fake
// runtime.
// Processes that tests begin inherit it.
[[maybe_unused]] const int names_fake_gpu = setenv("TROUPE_DEVICE_PLUGINS", TROUPE_FAKE_GPU, 0);
// Its plans lie beside it, not in the user's cache.
[[maybe_unused]] const int names_cache = setenv("XDG_CACHE_HOME", TROUPE_FAKE_GPU ".cache", 1);
#endif

}  // namespace

const char* const troupe::test::kSourceDir = TROUPE_SOURCE_DIR;

long troupe::test::threads_begun() { return begun; }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In place of the library's, for the libraries too.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  ++begun;
  return next(thread, attributes, start, argument);
}
#endif
