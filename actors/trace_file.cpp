#include <troupe/actors/trace_file.hpp>

#include <algorithm>
#include <cstdio>
#include <set>

#include <fmt/format.h>

namespace troupe {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return out + '"';
}

}  // namespace

bool write_trace(const std::string& path, const Plan& plan, const std::vector<PartitionSnapshot>& partitions) {
  using Kind = RecordedEvent::Kind;
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (!file) return false;
  std::int64_t origin = INT64_MAX;
  std::set<std::uint64_t> sent, received;
  for (const PartitionSnapshot& p : partitions)
    for (const RecordedEvent& e : p.events) {
      origin = std::min(origin, e.begin_ns);
      if (e.flow) (e.kind == Kind::send ? sent : received).insert(e.flow);
    }
  constexpr const char* kinds[] = {"turn", "kernel", "firing", "send", "receive"};
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  for (std::size_t t = 0; t < partitions.size(); ++t) {
    out += fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":{}}}}},\n", t + 1, quoted(partitions[t].device));
    for (const RecordedEvent& e : partitions[t].events) {
      const std::string name = e.kind == Kind::turn ? fmt::format("{} firings", e.tag) : e.node < 0 ? std::string() : plan.program.graph.describe(e.node);
      const double at = static_cast<double>(e.begin_ns - origin) * 1e-3, length = static_cast<double>(std::max<std::int64_t>(e.length_ns, e.flow ? 500 : 1)) * 1e-3;
      out += fmt::format("{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f},\"pid\":1,\"tid\":{},\"args\":{{\"run\":{},\"tag\":{}}}}},\n", quoted(name),
                         kinds[static_cast<std::size_t>(e.kind)], at, length, t + 1, e.run, e.tag);
      if (e.flow && sent.contains(e.flow) && received.contains(e.flow))
        out += fmt::format("{{\"ph\":\"{}\",\"bp\":\"e\",\"name\":\"token\",\"cat\":\"token\",\"id\":\"{}\",\"ts\":{:.3f},\"pid\":1,\"tid\":{}}},\n", e.kind == Kind::send ? "s" : "f", e.flow, at + 0.2, t + 1);
    }
  }
  out += "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":" + quoted(plan.name.text()) + "}}\n]}\n";
  const bool is_written = std::fwrite(out.data(), 1, out.size(), file) == out.size();
  return std::fclose(file) == 0 && is_written;
}

}  // namespace troupe
