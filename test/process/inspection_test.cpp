// The inspection server and the verbs that ask it, on real processes: their output, their refusals,
// and the node that is named when a process is stopped.
#include <boost/test/unit_test.hpp>

#include <csignal>
#include <future>
#include <sstream>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/http_acceptor.hpp>
#include <troupe/cluster/inspect/inspection_server.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/test/process/cluster.hpp>
#include <troupe/test/process/connection.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/ipv6.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(inspection_test)

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;

/// A value from a queue of b's, that a adds to; names as a hostile user gives them.
struct OverTwo {
  Graph g;
  Expr x, put, y;
  OverTwo() {
    x = g.input("x", DType::f32, Shape{});
    auto there = g.on_device("/node:b/cpu:0");
    Queue q = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8);
    put = q.enqueue({x});
    Expr taken = g.named(q.dequeue()[0], "take");
    auto here = g.on_device("/node:a/cpu:0");
    y = g.named(taken * 2.0 + 1.0, "<script>alert(\"1\")</script>\x1b[31m");
  }
};

/// Returns the output of node b when it is asked to end after an operation of that name has failed
/// there.
Outcome fails_on_b(Cluster& c, const std::string& name) {
  Graph g;
  Expr x = g.input("x", DType::i32, {1});
  auto there = g.on_device("/node:b/cpu:0");
  Expr y = g.named(gather(g.constant(Tensor::of<float>({1, 2, 3})), x), name);
  refusal(
      [&] {
        c.a->engine().run(g, {{x, Tensor::of<std::int32_t>({7})}}, {y});
      },
      Code::out_of_range);
  c.b.process.interrupt(SIGTERM);
  return c.b.process.finish();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_that_hangs_seen_through_every_answer,
                     *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  OverTwo p;
  Function f = c.a->engine().compile(p.g, {}, {p.y});
  RunHandle hanging = f.start({});
  json state;
  for (int i = 0; i < 1000; ++i) {  // until b has begun its part, and has said so in time
    state = c.get("/api/state");
    const bool all_answer = std::all_of(state["nodes"].begin(), state["nodes"].end(),
                                        [](const json& n) { return n["reachable"].get<bool>(); });
    if (all_answer && state["runs"].size() == 1 && state["runs"][0]["nodes"].size() == 2 &&
        !state["runs"][0]["waits"].empty())
      break;
  }
  BOOST_TEST(state["version"] == 2);
  BOOST_TEST(state["node"] == "a");
  BOOST_REQUIRE(state["nodes"].size() == 2u);
  for (const json& n : state["nodes"]) {
    BOOST_TEST(n["reachable"].get<bool>());
    BOOST_TEST(n["memory"]["resident"].get<std::uint64_t>() > 0u);
  }
  BOOST_REQUIRE(state["runs"].size() == 1u);
  BOOST_TEST(state["runs"][0]["id"] == "a/1");
  const std::string plan = state["plans"][0]["id"];

  const json described = c.get("/api/plan?id=" + plan);
  std::string take;
  for (const json& row : described["actors"]["rows"])
    if (row[2] == "take") take = row[0];
  BOOST_REQUIRE(!take.empty());
  json counters, changed;
  for (int i = 0; i < 1000; ++i) {  // a late answer adds rows later
    counters = c.get("/api/counters?plan=" + plan);
    changed = c.get("/api/counters?plan=" + plan +
                    "&since=" + std::to_string(counters["seq"].get<std::uint64_t>()));
    if (changed["actors"]["rows"].empty()) break;
  }
  BOOST_TEST(counters["reset"].get<bool>());
  BOOST_TEST(counters["actors"]["rows"].size() > 0u);
  BOOST_TEST(!changed["reset"].get<bool>());
  BOOST_TEST(changed["actors"]["rows"].size() == 0u);  // nothing moves
  json actor;
  for (int i = 0; i < 1000 && (actor["state"] != "waiting" || actor["waits"].empty()); ++i)
    actor = c.get("/api/actor?id=" + take);
  BOOST_TEST(actor["state"] == "waiting");
  BOOST_REQUIRE(!actor["waits"].empty());
  BOOST_TEST(actor["waits"][0]["state"] == "queue 'jobs'");
  BOOST_TEST(has(actor["line"], "inspection_test.cpp:"));

  json diagnosis;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20 && (diagnosis["verdicts"].size() != 1 ||
                             !has(diagnosis["verdicts"][0]["text"], "queue 'jobs'"));
       ++i)
    diagnosis = c.get("/api/diagnose");
  BOOST_TEST((std::chrono::steady_clock::now() - began < 100s));
  BOOST_REQUIRE(diagnosis["verdicts"].size() == 1u);
  BOOST_TEST(diagnosis["verdicts"][0]["node"] == "b");
  BOOST_TEST(diagnosis["verdicts"][0]["actor"] == take);
  BOOST_TEST(has(diagnosis["verdicts"][0]["line"], "inspection_test.cpp:"));

  // The verbs.
  const auto until_said = [&](const std::vector<std::string>& verb, const std::string& part) {
    Outcome said;  // a late answer is missing
    for (int i = 0; i < 20 && !has(said.out, part); ++i) said = c.verb(verb);
    return said;
  };
  const Outcome ps = until_said({"ps"}, "queue 'jobs'");
  BOOST_TEST(ps.code == 0, ps.error);
  for (const char* part : {"NODE", "alive", "a/1", "queue 'jobs'", "SWAPPED"})
    BOOST_TEST(has(ps.out, part), ps.out);
  BOOST_TEST(!has(ps.out, "\x1b"));  // plain on a pipe
  BOOST_TEST(!json::parse(c.verb({"ps", "--json"}).out, nullptr, false).is_discarded());
  const Outcome said = until_said({"diagnose"}, "queue 'jobs'");
  BOOST_TEST(said.code == 3);
  for (const char* part : {"run a/1", "take", "/node:b/cpu:0", "queue 'jobs'"})
    BOOST_TEST(has(said.out, part), said.out);
  const Outcome cut_off =
      run(c.folder.path(),
          {"/bin/sh", "-c",
           fmt::format("{} ps --node {} --patience 60 --watch 0.1 | head -1", binary(), c.url)});
  BOOST_TEST(has(cut_off.out, "NODE"));  // it ends when its reader is gone
  const Outcome seen = until_said({"inspect", "take"}, "awaited     by /node:a/cpu:0, in run a/1");
  BOOST_TEST(seen.code == 0, seen.error);
  for (const char* part : {"Dequeue 'take'", "state       waiting", "queue       0 of ",
                           "waits       at queue 'jobs' for "})
    BOOST_TEST(has(seen.out, part), seen.out);
  const Outcome unknown = c.verb({"inspect", "taek"});
  BOOST_TEST(unknown.code == 2);
  BOOST_TEST(has(unknown.error, "there is no actor 'taek'; did you mean 'take'"), unknown.error);
  const Outcome graph = c.verb({"graph", plan});
  BOOST_TEST(has(graph.out, "<script>"), graph.out);
  BOOST_TEST(!has(graph.out, "\x1b"), graph.out);  // a hostile name moves no cursor
  BOOST_TEST(has(c.verb({"graph", "--dot"}).out, "digraph"));
  const json as_json = json::parse(c.verb({"graph", plan, "--json"}).out, nullptr, false);
  BOOST_REQUIRE(!as_json.is_discarded());
  BOOST_TEST(as_json["id"] == plan);
  BOOST_TEST(as_json["actors"]["rows"].size() > 0u);
  BOOST_TEST(has(seen.out, "awaited     by /node:a/cpu:0, in run a/1"), seen.out);
  BOOST_TEST(has(c.verb({"metrics"}).out, "troupe_runs_in_flight 1"));
  const json families = json::parse(c.verb({"metrics", "--json"}).out, nullptr, false);
  BOOST_REQUIRE(families.is_array());
  std::map<std::string, json> by_name;
  for (const json& family : families) by_name[family["name"]] = family;
  BOOST_TEST(by_name["troupe_runs_in_flight"]["samples"] ==
             json::parse(R"([{"name": "troupe_runs_in_flight", "labels": {}, "value": 1.0}])"));
  BOOST_TEST(by_name["troupe_runs_in_flight"]["type"] == "gauge");
  BOOST_TEST(by_name["troupe_members"]["samples"][0]["labels"]["state"] == "alive");

  BOOST_TEST(has(seen.out, " in, "), seen.out);
  Graph looping;
  auto [i, last] = while_loop([](Expr n, Expr) { return n < 3; },
                              [](Expr n, Expr v) {
                                return std::tuple{n + 1, v + 1.0};
                              },
                              std::tuple{looping.constant(0), looping.constant(0.0f)});
  // The operations of a lowered loop have one name for all its variables.
  Function loop = c.a->engine().compile(looping, {}, {i, last}, {.resident_loops = false});
  std::map<std::string, int> times;
  const json parts = c.get("/api/plan?id=a/2")["actors"];
  for (const json& row : parts["rows"]) ++times[row[2].get<std::string>()];
  const auto twins = std::max_element(
      times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  BOOST_TEST(twins->second > 1);
  const Outcome which = c.verb({"inspect", twins->first});
  BOOST_TEST(which.code == 2);
  for (const std::string& part :
       {fmt::format("{} actors have the name '{}': a/2:", twins->second, twins->first),
        std::string(", a/2:"), std::string("give the id of one")})
    BOOST_TEST(has(which.error, part), which.error);

  const Outcome unsaid = c.verb({"inspect", ""});
  BOOST_TEST(unsaid.code == 2);
  BOOST_TEST(has(unsaid.error, "name an actor"), unsaid.error);
  // a port alone is on this machine
  BOOST_TEST(c.verb({"ps"}, c.url.substr(c.url.rfind(':') + 1)).code == 0);

  // A name without its scope is enough where it is one actor's; iterations that wait alike are one
  // line.
  Graph waiting;
  Queue none = [&] {
    auto there = waiting.on_device("/node:b/cpu:0");
    return waiting.fifo_queue("none", {{DType::i64, Shape{}}}, 8);
  }();
  auto [count, sum] = while_loop([](Expr n, Expr) { return n < 100; },
                                 [&](Expr n, Expr v) {
                                   Expr got;
                                   {
                                     auto there = waiting.on_device("/node:b/cpu:0");
                                     got = waiting.named(none.dequeue()[0], "get");
                                   }
                                   auto here = waiting.on_device("/node:a/cpu:0");
                                   return std::tuple{n + 1, v + got};
                                 },
                                 std::tuple{waiting.constant(0), waiting.constant(std::int64_t{0})},
                                 {.name = "many"});
  RunHandle all_wait = c.a->engine().compile(waiting, {}, {sum}).start({});
  json of_get;
  const auto asked = std::chrono::steady_clock::now();
  do {
    BOOST_REQUIRE_MESSAGE(
        std::chrono::steady_clock::now() - asked < 120s,
        "fewer than 4 waits of 'get' are told after two minutes: " << of_get.dump());
    of_get = json::parse(c.verb({"inspect", "get", "--json"}).out, nullptr, false);
  } while (!of_get.is_object() || of_get["waits"].size() < 4);
  BOOST_TEST(of_get["name"] == "many/get");
  const Outcome gets = until_said({"inspect", "get"}, " more iterations\n");
  for (const char* part : {"waits       at queue 'none'",
                           "awaited     by /node:a/cpu:0, in iteration ", " more iterations\n"})
    BOOST_TEST(has(gets.out, part), gets.out);
  BOOST_TEST(std::count(gets.out.begin(), gets.out.end(), '\n') < 20, gets.out);
  all_wait.cancel();
  all_wait.wait();

  // From b the same is seen.
  const std::string b_url = "http" + c.b.process.seen().substr(c.b.process.seen().find("http") + 4);
  int from_b = 0;  // a late answer is missing
  for (int tries = 0; tries < 20 && from_b != 3; ++tries)
    from_b = c.verb({"diagnose"}, b_url.substr(0, b_url.find('\n'))).code;
  BOOST_TEST(from_b == 3);

  c.a->engine().run(p.g, {{p.x, Tensor::scalar(3.0f)}}, {p.put});
  BOOST_TEST(hanging.get()[0].at(0) == 7.0);
  const Outcome well = c.verb({"diagnose"});
  BOOST_TEST(well.code == 0, well.out);
  BOOST_TEST(has(well.out, "nothing hangs"), well.out);
}

BOOST_AUTO_TEST_CASE(a_process_that_is_stopped_is_named, *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  OverTwo p;
  RunHandle hanging = c.a->engine().compile(p.g, {}, {p.y}).start({});
  while (c.get("/api/state")["runs"][0]["waits"].size() < 2) {}  // b for the queue, and a for b
  c.b.process.interrupt(SIGSTOP);
  const auto began = std::chrono::steady_clock::now();
  const Outcome said = c.verb({"diagnose", "--json"});
  BOOST_TEST((std::chrono::steady_clock::now() - began < 100s));
  BOOST_TEST(said.code == 3);
  const json all = json::parse(said.out, nullptr, false);
  BOOST_REQUIRE(all["verdicts"].size() == 1u);
  const json& verdict = all["verdicts"][0];
  for (const char* part :
       {"node 'b' takes part and does not answer",
        "; /node:a/cpu:0 waits for Dequeue 'take' (inspection_test.cpp:", "from /node:b/cpu:0"})
    BOOST_TEST(has(verdict["text"], part), said.out);
  BOOST_TEST(verdict["node"] == "b");
  BOOST_TEST(verdict["edge"] == "/node:b/cpu:0 -> /node:a/cpu:0");
  BOOST_TEST(has(verdict["line"], "inspection_test.cpp:"));
  BOOST_TEST(!verdict["actor"].get<std::string>().empty());
  const json state = c.get("/api/state");
  BOOST_TEST(!state["nodes"][1]["reachable"].get<bool>());
  BOOST_TEST(has(state["nodes"][1]["why"], "; last message "),
             state["nodes"][1]["why"].get<std::string>());
  c.b.process.interrupt(SIGCONT);
  hanging.cancel();
  hanging.wait();
}

BOOST_AUTO_TEST_CASE(a_predicate_that_never_turns_false_is_named_over_http,
                     *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  Graph g;
  auto there = g.on_device("/node:b/cpu:0");
  Expr last =
      while_loop([](Expr x) { return abs(x * x - 2.0f) > 0.0f; },
                 [](Expr x) { return (x + 2.0f / x) * 0.5f; }, g.constant(1.0f), {.name = "root"});
  RunHandle endless = c.a->engine().compile(g, {}, {last}).start({});
  const auto began = std::chrono::steady_clock::now();
  Outcome said;
  do {  // until b has begun; two seconds on a quiet machine
    said = c.verb({"diagnose"});
  } while (said.code == 0 && std::chrono::steady_clock::now() - began < 100s);
  BOOST_TEST(said.code == 3, said.out);
  for (const char* part :
       {"loop 'root/1' on /node:b/cpu:0",
        " is still true, and all that it comes from is what it was ", "inspection_test.cpp:"})
    BOOST_TEST(has(said.out, part), said.out);
  endless.cancel();
  endless.wait();
}

BOOST_AUTO_TEST_CASE(a_process_that_is_dead_is_named, *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  OverTwo p;
  RunHandle hanging = c.a->engine().compile(p.g, {}, {p.y}).start({});
  while (c.get("/api/state")["runs"][0]["waits"].size() < 2) {}  // b for the queue, and a for b
  c.b.process.interrupt(SIGKILL);
  const auto began = std::chrono::steady_clock::now();
  const Outcome said = c.verb({"diagnose"});
  BOOST_TEST((std::chrono::steady_clock::now() - began < 100s));
  BOOST_TEST(said.code == 3);
  for (const char* part : {"node 'b' takes part and does not answer",
                           "waits for Dequeue 'take' (inspection_test.cpp:"})
    BOOST_TEST(has(said.out, part), said.out);
  const std::string why = hanging.wait().message();  // it ends by itself
  for (const char* part :
       {"node 'b' was lost", "awaited from it: Dequeue 'take' (inspection_test.cpp:"})
    BOOST_TEST(has(why, part), why);
}

// A run over real processes that makes slow progress: no actor is named, however long it takes.
// TROUPE_SLOW_SECONDS sets the duration (scripts/check --long: ten minutes).
BOOST_AUTO_TEST_CASE(a_slow_run_is_not_named, *boost::unit_test::label("stock_zmq")) {
  const char* said = std::getenv("TROUPE_SLOW_SECONDS");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(said ? std::atoi(said) : 5);
  Cluster c;
  Graph g;
  auto here = g.on_device("/node:a/cpu:0");
  Expr x = g.input("x", DType::f32, {kAny, kAny});
  auto [i, last] = while_loop([](Expr n, Expr) { return n < 1'000'000'000; },
                              [&](Expr n, Expr v) {
                                auto there = g.on_device("/node:b/cpu:0");
                                Expr w = v;
                                // a second or so, all in all
                                for (int k = 0; k < 4; ++k) w = tanh(matmul(w, x));
                                return std::tuple{n + 1, w};
                              },
                              std::tuple{g.constant(0), x}, {.parallel_iterations = 1});
  RunHandle run =
      c.a->engine().compile(g, {x}, {last}).start({Tensor::zeros(DType::f32, {1536, 1536})});
  do {
    const Outcome told = c.verb({"diagnose"});
    // A machine on which much else runs may be silent; for ten minutes of its own it may not.
    BOOST_TEST((told.code == 0 || (!said && has(told.out, "does not answer"))), told.out);
  } while (std::chrono::steady_clock::now() < end);
  run.cancel();
  run.wait();
}

BOOST_AUTO_TEST_CASE(names_act_on_no_log, *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  const Outcome b = fails_on_b(c, "\x1b[31m\ntroupe: forged");
  BOOST_TEST(has(b.error, "?[31m?troupe: forged"), b.error);
  BOOST_TEST(!has(b.error, "\x1b"));
}

// An object a line, which says of what run, node and actor it is.
BOOST_AUTO_TEST_CASE(a_log_for_programs_has_fields, *boost::unit_test::label("stock_zmq")) {
  Cluster c({}, patient(), "json");
  const Outcome b = fails_on_b(c, "picks");
  json failure;
  std::istringstream lines(b.error);
  for (std::string line; std::getline(lines, line);) {
    const json said = json::parse(line, nullptr, false);
    BOOST_REQUIRE_MESSAGE(said.is_object(), line);
    for (const char* field : {"time_ns", "level", "text"}) BOOST_TEST(said.contains(field), line);
    if (said["level"] == "error") failure = said;
  }
  BOOST_REQUIRE_MESSAGE(failure.is_object(), b.error);
  BOOST_TEST(failure["level"] == "error");
  BOOST_TEST(failure["node"] == "b");
  BOOST_TEST(failure["plan"] == "a/1");
  BOOST_TEST(failure["run"].get<std::string>().starts_with("a/"), failure.dump());
  BOOST_TEST(
      failure["actor"].get<std::string>().starts_with("Gather 'picks' (inspection_test.cpp:"),
      failure.dump());
}

// Both nodes report the failure of the run. It counts as one error of the actor that failed, and
// not of the next actor, though one is called what the node is called that it names.
BOOST_AUTO_TEST_CASE(an_actor_has_the_errors_that_it_made, *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  Graph g;
  Expr x = g.input("x", DType::i32, {1});
  auto there = g.on_device("/node:b/cpu:0");
  Expr picked = g.named(gather(g.constant(Tensor::of<float>({1, 2, 3})), x), "picks"),
       twice = g.named(picked * 2.0, "pick"), y = g.named(twice + 1.0, "b");
  Function f = c.a->engine().compile(g, {x}, {y}, {.optimize = false});
  f({Tensor::of<std::int32_t>({1})});
  refusal([&] { f({Tensor::of<std::int32_t>({7})}); }, Code::out_of_range);
  json state;
  for (const auto asked = std::chrono::steady_clock::now(); state["errors"].size() < 2;
       state = c.get("/api/state"))
    BOOST_REQUIRE_MESSAGE(std::chrono::steady_clock::now() - asked < 120s,
                          "fewer than two nodes have an error after two minutes: " << state.dump());
  std::map<std::string, std::string> ids;  // by name
  const json described = c.get("/api/plan?id=a/1");
  for (const json& row : described["actors"]["rows"]) ids[row[2].get<std::string>()] = row[0];
  const auto errors_of = [&](const std::string& name) {
    return c.get("/api/actor?id=" + ids.at(name))["errors"];
  };
  const json errors = errors_of("picks");
  BOOST_REQUIRE_MESSAGE(errors.size() == 1u, errors.dump());
  BOOST_TEST(has(errors[0], "Gather 'picks' (inspection_test.cpp:"), errors.dump());
  for (const char* neighbour : {"pick", "b"}) BOOST_TEST(errors_of(neighbour).empty(), neighbour);
  const Outcome said = c.verb({"inspect", "picks"});
  BOOST_TEST(has(said.out, "  error       "), said.out);
  BOOST_TEST(!has(c.verb({"inspect", "pick"}).out, "  error       "));
}

BOOST_AUTO_TEST_CASE(server_answers_malformed_requests_with_a_sentence,
                     *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  BOOST_TEST(has(c.get("/api/plan?id=a/99", 404)["error"], "there is no plan 'a/99'"));
  BOOST_TEST(has(c.get("/api/plan?id=nonsense", 400)["error"], "NODE/NUMBER"));
  BOOST_TEST(has(c.get("/api/counters?plan=a/1&since=x", 400)["error"], "'since' takes a number"));
  BOOST_TEST(has(c.get("/api/actor?id=a/99:1", 404)["error"], "there is no plan"));
  BOOST_TEST(has(c.get("/api/trace?seconds=100000", 400)["error"], "1 to 60 seconds"));
  BOOST_TEST(c.get("/api/events?since=9223372036854775807")["events"].size() == 0u);
  BOOST_TEST(has(c.get("/nothing", 404)["error"], "there is nothing at '/nothing'"));
  BOOST_TEST(has(c.get("/api/plan?id=%00", 400)["error"], "a NUL character"));
  for (const auto& answer :
       {c.http().Post("/api/state", "{}", "application/json"), c.http().Delete("/api/state"),
        c.http().Put("/nothing", "", "text/plain")}) {
    BOOST_REQUIRE(answer);
    BOOST_TEST(answer->status == 405);
    BOOST_TEST(answer->get_header_value("Allow") == "GET, HEAD");
    BOOST_TEST(has(answer->body, "only read"), answer->body);
  }
  for (const std::string& nonsense :
       {std::string("GET\r\n\r\n"), std::string("\0\1\2\3\r\n\r\n", 8), std::string(100'000, 'x'),
        std::string("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST /api/state HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzzz\r\n")}) {
    const int fd = dial(c.url);
    (void)!::write(fd, nonsense.data(), nonsense.size());
    shutdown(fd, SHUT_WR);
    const std::string answer = heard(fd);
    // refused, or hung up on
    BOOST_TEST((answer.empty() || answer.starts_with("HTTP/1.1 4")), answer.substr(0, 60));
  }
  BOOST_TEST(c.get("/api/state")["nodes"].size() == 2u);
  const Outcome unanswered = c.verb({"ps"}, "http://127.0.0.1:1");
  BOOST_TEST(unanswered.code == 1);
  BOOST_TEST(has(unanswered.error, "no node answers at http://127.0.0.1:1"), unanswered.error);
}

// A page whose name resolves to this machine is of no browser's that runs here.
BOOST_AUTO_TEST_CASE(without_a_token_a_node_answers_to_no_public_name,
                     *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  const auto asked_as = [&](const std::string& host, const std::string& path = "/api/state") {
    const int fd = dial(c.url);
    say(fd, "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
    return heard(fd).substr(0, 12);
  };
  for (const char* host :
       {"evil.example", "evil.example:7200", "127.0.0.1.evil.example", "127.evil.example:80"})
    for (const char* path : {"/api/state", "/members", "/metrics", "/api/diagnose"})
      BOOST_TEST(asked_as(host, path) == "HTTP/1.1 403", host << path);
  for (const char* host : {"127.0.0.1", "127.0.0.1:7200", "localhost:7200", "a.localhost:7200",
                           "[::1]:7200", "::1:7200", "10.0.0.1", "x"})
    BOOST_TEST(asked_as(host) == "HTTP/1.1 200", host);
  // they hold no data
  for (const char* path : {"/", "/assets/main.js", "/healthz"})
    BOOST_TEST(asked_as("evil.example", path) == "HTTP/1.1 200", path);
  InspectionOptions open;
  open.host = "127.evil.example";
  const std::string why = refusal([&] { InspectionServer(*c.a, open); }, Code::invalid_argument);
  BOOST_TEST(has(why, "not loopback"), why);
}

BOOST_AUTO_TEST_CASE(another_server_than_a_node_is_recognised,
                     *boost::unit_test::label("stock_zmq")) {
  Cluster c;
  const std::vector<std::vector<std::string>> verbs{
      {"ps"}, {"diagnose", "--json"}, {"graph"}, {"inspect", "x"}, {"metrics"}, {"report", "a/1"}};
  for (const char* answer : {"{}", "<html>", "{\"version\": 1, \"nodes\": [{}]}"}) {
    httplib::Server other;
    other.Get(".*", [&](const httplib::Request&, httplib::Response& out) {
      out.set_content(answer, "application/json");
    });
    const int port = other.bind_to_any_port("127.0.0.1");
    std::thread serving([&] { other.listen_after_bind(); });
    for (const std::vector<std::string>& verb : verbs) {
      const Outcome said = c.verb(verb, "http://127.0.0.1:" + std::to_string(port));
      BOOST_TEST(said.code == 1, verb[0]);
      BOOST_TEST(has(said.error, "is no node of Troupe"), said.error);
      BOOST_TEST(said.out.empty(), said.out);
    }
    other.stop();
    serving.join();
  }
}

BOOST_AUTO_TEST_CASE(a_node_is_looked_at_over_ipv6, *boost::unit_test::label("stock_zmq") *
                                                        boost::unit_test::precondition(has_ipv6)) {
  Cluster c;
  InspectionOptions six;
  six.host = "::1";
  InspectionServer page(*c.a, six);
  BOOST_TEST(page.address().starts_with("http://[::1]:"), page.address());
  const Outcome said = c.verb({"ps"}, page.address());
  BOOST_TEST(said.code == 0, said.error);
}

BOOST_AUTO_TEST_CASE(a_token_is_demanded_where_there_is_one,
                     *boost::unit_test::label("stock_zmq")) {
  InspectionOptions options;
  options.token = "0123456789abcdef";
  Cluster c(options);
  BOOST_TEST(has(c.get("/api/state", 401)["error"], "Authorization: Bearer"));
  BOOST_TEST(has(c.get("/api/state?token=0123456789abcdeg", 401)["error"], "token"));
  c.get("/api/state?token=0123456789abcdef");
  BOOST_TEST(c.http().Get("/healthz")->status == 200);
  write_file(c.folder / "token", "0123456789abcdef\n");
  BOOST_TEST(c.verb({"ps", "--token-file", c.folder / "token"}).code == 0);
  BOOST_TEST(has(c.verb({"ps"}).error, "--token-file"));
  InspectionOptions open;
  open.host = "0.0.0.0";
  const std::string why = refusal([&] { InspectionServer(*c.a, open); }, Code::invalid_argument);
  for (const char* part : {"0.0.0.0", "not loopback", "token"}) BOOST_TEST(has(why, part), why);
}

// Thousands connect and send nothing, others disconnect before their answer, others send nonsense
// slowly: the run proceeds as if alone, and later clients are served.
BOOST_AUTO_TEST_CASE(many_and_vanishing_clients_disturb_no_run) {
  const ManyFiles files;
  const int crowd = files.was.rlim_max > 8000 ? 3000 : 300;
  Nodes nodes(1);
  const InspectionServer server(nodes[0], {});
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{});
  Function f = nodes.engine().compile(
      g, {n},
      {while_loop([&](Expr i) { return i < n; }, [](Expr i) { return i + 1; },
                  g.constant(std::int64_t{0}))});
  RunHandle run = f.start({Tensor::scalar(INT64_MAX)});
  const auto fired = [&] { return nodes.engine().snapshot(10s).runs.at(0).fired(); };
  const auto fds = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = fds();
  std::vector<int> all;
  for (int i = 0; i < crowd; ++i) {
    const int fd = dial(server.address(), SOCK_NONBLOCK);
    const std::string said = i % 3 == 0   ? ""
                             : i % 3 == 1 ? "GET /api/state HTTP/1.1\r\nHost: x\r\n\r\n"
                                          : "GET /api/st";
    (void)!send(fd, said.data(), said.size(), MSG_NOSIGNAL);
    if (i % 5 == 0) {  // gone at once, with a reset
      const linger at_once{1, 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      close(fd);
    } else {
      all.push_back(fd);
    }
  }
  const std::uint64_t with_them = fired();
  BOOST_TEST(nodes[0].diagnose(1s, 10s).empty());  // a second of the run, with all of them there
  BOOST_TEST(fired() > with_them);
  run.cancel();
  BOOST_TEST((run.wait().code() == Code::cancelled));
  for (const int fd : all) close(fd);
  const auto began = std::chrono::steady_clock::now();
  int status = 0;
  const NoSigpipe writes_fail;
  while (status != 200 && std::chrono::steady_clock::now() - began < 60s) {
    httplib::Client http(server.address());
    if (const auto answer = http.Get("/api/state")) status = answer->status;
  }
  BOOST_TEST(status == 200);
  while (fds() > before && std::chrono::steady_clock::now() - began < 60s)
    std::this_thread::yield();
  BOOST_TEST(fds() <= before);  // none is kept
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
