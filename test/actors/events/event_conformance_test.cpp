// The conformance property: for every operator and level, random disorder within the guarantees
// gives the canonical table of the ideal stream. TROUPE_SEED=n tries one history.
#include <troupe/actors/events/pattern.hpp>

#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include <troupe/devices/base/error.hpp>
#include <troupe/test/actors/events/event_oracle.hpp>
#include <troupe/test/actors/events/pattern_oracle.hpp>
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
      case Lifetimes::Kind::clip:
        begin = std::max(begin, lifetimes.from);
        end = std::min(end, lifetimes.to);
        if (begin >= end) continue;
        break;
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
  const std::array all{Lifetimes::sliding(size),  Lifetimes::hopping(hop, size),
                       Lifetimes::tumbling(size), Lifetimes::extend(),
                       Lifetimes::deletes(),      Lifetimes::clip(hop, hop + 3 * size)};
  const Lifetimes& lifetimes = all[static_cast<std::size_t>(draw.to(5))];
  return of_table(p.stream.alter_lifetime(lifetimes), altered(*p.table, lifetimes));
}

/// Chains of begins that are less than the gap apart, of each k.
Program in_sessions(const Program& p, Draw& draw) {
  const Time gap = 1 + draw.to(7);
  Table table;
  for (const Lived& row : *p.table) {
    Time begin = row.begin, last = row.begin;
    for (bool is_grown = true; is_grown;) {
      is_grown = false;
      for (const Lived& other : *p.table) {
        if (other.payload[0] != row.payload[0] || (other.begin >= begin && other.begin <= last))
          continue;
        if (other.begin <= begin - gap || other.begin >= last + gap) continue;
        begin = std::min(begin, other.begin);
        last = std::max(last, other.begin);
        is_grown = true;
      }
    }
    table.push_back({begin, last + gap, row.payload});
  }
  return of_table(p.stream.session(gap, {"k"}), table);
}

Program differed(const Program& a, const Program& b) {
  Holding holds;
  for (std::size_t t = 0; t < a.holds.size(); ++t) {
    Rows rows = a.holds[t];
    for (const Row& row : b.holds[t])
      if (const auto it = rows.find(row); it != rows.end()) rows.erase(it);
    holds.push_back(std::move(rows));
  }
  return {a.stream.subtract(b.stream), std::nullopt, holds};
}

Program topped(const Program& p, Draw& draw) {
  const std::int64_t most = 1 + draw.to(2);
  return {
      p.stream.top(most, "v", {"k"}), std::nullopt, at_each_time(p.holds, [&](const Rows& rows) {
        std::map<Value, std::vector<Row>> groups;
        for (const Row& row : rows) groups[row[0]].push_back(row);
        Rows out;
        for (auto& [k, group] : groups) {
          std::sort(group.begin(), group.end(),
                    [](const Row& x, const Row& y) { return x[1] != y[1] ? x[1] > y[1] : x < y; });
          for (std::size_t i = 0; i < group.size() && i < static_cast<std::size_t>(most); ++i)
            out.insert(group[i]);
        }
        return out;
      })};
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
  const auto at_rank = [](Values v, double q) {
    std::sort(v.begin(), v.end());
    std::size_t rank = 0;
    while (static_cast<double>(rank + 1) < q * static_cast<double>(v.size())) ++rank;
    return v[rank];
  };
  const auto distinct = [](const events::Values& values) {
    return Value(static_cast<std::int64_t>(values.size()));
  };
  const std::array<Kind, 7> kinds{
      Kind{count("v"), [](const Values& v) { return static_cast<std::int64_t>(v.size()); }},
      Kind{sum("v", "v"), total},
      Kind{events::min("v", "v"),
           [](const Values& v) { return *std::min_element(v.begin(), v.end()); }},
      Kind{events::max("v", "v"),
           [](const Values& v) { return *std::max_element(v.begin(), v.end()); }},
      Kind{quantile(0.75, "v", "v"), [&](const Values& v) { return at_rank(v, 0.75); }},
      Kind{user("v", "v", Type::integer, distinct),
           [](const Values& v) {
             return static_cast<std::int64_t>(std::set<std::int64_t>(v.begin(), v.end()).size());
           }},
      Kind{mean("v", "m"), {}}};
  const Kind& kind = kinds[static_cast<std::size_t>(draw.to(6))];
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

/// A random pattern over the tables of both programs, with its meaning.
struct PatternDraw {
  Draw& draw;
  const std::array<const Program*, 2> sources;
  PatternOracle oracle = {};
  std::vector<std::string> names = {};
  std::vector<std::size_t> visible = {};  // leaves that contribute

  using Drawn = std::pair<Pattern, PatternOracle::Tree>;
  Drawn leaf(bool contributes) {
    const Program& of = *sources[static_cast<std::size_t>(draw.to(1))];
    const std::size_t index = oracle.leaves++;
    names.push_back(fmt::format("x{}", index));
    if (contributes) visible.push_back(index);
    PatternOracle::Tree tree{Pattern::Kind::event};
    tree.leaf = index;
    tree.table = &*of.table;
    return {event(of.stream, names.back()), tree};
  }
  Drawn any_of(int depth, bool contributes) {
    if (depth == 0 || oracle.leaves > 2) return leaf(contributes);
    switch (draw.to(6)) {
      case 0: return leaf(contributes);
      case 1:
      case 2: return combination(depth, contributes, draw.one_in(2));
      case 3:
      case 4: return unless_of(depth, contributes);
      case 5: return guard(depth, contributes);
      default: {
        auto [a, x] = any_of(depth - 1, contributes);
        auto [b, y] = any_of(0, false);
        return {cancel_when(a, b), {Pattern::Kind::cancel_when, 0, 0, {x, y}}};
      }
    }
  }
  Drawn combination(int depth, bool contributes, bool is_sequence) {
    const auto size = static_cast<std::size_t>(1 + draw.to(2));
    std::vector<Pattern> parts;
    PatternOracle::Tree tree{is_sequence ? Pattern::Kind::sequence : Pattern::Kind::at_least,
                             1 + draw.to(11)};
    for (std::size_t p = 0; p < size; ++p) {
      auto [pattern, of] = any_of(depth - 1, contributes);
      Selection selection = Selection::each;
      if (draw.one_in(4)) selection = draw.one_in(2) ? Selection::first : Selection::last;
      if (selection == Selection::first) pattern = pattern.first();
      if (selection == Selection::last) pattern = pattern.last();
      const bool is_consumed = draw.one_in(4);
      if (is_consumed) pattern = pattern.consume();
      parts.push_back(pattern);
      tree.parts.push_back(of);
      tree.selections.push_back(selection);
      tree.consumes.push_back(is_consumed);
    }
    if (is_sequence) return {sequence(parts, tree.within), tree};
    tree.count = 1 + static_cast<std::size_t>(draw.to(static_cast<Time>(size) - 1));
    return {at_least(static_cast<std::int64_t>(tree.count), parts, tree.within), tree};
  }
  Drawn unless_of(int depth, bool contributes) {
    auto [a, x] = any_of(depth - 1, contributes);
    auto [b, y] = any_of(draw.one_in(3) ? 1 : 0, false);
    const Time within = 1 + draw.to(7);
    const std::size_t count = draw.one_in(3) ? 1 : 0;
    return {count > 0 ? unless(a, b, 1, within) : unless(a, b, within),
            {Pattern::Kind::unless, within, count, {x, y}}};
  }
  Drawn guard(int depth, bool contributes) {
    auto [a, x] = combination(depth, contributes, draw.one_in(2));
    auto [b, y] = any_of(0, false);
    return {without(b, a), {Pattern::Kind::without, 0, 0, {x, y}}};
  }
};

Program patterned(const Program& a, const Program& b, Draw& draw) {
  PatternDraw of{draw, {&a, &b}};
  const auto [pattern, tree] = of.any_of(2, true);
  MatchOptions options;
  const bool has_key = draw.one_in(2);
  if (has_key) options.equal = {"k"};
  std::vector<std::string> names = of.names;
  if (of.visible.size() > 1 && draw.one_in(2)) {  // a condition between two events that occur
    const std::size_t x = of.visible[0], y = of.visible.back();
    options.where = field(names[x] + ".v") <= field(names[y] + ".v");
    of.oracle.conditions.push_back(
        {x, y, [](const Row& r, const Row& s) { return number(r, 1) <= number(s, 1); }});
  }
  if (tree.kind == Pattern::Kind::unless && tree.parts[1].kind == Pattern::Kind::event &&
      draw.one_in(2)) {  // into the negation
    const std::size_t x = of.visible.back(), y = tree.parts[1].leaf;
    const Formula injected = field(names[x] + ".v") != field(names[y] + ".v");
    options.where = options.where ? *options.where && injected : injected;
    of.oracle.conditions.push_back(
        {x, y, [](const Row& r, const Row& s) { return number(r, 1) != number(s, 1); }});
  }
  Formula sum = 0;
  for (const std::size_t l : of.visible)
    sum = sum * 3 + field(names[l] + ".v") + 2 * field(names[l] + ".k");
  options.output = {{"k", field("root")}, {"v", sum}};
  Table table;
  for (std::int64_t k = 0; k < (has_key ? 3 : 1); ++k) {
    std::vector<Table> kept;  // tables of one key
    kept.reserve(of.oracle.leaves);
    const std::function<void(PatternOracle::Tree&)> restrict_to = [&](PatternOracle::Tree& t) {
      if (t.kind == Pattern::Kind::event && has_key) {
        Table& rows = kept.emplace_back();
        for (const Lived& row : *t.table)
          if (number(row.payload, 0) == k) rows.push_back(row);
        t.table = &rows;
      }
      for (PatternOracle::Tree& part : t.parts) restrict_to(part);
    };
    PatternOracle::Tree restricted = tree;
    restrict_to(restricted);
    for (const MatchPtr& match : of.oracle.matches(restricted)) {
      std::vector<const PatternMatch*> by_leaf(of.oracle.leaves);
      bind_match(*match, by_leaf);
      std::int64_t v = 0;
      for (const std::size_t l : of.visible)
        v = v * 3 + (by_leaf[l] ? number(by_leaf[l]->row, 1) + 2 * number(by_leaf[l]->row, 0) : 0);
      table.push_back({match->begin, match->end, {in(match->root), in(v)}});
    }
  }
  return of_table(troupe::events::match(pattern, options), table);
}

/// One operator, or a few behind each other. `has_window`: it sees how events are packaged.
Program draw_program(Draw& draw, const Program& a, const Program& b, bool& has_window) {
  Program p = draw.one_in(2) ? a : b;
  const Time steps = 1 + draw.to(2);
  for (Time s = 0; s < steps; ++s) switch (draw.to(10)) {
      case 0: p = selected(p); break;
      case 1: p = projected(p); break;
      case 2: p = joined(p, b, true); break;
      case 3: p = joined(a, p, draw.one_in(2)); break;
      case 4: p = united(p, draw.one_in(2) ? p : b); break;
      case 5: p = aggregated(p, draw); break;
      case 6: p = differed(p, draw.one_in(2) ? a : b); break;
      case 7: p = topped(p, draw); break;
      case 8:
      case 9:
        if (!p.table) break;
        p = s > 0 || draw.one_in(4) ? in_sessions(p, draw) : patterned(p, b, draw);
        has_window = true;
        break;
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

/// Returns the query in partitions, if it has a key.
Query in_partitions(const Query& q, std::size_t partitions) {
  try {
    return partitioned(q, partitions);
  } catch (const Error&) { return q; }
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
  if (seed % 2 == 0) q = in_partitions(q, 2 + seed / 2 % 2);

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
