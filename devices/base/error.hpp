// Errors, as a value or as an exception.
//
//   throw Error(Code::out_of_range, "Gather: index 7 at position 3 is outside [0, 5)");
//   Status s = run.wait();  if (!s.ok()) std::cerr << s.message();
//
// Three kinds of trouble (STYLE 21): a broken invariant asserts; a wrong program throws `Error`
// while the graph is built; a run-time failure is a `Status` that fails its run. Kernels throw
// `Error`; the executor turns it into the run's `Status`.
#pragma once

#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

enum class Code : unsigned char {
  ok,
  invalid_argument,     // the program or its input is wrong
  out_of_range,         // an index or a position outside its bound
  not_found,            // a name that was never declared
  already_exists,       // a name declared twice, differently
  failed_precondition,  // right call, wrong state (a closed queue)
  resource_exhausted,   // memory, disk, limits
  deadline_exceeded,    // the run's time-out passed
  cancelled,            // the caller cancelled; never masks another code
  aborted,              // given up because another part of the run failed
  unavailable,          // a device or peer cannot be reached
  data_loss,            // a file is truncated or corrupted
  unimplemented,        // this op has no kernel for this dtype or device
  internal,             // Troupe's own fault
};

std::string_view name_of(Code code);

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

/// The outcome of something that may fail; `ok()` costs one pointer test.
class Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : rep_(std::make_shared<Rep>(Rep{code, std::move(message)})) {}
  explicit Status(const Error& error) : Status(error.code(), error.what()) {}

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::ok; }
  const std::string& message() const;
  void throw_if_error() const {
    if (rep_) throw Error(rep_->code, rep_->message);
  }

  /// The exception in flight as a status; call it inside a catch block only.
  static Status from_current_exception();

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

namespace detail {

/// A location in the user's own source: file, line and function.
struct Site {
  const char* file = "";
  const char* function = "";
  unsigned line = 0;

  Site() = default;
  Site(const std::source_location& at)  // NOLINT: a Site is what a source_location becomes
      : file(at.file_name()), function(at.function_name()), line(at.line()) {}
  /// `model.cpp:41`
  std::string text() const;
};

}  // namespace detail

}  // namespace troupe
