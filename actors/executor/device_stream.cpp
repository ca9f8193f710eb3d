#include <troupe/actors/executor/device_stream.hpp>

#include <troupe/devices/list/list_walk.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {

void DeviceStream::copy_to_device(Value& value) {
  if (value.kind() == Value::Kind::tensor)
    troupe::copy_to_device(value.tensor(), device_, *stream_);
}

void DeviceStream::copy_token_to_device(Value& value) {
  if (!value.is_list()) copy_to_device(value);
  else if (!is_synchronous())
    value = with_tensors(value, device_.swapper(), [&](Tensor t) {
      troupe::copy_to_device(t, device_, *stream_);
      return t;
    });
}

void DeviceStream::copy_to_device_or_fail(Run& run, Value& value, std::int32_t source) {
  const bool is_copied = !is_synchronous();
  const std::uint64_t began = is_copied ? ticks() : 0;
  label({source, run.number(), 0});
  try {
    copy_token_to_device(value);
    if (is_copied) observer_.record_copy(run, source, began);
  } catch (...) {
    observer_.record_failure(run, source);
    failures_.fail_at(run, source, Status::from_current_exception());
  }
}

Tensor DeviceStream::start_copy_to_host(const Tensor& on_device) {
  // a host scalar has no address to copy to
  Shape shape = on_device.shape().is_scalar() ? Shape{1} : on_device.shape();
  Tensor host = device_.host_empty(on_device.dtype(), shape);
  label({});
  device_.copy_to_host(*stream_, on_device, View(host));
  return host;
}

Stream* DeviceStream::stream_of(Device& peer) {
  for (const Peer& p : peers_)
    if (p.device == &peer) return p.stream.get();
  std::unique_ptr<Stream> stream = peer.compute_stream();
  // No elements: this asks for the path alone.
  const Shape none{0};
  if (!peer.copy_from_peer(*stream, ConstView(nullptr, DType::u8, none), device_,
                           View(nullptr, DType::u8, none)))
    stream.reset();
  peers_.push_back({&peer, std::move(stream)});
  return peers_.back().stream.get();
}

Tensor DeviceStream::start_copy_to_peer(const Tensor& on_device, Device& peer) {
  try {
    Stream* const stream = stream_of(peer);
    if (!stream) return {};
    Tensor there = peer.empty(on_device.dtype(), on_device.shape());
    if (!peer.copy_from_peer(*stream, on_device, device_, View(there))) return {};
    return there;
  } catch (const Error&) {
    return {};  // by way of the host, where the receiver reports what is amiss
  }
}

void DeviceStream::time(bool on) {
  auto* const stream = dynamic_cast<TimedStream*>(stream_.get());
  if (!stream || on == (timed_ != nullptr)) return;
  try {
    stream->time(on);
    timed_ = on ? stream : nullptr;
  } catch (const Error&) {  // a failed device: its runs report it
  }
}

void DeviceStream::record_timed() {
  if (!timed_) return;
  try {
    for (const TimedWork& work : timed_->take_timed()) observer_.record_timed(work);
  } catch (const Error&) {  // a failed device: its runs report it
  }
}

void DeviceStream::count_kernel(const Ref<Run>& run) {
  if (++in_batch_ != kBatch) return;
  in_batch_ = 0;
  record_timed();
  ++batches_;
  stream_->record()->then([this, run](const Status&) { driver_.post_self(StreamEventDone{}); });
}

}  // namespace troupe
