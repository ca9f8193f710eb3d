#include <troupe/actors/plan/exchange.hpp>

#include <algorithm>
#include <bit>
#include <limits>

#include <troupe/ops/graph/state.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe::mesh::detail {
namespace {

// A message of less is not worth a second one after it (ops/collectives/ALGORITHMS.md).
constexpr std::uint64_t kPiece = 32 << 10;  // bytes

std::uint64_t bytes_of(const ValueSpec& spec) {
  return spec.shape.is_known()
             ? static_cast<std::uint64_t>(spec.shape.elements()) * size_of(spec.dtype)
             : 0;
}

// The place where pieces of a sum are exchanged, which are added at another one.
MeetingPlace of_pieces(MeetingPlace place) {
  place.group = -1 - place.group;
  return place;
}

[[noreturn]] void malformed(const char* what) { throw Error(Code::data_loss, what); }

// See Note [Order of members].
int middle_of(int first, int last) {
  return first + static_cast<int>(std::bit_ceil(static_cast<unsigned>(last - first)) / 2);
}

}  // namespace

// ---- members

Exchange::Meet::Meet(std::shared_ptr<const Rule> rule, std::vector<int> givers,
                     std::vector<int> takers, int here)
    : rule_(std::move(rule)), givers_(std::move(givers)), takers_(std::move(takers)), here_(here),
      giver_nodes_(givers_.begin(), givers_.end()), taker_nodes_(takers_.begin(), takers_.end()),
      givers_here_(static_cast<int>(std::count(givers_.begin(), givers_.end(), here))),
      takers_here_(static_cast<int>(std::count(takers_.begin(), takers_.end(), here))) {
  const auto n = static_cast<int>(givers_.size());
  if (rule_->add) cut_into_parts(0, n);
  else
    for (int i = 0; i < n; ++i) parts_.push_back({i, i + 1, givers_[static_cast<std::size_t>(i)]});
  is_in_pieces_ = rule_->piece && pieces() > 2 && giver_nodes_ == taker_nodes_ &&
                  bytes_of(rule_->result) / static_cast<std::uint64_t>(pieces()) >= kPiece;
}

// A part is the largest subtree of the order whose members are on one node. So a sum over nodes has
// the bits of one over devices of one process.
void Exchange::Meet::cut_into_parts(int first, int last) {
  const auto node = givers_.begin() + first;
  if (std::all_of(node, givers_.begin() + last, [&](int other) { return other == *node; })) {
    parts_.push_back({first, last, *node});
    return;
  }
  cut_into_parts(first, middle_of(first, last));
  cut_into_parts(middle_of(first, last), last);
}

Tensor Exchange::Meet::added(int first, int last,
                             const std::function<Tensor(int part)>& value) const {
  const auto part = std::lower_bound(parts_.begin(), parts_.end(), first,
                                     [](const Part& p, int at) { return p.first < at; });
  if (part->last == last) return value(static_cast<int>(part - parts_.begin()));
  const int middle = middle_of(first, last);
  const Tensor lower = added(first, middle, value);
  return rule_->add(lower, added(middle, last, value));
}

Tensor Exchange::Meet::sum_of(int first, int last, Values& given) const {
  if (last - first == 1) return std::move(given[static_cast<std::size_t>(first)]);
  const int middle = middle_of(first, last);
  const Tensor lower = sum_of(first, middle, given);
  return rule_->add(lower, sum_of(middle, last, given));
}

bool Exchange::Meet::is_sent() const {
  return givers_here_ > 0 && std::any_of(taker_nodes_.begin(), taker_nodes_.end(),
                                         [&](int node) { return node != here_; });
}

int Exchange::Meet::piece_of(int node) const {
  return static_cast<int>(std::distance(giver_nodes_.begin(), giver_nodes_.find(node)));
}

std::vector<int> Exchange::Meet::takers_on(int node) const {
  std::vector<int> found;
  for (std::size_t i = 0; i < takers_.size(); ++i)
    if (takers_[i] == node) found.push_back(static_cast<int>(i));
  return found;
}

// ---- meetings

Exchange::Meeting::Meeting(std::shared_ptr<const Meet> m)
    : meet(std::move(m)), given(meet->givers_.size()), parts(meet->parts_.size()) {
  if (meet->has_taker_here()) awaited = meet->giver_nodes_;
  if (meet->is_in_pieces_) {
    awaited_pieces = meet->giver_nodes_;
    pieces.resize(awaited_pieces.size());
  }
}

Exchange::Found Exchange::find(const Key& key, const std::shared_ptr<const Meet>& meet) {
  Found& known = meetings_[key];
  if (!known) {
    known = std::make_shared<Meeting>(meet);
    ++ahead_;
  }
  return known;
}

// Called under the lock.
void Exchange::forget_if_done(const Key& key, const Meeting& meeting) {
  if (meeting.taken == meeting.meet->takers_here_ &&
      (meeting.has_given || meeting.meet->givers_here_ == 0))
    meetings_.erase(key);
}

// The canceller sets `run.cancelled` before it locks the mutex in `cancel`, and each arrival reads
// it with the mutex locked. So an arrival is seen by `cancel`, or sees the cancellation.
void Exchange::arrive(const RunInfo& run, const Place& place, Arrival arrival) {
  const std::shared_ptr<const Meet> meet = std::move(arrival.meet);
  const Key key{run.id, place};
  // The run may end, and its plan go, once the taker's Completion can be used.
  const std::shared_ptr<const Send> send = meet->is_sent() ? send_ : nullptr;
  Found meeting;
  std::vector<Taker> served;
  bool is_given_up = false, gives = false;
  {
    std::lock_guard lock(mutex_);
    is_given_up = run.cancelled.load(std::memory_order_seq_cst);
    if (!is_given_up) {
      meeting = find(key, meet);
      if (std::exchange(meeting->is_ahead, false)) --ahead_;
      if (arrival.giver >= 0) {
        meeting->given[static_cast<std::size_t>(arrival.giver)] = std::move(arrival.value);
        gives = ++meeting->givers == meet->givers_here_;
      }
      if (arrival.taker >= 0) {
        Taker taker{arrival.taker, std::move(arrival.completion), arrival.device};
        if (meeting->is_ready) {
          served.push_back(std::move(taker));
          ++meeting->taken;
          forget_if_done(key, *meeting);
        } else {
          meeting->waiting.push_back(std::move(taker));
        }
      }
    }
  }
  if (is_given_up) {
    if (arrival.completion) arrival.completion.fail(given_up());
    return;
  }
  if (gives) give(key, meeting, send);
  for (Taker& taker : served) serve(*meeting, std::move(taker));
}

Exchange::Values Exchange::parts_here(const Meet& meet, Values given) {
  Values parts(meet.parts_.size());
  for (std::size_t p = 0; p < parts.size(); ++p)
    if (const Meet::Part& part = meet.parts_[p]; part.node == meet.here_)
      parts[p] = meet.sum_of(part.first, part.last, given);
  return parts;
}

// Returns what the takers of a node need of the parts that are of this one.
Exchange::Values Exchange::sent_to(const Meet& meet, int node, const Values& parts) {
  Values sent;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Meet::Part& part = meet.parts_[p];
    if (part.node != meet.here_) continue;
    if (meet.is_in_pieces_)
      sent.push_back(meet.rule().piece(parts[p], meet.piece_of(node), meet.pieces()));
    else if (!meet.rule().cut) sent.push_back(parts[p]);
    else
      for (const int taker : meet.takers_on(node))
        sent.push_back(meet.rule().cut(parts[p], part.first, taker));
  }
  return sent;
}

// All givers of this node have come. No other thread uses their values.
void Exchange::give(const Key& key, const Found& meeting, const std::shared_ptr<const Send>& send) {
  const Meet& meet = *meeting->meet;
  Values parts;
  Status status;
  try {
    parts = parts_here(meet, std::move(meeting->given));
    for (const int node : meet.taker_nodes_)
      if (node != meet.here_) (*send)(key.first, node, key.second, sent_to(meet, node, parts));
    if (meet.is_in_pieces_)
      for (std::size_t p = 0; p < parts.size(); ++p)
        if (meet.parts_[p].node == meet.here_)
          parts[p] = meet.rule().piece(parts[p], meet.piece_of(meet.here_), meet.pieces());
  } catch (...) { status = Status::from_current_exception(); }
  bool is_last = false;
  {
    std::lock_guard lock(mutex_);
    if (meeting->is_cancelled) return;
    for (std::size_t p = 0; p < parts.size(); ++p)
      if (meet.parts_[p].node == meet.here_) meeting->parts[p] = {std::move(parts[p])};
    meeting->has_given = true;
    if (meeting->status.ok()) meeting->status = status;
    is_last = meeting->awaited.erase(meet.here_) > 0 && meeting->awaited.empty();
    forget_if_done(key, *meeting);
  }
  // A run whose values did not leave this node fails at a member here.
  if (!status.ok()) {
    if (!meet.has_taker_here()) status.throw_if_error();
    finish(key, meeting);
  } else if (is_last) {
    all_given(key, meeting, send.get());
  }
}

// All nodes have given. If each adds a piece, this one sends its own.
void Exchange::all_given(const Key& key, const Found& meeting, const Send* send) {
  const Meet& meet = *meeting->meet;
  if (!meet.is_in_pieces_) return finish(key, meeting);
  Tensor sum;
  Status status;
  try {
    sum = meet.added(0, static_cast<int>(meet.givers_.size()),
                     [&](int part) { return meeting->parts[static_cast<std::size_t>(part)][0]; });
    for (const int node : meet.taker_nodes_)
      if (node != meet.here_) (*send)(key.first, node, of_pieces(key.second), {sum});
  } catch (...) { status = Status::from_current_exception(); }
  bool is_last = false;
  {
    std::lock_guard lock(mutex_);
    if (meeting->is_cancelled) return;
    if (meeting->status.ok()) meeting->status = status;
    is_last = is_piece_of(*meeting, meet.here_, {std::move(sum)});
  }
  if (is_last || !status.ok()) finish(key, meeting);
}

// Takes the piece that a node has added. Called under the lock; true if it is the last one.
bool Exchange::is_piece_of(Meeting& meeting, int node, Values values) {
  if (meeting.awaited_pieces.erase(node) == 0) malformed("a piece of a node that has sent its own");
  meeting.pieces[static_cast<std::size_t>(meeting.meet->piece_of(node))] = std::move(values[0]);
  return meeting.awaited_pieces.empty();
}

// All nodes have given, or combining has failed.
void Exchange::finish(const Key& key, const Found& meeting) {
  Tensor result;
  Status status;
  if (!meeting->meet->rule().cut) {
    try {
      result = result_of(*meeting, -1);
    } catch (...) { status = Status::from_current_exception(); }
  }
  std::vector<Taker> served;
  {
    std::lock_guard lock(mutex_);
    if (meeting->is_cancelled || meeting->is_ready) return;
    if (meeting->status.ok()) meeting->status = status;
    meeting->result = std::move(result);
    meeting->is_ready = true;
    served = std::exchange(meeting->waiting, {});
    meeting->taken += static_cast<int>(served.size());
    forget_if_done(key, *meeting);
  }
  for (Taker& taker : served) serve(*meeting, std::move(taker));
}

// A taker's result, or that of all.
Tensor Exchange::result_of(const Meeting& meeting, int taker) {
  if (!meeting.status.ok()) return {};
  const Meet& meet = *meeting.meet;
  const Rule& rule = meet.rule();
  const auto begin = meet.takers_.begin();
  const auto among_here =
      taker < 0 ? 0 : static_cast<std::size_t>(std::count(begin, begin + taker, meet.here_));
  const auto value = [&](int p) {
    const Meet::Part& part = meet.parts_[static_cast<std::size_t>(p)];
    const Values& of_part = meeting.parts[static_cast<std::size_t>(p)];
    if (!rule.cut) return of_part[0];
    return part.node == meet.here_ ? rule.cut(of_part[0], part.first, taker) : of_part[among_here];
  };
  Tensor result;
  if (meet.is_in_pieces_) {
    result = rule.from_pieces(meeting.pieces);
  } else if (rule.add) {
    result = meet.added(0, static_cast<int>(meet.givers_.size()), value);
  } else {
    Values all;
    for (int p = 0; p < static_cast<int>(meet.parts_.size()); ++p) all.push_back(value(p));
    result = rule.join ? rule.join(std::move(all)) : std::move(all[0]);
  }
  if (!fits(result, rule.result)) malformed("devices exchanged values of another kind");
  return result;
}

// A ready meeting changes no more.
void Exchange::serve(const Meeting& meeting, Taker taker) {
  if (!meeting.status.ok()) return taker.completion.fail(meeting.status);
  Tensor result;
  try {
    result = meeting.meet->rule().cut ? result_of(meeting, taker.taker) : meeting.result;
    if (!taker.device->is_synchronous()) {
      const auto stream = taker.device->compute_stream();
      copy_to_device(result, *taker.device, *stream);
    }
  } catch (...) { return taker.completion.fail(Status::from_current_exception()); }
  taker.completion.fulfil(Value(std::move(result)));
}

std::function<void()> Exchange::take(const RunInfo& run, int node, const Place& place,
                                     Values values) {
  const bool is_piece = place.group < 0;
  const Key key{run.id, is_piece ? of_pieces(place) : place};
  const auto known = meets_.find({place.key, key.second.group});
  if (known == meets_.end()) malformed("values for devices of no mesh");
  const std::shared_ptr<const Meet>& meet = known->second;
  if (!meet->has_taker_here() || node == meet->here_ || !meet->giver_nodes_.contains(node))
    malformed("values of devices that give none");
  const auto each = meet->rule().cut ? static_cast<std::size_t>(meet->takers_here_) : 1;
  const auto is_its = [&](const Meet::Part& part) { return part.node == node; };
  const auto parts = is_piece ? std::size_t{meet->is_in_pieces_}
                              : static_cast<std::size_t>(std::count_if(meet->parts_.begin(),
                                                                       meet->parts_.end(), is_its));
  if (parts == 0 || values.size() != parts * each)
    malformed("values of other devices than are there");
  const auto has_value = [](const Tensor& t) { return t.has_value(); };
  if (!meet->rule().may_need_none && !std::all_of(values.begin(), values.end(), has_value))
    malformed("no value where devices exchange one");
  std::lock_guard lock(mutex_);
  if (run.cancelled.load(std::memory_order_seq_cst)) return {};
  if (ahead_ >= kMostAhead && !meetings_.contains(key))
    throw Error(Code::resource_exhausted,
                "it sent values of too many iterations that this node has not reached");
  const Found meeting = find(key, meet);
  if (is_piece) {
    if (!is_piece_of(*meeting, node, std::move(values))) return {};
    return [this, key, meeting] { finish(key, meeting); };
  }
  if (meeting->awaited.erase(node) == 0) malformed("values of a device that has given its own");
  auto value = values.begin();
  for (std::size_t p = 0; p < meet->parts_.size(); ++p)
    if (is_its(meet->parts_[p])) {
      meeting->parts[p].assign(std::make_move_iterator(value),
                               std::make_move_iterator(value + static_cast<std::ptrdiff_t>(each)));
      value += static_cast<std::ptrdiff_t>(each);
    }
  if (!meeting->awaited.empty()) return {};
  return [this, key, meeting, send = send_] { all_given(key, meeting, send.get()); };
}

void Exchange::cancel(std::uint64_t run) {
  std::vector<Taker> waiting;
  {
    constexpr Place kFirst{std::numeric_limits<std::int64_t>::min(), 0, 0};
    std::lock_guard lock(mutex_);
    auto it = meetings_.lower_bound({run, kFirst});
    while (it != meetings_.end() && it->first.first == run) {
      it->second->is_cancelled = true;
      if (it->second->is_ahead) --ahead_;
      for (Taker& taker : it->second->waiting) waiting.push_back(std::move(taker));
      it->second->waiting.clear();
      it = meetings_.erase(it);
    }
  }
  for (Taker& taker : waiting) taker.completion.fail(given_up());
}

}  // namespace troupe::mesh::detail
