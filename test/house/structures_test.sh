#!/usr/bin/env bash
# test/house/structures_test.sh SOURCE BUILD: branches, or a body and its initial value, do not
# compile if they yield different structures of equally many expressions; the compiler names the
# remedy.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check() {
  c++ -std=c++20 -DFMT_SHARED -I"$2/include" -isystem /usr/include/eigen3 -fsyntax-only \
    -fmax-errors=0 "$work/$1.cpp" 2>"$work/$1.log"
}

cat >"$work/head.hpp" <<'END'
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>
using namespace troupe;
struct A { Expr x, y; auto members() { return std::tie(x, y); } };
struct B { Expr y, x; auto members() { return std::tie(y, x); } };
END

cat >"$work/same.cpp" <<'END'
#include "head.hpp"
void build(Graph& g, Expr p, Expr x, Expr xs) {
  (void)cond(p, [&] { return A{x, x}; }, [&] { return A{x, x}; });
  (void)cond(p, [&] { return x; }, [&] { return 1.0; });
  (void)cond(p, [&] { return std::tuple{x, 1}; }, [&] { return std::tuple{2.0, x}; });
  (void)while_loop([](A a) { return a.x < 1.0; }, [](A a) { return a; }, A{x, x});
  (void)while_loop([](Expr a, Expr) { return a < 1.0; },
                   [](Expr a, Expr b) { return std::tuple{a, b}; }, std::tuple{1.0, x});
  (void)fold_left([](A a, Expr) { return a; }, xs, A{x, x});
  GraphFunction<A(Expr)> f(g, "f", {x.spec()}, [](Expr a) { return A{a, a}; });
}
END

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
