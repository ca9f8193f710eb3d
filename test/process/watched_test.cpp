// Not under asan and tsan: it watches processes of the binary that other suites run in one process.
// The repeated output of the verbs through a node that is silent for a while, and their JSON.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/test/process/as_node.hpp>
#include <troupe/test/process/connection.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(watched_test)

namespace {

using json = nlohmann::json;

/// A node that serves inspections, and a run that waits at a queue.
struct AtQueue {
  Nodes nodes{1};
  Folder folder;
  Graph g;
  RunHandle run;
  InspectionServer server{nodes[0], {}};
  AtQueue() {
    Expr taken = g.named(g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8).dequeue()[0], "take");
    run = nodes.engine().compile(g, {}, {g.named(taken * 2.0, "twice")}).start({});
  }
  ~AtQueue() {
    run.cancel();
    run.wait();
  }
};

/// One whose run turns without end.
struct Turning {
  Nodes nodes{1};
  Folder folder;
  Graph g;
  InspectionServer server{nodes[0], {}};
  RunHandle run;
  Turning() {
    Expr x = g.input("x", DType::f32, {kAny, kAny});
    auto [i, last] = while_loop([](Expr n, Expr) { return n < 1'000'000'000; },
                                [&](Expr n, Expr v) {
                                  return std::tuple{n + 1, g.named(matmul(v, x), "turned")};
                                },
                                std::tuple{g.constant(0), x});
    run = nodes.engine().compile(g, {x}, {last}).start({Tensor::zeros(DType::f32, {8, 8})});
  }
  ~Turning() {
    run.cancel();
    run.wait();
  }
};

std::vector<std::string> verb_at(const std::string& url, const std::string& verb,
                                 std::vector<std::string> more,
                                 const std::string& patience = "60") {
  std::vector<std::string> all{binary(), verb, "--node", url, "--patience", patience};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Runs a command with its standard error merged into its standard output.
std::vector<std::string> with_complaints(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

std::string url_of(const NodeProcess& node) {
  const std::string& seen = node.process.seen();
  const auto at = seen.find("http://");
  return seen.substr(at, seen.find_first_of(" \n", at) - at);
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_actor_names_the_sender_of_an_awaited_token) {
  AtQueue q;
  Outcome said{0, {}, {}};
  // until its run has begun
  for (int tries = 0; tries < 1000 && said.code == 0 && !has(said.out, "waits for "); ++tries)
    said = run(q.folder.path(), verb_at(q.server.address(), "inspect", {"twice"}));
  BOOST_TEST(said.code == 0, said.error);
  BOOST_TEST(has(said.out, "waits for   Dequeue 'take' a/1:"), said.out);
  BOOST_TEST(has(said.out, ", as input 0\n"), said.out);
  const json twice = json::parse(
      run(q.folder.path(), verb_at(q.server.address(), "inspect", {"twice", "--json"})).out);
  const json take = json::parse(
      run(q.folder.path(), verb_at(q.server.address(), "inspect", {"take", "--json"})).out);
  BOOST_TEST(twice["waiting_for"] == take["id"]);
  BOOST_TEST(twice["waiting_input"] == 0);
  BOOST_TEST(twice["waiting_tag"] == "");
  BOOST_TEST(take["waiting_input"].is_null());
}

BOOST_AUTO_TEST_CASE(top_as_json) {
  const Turning t;
  json said;
  // a late answer has no actors
  for (int tries = 0; tries < 20 && (said.is_null() || said["actors"].empty()); ++tries) {
    const Outcome top =
        run(t.folder.path(), verb_at(t.server.address(), "top", {"--json", "--every", "0.2"}));
    BOOST_REQUIRE_MESSAGE(top.code == 0, top.error);
    BOOST_TEST(top.out.find('\n') == top.out.size() - 1);
    said = json::parse(top.out);
  }
  BOOST_TEST(said["state"]["node"] == "a");
  BOOST_TEST(said["state"]["runs"].size() == 1u);
  BOOST_REQUIRE(!said["actors"].empty());
  for (const json& a : said["actors"]) {
    BOOST_TEST(a["id"].get<std::string>().starts_with("a/1:"));
    for (const char* number : {"busy", "fires_per_s"}) BOOST_TEST(a[number].is_number());
    for (const char* text : {"op", "name", "state"}) BOOST_TEST(a[text].is_string());
  }
}

// It is one actor, which fires once an iteration.
BOOST_AUTO_TEST_CASE(verbs_have_the_iterations_of_a_resident_loop) {
  Nodes nodes{1};
  const Folder folder;
  const InspectionServer server{nodes[0], {}};
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Function f = nodes.engine().compile(
      g, {n},
      {while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                  g.constant(std::int64_t{0}), {.name = "counting"})});
  RunHandle under_way = f.start({Tensor::scalar(INT64_MAX)});
  json loop;
  // a late answer has no actors
  for (int tries = 0; tries < 20 && (loop.is_null() || loop["fires_per_s"] == 0.0); ++tries) {
    const Outcome top =
        run(folder.path(), verb_at(server.address(), "top", {"--json", "--every", "0.2"}));
    BOOST_REQUIRE_MESSAGE(top.code == 0, top.error);
    const json said = json::parse(top.out);
    for (const json& a : said["actors"])
      if (a["op"] == "ResidentLoop") loop = a;
  }
  BOOST_TEST_REQUIRE(loop.is_object());
  BOOST_TEST(loop["fires_per_s"].get<double>() > 0);
  BOOST_TEST(loop["busy"].get<double>() > 0);
  BOOST_TEST(loop["state"] == "running");
  const auto inspect = [&](const std::string& what) {
    return run(folder.path(), verb_at(server.address(), "inspect", {what}));
  };
  Outcome said{0, {}, {}};
  for (int tries = 0; tries < 20 && !has(said.out, "  iterations  "); ++tries)
    said = inspect(loop["id"]);
  for (const char* part : {"  frame       counting/1\n", "  body        one actor; compile with ",
                           "  loop        1 execution, ", " open, of 1 at most, in run a/1\n"})
    BOOST_TEST(has(said.out, part), said.out);
  const Outcome absent = inspect("absent");
  BOOST_TEST(absent.code == 2);
  BOOST_TEST(has(absent.error, "if it is in loop 'counting/1', which is one actor, compile with "),
             absent.error);
  const Outcome ps = run(folder.path(), verb_at(server.address(), "ps", {}));
  for (const char* part : {"loop 'counting/1' on ", " is in iteration ", "watched_test.cpp:"})
    BOOST_TEST(has(ps.out, part), ps.out);
  under_way.cancel();
  under_way.wait();
}

// One after every look but the first.
BOOST_AUTO_TEST_CASE(top_on_a_pipe_again_and_again) {
  const AtQueue q;
  for (const bool is_json : {true, false}) {
    std::vector<std::string> more{"--watch", "0.05"};
    if (is_json) more.push_back("--json");
    Process top(q.folder.path(), verb_at(q.server.address(), "top", more));
    // the second: the first begins with it
    BOOST_REQUIRE(top.read_until(is_json ? "\n{\"state\": " : "\ntroupe top: "));
    top.interrupt(SIGINT);
    BOOST_TEST(top.finish().code == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_trace_reports_its_file) {
  const AtQueue q;
  const std::string file = q.folder / "trace.json";
  const Outcome said = run(q.folder.path(), verb_at(q.server.address(), "trace",
                                                    {"--seconds", "1", "-o", file, "--json"}));
  BOOST_TEST(said.code == 0, said.error);
  BOOST_TEST(said.out.find('\n') == said.out.size() - 1, said.out);
  const json line = json::parse(said.out, nullptr, false),
             trace = json::parse(read_file(file), nullptr, false);
  BOOST_REQUIRE(line.is_object());
  BOOST_REQUIRE(trace.is_object());
  BOOST_TEST(line["file"] == file);
  BOOST_TEST(line["seconds"] == 1);
  BOOST_TEST(line["nodes"] == json::array({"a"}));
  for (const char* number : {"events", "lost", "covered_ns"})
    BOOST_TEST(line[number] == trace["otherData"][number], number);
  const Outcome printed =
      run(q.folder.path(), verb_at(q.server.address(), "trace", {"--seconds", "1", "--json"}));
  BOOST_TEST(json::parse(printed.out, nullptr, false).contains("traceEvents"));
}

// It is silent for longer than the patience, and then comes back.
BOOST_AUTO_TEST_CASE(watching_goes_on_after_an_unanswered_look,
                     *boost::unit_test::label("stock_zmq")) {
  const Folder folder, of_ps;
  NodeProcess node(folder, "a", {"--http", "0"});
  Process ps(of_ps.path(), with_complaints(verb_at(url_of(node), "ps", {"--watch", "0.05"}, "10")));
  BOOST_REQUIRE(ps.read_until("NODE "));
  node.process.interrupt(SIGSTOP);
  BOOST_REQUIRE(
      ps.read_until("is connected but has not answered for 10 s: it is stopped or overloaded\n"));
  node.process.interrupt(SIGCONT);
  BOOST_REQUIRE(ps.read_until("overloaded\nNODE "));
  // The last answer decides the status: 1 for a node that is gone for good.
  node.process.interrupt(SIGKILL);
  BOOST_REQUIRE(ps.read_until("troupe: no node answers at "));
  ps.interrupt(SIGINT);
  BOOST_TEST(ps.finish().code == 1);
}

BOOST_AUTO_TEST_CASE(watching_ends_with_the_status_of_the_last_look) {
  const AtQueue q;
  Process diagnose(q.folder.path(),
                   verb_at(q.server.address(), "diagnose", {"--json", "--watch", "0.05"}));
  BOOST_REQUIRE(diagnose.read_until("at queue '"));
  diagnose.interrupt(SIGINT);
  const Outcome said = diagnose.finish();
  // on a machine that stood still, the verdict may be unknown
  const auto last = said.out.rfind('\n', said.out.size() - 2);
  const json look = json::parse(said.out.substr(last + 1), nullptr, false);
  BOOST_TEST_REQUIRE(look.is_object(), said.out);
  BOOST_TEST(said.code == (look["verdicts"].empty() ? 0 : 3), said.out);
}

BOOST_AUTO_TEST_CASE(a_slow_run_is_reported_with_its_place) {
  const Turning t;
  Outcome said{0, {}, {}};
  // it may be in a product
  for (int tries = 0; tries < 100 && said.code == 0 && !has(said.out, " is still true ("); ++tries)
    said = run(t.folder.path(), verb_at(t.server.address(), "diagnose", {}));
  BOOST_TEST(said.code == 0, said.error);
  for (const char* part :
       {"nothing hangs; 1 run is under way\nrun a/1: loop 'while", " is in iteration ",
        " and goes on: Less", "watched_test.cpp:", " is still true (", " < 1000000000)\n"})
    BOOST_TEST(has(said.out, part), said.out);
}

// It answers so many looks, and then is silent, as one that is stopped. The patience is a day.
BOOST_AUTO_TEST_CASE(an_unanswered_question_ends_at_once_on_interrupt) {
  const Folder folder;
  for (const int answered : {1, 0})
    for (const int ending : {SIGINT, SIGTERM})
      for (const char* verb : {"ps", "graph"}) {
        std::promise<void> is_asked;
        std::shared_future<void> held;
        std::atomic<int> asked{0};  // publishes nothing but itself
        AsNode node;
        // behind the node, which waits for its answers: dropped, it lets them go
        std::promise<void> goes_on;
        held = goes_on.get_future().share();
        const auto held_up = [&](json answer) {
          if (asked.fetch_add(1) == answered) is_asked.set_value(), held.wait();
          return answer;
        };
        const json table = {{"columns", json::array()}, {"rows", json::array()}};
        node.get("/api/state", [&](const httplib::Request&) {
          return held_up({{"nodes", json::array()},
                          {"plans", json::array()},
                          {"runs", json::array()},
                          {"recent", json::array()}});
        });
        node.get("/api/plan", [&](const httplib::Request&) {
          return held_up({{"id", "a/1"}, {"actors", table}, {"edges", table}});
        });
        std::vector<std::string> more{"--watch", "0.05"};
        if (verb == std::string("graph")) more.push_back("a/1");
        Process watches(folder.path(), verb_at(node.start(), verb, more, "86400"));
        if (answered > 0)
          BOOST_REQUIRE(
              watches.read_until(verb == std::string("ps") ? "no run is under way" : "ACTOR"));
        is_asked.get_future().wait();
        watches.interrupt(ending);
        // The status is that of the look before; without one the signal ends it, as it does where
        // nothing is watched.
        BOOST_TEST(watches.finish().code == (answered > 0 ? 0 : 128 + ending), verb);
        goes_on.set_value();
      }
}

// An actor may have a name that looks like an id, in part or all over.
BOOST_AUTO_TEST_CASE(a_name_may_look_like_an_id) {
  Nodes nodes{1};
  const InspectionServer server{nodes[0], {}};
  const Folder folder;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{});
  const Function f = nodes.engine().compile(
      g, {x}, {g.named(x * 2.0, "enc/step:1"), g.named(x + 1.0, "enc/2:1")}, {.optimize = false});
  const auto inspect = [&](const std::string& what) {
    return run(folder.path(), verb_at(server.address(), "inspect", {what}));
  };
  for (const std::string name : {"enc/step:1", "enc/2:1", "step:1"}) {
    const Outcome said = inspect(name);
    BOOST_TEST(said.code == 0, said.error);
    BOOST_TEST(has(said.out, name + "'  a/1:"), said.out);
  }
  const json plan =
      json::parse(run(folder.path(), verb_at(server.address(), "graph", {"a/1", "--json"})).out);
  const std::string id = plan["actors"]["rows"][0][0];
  BOOST_TEST(has(inspect(id).out, "  " + id + "\n"));
  // An argument that is neither is answered as an id where it can be one.
  for (const auto& [what, why] :
       {std::pair<std::string, std::string>{"enc/3:1", "there is no plan 'enc/3'; there are a/1"},
        {"a/1:99", "there is no actor 'a/1:99': plan 'a/1' has a/1:0 to "},
        {"enc/stop:1", "there is no actor 'enc/stop:1'; did you mean 'enc/step:1'"}}) {
    const Outcome said = inspect(what);
    BOOST_TEST(said.code == 2, what);
    BOOST_TEST(has(said.error, why), said.error);
  }
}

// The newest plan has gone since the node reported it.
BOOST_AUTO_TEST_CASE(a_name_is_looked_for_in_the_plans_that_are_left) {
  AsNode node;
  const Folder folder;
  node.get("/api/state", [](const httplib::Request&) {
    return json{{"plans", {{{"id", "a/1"}, {"made_ns", 1}}, {{"id", "a/2"}, {"made_ns", 2}}}}};
  });
  node.get("/api/plan", [](const httplib::Request& in) {
    if (in.get_param_value("id") != "a/1")
      return json{{"error", "there is no plan 'a/2'; there are a/1"}};
    return json{{"actors",
                 {{"columns", json::array({"id", "name"})},
                  {"rows", json::array({json::array({"a/1:7", "enc/take"})})}}}};
  });
  node.get("/api/actor", [](const httplib::Request& in) {
    return json{{"found", in.get_param_value("id")}};
  });
  const Outcome said = run(folder.path(), verb_at(node.start(), "inspect", {"take", "--json"}));
  BOOST_TEST(said.code == 0, said.error);
  BOOST_TEST(has(said.out, R"("found":"a/1:7")"), said.out);
}

BOOST_AUTO_TEST_CASE(watching_without_any_answer_fails_at_once) {
  const Folder folder;
  const Outcome said = run(folder.path(), verb_at("127.0.0.1:1", "ps", {"--watch", "0.05"}));
  BOOST_TEST(said.code == 1);
  BOOST_TEST(has(said.error, "no node answers at http://127.0.0.1:1 "), said.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
