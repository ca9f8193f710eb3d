// An answer to an inspection in which every field holds something.
#pragma once

#include <troupe/cluster/protocol/messages.hpp>

namespace troupe::test {

inline Inspected inspected_with_everything() {
  Inspected m;
  m.request = 7;
  m.status = Status(Code::unavailable, "only in part");
  NodeReport& r = m.report;
  r.name = "b", r.incarnation = 1u << 20, r.version = "0.1.0", r.host = "a boot", r.received_ns = 5,
  r.answered_ns = 9, r.cpu_ns = 77, r.cpu = 1.5, r.cores = 2, r.resident = 1 << 20,
  r.total = 1 << 30;
  r.transport.messages_out = 3, r.transport.bytes_in = 400;
  r.peers = {{"a", 300, 400, 50, 60, 210'000}};
  Wait wait;
  wait.kind = Wait::Kind::token, wait.what = "MatMul 'm' (a.cpp:1)", wait.state = "queue 'q'",
  wait.tag = "iteration 3 of loop 'w'", wait.from = "/node:a/cpu:0", wait.node = 4;
  wait.for_so_long = std::chrono::seconds(2), wait.longest = std::chrono::seconds(1),
  wait.holds_worker = true, wait.puts = true, wait.is_alone = true;
  const Comparison compared{
      Comparison::Relation::ne, Comparison::Course::carried, true, 0x1p31, 4, 2.5, 7, 0.5, 1, true};
  OpenLoop loop{
      "w",
      "",
      "Less 'l' (a.cpp:2)",
      6,
      1,
      3,
      5,
      32,
      {{{Decision::Term::Kind::compares, 0}, {Decision::Term::Kind::negates, -1}}, {compared}},
      9,
      true,
      2,
      true};
  RunPart part{8, 99, 5, 4, 2, {loop}, {wait}, 1};
  PartitionSnapshot p{
      "/node:b/cpu:0",
      true,
      "Add 'a' (a.cpp:3)",
      {part},
      {{4, 10, 1, 1000, 64, ActorStatus::waiting, 3, 1, "iteration 2 of loop 'w'", 2, 8}},
      {{1, 0, 5, 80, 4, 32}},
      {{"w", 2, 40, 32, 30, 5'000'000, 12.5, 0.25}},
      {{RecordedEvent::Kind::send, 4, 1000, 10, 8, 3, 0x1234567890abcdef}},
      6,
      990,
      7,
      true};
  RunSnapshot run;
  run.run = 8, run.step = 2, run.owner = 7, run.number = 3, run.plan = {"a", 2, 1u << 21},
  run.for_so_long = std::chrono::seconds(3), run.is_ending = true, run.is_owned = false;
  run.other_nodes = {"a"}, run.partitions = {p}, run.silent = {{"c", "it is dead"}},
  run.queues = {{"queue 'q'"}, {"queue 'q'", "shuffling queue 'r'"}};
  r.engine.node = "b", r.engine.workers = 2;
  r.engine.devices = {
      {{1, 2, 3, 4, 5, 6, {{"compute", 7, 8, 9, 10, 11, 12, {13, 14}, {15, 16}, {17, 18}, 19}}},
       "cpu:0"}};
  r.engine.runs = {run};
  r.engine.plans = {{{"a", 2}, {"a", "b"}, 10, 12, 55, 3, 2, 1, {}}};
  r.engine.recent = {{8, false, {"a", 2}, 66, 7, "", 99}},
  r.engine.errors = {{9,
                      true,
                      {"b", 1},
                      67,
                      8,
                      "it was wrong",
                      12,
                      Code::out_of_range,
                      3,
                      60,
                      "/var/lib/troupe/flight/a@b-9.flight.json"}};
  r.partitions = {p};
  r.plan = {{"a", 2},
            {{"MatMul", "m", "layer", "/node:b/cpu:0", 1, "a.cpp:1", "w", 1, true, "k=1"}},
            {{0, 0, 0, 1, EdgeDescription::Kind::back, "f32", "[2, 3]", true, 4, 24}}};
  r.recorded = {{{"a", 2}, {p}, {{4, "MatMul 'm' (a.cpp:1)"}}}};
  r.scalars = "[]";
  return m;
}

}  // namespace troupe::test
