// Objects that oneDNN's C++ interface requires: an engine, and a stream for each thread.
#pragma once

#include <dnnl.hpp>

namespace troupe::cpu {

inline const dnnl::engine& library_engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::stream& library_stream() {
  static thread_local dnnl::stream of_thread(library_engine());
  return of_thread;
}

// a dnnl::memory that is only read
inline void* not_const(const void* p) { return const_cast<void*>(p); }

}  // namespace troupe::cpu
