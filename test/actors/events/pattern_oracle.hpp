// Matches of a pattern by definition, over whole tables: all tuples are tried, at all times. Shares
// no code with the operator.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <troupe/actors/events/pattern.hpp>
#include <troupe/actors/events/table.hpp>

namespace troupe::test {

struct PatternMatch;
using MatchPtr = std::shared_ptr<const PatternMatch>;

struct PatternMatch {
  events::Time begin, end, first, root;
  std::size_t part = 0;         // its number in its parent
  std::size_t leaf = SIZE_MAX;  // if it is an event
  events::Row row = {};
  std::vector<MatchPtr> parts = {};  // in order of time
};

/// The events of a match by leaf; none: null.
inline void bind_match(const PatternMatch& match, std::vector<const PatternMatch*>& by_leaf) {
  if (match.leaf != SIZE_MAX) by_leaf[match.leaf] = &match;
  for (const MatchPtr& part : match.parts) bind_match(*part, by_leaf);
}

/// The order of equal candidates: begin, part, payload, parts.
inline bool match_before(const PatternMatch& a, const PatternMatch& b) {
  if (a.begin != b.begin) return a.begin < b.begin;
  if (a.part != b.part) return a.part < b.part;
  if (a.row != b.row) return a.row < b.row;
  for (std::size_t p = 0; p < std::min(a.parts.size(), b.parts.size()); ++p) {
    if (match_before(*a.parts[p], *b.parts[p])) return true;
    if (match_before(*b.parts[p], *a.parts[p])) return false;
  }
  return false;
}

/// A pattern and its meaning.
struct PatternOracle {
  using Kind = events::Pattern::Kind;
  struct Condition {
    std::size_t a, b;  // leaves
    std::function<bool(const events::Row&, const events::Row&)> holds;
  };
  struct Tree {
    Kind kind;
    events::Time within = 0;
    std::size_t count = 0;
    std::vector<Tree> parts = {};
    std::vector<events::Selection> selections = {};
    std::vector<bool> consumes = {};
    std::size_t leaf = 0;
    const events::Table* table = nullptr;
  };
  std::size_t leaves = 0;
  std::vector<Condition> conditions = {};

  /// True unless a condition between events of both fails; of one alone if they are the same.
  bool agree(const std::vector<MatchPtr>& all) const {
    std::vector<const PatternMatch*> by_leaf(leaves);
    for (const MatchPtr& match : all) bind_match(*match, by_leaf);
    return std::all_of(conditions.begin(), conditions.end(), [&](const Condition& c) {
      return !by_leaf[c.a] || !by_leaf[c.b] || c.holds(by_leaf[c.a]->row, by_leaf[c.b]->row);
    });
  }

  std::vector<MatchPtr> matches(const Tree& tree, std::size_t part = 0) const {
    if (tree.kind == Kind::event) {
      std::vector<MatchPtr> all;
      for (const events::Lived& e : *tree.table)
        all.push_back(std::make_shared<PatternMatch>(
            PatternMatch{e.begin, e.end, e.begin, e.begin, part, tree.leaf, e.payload}));
      return all;
    }
    std::vector<std::vector<MatchPtr>> of;
    for (std::size_t p = 0; p < tree.parts.size(); ++p) of.push_back(matches(tree.parts[p], p));
    if (tree.kind == Kind::sequence || tree.kind == Kind::at_least)
      return combinations(tree, of, part);
    std::vector<MatchPtr> all;
    for (const MatchPtr& one : of[0]) {
      events::Time after = tree.kind == Kind::without ? one->first : one->root;
      events::Time before = one->begin, begin = one->begin, end = one->end;
      if (tree.kind == Kind::unless) {
        after = one->begin;
        if (tree.count > 0) {
          std::vector<const PatternMatch*> by_leaf(leaves);
          bind_match(*one, by_leaf);
          std::multiset<events::Time> begins;
          for (const PatternMatch* event : by_leaf)
            if (event) begins.insert(event->begin);
          after = *std::next(begins.begin(), static_cast<std::ptrdiff_t>(tree.count) - 1);
        }
        before = after + tree.within;
        begin = std::max(before, one->begin);
        end = std::max(end, begin + 1);
      }
      const bool is_negated = std::any_of(of[1].begin(), of[1].end(), [&](const MatchPtr& no) {
        return after < no->begin && no->begin < before && agree({one, no});
      });
      if (!is_negated)
        all.push_back(std::make_shared<PatternMatch>(
            PatternMatch{begin, end, one->first, one->root, part, SIZE_MAX, {}, {one}}));
    }
    return all;
  }

  std::vector<MatchPtr> combinations(const Tree& tree, const std::vector<std::vector<MatchPtr>>& of,
                                     std::size_t part) const {
    std::vector<std::vector<MatchPtr>> tuples;
    std::vector<MatchPtr> chosen;
    const std::function<void(std::size_t)> choose = [&](std::size_t p) {
      if (p == of.size()) {
        if (chosen.size() != (tree.kind == Kind::sequence ? of.size() : tree.count)) return;
        std::vector<MatchPtr> tuple = chosen;
        std::stable_sort(tuple.begin(), tuple.end(),
                         [](auto& a, auto& b) { return a->begin < b->begin; });
        for (std::size_t i = 1; i < tuple.size(); ++i) {
          if (tuple[i - 1]->begin == tuple[i]->begin) return;
          if (tree.kind == Kind::sequence && tuple[i]->part != i) return;
        }
        if (tuple.back()->begin - tuple[0]->begin >= tree.within || !agree(tuple)) return;
        return tuples.push_back(std::move(tuple));
      }
      if (tree.kind == Kind::at_least) choose(p + 1);
      for (const MatchPtr& one : of[p]) {
        chosen.push_back(one);
        choose(p + 1);
        chosen.pop_back();
      }
    };
    choose(0);
    std::set<events::Time> times;
    for (const auto& tuple : tuples) times.insert(tuple.back()->begin);
    std::set<MatchPtr> used;
    std::vector<MatchPtr> all;
    for (const events::Time t : times) {
      auto here = tuples;
      std::erase_if(here, [&](const auto& tuple) {
        return tuple.back()->begin != t ||
               std::any_of(tuple.begin(), tuple.end(),
                           [&](const MatchPtr& m) { return used.contains(m); });
      });
      for (std::size_t p = 0; p < of.size(); ++p) {
        if (tree.selections[p] == events::Selection::each) continue;
        const auto in = [p](const std::vector<MatchPtr>& tuple) {
          for (const MatchPtr& m : tuple)
            if (m->part == p) return m;
          return MatchPtr();
        };
        MatchPtr best;
        for (const auto& tuple : here)
          if (const MatchPtr m = in(tuple);
              m &&
              (!best || (tree.selections[p] == events::Selection::first ? match_before(*m, *best)
                                                                        : match_before(*best, *m))))
            best = m;
        std::erase_if(here, [&](const auto& tuple) { return in(tuple) && in(tuple) != best; });
      }
      for (const auto& tuple : here) {
        events::Time root = t;
        for (const MatchPtr& m : tuple) {
          root = std::min(root, m->root);
          if (tree.consumes[m->part]) used.insert(m);
        }
        all.push_back(std::make_shared<PatternMatch>(PatternMatch{
            t, tuple[0]->begin + tree.within, tuple[0]->begin, root, part, SIZE_MAX, {}, tuple}));
      }
    }
    return all;
  }
};

}  // namespace troupe::test
