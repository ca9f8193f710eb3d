#include <troupe/cluster/training/training_driver.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {

TrainingDriver::TrainingDriver(CheckpointService& service, const std::string& training)
    : service_(service), fence_{training, 0, service.node()} {
  if (!training.empty() && !is_training_name(training))
    throw Error(Code::invalid_argument,
                fmt::format("Training: '{}' is no name: use up to 64 letters, digits, '-', '_' and "
                            "'.', and no '.' first",
                            training));
}

void TrainingDriver::claim(const std::function<void(const std::string& line)>& log) {
  nodes_ = service_.look();
  if (fence_.training.empty()) return;
  std::uint64_t last = fence_.epoch;
  for (const auto& [node, report] : nodes_)
    for (const TrainingsReport::Entry& e : report.trainings) {
      if (e.training != fence_.training) continue;
      if (fence_.epoch > 0 && e.epoch > fence_.epoch)
        throw Error(
            Code::failed_precondition,
            fmt::format("training '{}': driver '{}' is of epoch {}, and node '{}' has "
                        "accepted driver '{}' of epoch {}; at most one driver acts at a "
                        "time, so end this one",
                        fence_.training, fence_.driver, fence_.epoch, node, e.driver, e.epoch));
      last = std::max(last, e.epoch);
      for (const CheckpointId& id : e.checkpoints) last = std::max(last, id.epoch);
    }
  fence_.epoch = last + 1;
  for (auto it = nodes_.begin(); it != nodes_.end();) try {
      CheckpointRequest m;
      m.kind = CheckpointRequest::Kind::claim;
      m.fence = fence_;
      service_.ask(it->first, std::move(m));
      ++it;
    } catch (const Error& e) {
      if (e.code() == Code::resource_exhausted) {
        if (log) log(fmt::format("no checkpoint is kept there: {}", e.what()));
        (it++)->second.has_folder = false;
        continue;
      }
      if (e.code() != Code::unavailable && e.code() != Code::not_found) throw;
      it = nodes_.erase(it);
    }
}

void TrainingDriver::check() const {
  if (!fence_.training.empty()) service_.store().check(fence_);
}

void TrainingDriver::report(DriverProgress progress) {
  if (fence_.training.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  if (progress.state == reported_ && now < next_report_) return;
  reported_ = progress.state;
  next_report_ = now + std::chrono::seconds(1);
  progress.time_ns = service_.time_ns();
  CheckpointRequest m;
  m.kind = CheckpointRequest::Kind::report;
  m.fence = fence_;
  m.tensors = {packed(progress)};
  if (progress.state != kEnded) {
    for (const auto& [node, report] : nodes_) service_.tell(node, m);
    return;
  }
  // The driver's process may end with this: the last report is awaited.
  for (const auto& [node, report] : nodes_) try {
      service_.ask(node, m);
    } catch (const Error&) {  // it has left, or obeys another driver
    }
}

}  // namespace troupe::detail
