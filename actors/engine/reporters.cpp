#include <troupe/actors/engine/reporters.hpp>

#include <map>
#include <mutex>

namespace troupe::detail {
namespace {

struct ReporterList {
  struct Entry {
    const EngineImpl* engine;
    std::shared_ptr<Reporter> reporter;
  };
  std::mutex mutex;  // guards all below
  std::uint64_t next = kFirstReporter;
  std::map<std::uint64_t, Entry> all;

  static ReporterList& of_process() {
    static ReporterList list;
    return list;
  }
};

}  // namespace

Reporting::Reporting(const EngineImpl& engine, std::shared_ptr<Reporter> reporter) {
  ReporterList& list = ReporterList::of_process();
  const std::lock_guard lock(list.mutex);
  number_ = list.next++;
  list.all.emplace(number_, ReporterList::Entry{&engine, std::move(reporter)});
}

void Reporting::end() {
  if (number_ == 0) return;
  std::shared_ptr<Reporter> ended;  // dropped without the lock
  ReporterList& list = ReporterList::of_process();
  const std::lock_guard lock(list.mutex);
  if (const auto it = list.all.find(number_); it != list.all.end()) {
    ended = std::move(it->second.reporter);
    list.all.erase(it);
  }
  number_ = 0;
}

std::vector<std::pair<std::uint64_t, std::shared_ptr<Reporter>>> reporters_of(
    const EngineImpl& engine) {
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Reporter>>> found;
  ReporterList& list = ReporterList::of_process();
  const std::lock_guard lock(list.mutex);
  for (const auto& [number, entry] : list.all)
    if (entry.engine == &engine) found.emplace_back(number, entry.reporter);
  return found;
}

}  // namespace troupe::detail
