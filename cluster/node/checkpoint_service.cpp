#include <troupe/cluster/node/checkpoint_service.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/runtime/serial_executor.hpp>
#include <troupe/cluster/checkpoint/saved_states.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {

namespace {

constexpr std::uint64_t kPiece = 16 * kCheckpointChunk;  // bytes of a file in an answer, at most

NamedTensors named_values(const CheckpointRequest& m) {
  if (m.names.size() != m.tensors.size()) MessageReader::malformed("values without names");
  NamedTensors values;
  for (std::size_t i = 0; i < m.names.size(); ++i) values.emplace_back(m.names[i], m.tensors[i]);
  return values;
}

}  // namespace

// Runs the jobs of peers one after another, within limits of each peer, and answers.
class CheckpointService::PeerJobs {
 public:
  using Reply = std::function<void(Peer to, const Answer& answer)>;
  PeerJobs(const EarlyLimits& limits, Reply reply)
      : limits_(limits), reply_(std::move(reply)), executor_(kMostWaiting) {}
  void end() { executor_.end(); }
  /// Returns false if too many wait, or too much of this peer.
  bool post(Peer from, std::uint64_t bytes, PeerQuota::Job job) {
    {
      std::lock_guard lock(mutex_);
      RequestUse& in_use = in_use_[from];
      if (in_use.requests >= kMostOfPeer || !in_use.has_room(bytes, limits_)) return false;
      in_use.add(bytes);
    }
    if (executor_.post([this, from, bytes, job = std::move(job)]() mutable {
          run(from, bytes, std::exchange(job, {}));
        }))
      return true;
    release(from, bytes);
    return false;
  }

 private:
  static constexpr std::size_t kMostWaiting = 256, kMostOfPeer = 64;

  void run(Peer from, std::uint64_t bytes, PeerQuota::Job job) {
    const std::optional<Answer> answer = std::exchange(job, {})();  // destroys its captures
    release(from, bytes);  // before the answer: the peer sends the next request then
    if (answer) reply_(from, *answer);
  }
  void release(Peer from, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    const auto in_use = in_use_.find(from);
    in_use->second.remove(bytes);
    if (in_use->second.requests == 0) in_use_.erase(in_use);
  }

  const EarlyLimits limits_;
  const Reply reply_;
  std::mutex mutex_;
  // jobs that are not done; peers without any have no entry; guarded by mutex_
  std::map<Peer, RequestUse> in_use_;
  SerialExecutor executor_;  // last: its jobs use the others
};

// The copies of a shard that is being written, until each has an outcome; the last one answers.
struct CheckpointService::Copies {
  std::mutex mutex;  // guards all below
  WrittenShard written;
  std::size_t awaited = 0;
  Status first;  // the error of a copy, if there is one

  // True for the last.
  bool add(const std::string& node, const Status& status, ShardSums sums) {
    std::lock_guard lock(mutex);
    Status outcome = status;
    if (outcome.ok() && !written.holders.empty() &&
        (sums.bytes != written.bytes || sums.sums != written.sums))
      outcome = Status(Code::data_loss, "its copy has other checksums");
    if (!outcome.ok()) {
      written.failed.push_back(fmt::format("node '{}': {}", node, outcome.message()));
      if (first.ok()) first = outcome;
    } else {
      written.bytes = sums.bytes;
      written.sums = std::move(sums.sums);
      written.holders.push_back(node);
    }
    return --awaited == 0;
  }
  Answer answer(std::uint64_t request, const std::string& file) {
    std::lock_guard lock(mutex);
    Answer a{request, {}, {}};
    if (written.holders.empty())
      a.status = Status(first.code(), fmt::format("'{}' could not be written: {}", file,
                                                  fmt::join(written.failed, "; ")));
    else a.value = packed(written);
    return a;
  }
};

// Reads a file of another node in pieces of a few chunks.
class CheckpointService::RemoteFile final : public ReadableFile {
 public:
  RemoteFile(CheckpointService& service, std::string node, std::string training, std::string file,
             std::uint64_t size)
      : ReadableFile(fmt::format("{}:{}", node, file), size), service_(service),
        node_(std::move(node)), training_(std::move(training)), file_(std::move(file)) {}

  void read(std::uint64_t at, void* data, std::size_t bytes) override {
    auto* p = static_cast<char*>(data);
    while (bytes > 0) {
      if (at < begin_ || at >= begin_ + piece_.size()) fetch(at);
      const auto from = static_cast<std::size_t>(at - begin_);
      const std::size_t n = std::min(bytes, piece_.size() - from);
      std::memcpy(p, piece_.data() + from, n);
      p += n;
      at += n;
      bytes -= n;
    }
  }

 private:
  void fetch(std::uint64_t at) {
    CheckpointRequest m;
    m.kind = Kind::read;
    m.fence.training = training_;
    m.text = file_;
    m.number = at;
    m.count = std::min(kPiece, size() > at ? size() - at : 0);
    piece_ = text_of(service_.ask(node_, std::move(m)).value);
    begin_ = at;
    if (piece_.empty())
      throw Error(Code::data_loss, fmt::format("'{}' has {} bytes, not {}", path(), at, size()));
  }

  CheckpointService& service_;
  const std::string node_, training_, file_;
  std::string piece_;  // from begin_ on
  std::uint64_t begin_ = 0;
};

CheckpointService::CheckpointService(const NodeParts& node, StateService& states,
                                     PlanService& plans, CheckpointStore& store)
    : node_(node), states_(states), plans_(plans), store_(store) {
  if (node_.waiter.is_deterministic()) return;
  const auto answer = [this](Peer to, const Answer& a) { reply(to, a); };
  writer_ = std::make_unique<PeerJobs>(node_.limits, answer);
  sender_ = std::make_unique<PeerJobs>(node_.limits, answer);
}

CheckpointService::~CheckpointService() = default;

void CheckpointService::close() {
  for (PeerJobs* const jobs : {sender_.get(), writer_.get()})
    if (jobs) jobs->end();
}

// ---- at the driver

std::uint64_t CheckpointService::start(const std::string& node, CheckpointRequest m) {
  m.container = node_.container;
  if (node == node_.self.name) {
    const std::uint64_t id = m.request = node_.requests.add_here();
    handle(0, node_.self.incarnation, std::move(m), 0);
    return id;
  }
  const Peer to = node_.view.peer_of(node);
  const std::uint64_t id = m.request = node_.requests.add(to);
  Message message = written(m);
  const std::uint64_t bytes = bytes_of(message);
  node_.requests.ask(
      id, bytes, [&] { node_.transport.send(to, CheckpointRequest::kLane, std::move(message)); });
  return id;
}

CheckpointService::Reply CheckpointService::await(const std::string& node, std::uint64_t request) {
  Reply reply = node_.requests.await(request);
  if (!reply.status.ok())
    throw Error(reply.status.code(), fmt::format("node '{}': {}", node, reply.status.message()));
  return reply;
}

void CheckpointService::tell(const std::string& node, CheckpointRequest m) {
  if (node == node_.self.name) return handle(0, node_.self.incarnation, std::move(m), 0);
  const Peer to = node_.view.find(node);
  if (to == 0) return;
  m.request = node_.requests.add(to, {}, [](Reply&&) {});
  send(node_.transport, to, m);
}

std::map<std::string, TrainingsReport> CheckpointService::look() {
  std::vector<std::pair<std::string, std::uint64_t>> asked;
  for (const std::string& node : node_.view.names()) try {
      asked.emplace_back(node, start(node, {}));
    } catch (const Error&) {  // it has just left
    }
  std::map<std::string, TrainingsReport> all;
  for (const auto& [node, request] : asked) try {
      all.emplace(node, unpacked_as<TrainingsReport>(await(node, request).value));
    } catch (const Error&) {  // as above
    }
  return all;
}

std::unique_ptr<ReadableFile> CheckpointService::open(const std::string& node,
                                                      const std::string& training,
                                                      const ShardEntry& shard) {
  if (node == node_.self.name) return store_.open(training, shard.file);
  return std::make_unique<RemoteFile>(*this, node, training, shard.file, shard.bytes);
}

bool CheckpointService::wait(const std::function<bool()>& holds,
                             std::chrono::nanoseconds patience) {
  std::mutex mutex;
  std::condition_variable never;
  if (is_deterministic()) return node_.waiter.until(mutex, never, holds, patience);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// ---- here, for others

void CheckpointService::handle(Peer from, std::uint64_t owner, CheckpointRequest&& m,
                               std::uint64_t bytes) {
  const auto kept = std::make_shared<CheckpointRequest>(std::move(m));
  node_.quota.submit(from, bytes, [this, from, owner, bytes, kept]() -> std::optional<Answer> {
    switch (kept->kind) {
      case Kind::look:
      case Kind::claim:
      case Kind::report: return answer_to(owner, *kept);
      case Kind::take: take(from, owner, *kept); return std::nullopt;
      case Kind::put:
        if (!kept->text.empty()) break;  // it reads a file
        put(from, owner, *kept);
        return std::nullopt;
      default: break;
    }
    const bool is_write = kept->kind == Kind::write;
    PeerQuota::Job job = [this, from, owner, kept]() -> std::optional<Answer> {
      if (kept->kind == Kind::write) write(from, owner, *kept);
      else if (kept->kind == Kind::put) put_from_disk(from, owner, *kept);
      else return answer_to(owner, *kept);
      return std::nullopt;
    };
    if (!writer_) return job();
    if (!(is_write ? sender_ : writer_)->post(from, bytes, std::move(job)))
      reply_with_status(from, kept->request,
                        Status(Code::resource_exhausted,
                               "too many requests for checkpoints wait; ask again later"));
    return std::nullopt;
  });
}

void CheckpointService::reply(Peer to, const Answer& answer) {
  if (to == 0) node_.requests.answered(0, Answer(answer), node_.transport.now());
  else node_.quota.reply(to, answer);
}

void CheckpointService::lost(const NodeId& node) {
  std::map<TakenKey, Taken> dropped;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  for (auto it = taken_.begin(); it != taken_.end();)
    if (const auto next = std::next(it); std::get<0>(it->first) == node.incarnation)
      dropped.insert(taken_.extract(std::exchange(it, next)));
    else it = next;
}

Answer CheckpointService::answer_to(std::uint64_t owner, const CheckpointRequest& m) {
  Answer a{m.request, {}, {}};
  try {
    switch (m.kind) {
      case Kind::look: a.value = packed(report()); break;
      case Kind::claim: claim(m.fence); break;
      case Kind::fetch: {
        const TensorImage image = tensor_image(m.fence.training, taken_by(owner, m).values, {});
        a.value = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(image.bytes)});
        auto* to = static_cast<char*>(a.value.raw_mutable());
        std::memcpy(to, image.head.data(), image.head.size());
        to += image.head.size();
        for (const Tensor& t : image.data) {
          if (t.bytes() > 0) std::memcpy(to, t.raw(), t.bytes());
          to += t.bytes();
        }
        break;
      }
      case Kind::keep: {
        ShardSums sums = store_.write(m.fence, m.text, named_values(m));
        a.value = packed(WrittenShard{sums.bytes, std::move(sums.sums), {}, {}});
        break;
      }
      case Kind::commit:
        if (m.tensors.size() != 1) MessageReader::malformed("no manifest");
        store_.commit(m.fence, {m.step, m.number}, text_of(m.tensors[0]));
        break;
      case Kind::find: {
        const std::string text = store_.manifest(m.fence.training, {m.step, m.number});
        a.value = bytes_tensor(text.data(), text.size());
        break;
      }
      case Kind::read: {
        const std::unique_ptr<ReadableFile> file = store_.open(m.fence.training, m.text);
        const std::uint64_t most = m.number < file->size() ? file->size() - m.number : 0;
        const auto bytes = static_cast<std::size_t>(std::min({m.count, most, kPiece}));
        a.value = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
        if (bytes > 0) file->read(m.number, a.value.raw_mutable(), bytes);
        break;
      }
      case Kind::prune:
        if (m.tensors.size() != 1) MessageReader::malformed("no checkpoints that stay");
        a.states = store_.keep_only(m.fence, unpacked_as<std::vector<CheckpointId>>(m.tensors[0]));
        break;
      case Kind::report: {
        if (m.tensors.size() != 1) MessageReader::malformed("no progress");
        store_.require_driver(m.fence);
        auto progress = unpacked_as<DriverProgress>(m.tensors[0]);
        std::lock_guard lock(mutex_);
        DriverProgress& known = progress_[m.fence.training];
        // one that has not restored yet says nothing of checkpoints before
        if (progress.checkpoint < 0) progress.checkpoint = known.checkpoint;
        known = std::move(progress);
        break;
      }
      case Kind::take:
      case Kind::put:
      case Kind::write: break;  // answered by themselves
    }
  } catch (...) { a.status = Status::from_current_exception(); }
  return a;
}

// A node whose disk is full obeys the driver too.
void CheckpointService::claim(const Fence& fence) {
  const std::map<std::string, Fence> before = store_.fences();
  std::exception_ptr full;
  try {
    store_.claim(fence);
  } catch (const Error& e) {
    if (e.code() != Code::resource_exhausted) throw;
    full = std::current_exception();
  }
  plans_.break_older(fence);
  if (const auto last = before.find(fence.training);
      last != before.end() && last->second.driver != fence.driver) {
    std::lock_guard lock(mutex_);
    if (const auto of_before = progress_.find(fence.training); of_before != progress_.end()) {
      DriverProgress begins;
      begins.checkpoint = of_before->second.checkpoint;
      of_before->second = std::move(begins);
    }
  }
  if (full) std::rethrow_exception(full);
}

TrainingsReport CheckpointService::report() const {
  TrainingsReport report;
  report.has_folder = store_.has_folder();
  for (const auto& [training, fence] : store_.fences()) {
    TrainingsReport::Entry e{training, fence.driver, fence.epoch, store_.checkpoints(training), {}};
    std::lock_guard lock(mutex_);
    if (const auto found = progress_.find(training); found != progress_.end())
      e.progress = found->second;
    report.trainings.push_back(std::move(e));
  }
  return report;
}

std::shared_ptr<StateStore> CheckpointService::states_of(std::uint64_t owner,
                                                         const std::string& container) {
  return owner == node_.self.incarnation ? node_.engine.own_states()
                                         : states_.states_for(owner, container).store;
}

void CheckpointService::reply_with_status(Peer to, std::uint64_t request, const Status& status) {
  Answer a{request, {}, {}};
  a.status = status;
  reply(to, a);
}

// On the request worker, behind the values that the driver has set before. Actors are visited, and
// the last one answers.
void CheckpointService::take(Peer from, std::uint64_t owner, const CheckpointRequest& m) {
  try {
    if (m.fence.training.empty()) store_.check(m.fence);
    else store_.require_driver(m.fence);
    const auto taken = std::make_shared<Taken>(Taken{m.step, {}});
    // The driver's other values, whose names are lines.
    std::size_t begin = 0;
    for (const Tensor& t : m.tensors) {
      const std::size_t end = m.text.find('\n', begin);
      if (end == std::string::npos) MessageReader::malformed("a value without a name");
      taken->values.emplace_back(m.text.substr(begin, end - begin), t);
      begin = end + 1;
    }
    save_states(states_of(owner, m.container), m.names,
                [this, from, request = m.request, key = key_of(owner, m), taken](
                    const Status& status, NamedTensors values) {
                  if (status.ok()) {
                    for (auto& value : values) taken->values.push_back(std::move(value));
                    std::lock_guard lock(mutex_);
                    // Values of a session that has ended would stay: `lost` was called before.
                    if (from == 0 || node_.view.has_session(from)) std::swap(taken_[key], *taken);
                  }
                  reply_with_status(from, request, status);
                });
  } catch (...) { reply_with_status(from, m.request, Status::from_current_exception()); }
}

void CheckpointService::put(Peer from, std::uint64_t owner, const CheckpointRequest& m) {
  try {
    store_.check(m.fence);
    load_states(states_of(owner, m.container), named_values(m),
                [this, from, request = m.request](const Status& status) {
                  reply_with_status(from, request, status);
                });
  } catch (...) { reply_with_status(from, m.request, Status::from_current_exception()); }
}

// `text`: a shard's file; `tensors`: its length and checksums; `count`: of values in it, of which
// the variables `names` are set.
void CheckpointService::put_from_disk(Peer from, std::uint64_t owner, const CheckpointRequest& m) {
  try {
    if (m.tensors.size() != 1) MessageReader::malformed("no checksums");
    auto sums = unpacked_as<WrittenShard>(m.tensors[0]);
    if (sums.sums.size() != (sums.bytes + kCheckpointChunk - 1) / kCheckpointChunk)
      MessageReader::malformed("other checksums than the file has chunks");
    store_.check(m.fence);
    CheckedFile file(store_.open(m.fence.training, m.text),
                     {m.text, sums.bytes, std::move(sums.sums), {}});
    const std::set<std::string> wanted(m.names.begin(), m.names.end());
    NamedTensors in_file = load_tensors(file).tensors, values;
    if (in_file.size() != m.count)
      throw Error(Code::failed_precondition,
                  fmt::format("'{}' has {} values, and its manifest names {}", m.text,
                              in_file.size(), m.count));
    for (auto& value : in_file)
      if (wanted.contains(value.first)) values.push_back(std::move(value));
    if (values.size() != wanted.size())
      throw Error(Code::data_loss, fmt::format("'{}' lacks values that its manifest has", m.text));
    // On the request worker, as claims are, so that no later driver's values are overwritten.
    node_.quota.run_later([this, from, fence = m.fence, request = m.request,
                           states = states_of(owner, m.container), values = std::move(values)] {
      try {
        store_.check(fence);
        load_states(states, values, [this, from, request](const Status& status) {
          reply_with_status(from, request, status);
        });
      } catch (...) { reply_with_status(from, request, Status::from_current_exception()); }
    });
  } catch (...) { reply_with_status(from, m.request, Status::from_current_exception()); }
}

CheckpointService::Taken CheckpointService::taken_by(std::uint64_t owner,
                                                     const CheckpointRequest& m) {
  store_.check(m.fence);
  Taken taken;
  {
    std::lock_guard lock(mutex_);
    const auto it = taken_.find(key_of(owner, m));
    if (it == taken_.end() || it->second.step != m.step)
      throw Error(
          Code::failed_precondition,
          fmt::format("it has no values of step {} of training '{}'", m.step, m.fence.training));
    taken = std::move(it->second);
    taken_.erase(it);
  }
  return taken;
}

void CheckpointService::write(Peer from, std::uint64_t owner, const CheckpointRequest& m) {
  try {
    begin_write(from, m, taken_by(owner, m).values);
  } catch (...) { reply_with_status(from, m.request, Status::from_current_exception()); }
}

// Other nodes get their copies first, so that they write while this one does.
void CheckpointService::begin_write(Peer from, const CheckpointRequest& m, NamedTensors values) {
  const auto copies = std::make_shared<Copies>();
  copies->awaited = m.names.size();
  if (m.names.empty())
    throw Error(Code::invalid_argument, fmt::format("no node is to keep '{}'", m.text));
  const auto done = [this, from, copies, request = m.request, file = m.text](
                        const std::string& node, const Status& status, ShardSums sums) {
    if (copies->add(node, status, std::move(sums))) reply(from, copies->answer(request, file));
  };
  CheckpointRequest copy;
  copy.kind = Kind::keep;
  copy.fence = m.fence;
  copy.step = m.step;
  copy.text = m.text;
  for (const auto& [name, value] : values) {
    copy.names.push_back(name);
    copy.tensors.push_back(value);
  }
  for (const std::string& node : m.names) {
    if (node == node_.self.name) continue;
    const Peer to = node_.view.find(node);
    if (to == 0) {
      done(node, Status(Code::unavailable, "it is not there"), {});
      continue;
    }
    copy.request = node_.requests.add(to, {}, [done, node](Reply&& reply) {
      ShardSums sums;
      try {
        if (reply.status.ok()) {
          auto kept = unpacked_as<WrittenShard>(reply.value);
          sums = {kept.bytes, std::move(kept.sums)};
        }
      } catch (...) { reply.status = Status::from_current_exception(); }
      done(node, reply.status, std::move(sums));
    });
    Message message = written(copy);
    const std::uint64_t bytes = bytes_of(message);
    node_.requests.ask(copy.request, bytes, [&] {
      node_.transport.send(to, CheckpointRequest::kLane, std::move(message));
    });
  }
  if (std::find(m.names.begin(), m.names.end(), node_.self.name) == m.names.end()) return;
  Status status;
  ShardSums sums;
  try {
    sums = store_.write(m.fence, m.text, values);
  } catch (...) { status = Status::from_current_exception(); }
  done(node_.self.name, status, std::move(sums));
}

}  // namespace troupe::detail
