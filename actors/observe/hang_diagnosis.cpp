// Judges which runs hang, and why.
#include <troupe/actors/observe/hang_diagnosis.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/observe/sentences.hpp>
#include <troupe/devices/base/device_name.hpp>

namespace troupe {

using namespace sentences;

namespace {

std::string edge_of(const Wait& w, const std::string& device) {
  return w.kind == Wait::Kind::token   ? w.from + " -> " + device
         : w.kind == Wait::Kind::grant ? device + " -> " + w.from
                                       : std::string();
}

Diagnosis verdict(const RunSnapshot& run, Diagnosis::Kind kind, const std::string& device,
                  std::string text) {
  Diagnosis v;
  v.run = run.run;
  v.plan = run.plan;
  v.id = id_of(run);
  v.kind = kind;
  v.device = device;
  v.text = std::move(text);
  return v;
}

// A wait for a user's actor or at a queue is usual for up to twice its longest time so far, and for
// at least a second.
bool is_usual(const Wait& w) {
  using namespace std::chrono_literals;
  return (is_in_actor(w) || is_at_queue(w)) && w.for_so_long > 0ns &&
         w.for_so_long < std::max<std::chrono::nanoseconds>(1s, 2 * w.longest);
}

// Returns true for a kernel, including one that reads or writes a variable; for a stream that
// copies a predicate; and for a user's actor within its usual time.
bool is_computing(const Wait& w) {
  if (w.kind != Wait::Kind::kernel) return w.kind == Wait::Kind::device;
  return is_in_actor(w) ? is_usual(w) : !is_at_queue(w);
}

Diagnosis verdict(const RunSnapshot& run, const Wait& w, const std::string& device) {
  Diagnosis v =
      verdict(run, is_computing(w) ? Diagnosis::Kind::computing : Diagnosis::Kind::waiting, device,
              sentence(w, device));
  v.actor = w.what;
  v.node = w.node;
  v.tag = w.tag;
  v.from = w.from;
  v.edge = edge_of(w, device);
  v.is_usual = is_usual(w);
  v.holds_worker =
      w.kind == Wait::Kind::kernel && !is_at_queue(w) && (w.holds_worker || !is_in_actor(w));
  return v;
}

template <class Visit>
void each_wait(const RunSnapshot& run, Visit visit) {
  for (const PartitionSnapshot& p : run.partitions)
    for (const RunPart& part : p.runs)
      for (const Wait& w : part.waits) visit(w, p.device);
}

// Returns the verdict about a node that does not answer, with the first wait of the others for it.
Diagnosis silence_of(const RunSnapshot& run, const RunSnapshot::Silent& s) {
  Diagnosis v = verdict(run, Diagnosis::Kind::silence, s.node,
                        fmt::format("node '{}' takes part and does not answer: {}", s.node, s.why));
  each_wait(run, [&](const Wait& w, const std::string& device) {
    if (!v.actor.empty() || w.from.empty() || node_of(w.from) != s.node) return;
    v.text += "; " + sentence(w, device);
    v.actor = w.what, v.node = w.node, v.tag = w.tag, v.from = w.from, v.edge = edge_of(w, device);
  });
  return v;
}

// Returns the verdicts if all partitions wait for each other. A token that waits for a grant closes
// the circle: its receiver waits because of it. The verdict names the event that the partition
// without room waits for.
std::vector<Diagnosis> circle(const RunSnapshot& run, std::vector<Diagnosis> effects) {
  std::vector<Diagnosis> kept;
  each_wait(run, [&](const Wait& w, const std::string& device) {
    const auto is_of_edge = [&](const Diagnosis& v) { return v.edge == edge_of(w, device); };
    // one token for all that go that way
    if (w.kind != Wait::Kind::grant || std::any_of(kept.begin(), kept.end(), is_of_edge)) return;
    Diagnosis& v = kept.emplace_back(verdict(run, w, device));
    bool is_said = false;
    each_wait(run, [&](const Wait& other, const std::string& there) {
      if (is_said || there != w.from) return;
      is_said = true;
      v.text += ", and " + sentence(other, there);
    });
  });
  return kept.empty() ? effects : kept;
}

// Returns true if all tokens that partitions have sent for the run have arrived.
bool has_all_come(const RunSnapshot& run) {
  std::uint64_t sent = 0, received = 0;
  for (const PartitionSnapshot& p : run.partitions)
    for (const RunPart& part : p.runs) sent += part.sent, received += part.received;
  return run.is_whole && sent == received;
}

// Returns true if the partition's waits are known. An answer from before another run's kernel is
// still current, unless a token has come since, or a grant for a token that it holds. Grants are
// not counted, so a partition that holds tokens returns false.
bool tells(const RunSnapshot& run, const PartitionSnapshot& p) {
  if (!p.has_answered || !p.is_busy_for_another) return p.has_answered;
  const auto is_grant = [](const Wait& w) { return w.kind == Wait::Kind::grant; };
  const auto may_keep_tokens = [&](const RunPart& part) {
    return part.more_waits > 0 || std::any_of(part.waits.begin(), part.waits.end(), is_grant);
  };
  return has_all_come(run) && std::none_of(p.runs.begin(), p.runs.end(), may_keep_tokens);
}

}  // namespace

std::vector<Diagnosis> verdicts(const RunSnapshot& run) {
  std::vector<Diagnosis> causes, loops, effects;
  const auto is_asked = [&](const std::string& device) {
    return std::any_of(run.partitions.begin(), run.partitions.end(),
                       [&](const PartitionSnapshot& p) { return p.device == device; });
  };
  for (const RunSnapshot::Silent& s : run.silent) causes.push_back(silence_of(run, s));
  for (const PartitionSnapshot& p : run.partitions) {
    if (!tells(run, p)) {
      const bool is_in_code =
          !p.has_answered && std::any_of(p.runs.begin(), p.runs.end(),
                                         [](const RunPart& part) { return !part.waits.empty(); });
      if (is_in_code)
        for (const RunPart& part : p.runs)
          for (const Wait& w : part.waits) causes.push_back(verdict(run, w, p.device));
      if (is_in_code) continue;
      causes.push_back(
          p.busy_with.empty()
              ? verdict(run, Diagnosis::Kind::no_turn, p.device,
                        fmt::format("{} has not had its turn: all workers are busy", p.device))
              : verdict(run, Diagnosis::Kind::computing, p.device,
                        fmt::format("{} on {} is computing, and {} does nothing else meanwhile",
                                    p.busy_with, p.device, p.device)));
      causes.back().actor = p.busy_with;
      causes.back().holds_worker = !p.busy_with.empty();
      continue;
    }
    for (const RunPart& part : p.runs) {
      for (const Wait& w : part.waits) {
        const bool is_effect = (w.kind == Wait::Kind::token || w.kind == Wait::Kind::grant) &&
                               (is_asked(w.from) || !run.silent.empty());
        (is_effect ? effects : causes).push_back(verdict(run, w, p.device));
      }
      // Outer loops wait for the inner ones.
      if (part.waits.empty() && !part.loops.empty()) {
        const OpenLoop& loop = part.loops.back();
        const std::string why = why_for_ever(loop);
        loops.push_back(verdict(run, Diagnosis::Kind::loop, p.device,
                                going_on(loop, p.device, why.empty() ? seen_numbers(loop) : why)));
        loops.back().actor = loop.predicate;
        loops.back().node = loop.predicate_node;
        loops.back().tag = loop.tag;
      } else if (part.waits.empty() && part.ready > 0) {
        loops.push_back(
            verdict(run, Diagnosis::Kind::ready, p.device,
                    fmt::format("{} has {} nodes ready to fire", p.device, part.ready)));
      }
    }
  }
  if (causes.empty()) causes = std::move(loops);
  if (causes.empty() && effects.empty())
    for (const std::string& other : run.other_nodes)
      causes.push_back(verdict(run, Diagnosis::Kind::silence, other,
                               fmt::format("node '{}' has not done its part", other)));
  return causes.empty() ? circle(run, std::move(effects)) : causes;
}

// Returns true if the run has made progress: more firings or tokens, a new partition, or a kernel
// that has finished since the first look. A partition is compared only if it answered both times.
static bool has_got_on(const RunSnapshot& before, const RunSnapshot& now) {
  const auto done = [](const PartitionSnapshot& p) {
    std::array<std::uint64_t, 4> sums{};
    for (const RunPart& part : p.runs) {
      sums[0] += part.fired, sums[1] += part.sent, sums[2] += part.received;
      // A resident loop is one firing, however many iterations it runs.
      for (const OpenLoop& loop : part.loops) sums[3] += static_cast<std::uint64_t>(loop.last);
    }
    return sums;
  };
  return std::any_of(now.partitions.begin(), now.partitions.end(), [&](const PartitionSnapshot& p) {
    const auto earlier =
        std::find_if(before.partitions.begin(), before.partitions.end(),
                     [&](const PartitionSnapshot& b) { return b.device == p.device; });
    if (earlier == before.partitions.end()) return before.silent.empty();
    if (!earlier->has_answered && !earlier->busy_with.empty() && !earlier->is_busy_for_another &&
        p.busy_with != earlier->busy_with)
      return true;
    return p.has_answered && earlier->has_answered && done(p) != done(*earlier);
  });
}

// Returns true if a partition or node that was silent in the first look answers now, and tokens are
// in flight. Partitions answer one after another, so one may have sent the token that another waits
// for. The token has then been in flight only since that partition's late turn.
static bool is_just_sent(const RunSnapshot& before, const RunSnapshot& now) {
  const auto answers_now = [&](const RunSnapshot::Silent& earlier) {
    return std::none_of(now.silent.begin(), now.silent.end(),
                        [&](const RunSnapshot::Silent& s) { return s.node == earlier.node; });
  };
  const auto has_its_turn_now = [&](const PartitionSnapshot& earlier) {
    const auto is_it = [&](const PartitionSnapshot& p) {
      return p.device == earlier.device && p.has_answered;
    };
    return !earlier.has_answered &&
           std::any_of(now.partitions.begin(), now.partitions.end(), is_it);
  };
  if (has_all_come(now)) return false;
  return std::any_of(before.silent.begin(), before.silent.end(), answers_now) ||
         std::any_of(before.partitions.begin(), before.partitions.end(), has_its_turn_now);
}

// Returns true if large tokens from or to the node are in flight on a slow network. The sign is
// that more than kLarge bytes have arrived between the looks, or any while at least kMuch bytes
// wait to be sent. The bytes are those of all runs.
static bool is_on_its_way(const RunSnapshot& before, const RunSnapshot& now,
                          const std::string& node) {
  // bytes; the regular messages between nodes are less
  constexpr std::uint64_t kLarge = 1 << 20, kMuch = 1 << 16;
  const auto then = before.moved.find(node), at = now.moved.find(node);
  if (then == before.moved.end() || at == now.moved.end() || at->second <= then->second)
    return false;
  const auto unsent = now.to_move.find(node);
  return at->second > then->second + kLarge ||
         (unsent != now.to_move.end() && unsent->second >= kMuch);
}

// Returns the execution of the loop in the earlier look, or null.
static const OpenLoop* earlier_of(const RunSnapshot& before, const std::string& device,
                                  const OpenLoop& now) {
  for (const PartitionSnapshot& p : before.partitions)
    for (const RunPart& part : p.runs)
      for (const OpenLoop& then : part.loops)
        if (p.device == device && then.loop == now.loop && then.execution == now.execution)
          return &then;
  return nullptr;
}

// Returns why the predicate is true for ever, as two looks prove. Empty: not known.
static std::string why_for_ever(const OpenLoop& then, const OpenLoop& now) {
  const std::string why = why_for_ever(now);
  return why.empty() && is_always_true(then.decision, now.decision)
             ? ", and comes no nearer to being false" + seen_numbers(now)
             : why;
}

// Returns true if the operands of the loop's comparisons have yet to be observed.
static bool is_unseen(const OpenLoop& loop) {
  return loop.decision.is_followed() && !loop.decision.is_observed();
}

// Returns the waits at queues that are in both looks and that neither their run nor another run
// under way can end. They hang even if the rest of the run makes progress.
static std::vector<Diagnosis> left_alone(const RunSnapshot& before, const RunSnapshot& run,
                                         const std::vector<RunSnapshot>& all) {
  const auto others_may = [&](const Wait& w) {
    return std::any_of(all.begin(), all.end(), [&](const RunSnapshot& other) {
      const std::vector<std::string>& queues = w.puts ? other.queues.emptied : other.queues.filled;
      return id_of(other) != id_of(run) &&
             std::find(queues.begin(), queues.end(), w.state) != queues.end();
    });
  };
  const auto was_there = [&](const Wait& w, const std::string& device) {
    bool was = false;
    each_wait(before, [&](const Wait& then, const std::string& there) {
      was = was || (there == device && then.node == w.node && then.tag == w.tag &&
                    is_at_queue(then) && then.is_alone);
    });
    return was;
  };
  std::vector<Diagnosis> alone;
  each_wait(run, [&](const Wait& w, const std::string& device) {
    if (is_at_queue(w) && w.is_alone && was_there(w, device) && !others_may(w))
      alone.push_back(verdict(run, w, device));
  });
  return alone;
}

std::vector<Diagnosis> find_hangs(const std::vector<RunSnapshot>& before,
                                  const std::vector<RunSnapshot>& now, std::set<RunId>* withheld) {
  std::vector<Diagnosis> all;
  // A kernel that computes may be slow. So may be any wait for it, or for a worker of its node.
  std::set<std::string> computing;  // nodes
  for (const RunSnapshot& run : now)
    for (const Diagnosis& v : verdicts(run))
      if (v.kind == Diagnosis::Kind::computing && v.holds_worker)
        computing.emplace(node_of(v.device));
  for (const RunSnapshot& run : now) {
    const RunId id = id_of(run);
    const auto earlier = std::find_if(before.begin(), before.end(),
                                      [&](const RunSnapshot& b) { return id_of(b) == id; });
    if (earlier == before.end() || run.is_ending) continue;
    std::vector<Diagnosis> causes = verdicts(run);
    std::vector<Diagnosis> alone = left_alone(*earlier, run, now);
    const auto is_of_late = [](const Diagnosis& v) { return v.is_usual; };
    if (std::any_of(alone.begin(), alone.end(), is_of_late) && withheld) withheld->insert(id);
    std::erase_if(alone, is_of_late);
    if (!has_got_on(*earlier, run)) {
      // A kernel that computes, or a wait of usual length, may be the cause of the run's other
      // waits, also of those at a queue.
      const auto withhold = [&] {
        if (withheld) withheld->insert(id);
        return true;
      };
      const bool is_usual_here =
          std::any_of(causes.begin(), causes.end(), [](const Diagnosis& v) { return v.is_usual; });
      // The state of this run before or after another run's kernel is not known.
      const auto is_unknown = [](const RunSnapshot& look) {
        return std::any_of(
            look.partitions.begin(), look.partitions.end(),
            [&](const PartitionSnapshot& p) { return p.is_busy_for_another && !tells(look, p); });
      };
      const bool is_untold =
          (is_usual_here || is_unknown(*earlier) || is_unknown(run)) && withhold();
      const bool may_come =
          is_untold || std::any_of(causes.begin(), causes.end(), [](const Diagnosis& v) {
            return v.kind == Diagnosis::Kind::computing;
          });
      std::erase_if(causes, [&](const Diagnosis& v) {
        if (may_come && v.kind != Diagnosis::Kind::silence) return true;
        // A node that has answered once may do so again.
        const auto is_it = [&](const RunSnapshot::Silent& s) { return s.node == v.device; };
        if (v.kind == Diagnosis::Kind::silence &&
            std::none_of(earlier->silent.begin(), earlier->silent.end(), is_it))
          return true;
        const auto moves = [&](const auto& of_node) {
          return is_on_its_way(*earlier, run, of_node.first);
        };
        if (v.kind == Diagnosis::Kind::silence && is_on_its_way(*earlier, run, v.device))
          return true;
        const auto had_its_turn = [&](const PartitionSnapshot& p) {
          return p.device == v.device && p.has_answered;
        };
        if (v.kind == Diagnosis::Kind::no_turn &&
            std::any_of(earlier->partitions.begin(), earlier->partitions.end(), had_its_turn))
          return true;
        // A partition that waits for a token may depend on the token in flight through another
        // partition. Grants come ahead of all tokens.
        if (v.kind == Diagnosis::Kind::waiting && !v.edge.empty() && is_just_sent(*earlier, run))
          return withhold();
        if (v.kind == Diagnosis::Kind::waiting && !v.edge.empty() && !has_all_come(run) &&
            std::any_of(run.moved.begin(), run.moved.end(), moves))
          return true;
        if (v.kind == Diagnosis::Kind::no_turn &&
            computing.contains(std::string(node_of(v.device))))
          return true;
        return v.kind == Diagnosis::Kind::computing || v.kind == Diagnosis::Kind::ready ||
               v.kind == Diagnosis::Kind::loop;
      });
      if (causes.empty()) causes = std::move(alone);
      all.insert(all.end(), causes.begin(), causes.end());
      continue;
    }
    all.insert(all.end(), alone.begin(), alone.end());
    for (const PartitionSnapshot& p : run.partitions)
      for (const RunPart& part : p.runs)
        // an inner one may end again and again; the outermost that does not is the cause
        for (const OpenLoop& loop : part.loops) {
          const OpenLoop* then = earlier_of(*earlier, p.device, loop);
          if (!then) continue;
          const std::string why = why_for_ever(*then, loop);
          if (why.empty()) {
            // Later looks may prove it, with more iterations and with observed operands.
            if (withheld && (is_unseen(*then) || loop.may_repeat || loop.last == then->last))
              withheld->insert(id);
            continue;
          }
          Diagnosis& v = all.emplace_back(
              verdict(run, Diagnosis::Kind::loop, p.device, going_on(loop, p.device, why)));
          v.actor = loop.predicate;
          v.node = loop.predicate_node;
          v.tag = fmt::format("iteration {} of loop '{}'", loop.last, loop.loop);
          break;
        }
  }
  // A wait in a user's code that holds a worker is reported; a wait for that worker is not. A wait
  // at a queue holds no worker.
  const auto holds = [](const Diagnosis& other, const Diagnosis& v) {
    return other.kind == Diagnosis::Kind::waiting && other.holds_worker &&
           node_of(other.device) == node_of(v.device);
  };
  const std::vector<Diagnosis> named = all;
  std::erase_if(all, [&](const Diagnosis& v) {
    return v.kind == Diagnosis::Kind::no_turn &&
           std::any_of(named.begin(), named.end(),
                       [&](const Diagnosis& other) { return holds(other, v); });
  });
  return all;
}

namespace detail {

std::vector<Diagnosis> keep_what_still_stands(std::vector<Diagnosis> verdicts,
                                              const std::vector<Diagnosis>& later) {
  std::erase_if(verdicts, [&](const Diagnosis& v) {
    const auto is_it = [&](const Diagnosis& other) {
      return other.kind == v.kind && other.id == v.id && other.device == v.device;
    };
    return v.kind == Diagnosis::Kind::no_turn && std::none_of(later.begin(), later.end(), is_it);
  });
  return verdicts;
}

}  // namespace detail

static bool has_all_answered(const RunSnapshot& run) {
  return run.silent.empty() &&
         std::all_of(run.partitions.begin(), run.partitions.end(),
                     [](const PartitionSnapshot& p) { return p.has_answered; });
}

void HangDetector::add(std::vector<RunSnapshot> runs, std::chrono::nanoseconds began,
                       std::chrono::nanoseconds ended) {
  const auto look = std::make_shared<const Look>(Look{std::move(runs), began, ended});
  if (count_ == 0) first_ = ended;
  if (count_ == 1) verdicts_ = find_hangs(last_->runs, look->runs, &withheld_);
  if (count_ > 1) {
    verdicts_ = keep_what_still_stands(std::move(verdicts_), find_hangs(last_->runs, look->runs));
    judge(*look);
  }
  for (const RunSnapshot& run : look->runs) {
    if (has_all_answered(run)) whole_.try_emplace(id_of(run), look);
    else whole_.erase(id_of(run));
  }
  last_ = look;
  ++count_;
}

// Returns true if the look has the operands of all comparisons of the run's loops. Partitions
// record them from the first request on.
static bool has_seen_numbers(const std::vector<RunSnapshot>& runs, const RunId& id) {
  for (const RunSnapshot& run : runs)
    if (id_of(run) == id)
      for (const PartitionSnapshot& p : run.partitions)
        for (const RunPart& part : p.runs)
          if (std::any_of(part.loops.begin(), part.loops.end(), is_unseen)) return false;
  return true;
}

// Judges runs of which all partitions answered in both looks. A run that is reported now has made
// no progress for at least `apart_`.
void HangDetector::judge(const Look& look) {
  std::erase_if(withheld_, [&](const RunId& id) {
    const auto run = std::find_if(look.runs.begin(), look.runs.end(),
                                  [&](const RunSnapshot& r) { return id_of(r) == id; });
    if (run == look.runs.end()) return true;  // it has ended
    const auto whole = whole_.find(id);
    if (!has_all_answered(*run) || whole == whole_.end() ||
        look.began - whole->second->ended < apart_)
      return false;
    std::set<RunId> still;
    const std::vector<Diagnosis> said = find_hangs(whole->second->runs, look.runs, &still);
    if (still.contains(id)) {
      if (!has_seen_numbers(whole->second->runs, id) && has_seen_numbers(last_->runs, id))
        whole->second = last_;
      return false;
    }
    const auto is_of_run = [&](const Diagnosis& v) { return v.id == id; };
    std::erase_if(verdicts_, is_of_run);
    std::copy_if(said.begin(), said.end(), std::back_inserter(verdicts_), is_of_run);
    return true;
  });
}

// On a busy machine a worker may wait for its processor. Then the partition has its turn a little
// later, so more looks follow.
bool HangDetector::wants_more() const {
  constexpr int kMoreLooks = 5;  // looks for a partition that has had no turn
  // after the first look: the user gets an answer within two seconds
  constexpr auto kLongest = std::chrono::milliseconds(1600);
  if (count_ < 2) return true;
  if (last_->ended - first_ >= kLongest) return false;
  const bool has_no_turn = std::any_of(verdicts_.begin(), verdicts_.end(), [](const Diagnosis& v) {
    return v.kind == Diagnosis::Kind::no_turn;
  });
  return !withheld_.empty() || (has_no_turn && count_ < 2 + kMoreLooks);
}

std::vector<std::string> diagnose(const RunSnapshot& run) {
  std::vector<std::string> sentences;
  for (Diagnosis& v : verdicts(run)) sentences.push_back(std::move(v.text));
  return sentences;
}

std::vector<std::string> diagnose(const EngineSnapshot& engine) {
  std::vector<std::string> all;
  for (const RunSnapshot& run : engine.runs)
    for (const std::string& s : diagnose(run))
      all.push_back(fmt::format("run {}, for {}: {}", called(run), time_text(run.for_so_long), s));
  return all;
}

}  // namespace troupe
