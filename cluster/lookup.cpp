#include <troupe/cluster/lookup.hpp>

#include <sys/eventfd.h>

#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {

struct Lookup::Answer {
  OwnedDescriptor bell;
  std::vector<std::string> found;
  Status why;
  std::atomic<bool> is_done{false};  // after that nothing changes
};

Lookup::Lookup(const std::string& address) : answer_(std::make_shared<Answer>()) {
  if (is_in_numbers(address)) {
    answer_->found = {address};
    answer_->is_done = true;
    return;
  }
  answer_->bell = OwnedDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (answer_->bell.get() < 0) throw Error(Code::resource_exhausted, "no descriptor is left to look a name up");
  try {
    std::thread([answer = answer_, address] {
      try {
        answer->found = in_numbers(address);
      } catch (const Error& e) {
        answer->why = Status(e);
      } catch (const std::exception& e) {  // no memory
        answer->why = Status(Code::resource_exhausted, e.what());
      }
      answer->is_done.store(true, std::memory_order_release);
      eventfd_write(answer->bell.get(), 1);
    }).detach();
  } catch (const std::system_error&) {
    throw Error(Code::resource_exhausted, "no thread is left to look a name up");
  }
}

bool Lookup::is_done() const { return answer_->is_done.load(std::memory_order_acquire); }

int Lookup::bell() const { return answer_->bell.get(); }

const std::vector<std::string>& Lookup::found() const {
  if (!answer_->why.ok()) throw Error(answer_->why.code(), answer_->why.message());
  return answer_->found;
}

std::shared_ptr<Lookup> Lookups::ask(const std::string& address, Time now) {
  if (const auto at = all_.find(address); at != all_.end() && (!at->second.lookup->is_done() || now - at->second.last <= kKept)) {
    at->second.last = now;
    return at->second.lookup;
  }
  auto lookup = std::make_shared<Lookup>(address);
  if (!lookup->is_done()) all_.insert_or_assign(address, Asked{lookup, now});
  return lookup;
}

}  // namespace troupe
