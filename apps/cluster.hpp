// Everything a program needs to be a node of a cluster: nodes, transports, keys, training over
// nodes, the inspection server.
//
//   ClusterNode here({.name = "me", .transport = tcp, .join = {"tcp://127.0.0.1:7117"}});
//   InspectionServer page(here, {});
#pragma once

#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/protocol/saved_function.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/cluster/training/training_runs.hpp>
#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/ops/collectives/batch_norm.hpp>
#include <troupe/ops/graph/saved_actor.hpp>
