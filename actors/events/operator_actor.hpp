// The actor of one operator in a running query. Internal to running_query.cpp.
//
// Protocol: operator_messages.hpp. An operator without room for its output takes no input.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/output_edges.hpp>

namespace troupe::events {

class OperatorActor final : public QueryActor {
 public:
  struct Wiring : ActorWiring {
    std::shared_ptr<const Split> split = {};   // divides the output; null: whole
    std::function<void(Batch&)> receive = {};  // takes the output; empty: none
    std::function<void()> ended = {};          // the output has the guarantee kForever
  };

  OperatorActor(caf::actor_config& config, std::unique_ptr<Operator> op)
      : LeanActor(config), operator_(std::move(op)), title_("stream:" + operator_->name()) {}
  /// Before the first message.
  void connect(Wiring wiring);
  const char* name() const override { return title_.c_str(); }

 protected:
  void receive(OperatorMessage& message) override;
  void ended(const caf::error& reason) override;

 private:
  void work();
  void run(Deliver& token);
  void change_level(const Switch& to);
  OperatorReport report();

  const std::unique_ptr<Operator> operator_;
  const std::string title_;
  Wiring wiring_;
  OutputEdges edges_;
  std::deque<Deliver> in_;
  std::vector<Batch> out_;
  bool has_failed_ = false;
  std::vector<std::uint64_t> taken_;  // tokens, by input
  bool is_watched_ = false;           // a report was asked for: time is measured from then on
  std::uint64_t busy_ = 0;            // ticks
};

}  // namespace troupe::events
