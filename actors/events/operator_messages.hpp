// Messages between the actors of a running query. Internal to running_query.cpp.
//
// Protocol: an upstream spends one credit a token (`Deliver`). The receiver gives it back (`Grant`)
// when it takes the token from its queue.
#pragma once

#include <cstddef>
#include <exception>
#include <latch>
#include <memory>
#include <variant>

#include <troupe/actors/events/batch.hpp>
#include <troupe/actors/events/consistency.hpp>
#include <troupe/actors/events/query_report.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>

namespace troupe::events {

struct PartitionAnswer;

struct Deliver {
  std::size_t input;
  Batch batch;
};
struct Grant {
  std::size_t consumer;  // as the receiver counts its consumers
};
struct Ask {
  std::shared_ptr<ReportsOfOperators> answers;
  std::size_t place;  // the step; a placed partition answers for each of its steps
};
struct Switch {
  Consistency level;
  Time* effective;  // the answer of the operator
  Time* reach;
  std::latch* answered;

  void answer(Time level_from, Time reaches) const {
    *effective = level_from;
    *reach = reaches;
    answered->count_down();
  }
};
/// The end of a call to a node; one of both is null.
struct Answered {
  std::shared_ptr<PartitionAnswer> answer;
  std::exception_ptr error;
};
struct End {};
using OperatorMessage = std::variant<Deliver, Grant, Ask, Switch, Answered, End>;

/// An actor of a running query.
using QueryActor = LeanActor<OperatorMessage>;

}  // namespace troupe::events
