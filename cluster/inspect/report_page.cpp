#include <troupe/cluster/inspect/report_page.hpp>

#include <cassert>

#include <troupe/cluster/inspect/page_assets.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

std::string_view asset(std::string_view path) {
  const PageAsset* found = find_page_asset(path);
  assert(found && "the report's files are embedded with the page's");
  return found->bytes;
}

// JSON in HTML: '<' stands in strings only, where this is the same character; so nothing ends the
// element.
std::string embedded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

std::string quoted(std::string_view text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      ((out += "\\u00") += kHex[c >> 4]) += kHex[c & 15];
    else out += c;
  }
  return out + '"';
}

void add_script(std::string& out, std::string_view type, std::string_view text) {
  assert(text.find("</script") == std::string_view::npos);
  ((((out += "<script") += type) += ">") += text) += "</script>\n";
}

}  // namespace

std::string report_page(std::string_view run, const ReportParts& parts) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n"
      "<title>Troupe</title>\n<style>\n";
  ((out += asset("page.css")) += asset("report.css")) += "</style>\n</head>\n<body>\n";
  std::string data = "{\"run\":" + quoted(run);
  const auto add = [&](const char* name, std::string_view text) {
    ((((data += ",\"") += name) += "\":") += text);
  };
  add("state", parts.state);
  add("plan", parts.plan);
  add("counters", parts.counters);
  add("events", parts.events);
  add("scalars", parts.scalars);
  add("diagnosis", parts.diagnosis);
  add_script(out, " id=\"data\" type=\"application/json\"", embedded(data + "}"));
  add_script(out, "", asset("d3.js"));
  add_script(out, "", asset("dagre.js"));
  add_script(out, " type=\"module\"", asset("report.js"));
  return out + "<!-- " +
         "d3, dagre, graphlib and lodash are part of this file. Their copyright:\n" +
         std::string(asset("licences.txt")) + "-->\n</body>\n</html>\n";
}

std::string failure_page(std::string_view run, std::string_view how,
                         const std::vector<FailureTold>& told) {
  const auto text = [](std::string_view t) {
    std::string out;
    for (const char c : t)
      if (c == '<') out += "&lt;";
      else if (c == '>') out += "&gt;";
      else if (c == '&') out += "&amp;";
      else if (c == '"') out += "&quot;";
      else out += c;
    return out;
  };
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>Troupe: run ";
  out += text(run) + "</title>\n<style>\n";
  (out += asset("report.css")) += "</style>\n</head>\n<body>\n<main>\n<h1>Run ";
  out += text(run) + " has failed</h1>\n<p>" + text(how) +
         ".</p>\n<p>Its plan is not there any more: this is what its nodes have kept.</p>\n"
         "<table>\n<tr><th>node</th><th>when</th><th>why</th><th>what led to it</th></tr>\n";
  for (const FailureTold& f : told)
    out += "<tr><td>" + text(f.node) + "</td><td>" + text(f.when) + "</td><td>" + text(f.text) +
           "</td><td>" + text(f.flight) + "</td></tr>\n";
  return out + "</table>\n</main>\n</body>\n</html>\n";
}

}  // namespace troupe
