// Gradients that are applied as they arrive, as parts of one graph: what asynchronous training and
// training with backup workers have in common.
//
//   ArrivalStep a = data_parallel::asynchronous(replicas, losses, {w, b}, Adam());
//   engine.compile(g, {a.ticket}, {a.loss, a.train, a.applied});   // the program of an update
//   engine.compile(g, {x_r..., a.ticket}, {a.sent[r]});            // then each replica's own
//
// A replica's program reads the variables, and puts its gradient into a queue beside them. The
// program of an update waits for gradients and changes the variables. Both get a ticket
// {life, step}. A gradient of another life, as of a program that ran before a loss, is dropped:
// its rows are computed again. `Training` runs both.
//
//   replica 0 ── gradient, ticket ──┐
//   replica 1 ── gradient, ticket ──┼─► queue ─► fresh? ─► mean ─► optimizer ─► variables
//   replica 2 ── gradient, ticket ──┘     │                                        │
//        ▲                                └── stale: dropped                       │
//        └───────────────────────── read ──────────────────────────────────────────┘
#pragma once

#include <string>
#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/variable.hpp>

namespace troupe {

struct ArrivalStep {
  static constexpr int kRoom = 2;  // gradients in the queue, a replica

  Exprs sent;               // one a replica: its gradient is in the queue
  Expr ticket;              // input of all programs: i64 [2], life and step
  Expr loss, train;         // an update's
  Expr applied;             // bool: the update found a gradient that counts
  int needed = 1;           // gradients of an update
  bool drops_late = false;  // a gradient counts for the step of its ticket alone
  Variable counts;          // i64 [replicas]: gradients of each replica that are applied
  std::string queue;        // name of the queue: its first components are ticket and replica
};

}  // namespace troupe
