// The web page inside the library, and reports made of it.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <troupe/cluster/inspect/page_assets.hpp>
#include <troupe/cluster/inspect/report_page.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/source_dir.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(page_test, TROUPE_ONE_THREAD)

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(in, path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_library_holds_the_files_byte_for_byte) {
  std::size_t compared = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(kSourceDir) / "cluster/inspect/page")) {
    const std::string name = entry.path().filename().string();
    // package.json is for Node's tests; report.js is there with all that it needs
    if (name.ends_with(".md") || name == "package.json" || name == "report.js") continue;
    const PageAsset* asset = find_page_asset(name);
    BOOST_REQUIRE_MESSAGE(asset, name);
    BOOST_TEST((asset->bytes == read(entry.path())), name);
    ++compared;
  }
  BOOST_TEST(compared > 15u);
  BOOST_TEST((find_page_asset("d3.js")->bytes == read("/usr/share/nodejs/d3/dist/d3.min.js")));
  BOOST_TEST(
      (find_page_asset("dagre.js")->bytes == read("/usr/share/nodejs/dagre/dist/dagre.min.js")));
}

BOOST_AUTO_TEST_CASE(assets_have_types_and_tags_of_their_own) {
  std::set<std::string_view> tags;
  for (const PageAsset& a : page_assets()) {
    BOOST_TEST((a.type.starts_with("text/") || a.type == "image/svg+xml"), a.path);
    BOOST_TEST((a.etag.size() == 18 && a.etag.front() == '"' && a.etag.back() == '"'), a.path);
    BOOST_TEST(tags.insert(a.etag).second, a.path);
  }
  // or a browser refuses the module
  BOOST_TEST(find_page_asset("main.js")->type.starts_with("text/javascript"));
}

BOOST_AUTO_TEST_CASE(nothing_else_is_ever_found) {
  using namespace std::string_view_literals;
  for (std::string_view path :
       {""sv, "/"sv, ".."sv, "../page_assets.hpp"sv, "/etc/passwd"sv, "main.js/"sv, "main.js\0x"sv,
        "README.md"sv, "INDEX.HTML"sv, "zzz"sv})
    BOOST_TEST(!find_page_asset(path), path);
}

BOOST_AUTO_TEST_CASE(the_page_asks_for_nothing_that_is_not_there) {
  const std::string page(find_page_asset("index.html")->bytes);
  for (std::size_t at = page.find("\"assets/"); at != std::string::npos;
       at = page.find("\"assets/", at + 1)) {
    const std::string name = page.substr(at + 8, page.find('"', at + 1) - at - 8);
    BOOST_TEST(find_page_asset(name), name);
  }
  for (const char* elsewhere : {"http:", "https:", "//"})
    BOOST_TEST(page.find(elsewhere) == std::string::npos, elsewhere);
  for (const PageAsset& a : page_assets()) {
    const std::string text(a.bytes);
    for (std::size_t at = text.find("from './"); at != std::string::npos;
         at = text.find("from './", at + 1)) {
      const std::string name = text.substr(at + 8, text.find('\'', at + 8) - at - 8);
      BOOST_TEST(find_page_asset(name), a.path << " imports " << name);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_report_stands_alone) {
  const std::string html =
      report_page("a/17", {.state = R"({"nodes":[]})", .plan = "{}", .counters = "{}"});
  BOOST_TEST(html.find("src=") > html.find("<body>"));
  BOOST_TEST(html.find("<link") == std::string::npos);
  const std::string script(find_page_asset("report.js")->bytes);
  BOOST_TEST(script.find("\nimport ") == std::string::npos);
  BOOST_TEST(script.find("\nexport ") == std::string::npos);
  BOOST_TEST(html.find("Copyright") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_of_users_end_no_element_of_a_report) {
  const std::string plain =
      report_page("a/17", {.state = R"({"node":"x"})", .plan = "{}", .counters = "{}"});
  const std::string hostile =
      report_page("a\"}</script><script>alert(1)//\n",
                  {.state = R"({"node":"</script><script>alert(1)</script><!--"})",
                   .plan = "{}",
                   .counters = "{}"});
  BOOST_TEST(count(hostile, "<script") == count(plain, "<script"));
  BOOST_TEST(count(hostile, "</script") == count(plain, "</script"));
  BOOST_TEST(count(hostile, "<!--") == count(plain, "<!--"));
  BOOST_TEST(hostile.find("\\u003c/script>\\u003cscript>alert(1)//\\u000a") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
