// libFuzzer: texts of the query language. A text is a query or is refused with its place; a query
// runs over some events, whole and in two partitions. Instruments: actors/events/language.cpp
// actors/events/language_tokens.cpp actors/events/formula.cpp actors/events/pattern.cpp
// actors/events/match_plan.cpp actors/events/match_replay.cpp actors/events/matcher.cpp
// actors/events/partition.cpp actors/events/query.cpp
#include <troupe/actors/events/language.hpp>

#include <algorithm>

#include <troupe/actors/events/direct_run.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::events;
using namespace troupe::test;

namespace {

constexpr const char* kTexts[] = {
    "EVENT Missed WHEN UNLESS(SEQUENCE(A x, B AS y, 12 hours), C AS z, 5 minutes) WHERE "
    "CorrelationKey(k, EQUAL) AND {x.v > 3} OUTPUT x.k AS machine, root #[0, 1 week)",
    "EVENT m WHEN NOT(C z, SEQUENCE(A x FIRST, B y CONSUME, 10)) WHERE z.v <> x.v",
    "EVENT m WHEN ATLEAST(2, A x, B y LAST, C z, 4) WHERE CorrelationKey(v, UNIQUE)",
    "EVENT m WHEN CANCEL-WHEN(ALL(A x, B y, 9), C z); EVENT n WHEN SEQUENCE(m q, A x, 5)",
    "EVENT m WHEN ATMOST(2, A, B, 7 BY k) AS few WHERE few.count = 1 OR NOT few.k % 2 = 0"};

const std::vector<EventType>& types() {
  static const std::vector<EventType> all = [] {
    const Schema schema{{"k", Type::integer}, {"v", Type::integer}, {"name", Type::text}};
    return std::vector<EventType>{{"A", schema}, {"B", schema}, {"C", schema}};
  }();
  return all;
}

void run(const Query& q) {
  DirectRun direct(q, [](std::size_t, const Batch&) {});
  Time t = 0;
  for (int round = 0; round < 3; ++round)
    for (std::size_t s = 0; s < q.sources().size(); ++s) {
      Batch batch(q.steps()[q.sources()[s].step].schema);
      ++t;
      batch.insert(static_cast<Key>(t), t, t + 3,
                   {events::Value(std::int64_t{round % 2}), events::Value(t % 3),
                    events::Value(std::string("n"))});
      if (round == 1) batch.retract(static_cast<Key>(t), t);
      batch.guarantee = t - 2;
      direct.feed(s, std::move(batch));
    }
  direct.finish();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (const char* text : kTexts) seed(text);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Query q;
  try {
    q = parse_query(text, types(), 60);
  } catch (const Error&) { return 0; }
  demand(!q.explain().empty());
  if (q.steps().size() > 64) return 0;  // others take their time
  try {
    run(q);
    run(partitioned(q, 2));
  } catch (const Error&) {}
  return 0;
}
