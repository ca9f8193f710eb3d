// CombiningActor: combines large values of a mesh's devices on several nodes, so that the thread of
// the transport does not.
//
//   LeanRef<CombiningActor> combining = lean_spawn<CombiningActor>(system);
//   combining->send([run, rest] { rest(); });
#pragma once

#include <functional>

#include <troupe/actors/runtime/lean_actor.hpp>

namespace troupe {

class CombiningActor final : public LeanActor<std::function<void()>> {
 public:
  using LeanActor::LeanActor;
  const char* name() const override { return "combining"; }

 protected:
  void receive(std::function<void()>& job) override { job(); }
};

}  // namespace troupe
