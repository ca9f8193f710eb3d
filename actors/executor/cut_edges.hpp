// CutEdges: the tokens and grants of the edges between partitions, at this partition's end.
//
//   edges.send(iteration, send, &value);          // a token leaves, or waits for credit
//   edges.receive(*run_state.root, token);        // a token arrives, or waits for its iteration
//   edges.grant(instance, CutEdges::Credit::due); // credit for the partitions that send here
//   edges.receive(grant);                         // credit from a partition that receives
//
// *Credit*: the receiver of an edge grants iterations, from its oldest on: in the edge's frame as
// many as the edge's iteration window has, in a frame around it that frame's. A token that is not
// granted is buffered by its sender and keeps its iteration open there. *Room*: the large tokens of
// an edge and instance that are in flight hold at most `Plan::edge_bytes`; one more is buffered as
// well. See Note [Iteration credit] in PROTOCOL.md. *Run length*: equal tokens of consecutive
// iterations go as one (`Token::times`), which is received as if each had come by itself.
//
// Threads: the partition's turn. Ownership: buffered tokens lie in their `RunState`, future tokens
// and credit in their `FrameState`. Invariants: 1. a token is delivered once an iteration: one that
// comes twice, for an iteration that was not granted, or for one that is done, is dropped and
// reported (`refuse`); 2. a buffered token is counted in its iteration's `unfired`; 3. batched
// tokens go at the latest when the turn ends (Note [Run lengths]).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <troupe/actors/executor/device_stream.hpp>
#include <troupe/actors/executor/partition_driver.hpp>
#include <troupe/actors/executor/partition_observer.hpp>
#include <troupe/actors/executor/run_failures.hpp>
#include <troupe/actors/executor/run_state.hpp>
#include <troupe/actors/executor/token_value.hpp>

namespace troupe {

class CutEdges {
 public:
  /// The rest of the partition.
  class Client {
   public:
    /// Delivers a token to an open iteration.
    virtual void arrive(IterationState& iteration, const PartitionPlan::Receive& receive,
                        bool is_dead, Value&& value) = 0;
    /// A buffered token of the iteration was sent.
    virtual void held_token_sent(IterationState& iteration) = 0;
    /// Returns the instance of a frame in that iteration; opens it if there is none.
    virtual FrameState& instance_at(IterationState& parent, std::int32_t frame) = 0;
    /// Passes a token to the instance, or the call, where its path begins.
    virtual void receive_in(RunState& run_state, Token& token) = 0;

   protected:
    ~Client() = default;
  };

  CutEdges(const Plan& plan, const PartitionPlan& mine, PartitionDriver& driver,
           const RunStates& runs, const FramePool& frames, DeviceStream& stream,
           PartitionObserver& observer, RunFailures& failures, Client& client);

  // ---- out

  /// Sends a token, or holds it until it is granted and has room. Null: a dead token.
  void send(IterationState& from, std::int32_t send, Value* value);
  /// Counts the token as one more of the run-length token that is batched for that edge. False: it
  /// is another.
  bool extend(const IterationState& from, std::int32_t send, const Value* value) {
    TokenRunLength& going = going_[static_cast<std::size_t>(send)];
    if (!is_next(going, from)) return false;
    if (!is_same_token(going.token->is_dead, going.token->value, value) ||
        going.token->run->is_poisoned())
      return false;
    extend(going);
    return true;
  }
  /// Sends a loop's predicate to the other partitions that have part of the loop; null: dead. In a
  /// run that has failed the predicate is dead, so this does not test for failure.
  void broadcast_predicate(IterationState& iteration, const Value* predicate, bool is_true);
  /// Sends a token, of `times` iterations, without a check of its credit.
  void post(IterationState& from, std::int32_t send, Value* value, std::int32_t times = 1);
  /// Sends a token of the call protocol. `call`: -1 for one that belongs to no call.
  void post_call(RunState& run_state, std::int32_t send, std::int64_t call);
  /// Sends the batch for other nodes.
  void flush() {
    if (std::exchange(has_posted_, false)) driver_.flush();
  }
  /// The driver sends the batch, or drops it: no token in it can be extended any more.
  void on_batch_sent();
  /// Takes a grant, and sends the buffered tokens that it admits.
  void receive(const Grant& grant);

  // ---- in

  /// Takes a token from an instance around its own, or from its own, to where it belongs.
  void receive(FrameState& instance, Token& token);
  /// Receives the tokens that go as one each by itself.
  void receive_one_by_one(RunState& run_state, const Token& token);
  /// Delivers the tokens that came before their iteration was open.
  void deliver_future(IterationState& iteration);
  /// Returns why a token may not wait for an execution within `around` that has not begun. Null: it
  /// may. `early`: the tokens that wait for that execution, in the bucket `place`.
  const char* why_refused_early(const Token& token, std::int32_t around, const FutureTokens& early,
                                std::size_t place) const;
  /// Drops a token and reports it. Another node may be faulty; a partition of this node may not be.
  void refuse(Run& run, const PartitionPlan::Receive& edge, const char* why);
  /// The senders that get credit. `due`: those whose regular grant falls on this iteration;
  /// `behind`: the others, to which the oldest iteration was not announced; `all`: both.
  enum class Credit : std::uint8_t { due, behind, all };
  void grant(FrameState& instance, Credit credit);

 private:
  // bytes: smaller tokens are bounded by iteration windows alone
  static constexpr std::uint64_t kLarge = 4096;
  // iterations of a run-length token after which it goes: its receiver can then work on them
  static constexpr std::int32_t kTimesAMessage = 256;

  bool copy_to_peer(Value& value, std::int32_t partition);

  /// A batched token which the token of the next iteration may extend, in the same execution of its
  /// loop, until the batch goes.
  struct TokenRunLength {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t execution = kNone;  // none: it cannot be extended
    std::int64_t next = 0;            // the iteration that extends it
    std::int64_t end = 0;             // the iteration from which on none may
    bool says_true = false;           // it is the predicate of a loop that goes on
    std::int64_t counted = 0;  // iterations before this one are in `times`, and counted as sent
    Token* token = nullptr;    // null: there is none
    RunState* run_state = nullptr;
  };

  static bool is_next(const TokenRunLength& going, const IterationState& iteration) {
    return going.execution == iteration.instance->execution && going.next == iteration.number;
  }
  void extend(TokenRunLength& going) {
    if (++going.next == going.end) [[unlikely]]
      close_run_length(going);
  }
  void start_run_length(Token& token, const IterationState& from, std::int32_t send,
                        std::int32_t times);
  void close_run_length(TokenRunLength& going);
  void count_gone(std::int32_t send);
  void count_sent(RunState& run_state, std::int32_t send, std::int32_t times, std::uint64_t bytes);
  static bool goes_on(const Token& token, const IterationState& from, const Value* value);
  std::uint64_t large() const {
    return std::max<std::uint64_t>(1, std::min(kLarge, plan_.edge_bytes));
  }
  bool is_granted(const IterationState& from, const PartitionPlan::Send& to) const;
  bool has_room(const IterationState& from, std::int32_t send, std::uint64_t bytes);
  bool retry_held(RunState& run_state, std::int32_t partition);
  void let_go(RunState::Held& token);

  void receive_here(FrameState& instance, Token& token);
  void pass_on(IterationState& iteration, Token& token);
  void arrive_future(FrameState& instance, std::int64_t n, std::int32_t entry);
  const char* why_refused(const FrameState& instance, std::int64_t n, std::int32_t window) const;
  void note_large(FrameState& instance, const Token& token);
  template <class End>
  FrameState* instance_of(RunState& run_state, const End& edge, const Path& path);
  const FramePlan& next_towards(std::int32_t frame, std::int32_t around) const;
  static std::int64_t number_in(const FrameState& instance, const Token& token) {
    return instance.frame->depth == 0 || instance.frame->function
               ? 0
               : token.path.number[instance.frame->depth - 1];
  }

  const Plan& plan_;
  const PartitionPlan& mine_;
  PartitionDriver& driver_;
  const RunStates& runs_;
  const FramePool& frames_;
  DeviceStream& stream_;
  PartitionObserver& observer_;
  RunFailures& failures_;
  Client& client_;
  std::vector<TokenRunLength> going_;    // by send
  std::vector<std::int32_t> are_going_;  // the sends that have one
  bool has_posted_ = false;              // a message waits for `flush`
};

}  // namespace troupe
