// Everything a program needs: graphs, the DSL, gradients and the engine.
#pragma once

#include <troupe/actors/engine.hpp>
#include <troupe/actors/loop_report.hpp>
#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/loss_scale.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/primitives.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/actor_node.hpp>
#include <troupe/ops/custom_gradient.hpp>
#include <troupe/ops/eager.hpp>
#include <troupe/ops/graph.hpp>
#include <troupe/ops/records.hpp>
#include <troupe/ops/variable.hpp>
