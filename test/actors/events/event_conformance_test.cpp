// The conformance property: for every operator and level, random disorder within the guarantees
// gives the canonical table of the ideal stream. TROUPE_SEED=n tries one history.
#include <troupe/actors/events/query.hpp>

#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <optional>
#include <random>

#include <troupe/test/actors/events/event_oracle.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_conformance_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

const Schema kPair{{"k", Type::integer}, {"v", Type::integer}};

struct Draw {
  std::mt19937_64 random;
  Time to(Time most) { return static_cast<Time>(random() % static_cast<std::uint64_t>(most + 1)); }
  bool one_in(Time n) { return to(n - 1) == 0; }
};

/// One message, and when it arrives.
struct Sent {
  Time arrival;
  std::size_t source;
  Key key;
  Time begin, end;
  bool is_insert;
  Row row;
  Time sync() const { return is_insert ? begin : end; }
};

/// All that both sources send, in order of arrival, and the barriers: no message crosses one.
struct Story {
  std::vector<Sent> sent;
  std::vector<Time> barriers;
  std::array<Table, 2> ideal;
};

constexpr Time kSpan = 24;  // syncs are from 0 to twice of it

Story draw_story(Draw& draw) {
  Story story;
  for (Time t = draw.to(9); t < 2 * kSpan; t += 4 + draw.to(9)) story.barriers.push_back(t);
  const Time disorder = draw.one_in(4) ? 0 : draw.to(15);
  const auto send = [&](Sent s) {
    // behind all barriers below its sync, before the others
    const Time epoch = std::lower_bound(story.barriers.begin(), story.barriers.end(), s.sync()) -
                       story.barriers.begin();
    s.arrival = epoch * 1000 + s.sync() + draw.to(disorder);
    story.sent.push_back(std::move(s));
  };
  for (std::size_t source = 0; source < 2; ++source) {
    const Time events = draw.to(9);
    for (Time e = 0; e < events; ++e) {
      const Key key = static_cast<Key>(e) * 7 + source;
      const Time begin = draw.to(kSpan);
      Time end = draw.one_in(5) ? kForever : begin + 1 + draw.to(12);
      const Row row{in(draw.to(2)), in(draw.to(4))};
      send({0, source, key, begin, end, true, row});
      while (draw.one_in(3) && end > begin) {
        end = begin + draw.to(std::min<Time>(end - begin - 1, 15));
        send({0, source, key, begin, end, false, row});
      }
      if (end > begin) story.ideal[source].push_back({begin, end, row});
    }
  }
  std::stable_sort(story.sent.begin(), story.sent.end(),
                   [](const Sent& a, const Sent& b) { return a.arrival < b.arrival; });
  return story;
}

/// A random program, built and answered by definition at the same time. `table` is the ideal one
/// while rows are packaged as they came; behind joins and aggregates only `holds` counts.
struct Program {
  Stream stream;
  std::optional<Table> table;
  Holding holds;
};

Table altered(const Table& table, const Lifetimes& lifetimes) {
  Table out;
  for (const Lived& row : table) {
    Time begin = row.begin, end = row.end;
    switch (lifetimes.kind) {
      case Lifetimes::Kind::sliding:
        end = end - begin < lifetimes.size || end == kForever ? end : begin + lifetimes.size;
        if (row.end == kForever) end = begin + lifetimes.size;
        break;
      case Lifetimes::Kind::hopping:
        begin = begin / lifetimes.hop * lifetimes.hop;
        end = begin + lifetimes.size;
        break;
      case Lifetimes::Kind::extend: end = kForever; break;
      case Lifetimes::Kind::deletes:
        if (end == kForever) continue;
        begin = end;
        end = kForever;
        break;
    }
    out.push_back({begin, end, row.payload});
  }
  return out;
}

Program of_table(Stream stream, Table table) {
  Holding holds = holding(table);
  return {std::move(stream), std::move(table), std::move(holds)};
}

std::int64_t number(const Row& row, std::size_t c) { return std::get<std::int64_t>(row[c]); }

Program selected(const Program& p) {
  const auto f = [](const Rows& rows) {
    Rows out;
    for (const Row& row : rows)
      if (number(row, 1) > 1) out.insert(row);
    return out;
  };
  Program out{p.stream.select(field("v") > 1), std::nullopt, at_each_time(p.holds, f)};
  if (p.table) {
    out.table.emplace();
    for (const Lived& row : *p.table)
      if (number(row.payload, 1) > 1) out.table->push_back(row);
  }
  return out;
}

Program projected(const Program& p) {
  const auto map = [](const Row& row) {
    return Row{in(number(row, 1) % 2), in(number(row, 0) + number(row, 1))};
  };
  Program out{p.stream.project({{"k", field("v") % 2}, {"v", field("k") + field("v")}}),
              std::nullopt, at_each_time(p.holds, [&](const Rows& rows) {
                Rows mapped;
                for (const Row& row : rows) mapped.insert(map(row));
                return mapped;
              })};
  if (p.table) {
    out.table.emplace();
    for (const Lived& row : *p.table) out.table->push_back({row.begin, row.end, map(row.payload)});
  }
  return out;
}

Program windowed(const Program& p, Draw& draw) {
  const Time size = 1 + draw.to(8), hop = 1 + draw.to(6);
  const std::array all{Lifetimes::sliding(size), Lifetimes::hopping(hop, size),
                       Lifetimes::tumbling(size), Lifetimes::extend(), Lifetimes::deletes()};
  const Lifetimes& lifetimes = all[static_cast<std::size_t>(draw.to(4))];
  return of_table(p.stream.alter_lifetime(lifetimes), altered(*p.table, lifetimes));
}

Program joined(const Program& a, const Program& b, bool by_key) {
  const Stream s = by_key ? a.stream.join(b.stream, {"k"}) : a.stream.join(b.stream);
  Holding holds;
  for (std::size_t t = 0; t < a.holds.size(); ++t) {
    Rows& rows = holds.emplace_back();
    for (const Row& left : a.holds[t])
      for (const Row& right : b.holds[t])
        if (!by_key || left[0] == right[0])
          rows.insert({left[0], in(number(left, 1) + number(right, 1))});
  }
  return {s.project({{"k", field("k")}, {"v", field("v") + field("v_right")}}), std::nullopt,
          holds};
}

Program united(const Program& a, const Program& b) {
  Holding holds = a.holds;
  for (std::size_t t = 0; t < holds.size(); ++t)
    holds[t].insert(b.holds[t].begin(), b.holds[t].end());
  Program out{a.stream.unite(b.stream), std::nullopt, holds};
  if (!a.table || !b.table) return out;
  out.table = *a.table;
  out.table->insert(out.table->end(), b.table->begin(), b.table->end());
  return out;
}

Program aggregated(const Program& p, Draw& draw) {
  using Values = std::vector<std::int64_t>;
  const auto total = [](const Values& v) {
    return std::accumulate(v.begin(), v.end(), std::int64_t{0});
  };
  struct Kind {
    AggregateSpec spec;
    std::function<std::int64_t(const Values&)> value;
  };
  const std::array<Kind, 5> kinds{
      Kind{count("v"), [](const Values& v) { return static_cast<std::int64_t>(v.size()); }},
      Kind{sum("v", "v"), total},
      Kind{events::min("v", "v"),
           [](const Values& v) { return *std::min_element(v.begin(), v.end()); }},
      Kind{events::max("v", "v"),
           [](const Values& v) { return *std::max_element(v.begin(), v.end()); }},
      Kind{mean("v", "m"), {}}};
  const Kind& kind = kinds[static_cast<std::size_t>(draw.to(4))];
  if (kind.value) {
    const auto reduce = [&](const Values& v) { return Row{in(kind.value(v))}; };
    return {p.stream.aggregate({"k"}, {kind.spec}), std::nullopt,
            at_each_time(p.holds, [&](const Rows& rows) { return grouped(rows, 0, reduce, 1); })};
  }
  // a mean is real: its comparison is a number again
  const auto reduce = [&](const Values& v) {
    return Row{in(static_cast<double>(total(v)) / static_cast<double>(v.size()) > 1.5)};
  };
  return {
      p.stream.aggregate({"k"}, {kind.spec}).project({{"k", field("k")}, {"v", field("m") > 1.5}}),
      std::nullopt,
      at_each_time(p.holds, [&](const Rows& rows) { return grouped(rows, 0, reduce, 1); })};
}

/// One operator, or a few behind each other. `has_window`: it sees how events are packaged.
Program draw_program(Draw& draw, const Program& a, const Program& b, bool& has_window) {
  Program p = draw.one_in(2) ? a : b;
  const Time steps = 1 + draw.to(2);
  for (Time s = 0; s < steps; ++s) switch (draw.to(6)) {
      case 0: p = selected(p); break;
      case 1: p = projected(p); break;
      case 2: p = joined(p, b, true); break;
      case 3: p = joined(a, p, draw.one_in(2)); break;
      case 4: p = united(p, draw.one_in(2) ? p : b); break;
      case 5: p = aggregated(p, draw); break;
      default:
        if (!p.table) break;
        p = windowed(p, draw);
        has_window = true;
    }
  return p;
}

std::string describe(const Query& q, const Story& story, const History& output) {
  std::string out = q.explain();
  for (const Sent& s : story.sent)
    out += s.is_insert ? fmt::format("{}: I({},[{},{}):{})\n", s.source, s.key, s.begin, s.end,
                                     text_of(s.row))
                       : fmt::format("{}: R({},{})\n", s.source, s.key, s.end);
  return out + "output " + text_of(canonical(output));
}

/// Feeds the story in batches, and compares at guarantees, at barriers and at the end.
bool conforms(std::uint64_t seed, const Consistency& level) {
  Draw draw{std::mt19937_64(seed * 2654435761u)};
  const Story story = draw_story(draw);
  Query q;
  const std::array streams{q.source("a", kPair), q.source("b", kPair)};
  bool has_window = false;
  const Program program = draw_program(draw, of_table(streams[0], story.ideal[0]),
                                       of_table(streams[1], story.ideal[1]), has_window);
  q.output("out", program.stream);
  q.set_consistency(level);

  History output;
  bool is_sound = true;
  Time promised = kNever, last_sync = kNever;
  DirectRun run(q, [&](std::size_t, const Batch& batch) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      is_sound &= batch.sync(i) > promised;                          // no broken guarantee
      is_sound &= !level.is_strong() || batch.sync(i) >= last_sync;  // in order
      is_sound &=
          batch.is_insert(i) ? batch.begin[i] < batch.end[i] : batch.end[i] < batch.old_end[i];
      last_sync = std::max(last_sync, batch.sync(i));
    }
    promised = std::max(promised, batch.guarantee);
    output.add(batch);
  });
  const auto holds = [&](Time from, Time to) {
    const Holding got = holding(canonical(output));
    for (Time t = std::max<Time>(0, from); t <= std::min(to, kLast); ++t)
      if (got[static_cast<std::size_t>(t)] != program.holds[static_cast<std::size_t>(t)])
        return false;
    return true;
  };
  const bool is_weak = level.memory != kForever;
  std::array<Batch, 2> batches{Batch(kPair), Batch(kPair)};
  const auto feed = [&](std::size_t source) {
    run.feed(source, std::exchange(batches[source], Batch(kPair)));
  };
  std::size_t next_barrier = 0;
  for (std::size_t i = 0; i <= story.sent.size(); ++i) {
    const Time epoch = i < story.sent.size() ? story.sent[i].arrival / 1000
                                             : static_cast<Time>(story.barriers.size());
    for (; static_cast<Time>(next_barrier) < epoch; ++next_barrier) {
      for (const std::size_t source : {0, 1}) {
        batches[source].guarantee = story.barriers[next_barrier];
        feed(source);
      }
      const Time at = story.barriers[next_barrier];
      if (!is_weak) is_sound &= holds(0, has_window ? promised : at);
      else if (!has_window) is_sound &= holds(at, at);
    }
    if (i == story.sent.size()) break;
    const Sent& s = story.sent[i];
    if (s.is_insert) batches[s.source].insert(s.key, s.begin, s.end, s.row);
    else batches[s.source].retract(s.key, s.end);
    if (draw.one_in(3)) {  // a true guarantee now and then
      Time least = kLast;
      for (std::size_t j = i + 1; j < story.sent.size(); ++j)
        if (story.sent[j].source == s.source) least = std::min(least, story.sent[j].sync());
      if (draw.one_in(2)) batches[s.source].guarantee = std::min(least - 1, s.sync());
      if (batches[s.source].guarantee < 0) batches[s.source].guarantee = kNever;
      feed(s.source);
      if (!is_weak && promised >= 0) is_sound &= holds(0, promised);
    }
  }
  for (const std::size_t source : {0, 1}) feed(source);
  run.finish();
  if (!is_weak) is_sound &= holds(0, kLast);
  else if (!has_window) is_sound &= holds(2 * kSpan, kLast);
  std::uint64_t refused = 0;
  for (const Counters& c : run.counters()) refused += c.refused;
  if (level.memory == kForever)
    BOOST_CHECK_MESSAGE(refused == 0, "seed " << seed << "\n" << text_of(run.counters()));
  BOOST_CHECK_MESSAGE(is_sound, "seed " << seed << " B " << level.blocking << " M " << level.memory
                                        << "\n"
                                        << describe(q, story, output));
  return is_sound;
}

void check_level(const Consistency& level) {
  const Seeds drawn = seeds(1500, 3);
  int failed = 0;
  for (std::uint64_t seed = drawn.first; seed < drawn.first + drawn.count && failed < 3; ++seed)
    failed += !conforms(seed, level);
}
}  // namespace

BOOST_AUTO_TEST_CASE(strong_output_equals_the_ideal_table) { check_level(Consistency::strong()); }
BOOST_AUTO_TEST_CASE(middle_output_equals_the_ideal_table) { check_level(Consistency::middle()); }
BOOST_AUTO_TEST_CASE(levels_between_equal_the_ideal_table) {
  check_level({3, kForever});
  check_level({9, kForever});
}
BOOST_AUTO_TEST_CASE(weak_output_is_right_at_sync_points) {
  check_level(Consistency::weak(4));
  check_level(Consistency::weak(0));
  check_level({2, 6});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
