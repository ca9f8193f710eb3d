#include <troupe/actors/trace/host_argument.hpp>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/eager/eager.hpp>

namespace troupe {

void detail::add_host(const Shape& value, HostArgument& out) {
  out.key += value.text() + ';';
  out.text += value.text();
}

// A later scope may have the address of an earlier one, and other variables by its numbers.
void detail::add_host(const Variable& value, HostArgument& out) {
  if (const auto* scope = dynamic_cast<const Eager*>(&value.reader())) {
    add_bytes(reinterpret_cast<std::uintptr_t>(scope->host()), out);
    if (!scope->host()) add_bytes(scope->id(), out);
  } else {
    add_bytes(static_cast<const Graph&>(value.reader()).id(), out);
  }
  out.key += value.name() + ';';
  out.text += '\'' + value.name() + '\'';
}

}  // namespace troupe
