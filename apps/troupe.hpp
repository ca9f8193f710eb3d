// Everything one program needs: graphs, the DSL, gradients, the engine, files of values and records.
#pragma once

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/saved.hpp>
#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/loss_scale.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/primitives.hpp>
#include <troupe/controlflow/recurrent.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/eager/replay.hpp>
#include <troupe/ops/format/crc64.hpp>
#include <troupe/ops/format/records.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/variable.hpp>
