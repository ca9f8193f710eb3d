// Not under asan and tsan: the text of the command line has no memory of its own.
// troupe top on a terminal: what it shows fits, whatever its size and what actors are called, and
// it leaves the terminal as it was.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/events/running_query.hpp>
#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/test/apps/terminal.hpp>
#include <troupe/test/process/as_node.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(top_test)

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;

const std::string kHostile =
    "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egnp.exe\xff 名前 мир 🌍 a\u0301 " + std::string(300, 'w');

/// A node that serves inspections, and a run of an actor of such a name that waits.
struct Hanging {
  Nodes nodes{1};
  Graph g;
  RunHandle run;
  InspectionServer server{nodes[0], {}};
  Hanging() {
    Expr taken = g.named(g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8).dequeue()[0], kHostile);
    run = nodes.engine().compile(g, {}, {taken * 2.0}).start({});
  }
  ~Hanging() {
    run.cancel();
    run.wait();
  }
  std::vector<std::string> top(const std::string& every = "1") const {
    return {binary(), "top", "--node", server.address(), "--patience", "60", "--every", every};
  }
};

// the cursor is shown, the screen that was there is back
constexpr const char* kLeft = "\x1b[?25h\x1b[?1049l";

}  // namespace

BOOST_AUTO_TEST_CASE(every_line_fits_the_terminal) {
  Hanging h;
  for (const auto& [rows, columns] :
       {std::pair<unsigned short, unsigned short>{24, 80}, {10, 40}, {40, 20}, {3, 5}, {1, 1}}) {
    Terminal t(h.top(), rows, columns);
    BOOST_REQUIRE(t.read_until("\x1b[1;1H"));
    if (rows >= 10 && columns >= 20) BOOST_REQUIRE(t.read_until("RUN"));
    else BOOST_REQUIRE(t.read_until("\x1b[1;1H"));  // and once more
    t.type("q");
    BOOST_TEST(t.finish() == 0);
    const std::string all = t.rest();
    for (const auto& [row, text] : screen_of(all)) {
      BOOST_TEST(row <= rows);
      BOOST_TEST(verbs::cells(text) <= columns, text);
      for (const char c : text) BOOST_TEST((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
      BOOST_TEST(verbs::printable(text) == text);
    }
    BOOST_TEST(all.find("\x1b[2J") == std::string::npos);
    BOOST_TEST(all.find("owned\x07") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_new_size_is_drawn_at_once) {
  Hanging h;
  Terminal t(h.top("86400"), 6, 30);  // it will not ask a second time
  BOOST_REQUIRE(t.read_until("node 'a'"));
  t.resize(30, 120);
  BOOST_REQUIRE(t.read_until("ACTOR"));  // there was no room for it
  t.resize(1, 1);
  BOOST_REQUIRE(t.read_until("\x1b[1;1H\x1b[K…"));
  t.type("q");
  BOOST_TEST(t.finish() == 0);
}

BOOST_AUTO_TEST_CASE(however_it_ends_the_terminal_is_as_it_was) {
  Hanging h;
  using End = void (*)(Terminal&);
  // Keys that mean nothing go first, Ctrl-Z too: to a program that ends by a key. Keys that it has
  // not read when a signal ends it are the terminal's again, for which Ctrl-Z discards output that
  // is not written yet.
  for (const End end :
       {End([](Terminal& t) { t.type("x\x1b[A\x1aq"); }),
        End([](Terminal& t) { t.type("x\x1b[A\x1a\x03"); }),
        End([](Terminal& t) { t.signal(SIGTERM); }), End([](Terminal& t) { t.signal(SIGHUP); })}) {
    Terminal t(h.top(), 24, 80);
    BOOST_REQUIRE(t.read_until("troupe top"));
    BOOST_TEST(!t.is_as_it_was());
    end(t);
    BOOST_TEST(t.finish() == 0);
    BOOST_TEST(t.is_as_it_was());
    const std::string all = t.rest();
    BOOST_TEST(all.ends_with(kLeft),
               all.substr(all.size() - std::min<std::size_t>(all.size(), 100)));
  }
}

// It asks a node that does not answer, and is ended meanwhile.
BOOST_AUTO_TEST_CASE(a_stopped_node_does_not_block_top, *boost::unit_test::label("stock_zmq")) {
  const Folder folder;
  NodeProcess node(folder, "a", {"--http", "0"});
  const std::string seen = node.process.seen();
  const std::string url = seen.substr(
      seen.find("http://"), seen.find_first_of(" \n", seen.find("http://")) - seen.find("http://"));
  for (const char* key : {"q", "\x03"}) {
    // it would wait for long
    Terminal t({binary(), "top", "--node", url, "--patience", "86400", "--every", "0.05"}, 24, 80);
    BOOST_REQUIRE(t.read_until("node 'a'"));
    node.process.interrupt(SIGSTOP);
    BOOST_REQUIRE(t.read_until(" s ago; q leaves"));  // 1, but where nothing is drawn for a second
    t.type(key);
    BOOST_TEST(t.finish() == 0);
    BOOST_TEST(t.is_as_it_was());
    node.process.interrupt(SIGCONT);
  }
  // which it may need to answer first
  Terminal t({binary(), "top", "--node", url, "--patience", "5", "--every", "0.05"}, 24, 120);
  BOOST_REQUIRE(t.read_until("node 'a'"));
  node.process.interrupt(SIGSTOP);
  BOOST_REQUIRE(
      t.read_until("is connected but has not answered for 5 s: it is stopped or overloaded"));
  t.type("q");
  BOOST_TEST(t.finish() == 0);
  const Outcome ps = run(folder.path(), {binary(), "ps", "--node", url, "--patience", "1"});
  BOOST_TEST(ps.code == 1);
  BOOST_TEST(
      ps.error.find("is connected but has not answered for 1 s: it is stopped or overloaded") !=
          std::string::npos,
      ps.error);
  node.process.interrupt(SIGCONT);
}

// It says something all the time, and never all: in its head, or in its answer, whether that tells
// how long it is or not.
BOOST_AUTO_TEST_CASE(an_endless_answer_does_not_block_top) {
  const Folder folder;
  for (const std::string head :
       {"HTTP/1.1 200 OK\r\nName: ", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n"}) {
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    BOOST_REQUIRE(bind(listening, reinterpret_cast<sockaddr*>(&at), size) == 0);
    BOOST_REQUIRE(listen(listening, 1) == 0);
    BOOST_REQUIRE(getsockname(listening, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    std::thread dripping([&] {
      const int fd = accept(listening, nullptr, nullptr);
      (void)!send(fd, head.data(), head.size(), MSG_NOSIGNAL);
      pollfd one{fd, POLLRDHUP, 0};
      // for a minute, unless the client closes the connection
      for (int i = 0; i < 600 && poll(&one, 1, 100) == 0; ++i)
        (void)!send(fd, "x", 1, MSG_NOSIGNAL);
      close(fd);
    });
    const Outcome ps =
        run(folder.path(), {binary(), "ps", "--node",
                            fmt::format("127.0.0.1:{}", ntohs(at.sin_port)), "--patience", "1"});
    dripping.join();
    close(listening);
    BOOST_TEST(ps.code == 1);
    BOOST_TEST(ps.error.find("is connected but has not answered for 1 s") != std::string::npos,
               ps.error);
  }
}

namespace {

/// A node whose one run does not end by itself.
struct Busy {
  Nodes nodes{1};
  const InspectionServer server{nodes[0], {}};
  Graph g;
  RunHandle run = [this] {
    Expr x = g.input("x", DType::f32, {kAny, kAny});
    auto [i, last] = while_loop([](Expr n, Expr) { return n < 1'000'000'000; },
                                [&](Expr n, Expr v) {
                                  return std::tuple{n + 1, g.named(matmul(v, x), "turned")};
                                },
                                std::tuple{g.constant(0), x});
    return nodes.engine().compile(g, {x}, {last}).start({Tensor::zeros(DType::f32, {8, 8})});
  }();
  ~Busy() {
    run.cancel();
    run.wait();
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(top_shows_the_states_of_actors) {
  Busy busy;
  std::string shown;
  // it may not be on the last screen before the key
  for (int tries = 0; tries < 20 && shown.empty(); ++tries) {
    Terminal t(
        {binary(), "top", "--node", busy.server.address(), "--patience", "60", "--every", "0.05"},
        40, 120);
    BOOST_REQUIRE(t.read_until("turned"));  // only what has fired since the last answer is shown
    t.type("q");
    BOOST_TEST(t.finish() == 0);
    for (const auto& [row, text] : screen_of(t.rest()))
      if (text.find("turned") != std::string::npos) shown = text;
  }
  BOOST_TEST(shown.starts_with("a/1:"), shown);
  for (const char* part : {" %  ", "  MatMul "})
    BOOST_TEST(shown.find(part) != std::string::npos, shown);
}

BOOST_AUTO_TEST_CASE(on_a_pipe_it_prints_once) {
  Busy busy;
  const Folder folder;
  Outcome said;
  // a late answer has no operations
  for (int tries = 0; tries < 20 && said.out.find("MatMul while_loop/turned") == std::string::npos;
       ++tries)
    said = run(folder.path(), {binary(), "top", "--node", busy.server.address(), "--patience", "60",
                               "--every", "0.2"});
  BOOST_TEST(said.code == 0, said.error);
  BOOST_TEST(said.out.starts_with("troupe top: node 'a', 1 run\n"), said.out);
  for (const char* part : {"\nNODE ", "\nRUN ", "\nACTOR ", "a/1", "MatMul while_loop/turned"})
    BOOST_TEST(said.out.find(part) != std::string::npos, said.out);
  BOOST_TEST(said.out.find('\x1b') == std::string::npos, said.out);
}

// Plans come and go with programs: one may have gone since the node reported it.
BOOST_AUTO_TEST_CASE(a_plan_that_is_gone_is_left_out) {
  AsNode node;  // which knows no plan
  node.get("/api/state", [](const httplib::Request&) {
    return json::parse(
        R"({"time_ns": 1000, "node": "a", "nodes": [], "runs": [], "plans": [{"id": "a/1", )"
        R"("incarnation": "1"}]})");
  });
  const Folder folder;
  const Outcome said = run(folder.path(), {binary(), "top", "--node", node.start(), "--patience",
                                           "60", "--every", "0.05"});
  BOOST_TEST(said.code == 0, said.error);
  BOOST_TEST(said.out.starts_with("troupe top: node 'a', 0 runs\n"), said.out);
}

// Each answer of a node may take as long as it waits for one that is silent: four are asked for at
// a time, and no more.
BOOST_AUTO_TEST_CASE(many_plans_are_asked_for_side_by_side) {
  constexpr int kPlans = 20, kAtOnce = 4;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  int looks = 0, inside = 0, most = 0;
  std::map<std::string, int> fires, described;
  AsNode node;
  node.get("/api/state", [&](const httplib::Request&) {
    const std::lock_guard lock(mutex);
    std::string plans;
    for (int i = 1; i <= kPlans; ++i)
      plans += fmt::format(R"({}{{"id": "a/{}", "incarnation": "1"}})", i == 1 ? "" : ", ", i);
    return json::parse(
        fmt::format(R"({{"time_ns": {}, "node": "a", "nodes": [], "runs": [], "plans": [{}]}})",
                    ++looks * 1'000'000'000ll, plans));
  });
  node.get("/api/plan", [&](const httplib::Request& in) {
    const std::lock_guard lock(mutex);
    const std::string id = in.get_param_value("id");
    ++described[id];
    return json::parse(fmt::format(R"({{"actors": {{"rows": [["{}:0", "MatMul", "m"]]}}}})", id));
  });
  node.get("/api/counters", [&](const httplib::Request& in) {
    std::unique_lock lock(mutex);
    most = std::max(most, ++inside);
    changed.notify_all();
    // in vain, if one is asked for after the other
    changed.wait_for(lock, 60s, [&] { return most >= kAtOnce; });
    --inside;
    const std::string id = in.get_param_value("plan");
    return json::parse(
        fmt::format(R"({{"seq": 1, "actors": {{"rows": [["{}:0", {}, 0, 0, 0, "idle"]]}}}})", id,
                    fires[id] += 10));
  });
  const Folder folder;
  const Outcome said = run(folder.path(), {binary(), "top", "--node", node.start(), "--patience",
                                           "600", "--every", "0.05"});
  BOOST_TEST(said.code == 0, said.error);
  const std::lock_guard lock(mutex);  // the node's threads are still there
  for (int i = 1; i <= kPlans; ++i) {
    BOOST_TEST(said.out.find(fmt::format("\na/{}:0 ", i)) != std::string::npos, said.out);
    BOOST_TEST(described[fmt::format("a/{}", i)] == 1);
  }
  BOOST_TEST(most == kAtOnce);
}

// A query of the second node: its operators are in the table, and what they hold.
BOOST_AUTO_TEST_CASE(operators_of_a_running_query_are_listed) {
  Nodes nodes(2);
  events::Query query;
  const events::Schema trade{{"price", events::Type::real}};
  query.output("cheap", query.source("trades", trade).select(events::field("price") < 9.0));
  query.set_consistency(events::Consistency::strong());
  events::RunningQuery run(query, [](std::size_t, const events::Batch&) {},
                           {.engine = &nodes[1].engine(), .name = "offers"});
  events::Batch batch(trade);
  for (int i = 0; i < 7; ++i)
    batch.insert(static_cast<events::Key>(i + 1), i, i + 5, {events::Value(1.5)});
  run.feed("trades", std::move(batch));
  const InspectionServer server(nodes[0], {});
  const Folder folder;
  const auto top = [&](bool is_json) {
    std::vector<std::string> words{binary(),     "top", "--node",  server.address(),
                                   "--patience", "60",  "--every", "0.05"};
    if (is_json) words.push_back("--json");
    const Outcome said = test::run(folder.path(), words);
    BOOST_TEST(said.code == 0, said.error);
    return said.out;
  };
  const std::string text = top(false);
  for (const char* part : {"OPERATOR", "RETRACTED", "trades.align", "select#2"})
    BOOST_TEST(text.find(part) != std::string::npos, text);
  const json line = json::parse(top(true));
  BOOST_REQUIRE(line.contains("operators"));
  const json& first = line["operators"].at(0);  // the largest state
  BOOST_TEST(first["name"] == "trades.align");
  BOOST_TEST(first["state_size"] == 7u);
  BOOST_TEST(first["live_bytes"].get<int>() > 0);
}

// The subscription goes over all nodes, through one of them.
BOOST_AUTO_TEST_CASE(watch_takes_the_events_of_all_nodes) {
  Nodes nodes(3);
  const InspectionServer server(nodes[0], {});
  const Folder folder;
  Process watch(folder.path(), {binary(), "watch", "membership", "--node", server.address(),
                                "--patience", "60", "--json"});
  for (const char* node : {"a", "b", "c"})
    BOOST_REQUIRE(watch.read_until(fmt::format("\"node\":\"{}\",\"state\":\"alive\"", node)));
  nodes.remove(2);
  BOOST_REQUIRE(watch.read_until("\"node\":\"c\",\"state\":\"left\""));
  watch.interrupt(SIGINT);
  BOOST_TEST(watch.finish().code == 0);
}

BOOST_AUTO_TEST_CASE(watching_prints_until_it_ends) {
  const Hanging h;
  const Folder folder;
  for (const int ending : {SIGINT, SIGTERM}) {
    Process ps(folder.path(), {binary(), "ps", "--node", h.server.address(), "--patience", "60",
                               "--watch", "0.05"});
    BOOST_REQUIRE(ps.read_until("\nNODE "));  // the second: the first begins with it
    ps.interrupt(ending);
    BOOST_TEST(ps.finish().code == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_dumb_terminal_gets_no_colours) {
  Hanging h;
  for (const auto& [kind, is_coloured] : {std::pair{"dumb", false}, {"xterm", true}}) {
    Terminal t({"/usr/bin/env", "-u", "NO_COLOR", std::string("TERM=") + kind, binary(), "ps",
                "--node", h.server.address(), "--patience", "60"},
               24, 80);
    BOOST_TEST(t.finish() == 0);
    BOOST_TEST((t.rest().find('\x1b') != std::string::npos) == is_coloured);
  }
}

BOOST_AUTO_TEST_CASE(a_terminal_that_is_gone_ends_it) {
  Hanging h;
  Terminal t(h.top(), 24, 80);
  BOOST_REQUIRE(t.read_until("troupe top"));
  t.hang_up();
  BOOST_TEST(t.finish() == 0);
}

// ---- what is shown

BOOST_AUTO_TEST_CASE(names_act_on_no_terminal) {
  using verbs::printable;
  BOOST_TEST(printable("plain") == "plain");
  BOOST_TEST(printable("名前 мир 🌍 a\u0301") == "名前 мир 🌍 a\u0301");
  BOOST_TEST(printable("\x1b[31mred") == "?[31mred");
  // A C1 control, which some terminals take for ESC [.
  BOOST_TEST(printable("\u009b31mred") == "?31mred");
  BOOST_TEST(printable("\u0085\u2028\u202e\u2066\u200f") == "?????");
  BOOST_TEST(printable("a\r\n\tb\x7f") == "a???b?");
  // cut off, a surrogate, too long, too large
  BOOST_TEST(printable("\xff\xc3|\xe2\x82\xed\xa0\x80\xc0\xaf\xf5\x80") ==
             "??|" + std::string(9, '?'));
  BOOST_TEST(printable("\xe2\x82") == "??");
}

BOOST_AUTO_TEST_CASE(text_is_cut_where_the_terminal_ends) {
  using verbs::cells, verbs::cut;
  setenv("NO_COLOR", "1", 1);
  BOOST_TEST(cells("名前") == 4u);
  BOOST_TEST(cells("a\u0301") == 1u);
  BOOST_TEST(cut("abc", 3) == "abc");
  BOOST_TEST(cut("abcd", 3) == "ab…");
  BOOST_TEST(cut("名前名", 4) == "名…");  // a wide one does not stick out
  BOOST_TEST(cut("名前", 4) == "名前");
  BOOST_TEST(cut("a\u0301bc", 2) == "a\u0301…");
  BOOST_TEST(cut("abc", 1) == "…");
  BOOST_TEST(cut("abc", 0) == "");
  verbs::Table t({"NAME", "WHAT"});
  t.add({"名前", "x"});
  t.add({"b", "y"});
  t.add({"c", "z"});
  BOOST_TEST(t.text() == "NAME  WHAT\n名前  x\nb     y\nc     z\n");
  BOOST_TEST(t.text(7, 3) == "NAME  …\n名前  x\nand 2 …\n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
