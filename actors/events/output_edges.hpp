// The edges from an actor of a running query to its consumers: tokens that wait, and credit.
//
//   edges.connect(consumers, split, window);
//   edges.forward(std::move(batch));      // sends at once if the consumer has given credit
//   edges.grant(consumer);                // credit has come back
//
// Messages for a consumer without credit gather in a TokenQueue.
//
// Threads: those of its actor, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include <troupe/actors/events/operator_messages.hpp>
#include <troupe/actors/events/partition.hpp>

namespace troupe::events {

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

class OutputEdges {
 public:
  struct Consumer {
    QueryActor* actor;
    std::size_t input;
    int partition;           // share of the output; -1: all
    bool is_last;            // the last one that takes these rows
    std::size_t stream = 0;  // which of the actor's output streams it takes
  };

  void connect(std::vector<Consumer> consumers, std::shared_ptr<const Split> split, int window);
  /// Sends a batch of an output stream to its consumers, or lets it wait.
  void forward(Batch batch, std::size_t stream = 0);
  /// Gives one credit of a consumer back.
  void grant(std::size_t consumer);
  /// True while each consumer has less than a full token waiting.
  bool has_room() const;
  /// Adds the tokens sent to each consumer of a stream, and the one that has no room.
  void report(OperatorReport& report, std::size_t stream = 0) const;

 private:
  void send_waiting(std::size_t consumer);

  std::vector<Consumer> consumers_;
  std::shared_ptr<const Split> split_;  // divides the output; null: whole
  std::vector<TokenQueue> queues_;      // by consumer
};

/// How an actor is joined to the others of its query.
struct ActorWiring {
  std::vector<OutputEdges::Consumer> consumers;
  std::vector<std::function<void()>> grants;  // by input: gives one credit back
  std::function<void(const std::exception_ptr&)> failed;
  std::function<void()> gone;  // the actor takes no message any more
  int window;
};

}  // namespace troupe::events
