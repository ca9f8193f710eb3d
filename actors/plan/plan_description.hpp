// PlanDescription: a plan's actors and the edges between them, for tools and pages that show them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>

namespace troupe {

namespace detail {

struct Plan;

}  // namespace detail

struct ValueSpec;

namespace detail {

struct ActorDescription {
  std::string op, name, scope;
  std::string device;  // in full in a cluster
  std::int32_t partition = 0;
  std::string line;   // `train.cpp:41`
  std::string frame;  // the loop or function it is in; empty: none
  std::int32_t frame_depth = 0;
  bool is_user_actor = false;
  std::string attributes;  // as text
};

struct EdgeDescription {
  enum class Kind : std::uint8_t { data, control, back };
  std::int32_t from = 0, to = 0;       // indices of actors
  std::int32_t output = 0, input = 0;  // -1: a control edge
  Kind kind = Kind::data;
  std::string dtype, shape;
  bool is_cut = false;
  // a cut edge's number at the partition of `to`; -1: not known
  std::int32_t receive = -1;
  std::uint64_t bytes = 0;  // bytes of a token; 0: not known
};

struct PlanDescription {
  PlanName name;
  std::vector<ActorDescription> actors;  // nodes of the optimised, lowered program, in its order
  std::vector<EdgeDescription> edges;
};

PlanDescription describe(const Plan& plan);
/// Returns the bytes that a value takes as a token; 0: not known.
std::uint64_t bytes_of_token(const ValueSpec& spec);

}  // namespace detail

}  // namespace troupe
