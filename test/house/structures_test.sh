#!/usr/bin/env bash
# test/house/structures_test.sh SOURCE BUILD: mistakes that the compiler finds, such as branches
# that yield different structures of equally many expressions, are one short error that names the
# remedy.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check() {
  c++ -std=c++20 -DFMT_SHARED -I"$2/include" -isystem /usr/include/eigen3 -fsyntax-only \
    -fmax-errors=0 "$work/$1.cpp" 2>"$work/$1.log"
}

cat >"$work/head.hpp" <<'END'
#include <troupe/troupe.hpp>
using namespace troupe;
struct A { Expr x, y; auto members() { return std::tie(x, y); } };
struct B { Expr y, x; auto members() { return std::tie(y, x); } };
END

# E7, among others
cat >"$work/same.cpp" <<'END'
#include "head.hpp"
void build(Graph& g, Expr p, Expr x, Expr xs, Variable v) {
  (void)(v && v), (void)(v && p), (void)(p && v), (void)(v && true), (void)(true && v);
  (void)(v || v), (void)(v || p), (void)(p || v), (void)(v || true), (void)(true || v);
  (void)!v;
  (void)cond(p, [&] { return A{x, x}; }, [&] { return A{x, x}; });
  (void)cond(p, [&] { return x; }, [&] { return 1.0; });
  (void)cond(p, [&] { return std::tuple{x, 1}; }, [&] { return std::tuple{2.0, x}; });
  (void)while_loop([](A a) { return a.x < 1.0; }, [](A a) { return a; }, A{x, x});
  (void)while_loop([](Expr a, Expr) { return a < 1.0; },
                   [](Expr a, Expr b) { return std::tuple{a, b}; }, std::tuple{1.0, x});
  (void)fold_left([](A a, Expr) { return a; }, xs, A{x, x});
  GraphFunction<A(Expr)> f(g, "f", {x.spec()}, [](Expr a) { return A{a, a}; });
  (void)clip_by_global_norm({x}, 1.0);
  (void)Adam({}).apply({x}, {Variable()});
  Engine engine({});
  (void)while_loop([](Expr i, const Exprs&) { return i < 3; },
                   [](Expr i, Exprs v) { return std::tuple{i + 1, v}; },
                   std::tuple{x, std::vector<Expr>{x, x}});
}
END

# D4
cat >"$work/different.cpp" <<'END'
#include "head.hpp"
void build(Graph& g, Expr p, Expr x, Expr xs) {
  (void)cond(p, [&] { return A{x, x}; }, [&] { return B{x, x}; });
  (void)cond(p, [&] { return std::tuple{x, x}; }, [&] { return std::pair{x, x}; });
  (void)while_loop([](A a) { return a.x < 1.0; }, [](A a) { return B{a.y, a.x}; }, A{x, x});
  (void)fold_left([](A a, Expr) { return B{a.y, a.x}; }, xs, A{x, x});
  (void)scan([](A a, Expr) { return B{a.y, a.x}; }, xs, A{x, x});
  (void)dynamic_rnn([](A a, Expr) { return B{a.y, a.x}; }, xs, A{x, x});
  GraphFunction<A(Expr)> f(g, "f", {x.spec()}, [](Expr a) { return B{a, a}; });
}
END

check same "$2" || { cat "$work/same.log" && exit 1; }
! check different "$2" || { echo "different structures compile" && exit 1; }
for what in 'cond: its branches yield different structures; let both' \
  'while_loop: its body yields another structure than its initial value has; let it' \
  'scan: its step yields another structure than the initial state has; let it' \
  'fold: its step yields another structure than the initial state has; let it' \
  'dynamic_rnn: its cell yields another structure than the initial state has; let it' \
  'GraphFunction: its body yields another structure than its signature; let it'; do
  grep -q "static assertion failed: $what" "$work/different.log" ||
    { cat "$work/different.log" && exit 1; }
done
# Each of the seven: cond twice, a loop, three steps, a function.
lines=$(grep -o 'different.cpp:[0-9]*' "$work/different.log" | sort -u | wc -l)
[ "$lines" -ge 7 ] ||
  { cat "$work/different.log" && echo "$lines lines are refused, not 7" && exit 1; }

# Mistakes, each of types of its own, after a comment that says a part of the error: one
# static_assert of at most 15 lines that names a line of the mistake.
# E8, A30
cat >"$work/mistakes.cpp" <<'END'
#include <troupe/troupe.hpp>
using namespace troupe;
struct P {
  Expr a, b;
};
struct Q {
  Expr a, b;
};
struct R {
  int a;
  auto members() { return std::tie(a); }
};
void build(Graph& g, Expr p, Expr x, Expr xs, Variable w) {
  Expr r;
  // are no structure of expressions
  (void)while_loop([](P s) { return s.a < 3; }, [](P s) { return s; }, P{x, x});
  // are no structure of expressions
  (void)while_loop([](R) { return Expr(); }, [](R s) { return s; }, R{1});
  // its condition does not take
  (void)while_loop([](Expr i) { return i < 3; },
                   [](Expr i, Expr s) {
                     return std::tuple{i, s};
                   },
                   std::tuple{x, x});
  // its condition does not take
  (void)while_loop([](Expr i, Expr s) { return i < s; }, [](Expr i) { return i; }, x);
  // its body does not take
  (void)while_loop([](Expr i, Expr) { return i < 3; },
                   [](Expr i) {
                     return std::tuple{i, i};
                   },
                   std::tuple{x, x});
  // its body yields another structure
  (void)while_loop([](Expr i) { return i < 3; }, [](Expr) {}, x);
  // its condition yields no expression
  (void)while_loop([](Expr) { return true; }, [](Expr i) { return i; }, x);
  // at most one vector
  (void)while_loop([](Exprs a, Exprs) { return a[0]; }, [](Exprs a, Exprs) { return a; },
                   std::tuple{Exprs{x}, Exprs{x}});
  // for_loop: its body does not take
  (void)for_loop(
      0, 10, [](Expr s) { return s; }, x);
  // for_loop: its body yields another
  (void)for_loop(
      0, 10,
      [](Expr, Expr s) {
        return std::pair{s, s};
      },
      x);
  // a branch is a function without parameters
  (void)cond(p, x, [&] { return x; });
  // a branch is a function without parameters
  (void)cond(
      p, [](Expr e) { return e; }, [&] { return x; });
  // case_of: its branches yield different
  (void)case_of({{p, [&] { return std::pair{x, x}; }}}, [&] { return x; });
  // when: its effects are a function
  (void)when(p, x);
  // the step does not take
  (void)scan([](Expr s) { return s; }, xs, x);
  // map: its function does not take
  (void)map([](Expr s, Expr) { return s; }, xs);
  // the step does not take
  (void)dynamic_rnn([](Expr s) { return s; }, xs, x);
  // its body does not take the parameters
  GraphFunction<Expr(Expr)> f(g, "f", {x.spec()}, [](Expr a, Expr) { return a; });
  // an operand is an expression, a variable
  r = x + std::vector<float>(3);
  // an operand is an expression, a variable
  r = std::vector<double>(3) * x;
  // an operand is an expression, a variable
  r = x + std::string("a");
  // an operand is an expression, a variable
  r = x == "abc";
  // an operand is an expression, a variable
  r = relu(std::vector<int>{1, 2});
  // an operand is an expression, a variable
  r = w.assign(std::vector<long>{1, 2});
  // meets a value that is no operand
  r = x - Exprs{x};
  // meets a value that is no operand
  r = Q{x, x} / x;
  // an operand is an expression, a variable
  r += std::vector<short>{1};
  // a tape watches
  GradientTape().watch(std::vector<float>{1, 2});
}
END
! check mistakes "$2" || { echo "mistakes compile" && exit 1; }
python3 - "$work/mistakes.cpp" "$work/mistakes.log" <<'END'
import re, sys
source, log = open(sys.argv[1]).read().split("\n"), open(sys.argv[2]).read()
wanted = {n: line[5:] for n, line in enumerate(source, 1) if line.startswith("  // ")}
last = dict(zip(wanted, [n - 1 for n in list(wanted)[1:]] + [len(source)]))
errors = re.findall(r"error: .*", log)
bad = [e for e in errors if "static assertion failed" not in e]
if bad or len(errors) != len(wanted) or len(log.split("\n")) > 15 * len(wanted):
    sys.exit("%s\n%d errors for %d mistakes: %s" % (log, len(errors), len(wanted), bad))
# An error's lines: from where it is instantiated to the next one.
blocks = re.split(r"(?<=\n)(?=[^\n]*: In (?:instantiation|substitution|static member)[^\n]*)", log)
for n, text in wanted.items():
    names = re.compile(r"mistakes\.cpp:(%s):" % "|".join(map(str, range(n, last[n] + 1))))
    if not any(names.search(b) and text in b for b in blocks):
        sys.exit("%s\nno error at lines %d to %d says: %s" % (log, n, last[n], text))
END
