// troupe query: a query in CEDR's language over files of events.
#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/apps/verbs/verbs.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/files.hpp>
#include <troupe/actors/events/language.hpp>
#include <troupe/actors/events/running_query.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::verbs {
namespace {

/// The text of a query: of the file of this name if there is one. A query has blanks.
std::string query_text(const std::string& given) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(given, ignored)) return file_text(given, "a query");
  if (given.find_first_of(" \t\n") == std::string::npos)
    throw Misuse(fmt::format("'{}' is no file, and no query, which begins with EVENT", given));
  return given;
}

std::pair<std::string, std::string> query_source(const std::string& given) {
  const std::size_t at = given.find('=');
  if (at == 0 || at == std::string::npos || at + 1 == given.size())
    throw Misuse(fmt::format("--source is '{}'; write NAME=FILE", given));
  return {given.substr(0, at), given.substr(at + 1)};
}

/// Columns of a file without lines have no type of their own.
std::string query_hint(const std::map<std::string, events::FileEvents>& files) {
  std::string names;
  for (const auto& [name, file] : files)
    if (file.messages.empty()) names += (names.empty() ? "" : ", ") + name;
  if (names.empty()) return "";
  return fmt::format("; there are no lines in {}: give types in the header, as in name:text",
                     names);
}

events::Consistency query_level(const QueryFlags& flags) {
  if (flags.level == "strong") return events::Consistency::strong();
  if (flags.level == "middle") return events::Consistency::middle();
  return events::Consistency::weak(flags.memory);
}

events::Time query_second(const std::string& unit) {
  static const std::map<std::string, events::Time> all{
      {"s", 1}, {"ms", 1'000}, {"us", 1'000'000}, {"ns", 1'000'000'000}};
  return all.at(unit);
}

void complain(const std::vector<events::Counters>& counters) {
  for (const events::Counters& c : counters)
    for (const std::string& complaint : c.complaints)
      std::fputs(fmt::format("troupe: {}\n", printable(complaint)).c_str(), stderr);
}

std::string query_plan(const events::Query& query, const QueryFlags& flags) {
  if (flags.on.empty()) return query.explain();
  return events::placed(query, flags.on, static_cast<std::size_t>(flags.partitions)).explain();
}

/// Runs the operators on nodes of a cluster, of which this process is a guest.
void query_on_nodes(const QueryFlags& flags, const events::Query& query,
                    const std::map<std::string, events::FileEvents>& files,
                    const events::RunningQuery::Receive& receive) {
  as_guest("query", flags.guest, [&](ClusterNode& here) {
    here.wait_for(flags.on, std::chrono::seconds(flags.guest.patience));
    events::RunningQuery run(
        query, receive,
        {.partitions = flags.partitions, .engine = &here.engine(), .nodes = flags.on});
    events::feed_files(run, query, files);
    complain(run.counters());
  });
}

}  // namespace

int query(const QueryFlags& flags) {
  std::map<std::string, events::FileEvents> files;
  std::vector<events::EventType> types;
  for (const std::string& given : flags.sources) {
    const auto [name, file] = query_source(given);
    if (files.contains(name))
      throw Misuse(fmt::format("--source names '{}' twice; join its files into one", name));
    try {
      events::FileEvents read = events::events_of_file(
          events::kind_of_file(file), file_text(file, "a file of events"), flags.time);
      types.push_back({name, read.schema});
      files.insert_or_assign(name, std::move(read));
    } catch (const Error& error) {
      throw std::runtime_error(fmt::format("'{}': {}", file, error.what()));
    }
  }
  events::Query parsed;
  try {
    parsed = events::parse_query(query_text(flags.query), types, query_second(flags.unit));
  } catch (const Error& error) { throw Misuse(error.what() + query_hint(files)); }
  parsed.set_consistency(query_level(flags));
  if (flags.explain) {
    std::string plan;
    try {
      plan = printable_lines(query_plan(parsed, flags));
    } catch (const Error& error) { throw Misuse(error.what()); }
    std::fwrite(plan.data(), 1, plan.size(), stdout);
    return 0;
  }
  std::erase_if(files, [&](const auto& entry) {  // the query does without
    for (const events::Query::Port& source : parsed.sources())
      if (source.name == entry.first) return false;
    return true;
  });
  std::vector<events::RowWriter> writers;
  const bool has_several = parsed.outputs().size() > 1;
  try {
    for (const events::Query::Port& output : parsed.outputs())
      writers.emplace_back(parsed.steps()[output.step].schema,
                           flags.changes ? events::RowForm::changes : events::RowForm::table,
                           flags.json ? events::FileKind::json_lines : events::FileKind::csv,
                           has_several ? output.name : "");
  } catch (const Error& error) { throw Misuse(error.what()); }
  const auto receive = [&](std::size_t output, const events::Batch& batch) {
    writers[output].add(batch);
    const std::string text = writers[output].take();
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  if (!flags.on.empty()) {
    query_on_nodes(flags, parsed, files, receive);
    return 0;
  }
  events::DirectRun run(parsed, receive);
  events::feed_files(run, parsed, files);
  complain(run.counters());
  return 0;
}

}  // namespace troupe::verbs
