// While a thread of ours is in oneDNN, which is built on OpenMP, it opens no parallel region: one opened
// inside two workers would put four threads on two cores (six times slower). The setting is the thread's own.
#pragma once

extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace troupe::cpu {

class SingleThreaded {
 public:
  SingleThreaded() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~SingleThreaded() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int before_;
};

}  // namespace troupe::cpu
