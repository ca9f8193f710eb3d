#include <troupe/cluster/transport/net/resolver.hpp>

#include <sys/eventfd.h>

#include <algorithm>
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
  if (answer_->bell.get() < 0)
    throw Error(Code::resource_exhausted, "no descriptor is left to look a name up");
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

bool Lookup::is_good() const { return answer_->why.ok(); }

const std::vector<std::string>& Lookup::found() const {
  if (!answer_->why.ok()) throw Error(answer_->why.code(), answer_->why.message());
  return answer_->found;
}

std::shared_ptr<Lookup> Lookups::ask(const std::string& address, Time now) {
  std::erase_if(all_, [&](const auto& one) {
    return one.second.lookup->is_done() && one.second.until < now;
  });
  if (const auto at = all_.find(address); at != all_.end()) {
    if (!at->second.lookup->is_done()) at->second.until = now + kKept;
    return at->second.lookup;
  }
  if (is_in_numbers(address)) return std::make_shared<Lookup>(address);
  const auto under_way = std::count_if(
      all_.begin(), all_.end(), [](const auto& one) { return !one.second.lookup->is_done(); });
  if (static_cast<std::size_t>(under_way) >= kAtOnce)
    throw Error(Code::resource_exhausted, "the resolver of names has not answered others yet");
  auto lookup = std::make_shared<Lookup>(address);
  all_.insert_or_assign(address, Asked{lookup, now + kKept});
  return lookup;
}

void Lookups::taken(const std::string& address, Time now, bool is_good) {
  const auto at = all_.find(address);
  if (at == all_.end()) return;
  if (is_good) at->second.until = std::min(at->second.until, now + kFresh);
  else all_.erase(at);
}

}  // namespace troupe
