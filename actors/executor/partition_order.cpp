// What fires next, where it is not what was enabled last: heavy kernels and who gives way, and
// elements of lists as late as can be.
#include <troupe/actors/executor/partition_tokens.hpp>

#include <chrono>
#include <utility>

namespace troupe {

// Which iteration comes first where one is run after the other: negative if it is a. 0: the order
// does not say.
int Partition::compare(const Iteration& a, const Iteration& b) {
  const std::int32_t depth_a = a.instance->frame->depth, depth_b = b.instance->frame->depth;
  if (depth_a != depth_b) {
    const bool a_is_deeper = depth_a > depth_b;
    const int around =
        a_is_deeper ? compare(*a.instance->parent, b) : compare(a, *b.instance->parent);
    return around != 0 ? around : a_is_deeper ? 1 : -1;
  }
  if (a.instance == b.instance) return a.number < b.number ? -1 : a.number > b.number;
  return depth_a == 0 ? 0 : compare(*a.instance->parent, *b.instance->parent);
}

namespace {

/// The one whose iteration comes first; the end if there is none.
template <class Compare>
Record::Ready* earliest(Stack<Record::Ready>& of, const Compare& compare) {
  Record::Ready* found = of.begin();
  for (Record::Ready* it = of.begin(); it != of.end(); ++it)
    if (compare(*it->iteration, *found->iteration) < 0) found = it;
  return found;
}

/// Nothing of its loop, nor of the loops around it, comes before it.
bool is_oldest(const Iteration& iteration) {
  for (const Iteration* i = &iteration; i; i = i->instance->parent)
    if (i->number != i->instance->oldest) return false;
  return true;
}

}  // namespace

// After a turn that left something ready: what is fired next is the newest no more, but each in
// turn, or a loop whose iterations are cheap would keep all that was ready before it (and heavy
// nodes, which wait until nothing light is ready) until it is done. Once a turn costs nothing, and
// is too seldom to change in what order a program's values are made and dropped. What is to be
// `last` has its turn in the oldest iteration only, where it is needed next anyway: elements taken
// out of a list for later ones are what a full device can least do with (dispatch_others).
void Partition::give_way(Record& record) {
  Stack<Record::Ready>& from = record.first.empty() ? record.ready : record.first;
  if (from.empty()) return;
  Stack<Record::Ready>& waiting = record.ready.empty() ? record.first : record.ready;
  std::swap(*(waiting.begin() + record.given_way++ % waiting.size()), waiting.back());
  if (&waiting != &from) {
    from.push_back(waiting.back());
    waiting.pop_back();
  }
  if (Record::Ready* next = earliest(record.last, compare);
      next != record.last.end() && is_oldest(*next->iteration)) {
    from.push_back(*next);
    record.last.erase(next);
  }
  while (!record.heavy.empty()) hand_over_newest(record);
}

// A value taken out of a list early is memory that nothing can swap out: loops that go backwards
// know how far they go before they have computed anything, and would take as many as their window
// has iterations.
void Partition::dispatch_others(Record& record) {
  dispatch_heavy(record);
  if (!record.ready.empty() || record.last.empty()) return;
  Record::Ready* next = earliest(record.last, compare);
  record.ready.push_back(*next);
  record.last.erase(next);
}

// Heavy nodes wait until nothing light is ready, so that light ones can enable more of them. One
// alone runs inline; several, or one beside kernels under way elsewhere, go to the workers, so that
// this partition stays free to react to the first that ends.
void Partition::dispatch_heavy(Record& record) {
  if (record.heavy.empty()) return;
  if (record.heavy.size() == 1 && record.outside == 0) {
    driver_.before_heavy();
    record.ready.push_back(record.heavy.back());
    record.heavy.pop_back();
    return;
  }
  while (!record.heavy.empty()) hand_over_newest(record);
}

// What is dead, or whose run has failed, computes nothing.
void Partition::hand_over_newest(Record& record) {
  const Record::Ready next = record.heavy.back();
  record.heavy.pop_back();
  const bool is_dead =
      next.iteration->awaited[static_cast<std::size_t>(next.node->place)] & Iteration::kDead;
  if (is_dead || record.run->is_poisoned()) record.ready.push_back(next);
  else hand_over(*next.iteration, *next.node);
}

void Partition::hand_over(Iteration& iteration, const PlanNode& node) {
  Record& record = *iteration.instance->record;
  take_held(iteration, node);
  Firing& firing = take_firing(iteration, node);
  firing.run = record.run;
  firing.began = std::chrono::nanoseconds(steady_ns());
  firing.waits_for_worker.store(true, std::memory_order_relaxed);
  driver_.hand_over(firing);
  ++record.outside;  // its end is a message, which comes after this turn
}

}  // namespace troupe
