#include <troupe/test/support/programs/shrink.hpp>

#include <csignal>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::test {
namespace {

// TSan and processes forked from one with threads do not go together.
#if defined(__SANITIZE_THREAD__)
constexpr bool kCanFork = false;
#else
constexpr bool kCanFork = true;
#endif

class Shrinker {
 public:
  using Fails = std::function<bool(const Recipe&)>;
  Shrinker(Recipe recipe, Fails fails, int budget)
      : best_(std::move(recipe)), fails_(std::move(fails)), left_(budget) {}

  Recipe shrink() {
    for (bool changed = true; changed && left_ > 0;) {
      changed = false;
      changed |= fewer_fetches();
      changed |= fewer_statements();
      changed |= no_nesting();
      changed |= less_control_flow();
      changed |= plainer_statements();
      changed |= less_around();
    }
    return best_;
  }

 private:
  bool attempt(Recipe candidate) {
    if (left_ <= 0) return false;
    --left_;
    if (!fails_(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  // All blocks, an outer one before those in it.
  static void collect(Block& b, std::vector<Block*>& out) {
    out.push_back(&b);
    for (Statement& s : b.statements)
      for (Block& inner : s.blocks) collect(inner, out);
  }
  static std::vector<Block*> blocks_of(Recipe& r) {
    std::vector<Block*> out;
    for (Recipe::Function& f : r.functions) collect(f.step, out), collect(f.last, out);
    collect(r.body, out);
    return out;
  }
  /// Tries `edit` on every statement of every block; `edit` says whether there was anything to do.
  bool each_statement(const std::function<bool(Recipe&, Block&, std::size_t)>& edit) {
    bool changed = false;
    for (std::size_t b = 0; b < blocks_of(best_).size(); ++b)
      for (std::size_t s = 0;
           b < blocks_of(best_).size() && s < blocks_of(best_)[b]->statements.size(); ++s) {
        Recipe candidate = best_;
        if (edit(candidate, *blocks_of(candidate)[b], s)) changed |= attempt(std::move(candidate));
      }
    return changed;
  }
  template <class T>
  static void erase(std::vector<T>& v, std::size_t i) {
    if (i < v.size()) v.erase(v.begin() + static_cast<std::ptrdiff_t>(i));
  }

  bool fewer_fetches() {
    bool changed = false;
    for (std::size_t k = best_.body.results.size(); k-- > 0 && best_.body.results.size() > 1;) {
      Recipe candidate = best_;
      erase(candidate.body.results, k);
      changed |= attempt(std::move(candidate));
    }
    return changed;
  }

  // Runs of statements, long ones first, late ones first.
  bool fewer_statements() {
    bool changed = false;
    for (std::size_t b = 0; b < blocks_of(best_).size(); ++b)
      for (std::size_t length = blocks_of(best_)[b]->statements.size(); length > 0; length /= 2)
        for (std::size_t end = blocks_of(best_)[b]->statements.size(); end >= length && end > 0;
             --end) {
          if (end > blocks_of(best_)[b]->statements.size()) continue;
          Recipe candidate = best_;
          auto& s = blocks_of(candidate)[b]->statements;
          s.erase(s.begin() + static_cast<std::ptrdiff_t>(end - length),
                  s.begin() + static_cast<std::ptrdiff_t>(end));
          changed |= attempt(std::move(candidate));
          if (b >= blocks_of(best_).size()) return changed;
        }
    return changed;
  }

  // A branch or a body in place of its statement.
  bool no_nesting() {
    bool changed = false;
    for (std::size_t which = 0; which < 4; ++which)
      changed |= each_statement([&](Recipe& r, Block& b, std::size_t i) {
        Statement s = b.statements[i];
        if (which >= s.blocks.size() || (s.op == "while" && which == 0)) return false;
        Block inside = s.blocks[which];
        std::vector<std::pair<int, int>> renamed;
        if (s.op == "while") {
          for (std::size_t k = 0; k < s.in.size(); ++k) {
            renamed.emplace_back(inside.arguments[k + 1].id, s.in[k].id);
            renamed.emplace_back(s.out[k + 1].id, inside.results[k].id);
          }
        } else if (s.op == "cond" || s.op == "switch") {
          for (std::size_t k = 0; k < s.out.size(); ++k)
            renamed.emplace_back(s.out[k].id, inside.results[k].id);
        }
        erase(b.statements, i);
        b.statements.insert(b.statements.begin() + static_cast<std::ptrdiff_t>(i),
                            inside.statements.begin(), inside.statements.end());
        for (auto& [from, to] : renamed) {
          rename(r.body, from, to);
          for (auto& later : renamed)
            if (later.second == from) later.second = to;
        }
        return true;
      });
    return changed;
  }
  static void rename(Block& b, int from, int to) {
    for (Named& n : b.results)
      if (n.id == from) n.id = to;
    for (Statement& s : b.statements) {
      for (Named& n : s.in)
        if (n.id == from) n.id = to;
      for (int& a : s.after)
        if (a == from) a = to;
      for (Block& inner : s.blocks) rename(inner, from, to);
    }
  }

  // Fewer variables, results, branches, iterations.
  bool less_control_flow() {
    bool changed = false;
    for (double trips : {0.0, 1.0, 2.0, 3.0, 4.0, 16.0, 64.0, 256.0, 300.0})
      changed |= each_statement([&](Recipe&, Block& b, std::size_t i) {
        Statement& s = b.statements[i];
        if (s.op == "call" && s.numbers[1] > trips) return s.numbers[1] = trips, true;
        if (s.op != "while" || s.numbers[0] <= trips) return false;
        s.numbers[0] = trips;
        return true;
      });
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      Statement& s = b.statements[i];
      if (s.op != "while" || s.numbers[1] == 0) return false;
      s.numbers[1] = 0;
      return true;
    });
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      Statement& s = b.statements[i];
      if (s.op != "while" || s.numbers.size() < 3 || s.numbers[2] == 0) return false;
      s.numbers[2] = 0;
      return true;
    });
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      Statement& s = b.statements[i];
      if (s.op != "while" || (s.blocks[0].results.empty() && s.blocks[0].statements.empty()))
        return false;
      s.blocks[0].results.clear();
      s.blocks[0].statements.clear();
      return true;
    });
    for (std::size_t k = 4; k-- > 0;)
      changed |= each_statement([&](Recipe&, Block& b, std::size_t i) {
        Statement& s = b.statements[i];
        if (s.op == "while" && k < s.in.size()) {
          erase(s.in, k);
          erase(s.out, k + 1);
          for (Block& inner : s.blocks) erase(inner.arguments, k + 1);
          erase(s.blocks[1].results, k);
          return true;
        }
        if ((s.op == "cond" || s.op == "switch" || s.op == "map") && s.out.size() > 1 &&
            k < s.out.size()) {
          erase(s.out, k);
          for (Block& inner : s.blocks) erase(inner.results, k);
          return true;
        }
        return false;
      });
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      Statement& s = b.statements[i];
      if (s.op != "switch" || s.blocks.size() < 2) return false;
      s.blocks.pop_back();
      return true;
    });
    return changed;
  }

  // No devices, no order, constants for operands.
  bool plainer_statements() {
    bool changed = false;
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      return !std::exchange(b.statements[i].device, "").empty();
    });
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      return !std::exchange(b.statements[i].after, {}).empty();
    });
    changed |= each_statement([](Recipe&, Block& b, std::size_t i) {
      return std::exchange(b.statements[i].reverse, false);
    });
    for (int parallel : {1, 32})
      changed |= each_statement([&](Recipe&, Block& b, std::size_t i) {
        Statement& s = b.statements[i];
        if (s.blocks.empty() || s.op == "cond" || s.op == "switch" || s.parallel == parallel ||
            s.parallel == 1)
          return false;
        s.parallel = parallel;
        return true;
      });
    for (std::size_t k = 0; k < 4; ++k) {
      changed |= each_statement([&](Recipe&, Block& b, std::size_t i) {
        Statement& s = b.statements[i];
        return k < s.in.size() && std::exchange(s.in[k].id, -1) != -1;
      });
      for (std::size_t inner = 0; inner < 3; ++inner)
        changed |= each_statement([&](Recipe&, Block& b, std::size_t i) {
          Statement& s = b.statements[i];
          return inner < s.blocks.size() && k < s.blocks[inner].results.size() &&
                 std::exchange(s.blocks[inner].results[k].id, -1) != -1;
        });
    }
    return changed;
  }

  bool less_around() {
    bool changed = false;
    if (best_.runs > 1) {
      Recipe candidate = best_;
      candidate.runs = 1;
      for (Recipe::Input& in : candidate.inputs) in.values.resize(1);
      changed |= attempt(std::move(candidate));
    }
    for (std::size_t k = best_.inputs.size(); k-- > 0;) {
      Recipe candidate = best_;
      erase(candidate.inputs, k);
      changed |= attempt(std::move(candidate));
    }
    while (!best_.functions.empty()) {  // a call of one that is not there yields constants
      Recipe candidate = best_;
      candidate.functions.pop_back();
      if (!attempt(std::move(candidate))) break;
      changed = true;
    }
    for (std::size_t k = best_.variables.size(); k-- > 0;) {
      Recipe candidate = best_;
      erase(candidate.variables, k);
      changed |= attempt(std::move(candidate));
    }
    for (std::size_t k = 0; k < best_.variables.size(); ++k) {
      if (best_.variables[k].device.empty()) continue;
      Recipe candidate = best_;
      candidate.variables[k].device.clear();
      changed |= attempt(std::move(candidate));
    }
    return changed;
  }

  Recipe best_;
  Fails fails_;
  int left_;
};

}  // namespace

std::optional<std::string> apart(const std::function<std::optional<std::string>()>& f,
                                 unsigned seconds, std::chrono::milliseconds processor) {
  if (!kCanFork) return f();
  int ends[2];
  if (pipe(ends) != 0) return f();
  pid_t child = fork();
  if (child < 0) return f();
  if (child == 0) {
    for (int s : {SIGSEGV, SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGPROF}) std::signal(s, SIG_DFL);
    close(ends[0]);
    alarm(seconds);
    const itimerval limit{{0, 0}, {processor.count() / 1000, processor.count() % 1000 * 1000}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    std::optional<std::string> wrong = f();
    std::string text = wrong ? "!" + *wrong : "";
    for (std::size_t at = 0; at < text.size();) {
      ssize_t n = ::write(ends[1], text.data() + at, text.size() - at);
      if (n <= 0) break;
      at += static_cast<std::size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!text.empty()) return text.substr(1);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF
               ? std::string("it hangs")
               : fmt::format("it crashes (signal {})", WTERMSIG(status));
  return std::nullopt;
}

Recipe shrunk(Recipe recipe, const std::function<bool(const Recipe&)>& fails, int budget) {
  return Shrinker(std::move(recipe), fails, budget).shrink();
}

}  // namespace troupe::test
