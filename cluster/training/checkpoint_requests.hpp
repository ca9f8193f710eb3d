// Requests for checkpoints that are under way, to several nodes at a time.
//
//   CheckpointRequests writing(node.checkpoints());
//   for (...) writing.start(name, request);
//   writing.await([&](const std::string& node, const CheckpointService::Reply& reply) { ... });
//
// Each request is awaited once, also after the first error. Threads: one at a time. Ownership: the
// service outlives it.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/node/checkpoint_service.hpp>

namespace troupe::detail {

class CheckpointRequests {
 public:
  explicit CheckpointRequests(CheckpointService& service) : service_(service) {}
  CheckpointRequests(const CheckpointRequests&) = delete;
  CheckpointRequests& operator=(const CheckpointRequests&) = delete;
  ~CheckpointRequests() {
    try {
      await();
    } catch (...) {  // an earlier error is on its way
    }
  }

  /// Throws not_found for a node that is not there.
  void start(const std::string& node, CheckpointRequest m) {
    asked_.emplace_back(node, service_.start(node, std::move(m)));
  }
  /// Calls `take(node, reply)` for each in order. Throws the first error when all are done.
  template <class Take>
  void await(Take take) {
    std::exception_ptr first;
    for (const auto& [node, request] : std::exchange(asked_, {})) try {
        take(node, service_.await(node, request));
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    if (first) std::rethrow_exception(first);
  }
  void await() {
    await([](const std::string&, const CheckpointService::Reply&) {});
  }

 private:
  CheckpointService& service_;
  std::vector<std::pair<std::string, std::uint64_t>> asked_;
};

}  // namespace troupe::detail
