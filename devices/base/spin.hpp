// Waiting for something that another core is about to do: pause, then let other threads run.
//
//   for (Spin spin; !ready();) spin.wait();
//
// Never a way to wait for another thread's whole job: an actor does not block.
#pragma once

#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe {

/// Tells the core that this is a spin loop (about 20–60 cycles).
inline void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Pauses some microseconds' worth of calls, then yields, so that a preempted peer gets its core
/// back.
class Spin {
 public:
  void wait() {
    if (++turns_ < 256) return pause_core();
    std::this_thread::yield();
  }

 private:
  int turns_ = 0;
};

}  // namespace troupe
