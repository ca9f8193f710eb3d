// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// The main job over nodes, which are processes: interrupted, and gone on with by the command that
// it prints.
#include <boost/test/unit_test.hpp>

#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(training_test)

namespace {

/// What stands behind `words`, to the end of the line.
std::string line_after(const std::string& out, const std::string& words) {
  const std::size_t at = out.find(words);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, out);
  const std::size_t begin = at + words.size();
  return out.substr(begin, out.find('\n', begin) - begin);
}

}  // namespace

using boost::unit_test::label;
using boost::unit_test::precondition;

// Lines at every step, in a small pipe, keep it from running ahead of the signals.
BOOST_AUTO_TEST_CASE(it_goes_on_over_the_same_nodes_bit_for_bit,
                     *label("stock_zmq") * precondition(Built{"char_lm"})) {
  Folder folder, folder_a, folder_b;
  const std::string keys = folder / "the keys";
  make_keys(keys, "all");
  NodeProcess a(folder_a, "a", {"--keys", keys}),
      b(folder_b, "b", {"--keys", keys, "--join", a.address});
  std::string text;
  for (int i = 0; i < 15; ++i)
    text += "the cat watches the moon and " + std::to_string(i * i) + " dogs\n";
  write_file(folder / "it's a text", text);
  const auto training = [&](std::vector<std::string> more) {
    std::vector<std::string> all{example("char_lm"),
                                 "--text",
                                 "it's a text",
                                 "--join",
                                 a.address,
                                 "--nodes",
                                 "a,b",
                                 "--keys",
                                 keys,
                                 "--steps",
                                 "200",
                                 "--seed",
                                 "9",
                                 "--hidden",
                                 "16",
                                 "--embedding",
                                 "5",
                                 "--length",
                                 "12",
                                 "--batch",
                                 "4",
                                 "--workers",
                                 "1",
                                 "--sample-chars",
                                 "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  Outcome o = run(folder.path(), training({"--save", "whole"}));
  BOOST_REQUIRE_MESSAGE(o.code == 0, o.out << o.error);

  Process first(folder.path(), training({"--save", "part", "--validate-every", "1",
                                         "--validate-characters", "10"}));
  BOOST_REQUIRE(first.read_until("step      10 of 200"));
  first.interrupt(SIGINT);
  o = first.finish();
  BOOST_TEST(o.code == 130, o.out << o.error);
  const std::string command = line_after(o.out, "go on with: ");
  for (const std::string& part :
       {" --join " + a.address, std::string(" --nodes a,b"), " --keys '" + keys + "'"})
    BOOST_TEST((command.find(part) != std::string::npos),
               "'" << part << "' is not in: " << command);

  // Once more, started by what starts the nodes too.
  Process second(folder.path(),
                 {"/bin/sh", "-c", "export TROUPE_GO_ON=scripts/demo; exec " + command});
  BOOST_REQUIRE(second.read_until("  loss "));
  second.interrupt(SIGTERM);
  o = second.finish();
  BOOST_TEST(o.code == 143, o.out << o.error);
  const char* demo =
      R"(scripts/demo --text 'it'\''s a text' --resume part --workers 1 --validate-every 1 --validate-characters 10 --sample-chars 0)";
  BOOST_TEST(line_after(o.out, "go on with: ") == demo);

  o = run(folder.path(), {"/bin/sh", "-c", "exec " + command});
  BOOST_TEST(o.code == 0, o.out << o.error);
  BOOST_TEST((read_file(folder / "part") == read_file(folder / "whole")),
             "interrupted and uninterrupted differ");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
