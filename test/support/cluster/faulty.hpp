// A node whose transport says more than the node does: what a faulty or hostile peer, which is
// authorized, may send.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <type_traits>

#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe::test {

class FaultyTransport final : public Transport {
 public:
  using Send = std::function<void(Peer, Lane, Message)>;
  /// Gets what the node sends, and sends what it likes.
  using Fault = std::function<void(Peer, Lane, Message, const Send&)>;

  FaultyTransport(std::unique_ptr<Transport> inner, Fault fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  void start(TransportListener& listener) override { inner_->start(listener); }
  void stop() override { inner_->stop(); }
  std::string address() const override { return inner_->address(); }
  void connect(const std::string& address) override { inner_->connect(address); }
  void send(Peer peer, Lane lane, Message message) override {
    fault_(peer, lane, std::move(message),
           [this](Peer to, Lane by, Message m) { inner_->send(to, by, std::move(m)); });
  }
  void flush(Peer peer) override { inner_->flush(peer); }
  void disconnect(Peer peer, const Status& why) override { inner_->disconnect(peer, why); }
  std::chrono::nanoseconds now() const override { return inner_->now(); }
  TransportCounters counters() const override { return inner_->counters(); }
  std::vector<PeerCounters> peers() const override { return inner_->peers(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const Fault fault_;
};

/// Null unless it is an M.
template <class M>
std::optional<M> as(Message message) {
  if (!is_a<M>(message)) return {};
  return std::get<M>(read_message(message));
}

/// Sends all that it should; tokens and grants once more, at once or later, and others of them
/// besides that no run can ask for.
class Repeater {
 public:
  explicit Repeater(std::uint64_t seed) : random_(seed) {}

  void operator()(Peer peer, Lane lane, Message message, const FaultyTransport::Send& send) {
    std::lock_guard lock(mutex_);
    if (auto said = as<RunTokens>(message)) {
      if (chance(2)) later_.push_back({peer, lane, message});
      if (chance(2)) send(peer, lane, message);
      bool is_changed = false;
      for (RunToken& token : said->tokens)
        if (token.path.depth > 0 && chance(4)) {
          token.path.number[random_() % static_cast<std::uint64_t>(token.path.depth)] +=
              1000 + static_cast<std::int64_t>(random_() % 1000);
          is_changed = true;
        }
      for (RunGrant& grant : said->grants)
        if (chance(2)) {
          grant.last = static_cast<std::int64_t>(random_() >> 1);
          is_changed = true;
        }
      if (is_changed) send(peer, lane, written(*said));
      // ahead of them or behind them: then one of the two is repeated in part
      if (auto part = part_of(*as<RunTokens>(message))) {
        if (chance(2)) later_.push_back({peer, lane, std::move(*part)});
        else send(peer, lane, std::move(*part));
      }
    }
    send(peer, lane, std::move(message));
    while (!later_.empty() && chance(3)) {
      Kept kept = std::move(later_.front());
      later_.pop_front();
      send(kept.peer, kept.lane, std::move(kept.message));
    }
  }

 private:
  struct Kept {
    Peer peer;
    Lane lane;
    Message message;
  };
  bool chance(std::uint64_t one_in) { return random_() % one_in == 0; }
  /// Some of the iterations of what is a token for several.
  std::optional<Message> part_of(RunTokens said) {
    said.grants.clear();
    std::erase_if(said.tokens, [](const RunToken& token) { return token.times == 1; });
    if (said.tokens.empty() || chance(2)) return std::nullopt;
    for (RunToken& token : said.tokens) {
      const auto skipped =
          static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(token.times));
      token.path.number[token.path.depth - 1] += skipped;
      token.times = static_cast<std::int32_t>(
          1 + random_() % static_cast<std::uint64_t>(token.times - skipped));
    }
    return written(said);
  }

  std::mutex mutex_;  // guards both
  std::minstd_rand random_;
  std::deque<Kept> later_;
};

}  // namespace troupe::test
