#include <troupe/devices/base/error.hpp>

#include <cstring>
#include <new>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid argument";
    case Code::out_of_range: return "out of range";
    case Code::not_found: return "not found";
    case Code::already_exists: return "already exists";
    case Code::failed_precondition: return "failed precondition";
    case Code::resource_exhausted: return "resource exhausted";
    case Code::deadline_exceeded: return "deadline exceeded";
    case Code::cancelled: return "cancelled";
    case Code::aborted: return "aborted";
    case Code::unavailable: return "unavailable";
    case Code::data_loss: return "data loss";
    case Code::unimplemented: return "unimplemented";
    case Code::internal: return "internal";
  }
  return "unknown";
}

const std::string& Status::message() const {
  static const std::string none;
  return rep_ ? rep_->message : none;
}

Status Status::from_current_exception() {
  try {
    throw;
  } catch (const Error& e) { return Status(e); } catch (const std::bad_alloc&) {
    return Status(Code::resource_exhausted, "out of memory");
  } catch (const std::exception& e) { return Status(Code::internal, e.what()); } catch (...) {
    return Status(Code::internal, "an exception that is no std::exception");
  }
}

std::string Site::text() const {
  const char* slash = std::strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}

}  // namespace troupe
