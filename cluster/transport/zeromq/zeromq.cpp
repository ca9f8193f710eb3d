#include <troupe/cluster/transport/zeromq/zeromq.hpp>

#include <utility>

#include <troupe/cluster/transport/zeromq/transport_loop.hpp>
#include <troupe/cluster/transport/zeromq/zeromq_link.hpp>

namespace troupe {

namespace {

// a smaller tensor is gathered, and so copied all the same
constexpr std::size_t kLeastLent = 16 << 10;

class ZeroMqTransport final : public Transport {
 public:
  ZeroMqTransport(PeerInfo self, ZeroMqOptions options)
      : self_(std::move(self)), link_(self_.name, std::move(options)),
        loop_(link_, link_.options().spin) {
    if (self_.engine.empty()) self_.engine = engine_version();
  }
  ~ZeroMqTransport() override { stop(); }

  void start(TransportListener& listener) override {
    if (router_) throw Error(Code::failed_precondition, "the transport was started before");
    self_.address = link_.listen(self_.address);
    RouterOptions options = link_.options().router;
    options.session_seed = static_cast<std::uint64_t>(now().count());
    router_ = std::make_unique<Router>(self_, options, link_, listener);
    link_.open(*router_, self_.address, [this] { loop_.serve_or_flush(); });
    loop_.start(*router_);
  }
  void stop() override { loop_.stop(); }

  std::string address() const override { return self_.address; }
  void connect(const std::string& address) override { loop_.put(ConnectRequest{address}); }
  void send(Peer peer, Lane lane, Message message) override {
    check_sendable(message);
    const auto pass = [&] {
      // A listener's answer goes with what its turn sends, unless something that was sent before it
      // waits.
      if (loop_.is_free()) router_->send(peer, lane, std::move(message));
      else loop_.put(SendRequest{peer, lane, std::move(message)});
    };
    if (lane == Lane::data) link_.senders().in_order(peer, pass);
    else pass();
  }
  bool send_direct(Peer peer, std::span<const std::byte> record, bool may_wait) override {
    return link_.senders().send(peer, record, may_wait);
  }
  void flush(Peer peer) override {
    if (loop_.is_current()) router_->flush(peer);
  }
  Tensor empty_for(Peer peer, DType dtype, const Shape& shape) override {
    const Ref<LendingSlab> slab = slab_of(peer);
    std::size_t bytes = 0;
    const bool is_sane =
        shape.is_known() &&
        !__builtin_mul_overflow(static_cast<std::size_t>(shape.elements()), size_of(dtype), &bytes);
    Ref<Buffer> memory =
        is_sane && slab && bytes > kLeastLent ? slab->allocate(bytes) : Ref<Buffer>();
    return memory ? Tensor::on_buffer(std::move(memory), 0, nullptr, dtype, shape)
                  : Tensor::empty(dtype, shape);
  }
  void disconnect(Peer peer, const Status& why) override {
    loop_.put(DisconnectRequest{peer, why});
  }

  Time now() const override { return link_.now(); }
  TransportCounters counters() const override {
    if (!router_) return {};
    const auto lock = loop_.hold();
    TransportCounters all = router_->counters();
    link_.count(all);
    return all;
  }
  std::vector<PeerCounters> peers() const override {
    if (!router_) return {};
    const auto lock = loop_.hold();
    std::vector<PeerCounters> all = router_->peers();
    link_.senders().count(all);
    return all;
  }

 private:
  Ref<LendingSlab> slab_of(Peer peer) {
    const auto lock = loop_.hold();
    return link_.bulk() ? link_.bulk()->slab(router_->connection_of(peer)) : Ref<LendingSlab>();
  }

  PeerInfo self_;
  ZeroMqLink link_;
  std::unique_ptr<Router> router_;  // null before `start`
  TransportLoop loop_;
};

}  // namespace

std::unique_ptr<Transport> make_zeromq_transport(PeerInfo self, ZeroMqOptions options) {
  return std::unique_ptr<Transport>(new ZeroMqTransport(std::move(self), std::move(options)));
}

}  // namespace troupe
