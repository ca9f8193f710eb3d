#include <troupe/devices/scalar/machine_code.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/scalar/scalar_translator.hpp>

namespace troupe::detail {

namespace {

constexpr int kThrown = -3;  // a result that no run returns

// Pages that hold `bytes`, executable and no longer writable. Null, with errno set: there are none.
void* executable_pages(const std::vector<std::uint8_t>& bytes, std::size_t mapped) {
  void* const pages =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  std::memcpy(pages, bytes.data(), bytes.size());
  if (mprotect(pages, mapped, PROT_READ | PROT_EXEC) == 0) return pages;
  const int error = errno;
  munmap(pages, mapped);
  errno = error;
  return nullptr;
}

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::string reason() {
  if (!ScalarTranslator::is_built_in())
    return "this build has no translator; build on x86-64 with xbyak installed";
  void* const pages = executable_pages({0xc3}, page_bytes());
  if (!pages) return fmt::format("the system refuses executable memory ({})", std::strerror(errno));
  munmap(pages, page_bytes());
  return {};
}

}  // namespace

const std::string& MachineCode::why_not() {
  static const std::string why = reason();
  return why;
}

std::unique_ptr<const MachineCode> MachineCode::of(const ScalarCode& code) {
  if (!why_not().empty()) return nullptr;
  // No exception passes through machine code, which has no tables for unwinding.
  const ScalarTranslator::Call call = [](MachineRun* run, std::int32_t number,
                                         std::int32_t next) noexcept {
    run->frame->place_ = next;
    try {
      return run->calls->call(number);
    } catch (...) {
      run->thrown = std::current_exception();
      return kThrown;
    }
  };
  auto made = ScalarTranslator::translate(code, call);
  if (!made) return nullptr;
  const std::size_t page = page_bytes(), mapped = (made->bytes.size() + page - 1) / page * page;
  void* const pages = executable_pages(made->bytes, mapped);
  if (!pages) return nullptr;
  return std::unique_ptr<const MachineCode>(
      new MachineCode(code, pages, mapped, made->bytes.size(), std::move(made->entries)));
}

MachineCode::~MachineCode() { munmap(pages_, mapped_); }

int MachineCode::run(ScalarFrame& frame, std::int64_t budget, ScalarCalls& calls) const {
  const std::int32_t entry = entries_[static_cast<std::size_t>(frame.place_)];
  if (entry < 0) return code_.run(frame, budget, calls);
  using Enter = int (*)(std::byte*, std::int64_t, MachineRun*, const void*);
  MachineRun run{.frame = &frame, .calls = &calls};
  const int how = reinterpret_cast<Enter>(pages_)(frame.registers_.data()->bytes, budget, &run,
                                                  static_cast<const std::byte*>(pages_) + entry);
  if (run.place >= 0) frame.place_ = run.place;
  else if (run.thrown) std::rethrow_exception(run.thrown);
  return how;
}

}  // namespace troupe::detail
