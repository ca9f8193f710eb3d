// The actor of one operator in a running query. Internal to running_query.cpp.
//
// Protocol: an upstream spends one credit a token (`Deliver`). The actor gives it back (`Grant`)
// when it takes the token from its queue. Messages for a consumer without credit gather in a
// TokenQueue.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/partition.hpp>
#include <troupe/actors/events/query_report.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>

namespace troupe::events {

struct Deliver {
  std::size_t input;
  Batch batch;
};
struct Grant {
  std::size_t consumer;  // as the receiver counts its consumers
};
struct Ask {
  std::shared_ptr<ReportsOfOperators> answers;
  std::size_t place;
};
struct Switch {
  Consistency level;
  Time* effective;  // the answer of the operator
  Time* reach;
  std::latch* answered;
};
struct End {};
using OperatorMessage = std::variant<Deliver, Grant, Ask, Switch, End>;

/// Tokens on their way to one consumer.
class TokenQueue {
 public:
  explicit TokenQueue(int credit) : credit_(credit) {}
  void add(Batch batch);
  void grant() { ++credit_; }
  /// Returns whether a token may leave, and takes its credit.
  bool take(Batch& token);
  /// True while less than a full token waits.
  bool has_room() const;
  /// Tokens that have left.
  std::uint64_t sent() const { return sent_; }

 private:
  int credit_;
  std::uint64_t sent_ = 0;
  std::deque<Batch> waiting_;
};

class OperatorActor final : public LeanActor<OperatorMessage> {
 public:
  struct Wiring {
    struct Consumer {
      OperatorActor* actor;
      std::size_t input;
      int partition;  // share of the output; -1: all
      bool is_last;   // the last one that takes these rows
    };
    std::vector<Consumer> consumers;
    std::shared_ptr<const Split> split;         // divides the output; null: whole
    std::vector<std::function<void()>> grants;  // by input: gives one credit back
    std::function<void(Batch&)> receive;        // takes the output; empty: none
    std::function<void()> ended;                // the output has the guarantee kForever
    std::function<void(const std::exception_ptr&)> failed;
    std::function<void()> gone;  // the actor takes no message any more
    int window;
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
  void forward(Batch batch);
  void send_waiting(std::size_t consumer);
  bool has_room() const;
  OperatorReport report();

  const std::unique_ptr<Operator> operator_;
  const std::string title_;
  Wiring wiring_;
  std::vector<TokenQueue> edges_;  // by consumer
  std::deque<Deliver> in_;
  std::vector<Batch> out_;
  bool has_failed_ = false;
  std::vector<std::uint64_t> taken_;  // tokens, by input
  bool is_watched_ = false;           // a report was asked for: time is measured from then on
  std::uint64_t busy_ = 0;            // ticks
};

}  // namespace troupe::events
