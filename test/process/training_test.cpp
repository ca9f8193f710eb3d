// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// The main job over nodes, which are processes: interrupted, and gone on with by the command that
// it prints.
#include <boost/test/unit_test.hpp>

#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(training_test)

namespace {

/// Returns the text behind `words`, to the end of the line.
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
      R"(scripts/demo --text 'it'\''s a text' --resume part --workers 1 --validate-every 1 )"
      R"(--validate-characters 10 --sample-chars 0)";
  BOOST_TEST(line_after(o.out, "go on with: ") == demo);

  o = run(folder.path(), {"/bin/sh", "-c", "exec " + command});
  BOOST_TEST(o.code == 0, o.out << o.error);
  BOOST_TEST((read_file(folder / "part") == read_file(folder / "whole")),
             "interrupted and uninterrupted differ");
}

namespace {

/// A training over nodes a, b and c, which goes on from its last save when one is lost.
struct Surviving {
  Folder folder, folders[3];
  NodeProcess a{folders[0], "a"};
  NodeProcess b{folders[1], "b", {"--join", a.address}};
  NodeProcess c{folders[2], "c", {"--join", a.address}};
  Process training;

  explicit Surviving(int max_restarts = 5) : training(folder.path(), command(max_restarts)) {
    BOOST_REQUIRE(training.read_until("step      20 of 400"));
  }
  /// Options that decide the weights.
  static std::vector<std::string> of_the_weights() {
    return {"--text",   "text", "--steps", "400", "--hidden",       "16", "--embedding", "5",
            "--length", "12",   "--batch", "6",   "--sample-chars", "0",  "--workers",   "1"};
  }
  std::vector<std::string> command(int max_restarts) const {
    std::string text;
    for (int i = 0; i < 15; ++i)
      text += "the cat watches the moon and " + std::to_string(i * i) + " dogs\n";
    write_file(folder / "text", text);
    std::vector<std::string> all{example("char_lm"), "--join", c.address, "--nodes", "a,b,c"};
    for (const std::string& word : of_the_weights()) all.push_back(word);
    for (const char* word :
         {"--save", "lm", "--validate-every", "1", "--validate-characters", "10", "--max-restarts"})
      all.emplace_back(word);
    all.push_back(std::to_string(max_restarts));
    return all;
  }
  /// Returns all that it has printed when it is done.
  std::string rest() {
    const Outcome o = training.finish();
    BOOST_TEST(o.code == 0, o.out << o.error);
    BOOST_TEST(o.out.find("step     400 of 400") != std::string::npos, o.out);
    check_weights();
    return o.out;
  }
  /// Weights and slots are those of an undisturbed training in one process, bit for bit.
  void check_weights() const {
    std::vector<std::string> alone{example("char_lm"), "--replicas", "3", "--save", "alone"};
    for (const std::string& word : of_the_weights()) alone.push_back(word);
    const Outcome o = run(folder.path(), alone);
    BOOST_REQUIRE_MESSAGE(o.code == 0, o.out << o.error);
    BOOST_TEST((read_file(folder / "lm") == read_file(folder / "alone")),
               "the loss of a node has changed the weights");
  }
};

}  // namespace

// It joins by c, and goes on by the others' addresses when c is not there any more. When c starts
// again, it has its part from the next save on.
BOOST_AUTO_TEST_CASE(it_goes_on_without_a_node_that_was_killed,
                     *label("stock_zmq") * precondition(Built{"char_lm"})) {
  Surviving s;
  s.c.process.interrupt(SIGKILL);
  BOOST_REQUIRE(s.training.read_until(" on 2 of 3 nodes"));
  Folder again;
  NodeProcess c(again, "c", {"--join", s.a.address});
  const std::string out = s.rest();
  BOOST_TEST(out.find("; restart 1 of 5 from 'lm'") != std::string::npos, out);
  BOOST_TEST(out.find("lm continues after step ") != std::string::npos, out);
  BOOST_TEST(out.find(": more nodes are there") != std::string::npos, out);
  BOOST_TEST(out.find(" on 3 of 3 nodes") != std::string::npos, out);
}

BOOST_AUTO_TEST_CASE(a_training_ends_with_the_loss_after_its_last_restart,
                     *label("stock_zmq") * precondition(Built{"char_lm"})) {
  Surviving s(1);
  s.c.process.interrupt(SIGKILL);
  BOOST_REQUIRE(s.training.read_until(" on 2 of 3 nodes"));
  s.b.process.interrupt(SIGKILL);
  const Outcome o = s.training.finish();
  BOOST_TEST(o.code == 1, o.out << o.error);
  BOOST_TEST(o.out.find("; restart 1 of 1 from 'lm'") != std::string::npos, o.out);
  BOOST_TEST(o.error.find("or start with --max-restarts") != std::string::npos, o.error);
}

BOOST_AUTO_TEST_CASE(it_goes_on_with_a_node_that_was_started_again,
                     *label("stock_zmq") * precondition(Built{"char_lm"})) {
  Surviving s;
  s.b.process.interrupt(SIGKILL);
  s.b.process.finish();
  Folder folder;
  NodeProcess again(folder, "b", {"--join", s.a.address});
  const std::string out = s.rest();
  BOOST_TEST(out.find(" on 3 of 3 nodes") != std::string::npos, out);
}

// Silent, and not dead: it is declared dead, and left out. Later it is used again.
BOOST_AUTO_TEST_CASE(it_goes_on_without_a_stopped_node_until_that_continues,
                     *label("stock_zmq") * precondition(Built{"char_lm"})) {
  Surviving s;
  s.b.process.interrupt(SIGSTOP);
  BOOST_REQUIRE(s.training.read_until(" on 2 of 3 nodes"));
  s.b.process.interrupt(SIGCONT);
  const std::string out = s.rest();
  BOOST_TEST(out.find(" on 3 of 3 nodes") != std::string::npos, out);
}

BOOST_AUTO_TEST_CASE(a_drained_node_exits_and_the_training_goes_on_without_it,
                     *label("stock_zmq") * precondition(Built{"char_lm"})) {
  Surviving s;
  Folder folder;
  const Outcome drained = run(folder.path(), {binary(), "drain", "b", "--join", s.a.address});
  BOOST_TEST(drained.code == 0, drained.error);
  BOOST_TEST(
      drained.out.find("node 'b' takes no new partitions, and exits when its runs have ended") !=
          std::string::npos,
      drained.out);
  const Outcome left = s.b.process.finish();
  BOOST_TEST(left.code == 0, left.error);
  BOOST_TEST(left.out.find("node 'b' is drained") != std::string::npos, left.out);
  const std::string out = s.rest();
  BOOST_TEST(out.find("it is being drained and takes no new partitions") != std::string::npos, out);
  BOOST_TEST(out.find(" on 2 of 3 nodes") != std::string::npos, out);
  // Later it is not there.
  const Outcome again = run(folder.path(), {binary(), "drain", "b", "--join", s.a.address});
  BOOST_TEST(again.code == 1);
  BOOST_TEST(again.error.find("there is no node 'b' in this cluster: it has left; there are ") !=
                 std::string::npos,
             again.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
