// Data-parallel training: how the gradients of several replicas become one update. Each function
// adds a step to a graph; each is short, and made of parts that a program may combine itself.
//
//   using namespace data_parallel;
//   Exprs losses;                                    // one a replica, built on its device
//   Step s = synchronous(replicas, losses, {w, b}, Adam());
//   engine.compile(g, feeds, {s.loss, s.train});
//
// | function         | variables        | an update has                  | reproducible |
// |------------------|------------------|--------------------------------|--------------|
// | `synchronous`    | one, read by all | the gradients of all replicas  | yes          |
// | `by_collectives` | a copy a replica | the gradients of all replicas  | yes          |
// | `local_sgd`      | a copy a replica | one's own; copies are averaged | yes          |
// | `asynchronous`   | one, read by all | one gradient, as it arrives    | no           |
// | `with_backups`   | one, read by all | the first m of n gradients     | no           |
//
// The number of replicas is the program's. Replicas are combined in one order, whatever devices
// they are on, so reproducible steps have the same bits on one node and on many.
#pragma once

#include <source_location>
#include <vector>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/ops/collectives/arrival_step.hpp>
#include <troupe/ops/collectives/buckets.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/collectives/mirrored_variable.hpp>

namespace troupe::data_parallel {

using At = std::source_location;

struct Options {
  /// The norm of an update's gradient, of all variables and averaged over its replicas, is clipped
  /// to this (`clip_by_global_norm`). 0: it is not.
  double clip_norm = 0;
  collective::BucketOptions buckets = {};  // used by by_collectives and local_sgd
};

/// To fetch both: `loss` is the mean of the replicas' losses, a scalar on the first one's device.
struct Step {
  Expr loss, train;
};

/// All replicas read the variables; the mean of their gradients is applied once. Variables stay
/// where they are, and rows that are used sparsely stay sparse. Throws invalid_argument for another
/// number of losses than replicas, losses that are not one number, a negative clip_norm, and as
/// Optimizer::apply; so do all functions below.
Step synchronous(const collective::Group& replicas, const Exprs& losses,
                 const std::vector<Variable>& variables, const Optimizer& optimizer,
                 const Options& options = {}, At at = At::current());

/// Loss r reads copy r of each variable. Gradients are all-reduced in buckets while the backward
/// pass goes on, and each replica applies the mean to its copies. Fetch `MirroredVariable::start`
/// once before the first step.
Step by_collectives(const collective::Group& replicas, const Exprs& losses,
                    const std::vector<MirroredVariable>& variables, const Optimizer& optimizer,
                    const Options& options = {}, At at = At::current());

/// Local SGD (Stich, ICLR 2019): each replica applies its own gradient to its copies, and after
/// each `every` steps all copies become their mean. The optimizer's slots stay the replica's own.
/// Throws invalid_argument for an `every` below 1.
Step local_sgd(const collective::Group& replicas, const Exprs& losses,
               const std::vector<MirroredVariable>& variables, const Optimizer& optimizer,
               int every = 8, const Options& options = {}, At at = At::current());

/// Each gradient is applied when it arrives, though others changed the variables since they were
/// read (Dean et al., NIPS 2012). Each gradient is applied once; one that was sent before a
/// recovery of the training, and is not in the checkpoint, is discarded.
ArrivalStep asynchronous(const collective::Group& replicas, const Exprs& losses,
                         const std::vector<Variable>& variables, const Optimizer& optimizer,
                         const Options& options = {}, At at = At::current());

/// Synchronous with backup workers (Chen et al., arXiv:1604.00981): an update has the mean of the
/// first `replicas - backups` gradients of its step. Later ones are dropped, so that the slowest
/// replicas delay no step; all are of the same variables. Throws invalid_argument unless at least
/// one replica is no backup.
ArrivalStep with_backups(const collective::Group& replicas, const Exprs& losses,
                         const std::vector<Variable>& variables, const Optimizer& optimizer,
                         int backups, const Options& options = {}, At at = At::current());

}  // namespace troupe::data_parallel
