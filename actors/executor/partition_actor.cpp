#include <troupe/actors/executor/partition_actor.hpp>

#include <algorithm>
#include <utility>

#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/actors/plan/exchange.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>

namespace troupe {

class PartitionActor::OpActor final : public LeanActor<PendingKernel*> {
 public:
  using LeanActor::LeanActor;
  const char* name() const override { return "op"; }

 protected:
  void receive(PendingKernel*& kernel) override { kernel->runner->run_elsewhere(*kernel); }
};

PartitionActor::PartitionActor(caf::actor_config& config, std::shared_ptr<const Plan> plan,
                               std::int32_t index, Granularity granularity, WorkerPool& pool,
                               PlanActors& troupe)
    : LeanActor(config),
      PartitionDriver(PartitionClock(
          pool.deterministic() ? &SchedulerModule::of(home_system())->clock() : nullptr)),
      pool_(pool), troupe_(troupe), granularity_(granularity),
      partition_(std::move(plan), index, granularity, pool.size(), *this) {}

PartitionActor::~PartitionActor() = default;

void PlanActors::connect(std::shared_ptr<RemotePlan> others) {
  remote = std::move(others);
  if (!plan->exchange) return;
  plan->exchange->connect([others = std::weak_ptr<RemotePlan>(remote)](std::uint64_t run, int node,
                                                                       const MeetingPlace& place,
                                                                       std::vector<Tensor> values) {
    if (const auto there = others.lock()) there->meet(run, node, place, std::move(values));
  });
}

void PlanActors::post(std::int32_t partition, PartitionMessage message) {
  if (const auto& here = partitions[static_cast<std::size_t>(partition)]) {
    here->send(std::move(message));
  } else {
    Posted one{partition, std::move(message)};
    remote->post({&one, 1});
  }
}

void PlanActors::weigh() {
  bool light = true;
  for (const auto& here : partitions)
    light = light && (!here || here->partition().kernels().is_light());
  is_light.store(light, std::memory_order_relaxed);
}

int PlanActors::here() const {
  return static_cast<int>(
      std::count_if(partitions.begin(), partitions.end(), [](const auto& p) { return bool(p); }));
}

bool PartitionActor::post(std::int32_t partition, PartitionMessage message) {
  if (const auto& here = troupe_.partitions[static_cast<std::size_t>(partition)]) {
    here->send(std::move(message));
    return false;
  }
  if (const auto* grant = std::get_if<Grant>(&message))
    if (Grant* before = lesser(partition, *grant)) {
      before->last = grant->last;
      return true;
    }
  // the reserve keeps pointers from `waiting` valid until the batch goes
  if (posted_.capacity() == 0) posted_.reserve(kMostPosted);
  posted_.emplace_back(partition, std::move(message));
  if (++posts_ == last_posts_ && same_ >= kSame) {
    flush();
    return false;
  }
  if (posted_.size() == kMostPosted) flush();
  return true;
}

void PartitionActor::end_turn() {
  flush();
  if (posts_ == 0) return;
  same_ = posts_ == last_posts_ ? std::min(same_ + 1, kSame) : 0;
  last_posts_ = std::exchange(posts_, 0);
}

// Returns the last message in the batch for which `is_it` holds, among the newest kLookedAt.
template <class Message, class Is>
Message* PartitionActor::last_posted(std::int32_t partition, Is is_it) {
  const std::size_t looked_at = std::min(posted_.size(), kLookedAt);
  for (auto p = posted_.rbegin(); p != posted_.rbegin() + static_cast<std::ptrdiff_t>(looked_at);
       ++p)
    if (auto* m = p->partition == partition ? std::get_if<Message>(&p->message) : nullptr;
        m && is_it(*m))
      return m;
  return nullptr;
}

Token* PartitionActor::waiting(std::int32_t partition, std::int32_t receive) {
  Token* const token =
      last_posted<Token>(partition, [&](const Token& t) { return t.receive == receive; });
  if (token) last_posts_ = 0;  // the next token may extend this one, so the batch should wait
  return token;
}

// Returns a batched grant of fewer iterations of the same instance, or null.
Grant* PartitionActor::lesser(std::int32_t partition, const Grant& grant) {
  return last_posted<Grant>(partition, [&](const Grant& g) {
    const auto around = static_cast<std::ptrdiff_t>(grant.path.depth) - 1;
    return g.send == grant.send && &*g.run == &*grant.run && g.path.depth == grant.path.depth &&
           g.last < grant.last &&
           std::equal(g.path.number, g.path.number + around, grant.path.number);
  });
}

// An exception does not end the turn. It is not known how much was sent, so all runs in the batch
// are abandoned.
void PartitionActor::flush() {
  if (posted_.empty()) return;
  partition_.on_batch_sent();
  try {
    troupe_.remote->post(posted_);
    posted_.clear();
  } catch (...) {
    const std::vector<Posted> lost = std::exchange(posted_, {});
    std::vector<Ref<Run>> runs;
    for (const Posted& p : lost) {
      const auto* token = std::get_if<Token>(&p.message);
      const Ref<Run>& run = token ? token->run : std::get<Grant>(p.message).run;
      const auto is_it = [&](const Ref<Run>& known) { return &*known == &*run; };
      if (std::none_of(runs.begin(), runs.end(), is_it)) runs.push_back(run);
    }
    for (const Ref<Run>& run : runs) partition_.give_up_later(run);
  }
}

void PartitionActor::refused(Run& run, std::int32_t partition, const std::string& what) {
  troupe_.remote->refused(run, partition, what);
}

void PartitionActor::hand_over(PendingKernel& kernel) {
  if (granularity_ != Granularity::op) {
    pool_.submit_elsewhere({[](void* object, Worker&) {
                              auto& f = *static_cast<PendingKernel*>(object);
                              f.runner->run_elsewhere(f);
                            },
                            &kernel});
    return;
  }
  // this is the turn: with granularity `op` no loop is resident, and only these call elsewhere
  auto node = static_cast<std::size_t>(kernel.node->index);
  if (op_actors_.size() <= node) op_actors_.resize(node + 1);
  if (!op_actors_[node]) op_actors_[node] = lean_spawn<OpActor>(home_system());
  op_actors_[node]->send(&kernel);
}

}  // namespace troupe
