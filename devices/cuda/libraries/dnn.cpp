#include <troupe/devices/cuda/libraries/dnn.hpp>

#include <utility>

#include <fmt/format.h>

namespace troupe::cuda {

Dnn::Dnn(DnnOptions options)
    : options_(std::move(options)), folder_(options_.folder, options_.limit) {}

Dnn::~Dnn() {
  plans_.clear();
  if (handle_) library_->destroy(handle_);
}

// Called with the lock. A library that is missing stays missed for this device: programs do not
// change their kernels half-way.
bool Dnn::is_open() {
  if (!std::exchange(is_tried_, true)) try {
      library_ = &cudnn_library();
      library_->check(library_->create(&handle_), "opening cuDNN");
    } catch (const Error& e) {
      handle_ = nullptr;
      problem_ = e.what();
    }
  return handle_ != nullptr;
}

const ConvolutionPlan* Dnn::find(const ConvolutionForm& form) {
  const std::lock_guard lock(mutex_);
  if (!is_open()) return nullptr;
  const auto [at, is_new] = plans_.try_emplace(form.text());
  if (is_new) at->second = make(form);
  return at->second ? &*at->second : nullptr;
}

std::optional<ConvolutionPlan> Dnn::make(const ConvolutionForm& form) {
  const PlanTarget target{.handle = handle_};
  const TextHash key =
      hash_of(fmt::format("cuDNN {} {} {} {}", library_->version(), options_.device,
                          options_.tf32 ? "tf32" : "exact", form.text()));
  try {
    std::string text;
    if (folder_.read(key, text) == ImageFolder::Found::yes)
      if (auto plan = restore_convolution(*library_, target, form.what, text)) {
        ++counters_.from_files;
        return plan;
      }
    auto plan = plan_convolution(*library_, target, form, {.tf32 = options_.tf32});
    ++(plan ? counters_.planned : counters_.without_engine);
    if (plan) keep(key, *plan);
    return plan;
  } catch (const Error& e) {
    problem_ = e.what();
    ++counters_.without_engine;
    return std::nullopt;
  }
}

// A plan that cannot be written is made again by the next process.
void Dnn::keep(const TextHash& key, const ConvolutionPlan& plan) const {
  try {
    folder_.write(key, plan.serialized());
  } catch (const Error&) {}
}

cudaError_t Dnn::run(cudaStream_t stream, const ConvolutionPlan& plan,
                     const ConvolutionPlan::Operands& operands, void* workspace) {
  const std::lock_guard lock(mutex_);
  library_->check(library_->set_stream(handle_, stream), "a convolution by cuDNN");
  const cudnnStatus_t status = plan.execute(handle_, operands, workspace);
  if (status == CUDNN_STATUS_EXECUTION_FAILED) return cudaErrorLaunchFailure;
  library_->check(status, "a convolution by cuDNN");
  return cudaSuccess;
}

std::string Dnn::version() {
  const std::lock_guard lock(mutex_);
  return is_open() ? library_->version_text() : std::string();
}

std::string Dnn::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

DnnCounters Dnn::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace troupe::cuda
