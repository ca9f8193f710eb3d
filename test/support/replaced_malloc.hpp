// Replaces malloc and the like, but for free, in the one file of a program that includes it. The
// file declares before:
//
//   namespace troupe::test {
//   inline void note_made(const void* block);                          // by malloc and the like
//   inline void note_remade(const void* old, const void* block, std::size_t bytes);  // by realloc
//   }
//
// libtroupe, libstdc++ (operator new) and every other library come through here.
#pragma once

#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  void* const block = __libc_malloc(bytes);
  troupe::test::note_made(block);
  return block;
}
void* calloc(std::size_t count, std::size_t bytes) {
  void* const block = __libc_calloc(count, bytes);
  troupe::test::note_made(block);
  return block;
}
void* realloc(void* old, std::size_t bytes) {
  void* const block = __libc_realloc(old, bytes);
  troupe::test::note_remade(old, block, bytes);
  return block;
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  void* const block = __libc_memalign(alignment, bytes);
  troupe::test::note_made(block);
  return block;
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
}
