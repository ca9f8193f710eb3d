// While a thread of ours is in oneDNN: it takes no signals (signals.hpp), and the library, which is
// built on OpenMP, opens no parallel region, which inside two workers would put four threads on two
// cores (six times slower). Both settings are the thread's own.
#pragma once

#include <troupe/devices/base/signals.hpp>

extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace troupe::cpu {

class LibraryCall {
 public:
  LibraryCall() : threads_before_(omp_get_max_threads()) {
    if (threads_before_ != 1) omp_set_num_threads(1);
  }
  ~LibraryCall() {
    if (threads_before_ != 1) omp_set_num_threads(threads_before_);
  }
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;

 private:
  SignalsBlocked no_signals_;
  int threads_before_;
};

}  // namespace troupe::cpu
