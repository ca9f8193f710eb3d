// The messages of nodes: one of every kind, and two of a kind whose contents differ in form.
#pragma once

#include <troupe/test/support/cluster/inspected.hpp>

namespace troupe::test {

template <class F>
void for_each_message(F&& f) {
  const NodeId a{"a", 7, "tcp://127.0.0.1:7117"}, b{"worker-1", 1u << 20, ""};
  const Tensor t = Tensor::of<float>({1, 2, 3, 4, 5, 6}, Shape{2, 3});
  List list(DType::f32, Shape{2, 3});
  list.push(t);
  list.grow(2);
  RunToken token{1, 2, false, {}, list};
  token.path.depth = 2;
  token.path.number[1] = 300;
  const Status failed(Code::out_of_range, "an index out of its bound");
  StateSpec variable;
  variable.name = "v";
  variable.values = {ValueSpec{DType::f32, Shape{2, 3}}};
  MembershipMessage ping;
  ping.number = 9;
  ping.target = "worker-1";
  ping.members = {{"a", 7, 1, MemberState::suspect, "tcp://127.0.0.1:7117", "gpu=no"}};
  f(Gossip{ping.members[0], ping});
  f(GetLoops{5, 2});
  f(MakePlan{1,
             2,
             {a, b},
             64,
             0x1234567890abcdef,
             "",
             {"demo", 3, "a"},
             {{std::byte{1}, std::byte{2}}, {t}}});
  f(DropPlan{3});
  f(BeginRun{4, 9, 2, 5, 6, {{0, t}, {3, Tensor::scalar(true)}}});
  f(RunTokens{{7, 8}, {{1, 2, token.path, 32}}, {token}});
  RunToken three{1, 2, false, token.path, Tensor::scalar(true), 3};
  f(RunTokens{{7, 9}, {}, {{0, 0, true, {}, Tensor::scalar(1.5)}, three}});
  const RunToken one{1, 2, false, {}, t}, other{3, 2, false, {}, t};
  f(RunTokens{{7, 9}, {}, {one, other}});
  f(RunFailed{4, failed});
  f(AbandonRun{4, 9, 2, failed});
  f(LeftRun{4, Status(), {{1, t}}});
  f(GetVariable{5, variable});
  f(SetVariable{6, variable, t});
  f(Answer{6, failed, t, {}, {{3, 1500.0}}, 200});
  f(Answer{.request = 6,
           .status = Status(),
           .value = {},
           .loops = {{"'inner' (model.cpp:7)", "/node:a/cpu:0", 2, 30, 4, 1.5, 3, 0.25, 9, 2, 65536,
                      12.5, 3.5, "MatMul 'm'"}}});
  f(GetCosts{7, 2});
  f(Probe{8, t});
  f(ProbeFor{9, "worker-1", 1 << 18});
  f(InspectNode{7, {NodeQuestion::Kind::counters, {"a", 3}, 12}});
  f(inspected_with_everything());
  f(PlanBroken{2});
  f(RunsBegun{9});
  f(ClearContainer{7, "models"});
  f(OperateNode{8, OperateNode::Action::cancel, "worker-1", 17, true});
  f(EagerProgram{9, 300, 64, "models", {{std::byte{3}}, {t}}});
  using Kind = EagerStep::Kind;
  EagerStep call{Kind::call, 7, 2, 300, {11, 12}, {13, 14}};
  call.step = 5, call.seed = 6, call.acts = true;
  EagerStep put{Kind::put, 0, 2, 11};
  put.value = t;
  EagerStep pack{Kind::pack, 0, 2, 12, {11, 0}};
  pack.list = ValueSpec{DType::f32, Shape{2, 3}, 1};
  f(EagerSteps{10,
               {put,
                pack,
                {Kind::unpack, 0, 2, 12, {}, {15, 0}},
                call,
                {Kind::read, 8, 2, 13},
                {Kind::release, 0, 2, 11},
                {Kind::drop, 0, 2, 300},
                {Kind::end, 0, 2}}});
  f(EagerResults{
      10,
      {{7, failed, 7, {}, {{pack.list, 1}, {pack.list.element(), EagerSpec::kUnwritten}}},
       {8, Status(), 0, t}}});
  f(CheckpointRequest{9,
                      CheckpointRequest::Kind::keep,
                      {"demo", 3, "a"},
                      40,
                      1,
                      2,
                      "step-40.epoch-3.shard-0.safetensors",
                      {"w"},
                      {t},
                      "models"});
  f(MeshValues{{7, 9}, {3, 1ull << 40, 4}, {t, Tensor()}});
}

}  // namespace troupe::test
