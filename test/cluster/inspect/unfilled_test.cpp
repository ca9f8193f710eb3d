// A dequeue beside a branch of its own run that gets on: named if nothing will fill its queue any
// more, and not if something may.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/cluster/counting.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(unfilled_test)

namespace {

using namespace std::chrono_literals;

// A program whose one branch counts for long, and whose other branch takes from a queue; `fill`
// adds Enqueues and decides when they run.
template <class Fill>
void take_beside_counting(const Fill& fill, std::size_t named, const char* tag = "") {
  static std::uint64_t number = 0;
  if (!is_due_today(number++, 4)) return;  // sanitizers: a fourth of the programs each day
  Nodes nodes(2, stepped(1), Between::simulation);
  Counting program;
  Graph& g = program.g;
  auto there = g.on_device("/node:b/cpu:0");
  Queue jobs = g.fifo_queue("jobs", {{DType::i64, Shape{}}}, 8);
  Exprs fetches{program.last};
  for (const Expr& e : fill(g, jobs, program.last)) fetches.push_back(e);
  RunHandle run = nodes.engine().compile(g, {}, fetches).start({});
  for (int i = 0; i < 5000; ++i) nodes.step();
  for (int look = 0; look < 3; ++look) {
    const std::vector<Diagnosis> said = nodes[0].diagnose();
    BOOST_TEST(said.size() == named,
               said.size() << " named beside " << g.describe(fetches.back().edge().node));
    for (const Diagnosis& v : said) {
      BOOST_TEST((v.actor.starts_with("Dequeue '") && v.actor.find("take") != std::string::npos),
                 v.text);
      BOOST_TEST(v.tag == tag, v.text);
      BOOST_TEST(v.text.find("queue 'jobs', which nothing of this run will fill any more") !=
                     std::string::npos,
                 v.text);
    }
    nodes.until(200ms, [] { return false; });
  }
  end(nodes, run);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_queue_without_producer_beside_a_branch_with_progress,
                     *boost::unit_test::label("one_thread")) {
  const auto one = [](Graph& g) { return g.constant(std::int64_t{1}); };
  take_beside_counting(
      [](Graph& g, Queue& jobs, Expr) { return Exprs{g.named(jobs.dequeue()[0], "take")}; }, 1);
  // One element for two.
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr) {
        return Exprs{jobs.enqueue({one(g)}), g.named(jobs.dequeue()[0], "take"),
                     g.named(jobs.dequeue()[0], "take_too")};
      },
      1);
  // The actor that would fill it waits for it.
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr) {
        Expr taken = g.named(jobs.dequeue()[0], "take");
        return Exprs{jobs.enqueue({taken + 1})};
      },
      1);
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr) {
        Expr taken = g.named(jobs.dequeue()[0], "take");
        return Exprs{cond(
            taken > 0, [&] { return jobs.enqueue({one(g)}); },
            [&] { return jobs.enqueue({taken}); })};
      },
      1);
  // In a loop.
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr) {
        const auto more = [&](Expr i) {
          auto there = g.on_device("/node:b/cpu:0");
          return i < 5;
        };
        const auto add = [&](Expr i) {
          auto there = g.on_device("/node:b/cpu:0");
          return i + g.named(jobs.dequeue()[0], "take");
        };
        return Exprs{while_loop(more, add, g.constant(std::int64_t{0}), {.name = "sums"})};
      },
      1, "iteration 0 of loop 'sums/2'");
}

BOOST_AUTO_TEST_CASE(a_queue_that_a_running_node_may_fill, *boost::unit_test::label("one_thread")) {
  const auto take = [](Graph& g, Queue& jobs) { return g.named(jobs.dequeue()[0], "take"); };
  // After the counting, be it to fill it or to close it; in a branch, a loop or a function; also by
  // what waits for another dequeue in vain.
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr last) {
        return Exprs{take(g, jobs), jobs.enqueue({cast(last, DType::i64)})};
      },
      0);
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr last) {
        auto after = g.after({last});
        return Exprs{take(g, jobs), jobs.close()};
      },
      0);
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr last) {
        return Exprs{take(g, jobs),
                     cond(
                         last > 5, [&] { return jobs.enqueue({g.constant(std::int64_t{1})}); },
                         [&] { return g.constant(std::int64_t{0}); })};
      },
      0);
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr last) {
        return Exprs{take(g, jobs), while_loop([](Expr i) { return i < 5; },
                                               [&](Expr i) { return jobs.enqueue({i}); },
                                               cast(last, DType::i64), {.name = "puts"})};
      },
      0);
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr last) {
        GraphFunction<Expr(Expr)> put(g, "put", {{DType::i64, Shape{}}},
                                      [&](Expr x) { return jobs.enqueue({x}); });
        return Exprs{take(g, jobs), put(cast(last, DType::i64))};
      },
      0);
  // A Merge passes on what comes first.
  take_beside_counting(
      [&](Graph& g, Queue& jobs, Expr last) {
        Expr taken = take(g, jobs);
        return Exprs{jobs.enqueue({cond(
            last > 5, [&] { return cast(last, DType::i64); }, [&] { return taken; })})};
      },
      0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
