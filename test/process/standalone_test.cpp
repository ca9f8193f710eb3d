// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// Several nodes of one machine that one process starts, and how they end.
#include <boost/test/unit_test.hpp>

#include <csignal>

#include <fmt/format.h>
#include <httplib.h>

#include <troupe/test/process/client.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/process/standalone.hpp>
#include <troupe/test/support/port.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(standalone_test)

BOOST_AUTO_TEST_CASE(nodes_without_peers_end_with_their_launcher,
                     *boost::unit_test::label("stock_zmq")) {
  const OwnPort port;
  Folder folder;
  Process all(folder.path(),
              {binary(), "node", "--standalone", "2", "--workers", "1", "--join",
               "tcp://127.0.0.1:1", "--patience", "600", "--http", std::to_string(port.number())});
  const NoSigpipe writes_fail;
  bool is_there = false;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
       !is_there && std::chrono::steady_clock::now() < end;)
    is_there = static_cast<bool>(httplib::Client("127.0.0.1", port.number()).Get("/healthz"));
  BOOST_TEST(is_there);
  all.interrupt(SIGTERM);
  const Outcome end = all.finish();
  BOOST_TEST(end.code == 0, end.error);
}

// Its options are passed on to its nodes, which report the invalid ones.
BOOST_AUTO_TEST_CASE(a_cluster_on_one_machine_that_makes_no_sense) {
  Folder folder;
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--labels", "x"}, {"--keys", "/nowhere"}, {"--name", "a/b"}}) {
    std::vector<std::string> line{binary(), "node", "--standalone", "2", "--workers", "1"};
    line.insert(line.end(), flags.begin(), flags.end());
    const Outcome refused = run(folder.path(), line);
    BOOST_TEST(refused.code == 2, flags[0] << ": " << refused.error);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_of_mpi_with_an_empty_list_is_refused) {
  Folder folder;
  write_file(folder / "peers", "# none yet\n");
  const Outcome alone = run(
      folder.path(), {"/usr/bin/env", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", binary(),
                      "node", "--listen", "tcp://127.0.0.1:0", "--peers", folder / "peers"});
  BOOST_TEST(alone.code == 2, alone.error);
  BOOST_TEST((alone.error.find("this is rank 1 of 2") != std::string::npos), alone.error);
}

bool are_gone(const std::vector<pid_t>& all) {
  for (int i = 0; i < 100'000; ++i) {
    if (std::none_of(all.begin(), all.end(), [](pid_t p) { return kill(p, 0) == 0; })) return true;
    usleep(1000);
  }
  return false;
}

// The process whose command line has this name.
pid_t pid_of_node(const std::vector<pid_t>& all, const std::string& name) {
  for (const pid_t p : all) {
    const std::string line = read_file("/proc/" + std::to_string(p) + "/cmdline");
    if (line.find("--name" + std::string(1, '\0') + name + std::string(1, '\0')) !=
        std::string::npos)
      return p;
  }
  BOOST_FAIL("no node is called " << name);
  return 0;
}

BOOST_AUTO_TEST_CASE(a_cluster_on_one_machine, *boost::unit_test::label("stock_zmq")) {
  Standalone all;
  {
    const std::string first = all.process.seen().substr(all.process.seen().find("tcp://"));
    auto a = first_client(first.substr(0, first.find('\n')));
    a->wait_for({"local-1", "local-2", "local-3"}, std::chrono::seconds(60));
  }
  // for ps, and pkill
  for (const pid_t node : all.nodes)
    BOOST_TEST(read_file("/proc/" + std::to_string(node) + "/comm") == "troupe\n");
  all.process.interrupt(SIGTERM);
  const Outcome end = all.process.finish();
  BOOST_TEST(end.code == 0, end.error);
  for (const char* name : {"local-1", "local-2", "local-3"})
    BOOST_TEST((end.out.find(std::string("node '") + name + "' leaves") != std::string::npos),
               end.out);
  BOOST_TEST(are_gone(all.nodes));
}

// Whichever dies, the first one that others have joined too.
BOOST_AUTO_TEST_CASE(one_that_dies_is_lost_and_the_others_go_on,
                     *boost::unit_test::label("stock_zmq")) {  // H2
  for (const std::size_t dies : {std::size_t{1}, std::size_t{0}}) {
    Standalone all;
    const std::vector<std::string> at = all.addresses();
    BOOST_REQUIRE(at.size() == 3u);
    auto a = first_client(at[2]);
    a->wait_for({"local-1", "local-2", "local-3"}, std::chrono::seconds(60));
    const std::string name = fmt::format("local-{}", dies + 1);
    const std::string said = all.folder / ".stderr";
    Graph endless;
    auto [count, sum] =
        while_loop([](Expr i, Expr) { return i < 1'000'000'000; },
                   [&](Expr i, Expr v) {
                     Expr next = i + 1;
                     for (const std::string& node : {name, std::string("local-3")}) {
                       auto there = endless.on_device("/node:" + node + "/cpu:0");
                       v = v * 0.5 + 1.0;
                     }
                     return std::tuple{next, v};
                   },
                   std::tuple{endless.constant(0), endless.ones(DType::f32, {2})});
    RunHandle under_way = a->engine().start(endless, {}, {count, sum});
    const std::uint64_t before = a->counters().messages_in;
    for (int ms = 0; ms < 100'000 && a->counters().messages_in < before + 20; ++ms) usleep(1000);
    kill(pid_of_node(all.nodes, name), SIGKILL);
    const Status lost = under_way.wait();
    BOOST_TEST((lost.code() == Code::unavailable), lost.message());
    BOOST_TEST(lost.message().find("node '" + name + "' was lost") != std::string::npos,
               lost.message());
    const auto has_said = [&](const std::string& text) {
      return read_file(said).find(text) != std::string::npos;
    };
    for (int ms = 0; ms < 100'000 && !has_said("starts it again"); ++ms) usleep(1000);
    BOOST_TEST(has_said("node '" + name + "' was killed by signal 9; the others go on without it"),
               read_file(said));
    Graph g;
    Expr y;
    {
      auto there = g.on_device("/node:local-3/cpu:0");
      y = g.ones(DType::f32, {2}) + 1.0;
    }
    BOOST_TEST(a->engine().run(g, {}, {y})[0].at(1) == 2);
    a.reset();
    all.process.interrupt(SIGTERM);
    const Outcome end = all.process.finish();
    BOOST_TEST(end.code == 1, end.error);  // one was lost
    BOOST_TEST(end.out.find("node 'local-3' leaves") != std::string::npos, end.out);
    BOOST_TEST(are_gone(all.nodes));
  }
}

BOOST_AUTO_TEST_CASE(no_node_outlives_its_supervisor, *boost::unit_test::label("stock_zmq")) {
  Standalone all;
  all.process.interrupt(SIGKILL);
  all.process.finish();
  BOOST_TEST(are_gone(all.nodes));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
