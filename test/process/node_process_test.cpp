// Not under tsan: its processes run on ZeroMQ, which is not instrumented.
// `troupe node` as processes on loopback, and this program as one more node.
#include <boost/test/unit_test.hpp>

#include <csignal>
#include <thread>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/node/roster.hpp>
#include <troupe/cluster/transport/zeromq/zeromq.hpp>
#include <troupe/test/process/client.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(node_process_test)

namespace {

// Each iteration goes over all three.
std::pair<Expr, Expr> over_three(Graph& g, int iterations) {
  auto [n, s] = while_loop([=](Expr i, Expr) { return i < iterations; },
                           [&](Expr i, Expr t) {
                             Expr next = i + 1, u;
                             {
                               auto there = g.on_device("/node:b/cpu:0");
                               u = matmul(t, t) * 0.01;
                             }
                             auto there = g.on_device("/node:c/cpu:0");
                             return std::tuple{next, u + 1.0};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {32, 32})});
  return {n, s};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_over_three_processes_and_one_that_dies,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  auto a = first_client(c.address.substr(6));  // without tcp://; hears of b there
  a->wait_for({"b", "c"}, std::chrono::seconds(60));

  Graph g;
  auto [n, s] = over_three(g, 20);
  Graph same;
  Engine alone;
  double expected = 1;
  for (int i = 0; i < 20; ++i) expected = expected * expected * 32 * 0.01 + 1;
  for (int run = 0; run < 3; ++run) {
    auto out = a->engine().run(g, {}, {n, s});
    BOOST_TEST(out[0].item<std::int32_t>() == 20);
    BOOST_TEST(out[1].at(1000) == expected, boost::test_tools::tolerance(1e-4));
  }

  Graph endless;
  auto [m, t] = over_three(endless, 1000000000);
  RunHandle run = a->engine().start(endless, {}, {t});
  c.process.interrupt(SIGKILL);
  const Status lost = run.wait();
  BOOST_TEST((lost.code() == Code::unavailable), lost.message());
  for (const char* part : {"node 'c' was lost", "; awaited from it: ", "node_process_test.cpp:"})
    BOOST_TEST((lost.message().find(part) != std::string::npos),
               part << " is not in: " << lost.message());
  BOOST_TEST(c.process.finish().code == 128 + SIGKILL);

  Graph h;
  Expr y;
  {
    auto there = h.on_device("/node:b/cpu:0");
    y = h.ones(DType::f32, {2}) * h.random_uniform({2});
  }
  BOOST_TEST((a->engine().run(h, {}, {y})[0].shape() == Shape{2}));  // the others go on

  b.process.interrupt(SIGTERM);
  const Outcome left = b.process.finish();
  BOOST_TEST(left.code == 0, left.error);
  BOOST_TEST((left.out.find("node 'b' leaves") != std::string::npos), left.out);
}

// c has given b what b needs of it, and dies: the run goes on, over the time in which it is found
// to be dead.
BOOST_AUTO_TEST_CASE(a_process_that_has_done_its_part_dies, *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  auto a = first_client(c.address);
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  Graph g;
  Expr once;
  {
    auto d = g.on_device("/node:c/cpu:0");
    once = g.random_uniform({2}) * 0.0 + 3.0;
  }
  auto [n, t] = while_loop([](Expr i, Expr) { return i < 1000000000; },
                           [&](Expr i, Expr v) {
                             Expr next = i + 1;
                             auto d = g.on_device("/node:b/cpu:0");
                             return std::tuple{next, v * 0.5 + once * 0.5};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  RunHandle run = a->engine().start(g, {}, {t});
  const auto until = [&](auto done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return done();
  };
  const auto in = [&] { return a->counters().messages_in; };
  BOOST_REQUIRE(until([&] { return in() > 1000; }));
  c.process.interrupt(SIGKILL);
  BOOST_TEST(until([&] {
    const std::vector<Member> all = a->members();
    return std::any_of(all.begin(), all.end(), [](const Member& m) {
      return m.name == "c" && m.state == MemberState::dead;
    });
  }));
  const std::uint64_t before = in();
  BOOST_TEST(until([&] { return in() > before + 1000 || run.is_done(); }));
  BOOST_TEST(!run.is_done());
  run.cancel();
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::cancelled), status.message());
}

BOOST_AUTO_TEST_CASE(placement_goes_by_what_processes_measured,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b"), c(folder_c, "c", {"--join", b.address});
  EngineOptions o;
  o.placement = Placement::automatic;
  auto a = first_client(c.address, o);
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  Graph g;
  Expr x = g.input("x", DType::f32, {64, 64}), y;
  {
    auto d = g.on_device("/node:b/cpu:0");
    y = matmul(x, x);
  }
  Function f = a->engine().compile(g, {x}, {y});
  for (int run = 0; run < 3; ++run) f({Tensor::zeros(DType::f32, {64, 64})});
  const std::string text = a->engine().compile(g, {x}, {y}).explain();
  for (const char* part : {"link a - b: ", "link a - c: ", "link b - c: ", "measured: 1 of 1 nodes",
                           "on /node:b/cpu:0 (measured)"})
    BOOST_TEST((text.find(part) != std::string::npos), part << " is not in:\n" << text);
}

BOOST_AUTO_TEST_CASE(a_node_that_is_asked_to_end_while_it_works,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  NodeProcess b(folder, "b");
  auto a = first_client(b.address);
  a->wait_for({"b"}, std::chrono::seconds(60));
  Graph g;
  Expr r = counted_on_b(g, 1'000'000'000);
  RunHandle run = a->engine().start(g, {}, {r});
  b.process.interrupt(SIGTERM);
  const Status status = run.wait();
  BOOST_TEST((status.message().find("node 'b'") != std::string::npos), status.message());
  BOOST_TEST(b.process.finish().code == 0);
}

// A kernel cannot be cancelled: a node that gets SIGTERM waits for it no longer than it says.
BOOST_AUTO_TEST_CASE(a_node_with_an_endless_kernel_is_ended,
                     *boost::unit_test::label("stock_zmq") *
                         boost::unit_test::enable_if<kShare == 1>()) {
  Folder folder;
  NodeProcess b(folder, "b");
  auto a = first_client(b.address);
  a->wait_for({"b"}, std::chrono::seconds(60));
  // One kernel on the node's only worker, in 100 MB: 7e13 exponentials. A core that computes 1e10
  // of them a second, several times what any does today, takes two hours.
  constexpr std::int64_t kPositions = 1 << 23;
  Graph g;
  Expr x = g.input("x", DType::f32, {1, 1, kPositions, 1}), r;
  {
    auto there = g.on_device("/node:b/cpu:0");
    r = attention(x, x, x);
  }
  RunHandle run =
      a->engine().start(g, {{x, Tensor::zeros(DType::f32, {1, 1, kPositions, 1})}}, {r});
  // The node reaches the kernel within a fraction of these five seconds of processor time.
  const auto ticks = [&] {
    std::istringstream stat(read_file("/proc/" + std::to_string(b.process.pid()) + "/stat"));
    std::string field;
    for (int i = 0; i < 13; ++i) stat >> field;
    long user = 0;
    return stat >> user ? user : 0;
  };
  for (const long before = ticks(); !run.is_done() && ticks() < before + 5 * sysconf(_SC_CLK_TCK);)
    usleep(1000);
  BOOST_REQUIRE(!run.is_done());
  b.process.interrupt(SIGTERM);
  const Outcome end = b.process.finish();
  BOOST_TEST(end.code == 1, end.error);
  BOOST_TEST((end.error.find("it did not come to an end within 20 s, and is ended as it is") !=
              std::string::npos),
             end.error);
  BOOST_TEST((run.wait().message().find("node 'b'") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(an_address_that_is_taken_and_a_name_that_is,
                     *boost::unit_test::label("stock_zmq")) {  // H9
  Folder folder, other;
  NodeProcess b(folder, "b");
  const Outcome taken = run(other.path(), {binary(), "node", "--name", "c", "--listen", b.address});
  BOOST_TEST(taken.code == 1, taken.error);  // 2: the command line
  BOOST_TEST((taken.error.find(b.address) != std::string::npos), taken.error);
  const Outcome same =
      run(other.path(), {binary(), "node", "--name", "b", "--listen", "tcp://127.0.0.1:0", "--join",
                         b.address, "--patience", "0"});
  BOOST_TEST(same.code == 1, same.error);
  const std::string port = b.address.substr(b.address.rfind(':') + 1);
  const Outcome http = run(other.path(), {binary(), "node", "--name", "c", "--listen",
                                          "tcp://127.0.0.1:0", "--http", port});
  BOOST_TEST(http.code == 1, http.error);
  BOOST_TEST((http.error.find(":" + port + " of --http is taken") != std::string::npos),
             http.error);
  // A supervisor that does not restart after 2 restarts after these.
  const Outcome all = run(other.path(), {binary(), "node", "--standalone", "2", "--workers", "1",
                                         "--listen", b.address});
  BOOST_TEST(all.code == 1, all.error);
}

// It was here an hour ahead, left, and comes back with a clock that was set right.
BOOST_AUTO_TEST_CASE(a_node_with_a_clock_set_back_names_it_and_joins,
                     *boost::unit_test::label("stock_zmq")) {  // H7
  Folder folder, other;
  NodeProcess a(folder, "x");
  {
    NodeOptions o;
    o.name = "b";
    o.join = {a.address};
    const auto in_an_hour = std::chrono::system_clock::now() + std::chrono::hours(1);
    o.incarnation =
        static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::milliseconds>(in_an_hour.time_since_epoch())
                .count())
        << kLifeBits;
    o.transport = [](PeerInfo self) {
      self.address = "tcp://127.0.0.1:0";
      return make_zeromq_transport(std::move(self), {});
    };
    ClusterNode before(std::move(o));
    before.wait_for({"x"}, std::chrono::seconds(60));
  }
  NodeProcess b(other, "b", {"--join", a.address});
  const std::string log = read_file(other / ".stderr");
  BOOST_TEST((log.find("the clock of the machine of node 'b' is behind: by it the node has started "
                       "3") != std::string::npos),
             log);
  auto c = first_client(a.address);
  c->wait_for({"b"}, std::chrono::seconds(60));
}

// Two supervisors that restart what ends: the first node stays what it is.
BOOST_AUTO_TEST_CASE(a_name_that_is_in_use_is_refused_while_its_node_answers,
                     *boost::unit_test::label("stock_zmq")) {  // H6
  Folder folder_a, folder_b, folder;
  NodeProcess a(folder_a, "x"), b(folder_b, "b", {"--join", a.address});
  for (int start = 0; start < 2; ++start) {
    const Outcome later =
        run(folder.path(), {binary(), "node", "--name", "b", "--listen", "tcp://127.0.0.1:0",
                            "--join", a.address, "--patience", "0"});
    BOOST_TEST(later.code == 1, later.error);
    BOOST_TEST((later.error.find("another node 'b' at " + b.address +
                                 " is connected with x and answers; give each a name of its own") !=
                std::string::npos),
               later.error);
  }
  auto c = first_client(a.address);
  c->wait_for({"b"}, std::chrono::seconds(60));
  c.reset();
  // After a kill the name is free at once.
  b.process.interrupt(SIGKILL);
  b.process.finish();
  Folder again;
  NodeProcess next(again, "b", {"--join", a.address});
  next.process.interrupt(SIGTERM);
  BOOST_TEST(next.process.finish().code == 0);
}

// A node that names it no more, or never has, may clear it: any node that may connect.
BOOST_AUTO_TEST_CASE(a_container_is_cleared_from_a_shell, *boost::unit_test::label("stock_zmq")) {
  Folder folder, other;
  NodeProcess b(folder, "b");
  auto a = first_client(b.address, {}, "models");
  a->wait_for({"b"}, std::chrono::seconds(60));
  Graph g;
  Expr more;
  {
    auto there = g.on_device("/node:b/cpu:0");
    more = g.variable("v", Tensor::scalar(1.f)).assign_add(1.0);
  }
  BOOST_TEST(a->engine().run(g, {}, {more})[0].item<float>() == 2);
  const auto clear = [&](const std::string& container, const std::string& node,
                         const std::string& patience) {
    return run(other.path(), {binary(), "clear", "--join", b.address, "--on", node, container,
                              "--patience", patience});
  };
  // This program names the container itself.
  const Outcome kept = clear("models", "a", "60");
  BOOST_TEST(kept.code == 1, kept.error);
  BOOST_TEST((kept.error.find("a keeps container 'models' as its own") != std::string::npos),
             kept.error);
  BOOST_TEST(clear("others", "b", "60").out == "0 states of container 'others' dropped on b\n");
  BOOST_TEST(a->engine().get("v").item<float>() == 2);
  const Outcome timed_out = clear("models", "x", "10");
  BOOST_TEST(timed_out.code == 1, timed_out.error);
  BOOST_TEST((timed_out.error.find("timed out waiting for x") != std::string::npos),
             timed_out.error);
  // The peers that it joins are in its environment, as with a node.
  const Outcome done =
      run(other.path(), {"/usr/bin/env", "TROUPE_JOIN=tcp://127.0.0.1:1," + b.address, binary(),
                         "clear", "--on", "b", "models", "--patience", "60"});
  BOOST_TEST(done.code == 0, done.error);
  BOOST_TEST(done.out == "1 state of container 'models' dropped on b\n");
  try {
    a->engine().get("v");
    BOOST_ERROR("a value that is lost was given");
  } catch (const Error& e) {
    BOOST_TEST((std::string(e.what()).find("its container was cleared") != std::string::npos),
               e.what());
  }
}

// As launchers start it, and by a list of peers: its name and the peers that it joins are in its
// environment, or in a file.
BOOST_AUTO_TEST_CASE(launchers_give_a_node_its_name_and_its_peers,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  NodeProcess b(folder, "b");
  std::ofstream(folder / "peers") << "# whoever is there\n" << b.address << "\n";
  struct Started {
    std::string name;
    std::vector<std::string> environment, flags;
  };
  const std::vector<Started> all{
      {"rank-1",
       {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "TROUPE_JOIN=" + b.address},
       {}},
      {"train-0",
       {"SLURM_PROCID=0", "SLURM_JOB_NAME=train", "SLURM_STEP_NODELIST=localhost"},
       {"--join", b.address}},
      {"worker-2",
       {"KUBERNETES_SERVICE_HOST=10.0.0.1", "TROUPE_SERVICE=troupe", "HOSTNAME=worker-2",
        "TROUPE_JOIN=" + b.address},
       {}},
      {"listed", {"TROUPE_NAME=listed"}, {"--peers", folder / "peers"}},
  };
  std::vector<std::unique_ptr<Folder>> folders;
  std::vector<std::unique_ptr<Process>> nodes;
  for (const Started& s : all) {
    std::vector<std::string> line{"/usr/bin/env"};
    for (const char* other : {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TROUPE_SERVICE",
                              "TROUPE_JOIN", "TROUPE_NAME", "TROUPE_KEYS"})
      line.insert(line.end(), {"-u", other});  // set in the environment of the tests
    line.insert(line.end(), s.environment.begin(), s.environment.end());
    line.insert(line.end(), {binary(), "node", "--listen", "tcp://127.0.0.1:0", "--workers", "1",
                             "--patience", "60"});
    line.insert(line.end(), s.flags.begin(), s.flags.end());
    folders.push_back(std::make_unique<Folder>());
    nodes.push_back(std::make_unique<Process>(folders.back()->path(), line));
    BOOST_TEST(nodes.back()->read_until("node '" + s.name + "' listens at "), s.name);
  }
  auto a = first_client(b.address);
  std::vector<std::string> names{"b"};
  for (const Started& s : all) names.push_back(s.name);
  a->wait_for(names, std::chrono::seconds(60));
  for (auto& node : nodes) {
    node->interrupt(SIGTERM);
    const Outcome left = node->finish();
    BOOST_TEST(left.code == 0, left.error);
  }
}

// The labels given to node processes decide where parts of programs go, also when one of the
// processes is gone.
BOOST_AUTO_TEST_CASE(placement_goes_by_the_labels_of_processes,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder_b, folder_c;
  NodeProcess b(folder_b, "b", {"--labels", "gpu=yes,zone=x"}),
      c(folder_c, "c", {"--labels", "gpu=yes,zone=y", "--join", b.address});
  auto a = first_client(c.address);
  a->wait_for({"b", "c"}, std::chrono::seconds(60));
  const auto on_label = [&](Graph& g, const std::string& label) {
    auto there = g.on_device("/label:" + label);
    return matmul(g.ones(DType::f32, {8, 8}), g.ones(DType::f32, {8, 8}));
  };
  for (const auto& [zone, node, other] :
       {std::tuple{"zone=y", "c", "b"}, std::tuple{"zone=x", "b", "c"}}) {
    const std::size_t before = runs_on(*a, node), before_other = runs_on(*a, other);
    Graph g;
    Function f = a->engine().compile(g, {}, {on_label(g, zone)});
    BOOST_TEST(f({})[0].at(0) == 8);
    BOOST_TEST((f.explain().find(std::string("/node:") + node + "/cpu:0") != std::string::npos),
               f.explain());
    BOOST_TEST(runs_on(*a, node) > before);
    BOOST_TEST(runs_on(*a, other) == before_other);  // which has heard nothing of it
  }
  Graph nowhere;
  const std::string why =
      refusal([&] { a->engine().compile(nowhere, {}, {on_label(nowhere, "zone=z")}); },
              Code::invalid_argument);
  BOOST_TEST((why.find("no device is what '/label:zone=z' asks for; there are /node:a/cpu:0, "
                       "/node:b/cpu:0, /node:c/cpu:0") != std::string::npos),
             why);
  // Both have it: it is made on the first, and on the other when that one is gone and it is given a
  // value.
  Graph g;
  Variable v;
  {
    auto there = g.on_device("/label:gpu");
    v = g.variable("v", Tensor::scalar(1.f));
  }
  const auto add_one = [&] { return a->engine().run(g, {}, {v.assign_add(1.0)})[0].item<float>(); };
  BOOST_TEST(add_one() == 2);
  const std::size_t on_c = runs_on(*a, "c");
  b.process.interrupt(SIGTERM);
  BOOST_TEST(b.process.finish().code == 0);
  const std::string lost = refusal_once_heard([&] { add_one(); }, Code::failed_precondition);
  BOOST_TEST((lost.find("variable 'v' is lost") != std::string::npos), lost);
  a->engine().set(v, Tensor::scalar(5.f));
  BOOST_TEST(add_one() == 6);
  BOOST_TEST(runs_on(*a, "c") > on_c);
}

// Else a socket would take its place, and what is read there, or printed where output is closed,
// would be the socket's.
BOOST_AUTO_TEST_CASE(a_stream_that_is_closed_becomes_no_socket,
                     *boost::unit_test::label("stock_zmq")) {
  Folder folder;
  NodeProcess b(folder, "b", {}, "tcp://127.0.0.1:0",
                {"/bin/bash", "-c", "exec \"$@\" <&-", "bash"});
  BOOST_TEST(fs::read_symlink("/proc/" + std::to_string(b.process.pid()) + "/fd/0").string() ==
             "/dev/null");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
