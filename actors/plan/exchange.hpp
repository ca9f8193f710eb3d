// Exchange: where the instances of one SPMD plan meet to combine and to pass on values. See Note
// [Instances] in ops/NOTES.md.
//
//   exchange->arrive(run, {key, tag, group}, {.meet = meet, .giver = i, .value = x,
//                                             .taker = i, .completion = c.defer(), ...});
//
// A meeting belongs to one run, node, iteration and group of devices. Each giver brings a value
// once; each taker gets its result once. Nothing waits on a thread: takers leave a Completion. Each
// node of the cluster has an exchange for its own members. The last giver there combines their
// values as far as the order allows, and sends one message to each node with takers.
//
// Threads: any. Ownership: the kernels of a plan's instances share the exchange of the plan.
// Invariants: 1. a node's values are combined, and sent to another node, once; 2. a Completion is
// used once: by the thread that serves it, or by `cancel`; 3. a cancelled run has no meeting once
// `cancel` has returned; 4. values of other nodes that no meeting needs are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <troupe/actors/plan/meeting_place.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh::detail {

class Exchange {
 public:
  using Values = std::vector<Tensor>;

  /// The rule of a node's meetings; equal for all its members.
  struct Rule {
    ValueSpec result;  // a taker's
    /// Returns the part of a value that a taker needs. `giver`: its place among the givers; without
    /// meaning for a sum. Null: all need all of it.
    std::function<Tensor(const Tensor& value, int giver, int taker)> cut = {};
    bool may_need_none = false;  // some parts are empty
    /// Combines two values; the order is that of Note [Order of members]. Null: they stay apart.
    std::function<Tensor(const Tensor& first, const Tensor& second)> add = {};
    /// Makes the result of the givers' values, in their order; called once for all takers if
    /// nothing is cut. Null: it is the first one.
    std::function<Tensor(Values values)> join = {};
    /// Returns one of so many pieces of a value, whose sums `from_pieces` makes the result of: each
    /// node adds one piece of a large sum over several nodes. Null: none does.
    std::function<Tensor(const Tensor& value, int piece, int pieces)> piece = {};
    std::function<Tensor(Values pieces)> from_pieces = {};
  };
  /// The members of a node's meetings in one group, and the node of the cluster on which each is.
  class Meet {
   public:
    Meet(std::shared_ptr<const Rule> rule, std::vector<int> givers, std::vector<int> takers,
         int here);

    const Rule& rule() const { return *rule_; }

   private:
    friend class Exchange;
    /// Givers beside each other on one node, whose values are one sum; or one giver.
    struct Part {
      int first = 0, last = 0;
      int node = 0;
    };
    void cut_into_parts(int first, int last);
    Tensor added(int first, int last, const std::function<Tensor(int part)>& value) const;
    Tensor sum_of(int first, int last, Values& given) const;
    std::vector<int> takers_on(int node) const;
    bool has_taker_here() const { return takers_here_ > 0; }
    bool is_sent() const;
    int pieces() const { return static_cast<int>(giver_nodes_.size()); }
    int piece_of(int node) const;

    const std::shared_ptr<const Rule> rule_;
    const std::vector<int> givers_, takers_;  // by place: the node
    const int here_;
    std::vector<Part> parts_;
    std::set<int> giver_nodes_, taker_nodes_;
    int givers_here_ = 0, takers_here_ = 0;
    bool is_in_pieces_ = false;  // each node adds one
  };
  using Place = troupe::detail::MeetingPlace;
  struct Arrival {
    std::shared_ptr<const Meet> meet;
    int giver = -1;                              // its place among the givers; -1: it gives nothing
    Tensor value = {};                           // on the host
    int taker = -1;                              // its place among the takers; -1: it takes nothing
    troupe::detail::Completion completion = {};  // a taker's
    troupe::detail::Device* device = nullptr;    // a taker's result goes there
  };
  /// Sends values of this node's givers, for a run's meeting at a place, to another node.
  using Send = std::function<void(std::uint64_t run, int node, const Place& place, Values values)>;

  /// Before the first run, if members are on several nodes.
  void connect(Send send) { send_ = std::make_shared<const Send>(std::move(send)); }
  /// Adds a node's members in a group, while kernels are made one after the other; returns those of
  /// the group that are there already.
  std::shared_ptr<const Meet>& meet(std::int64_t key, int group) { return meets_[{key, group}]; }

  /// A taker of a run that was cancelled fails with `given_up`. Throws what the combination of a
  /// node without takers throws.
  void arrive(const troupe::detail::RunInfo& run, const Place& place, Arrival arrival);
  /// Takes values of another node's givers. Returns the rest of the work, if any, which combines
  /// values and ends firings. Throws data_loss for what makes no sense, and resource_exhausted for
  /// values of too many meetings that this node has not reached.
  std::function<void()> take(const troupe::detail::RunInfo& run, int node, const Place& place,
                             Values values);
  /// Fails all takers that wait in the run, and forgets its meetings.
  void cancel(std::uint64_t run);
  /// Returns the data that the kernels of a node share, while they are made one after the other.
  std::shared_ptr<const void>& shared(std::int64_t key) { return shared_[key]; }

 private:
  // meetings that this node has not reached; EarlyLimits has as many for runs that have not begun
  static constexpr std::size_t kMostAhead = 1 << 16;

  struct Taker {
    int taker;
    troupe::detail::Completion completion;
    troupe::detail::Device* device;
  };
  struct Meeting {
    explicit Meeting(std::shared_ptr<const Meet> m);
    const std::shared_ptr<const Meet> meet;
    Values given;  // by giver
    // by part of the meet: its value, or what was cut from it for each taker here
    std::vector<Values> parts;
    std::set<int> awaited;  // nodes
    Values pieces;          // the sum's, by the node that adds them
    std::set<int> awaited_pieces;
    int givers = 0, taken = 0;
    bool is_ahead = true;  // no member here has arrived
    bool has_given = false, is_ready = false, is_cancelled = false;
    Status status;  // how combining ended
    Tensor result;  // if nothing is cut
    std::vector<Taker> waiting;
  };
  using Key = std::pair<std::uint64_t, Place>;  // run first
  using Found = std::shared_ptr<Meeting>;

  Found find(const Key& key, const std::shared_ptr<const Meet>& meet);
  void forget_if_done(const Key& key, const Meeting& meeting);
  void give(const Key& key, const Found& meeting, const std::shared_ptr<const Send>& send);
  void all_given(const Key& key, const Found& meeting, const Send* send);
  void finish(const Key& key, const Found& meeting);
  static Values parts_here(const Meet& meet, Values given);
  static Values sent_to(const Meet& meet, int node, const Values& parts);
  bool is_piece_of(Meeting& meeting, int node, Values values);
  static Tensor result_of(const Meeting& meeting, int taker);
  static void serve(const Meeting& meeting, Taker taker);

  std::mutex mutex_;  // guards meetings_, ahead_, and each meeting until it is ready
  std::map<Key, Found> meetings_;
  std::size_t ahead_ = 0;  // meetings that no member here has reached
  std::shared_ptr<const Send> send_;
  std::map<std::pair<std::int64_t, int>, std::shared_ptr<const Meet>> meets_;
  std::map<std::int64_t, std::shared_ptr<const void>> shared_;
};

/// The nodes of the cluster on which a plan's instances are, as numbers.
struct InstanceNodes {
  std::vector<int> of_device;           // by device of the mesh
  std::map<std::int64_t, int> of_once;  // by key: of the member that runs once
  int here = 0;
};

/// Makes the kernel of a node that `meets_others` (ops/mesh/instances.hpp). `instance`: the number
/// of the device in the mesh; -1 for a node that runs once. Throws the errors of making a kernel,
/// and data_loss for attributes that no pass has made.
std::unique_ptr<Kernel> make_exchange_kernel(const Mesh& mesh, const InstanceNodes& nodes,
                                             const Graph& program, const troupe::detail::Node& node,
                                             std::shared_ptr<Exchange> exchange, int instance,
                                             troupe::detail::Device& device);

}  // namespace troupe::mesh::detail
