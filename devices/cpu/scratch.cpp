#include <troupe/devices/cpu/scratch.hpp>

#include <cstdlib>
#include <new>

namespace troupe::cpu {
namespace {

struct Scratch {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  ~Scratch() { std::free(memory); }

  void grow(std::size_t wanted) {
    std::free(memory);
    bytes = (wanted + 4095) / 4096 * 4096;
    memory = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
    if (!memory) {
      bytes = 0;
      throw std::bad_alloc();
    }
  }
};

}  // namespace

std::byte* thread_scratch(std::size_t bytes) {
  static thread_local Scratch mine;
  if (mine.bytes < bytes || !mine.memory) mine.grow(bytes);
  return mine.memory;
}

}  // namespace troupe::cpu
