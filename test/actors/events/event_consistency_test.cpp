// Levels of consistency on the case rows C.
#include <troupe/actors/events/occurrence.hpp>
#include <troupe/actors/events/pattern.hpp>
#include <troupe/actors/events/query.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_consistency_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

const Schema kNumber{{"p", Type::integer}};

Query count_at(const Consistency& level) {
  Query q;
  q.output("out", q.source("s", kNumber).count());
  q.set_consistency(level);
  return q;
}
}  // namespace

BOOST_AUTO_TEST_CASE(strong_sends_in_order_and_never_revises) {  // C1
  Ran ran(count_at(Consistency::strong()));
  ran.insert(0, 1, 0, 8, {in(0)});
  ran.insert(0, 2, 6, 9, {in(0)});
  ran.insert(0, 3, 2, 5, {in(0)});
  BOOST_TEST(ran.sent() == "");
  ran.guarantee(0, 9);
  std::string keyless = ran.sent();
  for (std::size_t at; (at = keyless.find("I(")) != std::string::npos;)
    keyless.erase(at, keyless.find('[', at) - at);
  BOOST_TEST(keyless == "[0,2):(1))\n[2,5):(2))\n[5,6):(1))\n[6,8):(2))\n[8,9):(1))\nG(9)\n");
  const Counters c = ran.of("s.align");
  BOOST_TEST(c.blocked == 3u);
  BOOST_TEST(c.peak_state == 3u);
  BOOST_TEST(c.peak_bytes >= 3 * c.peak_state * sizeof(Time));
  BOOST_TEST(c.peak_bytes < 1000u);
  BOOST_TEST(c.state == 0u);
}

BOOST_AUTO_TEST_CASE(middle_sends_at_once_and_revises) {  // C1
  for (const auto level : {Consistency::middle(), Consistency::weak(4)}) {
    Ran ran(count_at(level));
    ran.insert(0, 1, 0, 8, {in(0)});
    BOOST_TEST(ran.sent().find("[0,8):(1)") != std::string::npos);
    ran.insert(0, 2, 6, 9, {in(0)});
    BOOST_TEST(ran.sent().find("[6,8):(2)") != std::string::npos);
    ran.insert(0, 3, 2, 5, {in(0)});
    const std::string third = ran.sent();
    BOOST_TEST(third.find("R(") != std::string::npos);
    BOOST_TEST(third.find("[2,5):(2)") != std::string::npos);
    ran.guarantee(0, 9);
    BOOST_TEST(ran.coalesced() == "[0,2):(1) [2,5):(2) [5,6):(1) [6,8):(2) [8,9):(1)");
    const Counters c = ran.of("s.finalize");
    BOOST_TEST(c.clipped + c.dropped == 0u);
    BOOST_TEST(ran.of("aggregate#2").retractions_out > 0u);
  }
}

BOOST_AUTO_TEST_CASE(late_insert_before_the_cut_is_dropped) {  // C2
  for (const auto level : {Consistency::strong(), Consistency::middle(), Consistency::weak(4)}) {
    Ran ran(count_at(level));
    ran.insert(0, 1, 0, 8, {in(0)});
    ran.insert(0, 2, 10, 12, {in(0)});
    ran.insert(0, 3, 2, 5, {in(0)});
    ran.guarantee(0, 12);
    const bool is_weak = level == Consistency::weak(4);
    BOOST_TEST(ran.coalesced() ==
               (is_weak ? "[0,8):(1) [10,12):(1)" : "[0,2):(1) [2,5):(2) [5,8):(1) [10,12):(1)"));
    BOOST_TEST(ran.of("s.finalize").dropped == (is_weak ? 1u : 0u));
    if (is_weak)
      BOOST_TEST(ran.of("s.finalize").complaints.at(0) ==
                 "s.finalize: the insert of key 3, [2,5), is later than M = 4 permits; it is "
                 "dropped, because the cut is 6");
  }
}

BOOST_AUTO_TEST_CASE(late_retraction_is_clipped_to_the_cut) {  // C3
  for (const auto level : {Consistency::strong(), Consistency::middle(), Consistency::weak(4)}) {
    Ran ran(count_at(level));
    ran.insert(0, 1, 0, 20, {in(0)});
    ran.insert(0, 2, 10, 12, {in(0)});
    ran.retract(0, 1, 3);
    ran.guarantee(0, 12);
    const bool is_weak = level == Consistency::weak(4);
    BOOST_TEST(ran.coalesced() == (is_weak ? "[0,6):(1) [10,12):(1)" : "[0,3):(1) [10,12):(1)"));
    BOOST_TEST(ran.of("s.finalize").clipped == (is_weak ? 1u : 0u));
  }
}

BOOST_AUTO_TEST_CASE(late_insert_across_the_cut_is_clipped) {
  Ran ran(count_at(Consistency::weak(4)));
  ran.insert(0, 1, 10, 12, {in(0)});
  ran.insert(0, 2, 2, 8, {in(0)});
  BOOST_TEST(ran.coalesced() == "[6,8):(1) [10,12):(1)");
  ran.retract(0, 2, 2);  // clipped too: nothing before the cut changes
  ran.retract(0, 3, 2);  // its insert was or will be dropped: no complaint
  ran.insert(0, 3, 1, 30, {in(0)});
  BOOST_TEST(ran.coalesced() == "[10,12):(1)");
  ran.run.finish();
  BOOST_TEST(ran.of("s.finalize").refused == 0u);
}

BOOST_AUTO_TEST_CASE(blocking_ends_after_b) {
  Ran ran(count_at({3, kForever}));
  ran.insert(0, 1, 0, 8, {in(0)});
  ran.insert(0, 2, 2, 9, {in(0)});
  BOOST_TEST(ran.sent() == "");
  ran.insert(0, 3, 4, 5, {in(0)});
  BOOST_TEST(ran.sent().find("[0,8):(1)") != std::string::npos);
  const Counters c = ran.of("s.align");
  BOOST_TEST(c.blocked == 1u);
  BOOST_TEST(c.blocking == 4.0);
}

BOOST_AUTO_TEST_CASE(insert_and_retraction_annihilate_in_the_buffer) {
  Ran ran(count_at(Consistency::strong()));
  ran.insert(0, 1, 3, 8, {in(0)});
  ran.retract(0, 1, 3);
  ran.retract(0, 2, 6);
  ran.insert(0, 2, 4, 9, {in(0)});
  ran.guarantee(0, 4);
  BOOST_TEST(ran.of("s.align").events_out == 1u);
  BOOST_TEST(ran.of("s.align").retractions_out == 0u);
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == "[4,6):(1)");
}

BOOST_AUTO_TEST_CASE(levels_switch_at_guarantees) {  // C4
  const auto feed = [](Ran& ran, Time from) {        // six messages out of order, then a guarantee
    const auto key = static_cast<Key>(from);
    ran.insert(0, key + 1, from + 5, from + 20, {in(0)});
    ran.retract(0, key + 2, from + 7);
    ran.insert(0, key + 2, from + 1, from + 9, {in(0)});
    ran.insert(0, key + 3, from + 3, from + 30, {in(0)});
    ran.retract(0, key + 3, from + 8);
    ran.insert(0, key + 4, from + 2, from + 4, {in(0)});
    ran.guarantee(0, from + 9);
  };
  const auto whole = [&](const Consistency& level) {
    Ran ran(count_at(level));
    for (Time from = 0; from < 50; from += 10) feed(ran, from);
    return canonical(ran.output, 49);
  };
  Ran ran(count_at(Consistency::strong()));
  feed(ran, 0);
  ran.insert(0, 99, 12, 14, {in(0)});
  ran.sent();
  ran.run.set_consistency(Consistency::middle());
  BOOST_TEST(ran.sent().find("[12,14):(2)") != std::string::npos);  // the buffer is sent
  ran.retract(0, 99, 12);
  feed(ran, 10);
  feed(ran, 20);
  ran.run.set_consistency(Consistency::strong());
  ran.insert(0, 100, 45, 46, {in(0)});
  ran.sent();
  feed(ran, 30);
  BOOST_TEST(ran.sent().find("[45") == std::string::npos);  // blocks again
  ran.retract(0, 100, 45);
  feed(ran, 40);
  const Table expected = normal(whole(Consistency::strong()));
  BOOST_TEST((expected == normal(whole(Consistency::middle()))));
  BOOST_TEST((normal(canonical(ran.output, 49)) == expected));
}

BOOST_AUTO_TEST_CASE(levels_above_weak_hold_after_the_windows) {
  Query q;
  q.output("out", q.source("s", kNumber).hopping(1, 5).count());
  q.set_consistency(Consistency::weak(4));
  Ran ran(q);
  ran.insert(0, 1, 20, 21, {in(0)});
  const Time from = ran.run.set_consistency(Consistency::middle());
  BOOST_TEST(from == 20 - 4 + 5);  // the cut, and the window
  BOOST_TEST(ran.run.set_consistency(Consistency::strong()) > 20);
  BOOST_TEST(ran.run.set_consistency(Consistency::middle()) == kNever);
  ran.insert(0, 2, 17, 18, {in(0)});
  ran.run.finish();
  q.set_consistency(Consistency::middle());
  Ran ideal(q);
  ideal.insert(0, 1, 20, 21, {in(0)});
  ideal.insert(0, 2, 17, 18, {in(0)});
  ideal.run.finish();
  for (Time t = from; t < 30; ++t)
    BOOST_TEST((canonical_at(ran.output, t) == canonical_at(ideal.output, t)));
}

BOOST_AUTO_TEST_CASE(versions_follow_occurrence) {  // A11
  const auto as_at = [](Time occurrence, bool keeps) {
    OccurrenceIngress ingress(kNumber, keeps);
    Query q;
    q.output("out", q.source("s", ingress.schema()).project({{"p", field("p")}}));
    Ran ran(q);
    Batch batch(ingress.schema());
    struct Version {
      Time begin, end, occurrence;
    };
    for (const Version& v : {Version{0, kForever, 1}, Version{0, 5, 3}, Version{2, 6, 4}})
      if (v.occurrence <= occurrence) ingress.add(1, v.begin, v.end, v.occurrence, {in(7)}, batch);
    ingress.add(1, 0, 1, 0, {in(7)}, batch);  // older: no effect
    BOOST_TEST(ingress.overtaken() == 1u);
    ran.run.feed(0, std::move(batch));
    ran.run.finish();
    return text_of(ran.table());
  };
  for (const bool keeps : {false, true}) {
    BOOST_TEST(as_at(2, keeps) == "[0,inf):(7)");
    BOOST_TEST(as_at(3, keeps) == "[0,5):(7)");
    BOOST_TEST(as_at(4, keeps) == "[2,6):(7)");
  }
  OccurrenceIngress ingress(kNumber);
  Batch batch(ingress.schema());
  ingress.add(1, 0, kForever, 1, {in(7)}, batch);
  ingress.add(1, 0, 5, 3, {in(7)}, batch);
  ingress.add(1, 2, 6, 4, {in(7)}, batch);
  ingress.add(1, 2, 2, 5, {in(7)}, batch);
  BOOST_TEST(text_of(batch) == "I(1,[0,inf):(7))\nR(1,5)\nR(1,0)\nI(2,[2,6):(7))\nR(2,2)\n");
  ingress.guarantee(6, batch);
  BOOST_TEST(batch.guarantee == 6);
  BOOST_TEST(ingress.facts() == 0u);
}

BOOST_AUTO_TEST_CASE(weak_consistency_may_drop_events_for_good) {
  const auto effective = [](const auto& build) {
    Query q;
    q.output("out", build(q.source("s", kNumber)));
    q.set_consistency(Consistency::weak(4));
    Ran ran(q);
    ran.insert(0, 1, 10, 11, {in(0)});
    return ran.run.set_consistency(Consistency::strong());
  };
  BOOST_TEST(effective([](Stream s) { return s.alter_lifetime(Lifetimes::extend()).count(); }) ==
             kForever);
  BOOST_TEST(effective([](Stream s) { return s.alter_lifetime(Lifetimes::deletes()); }) ==
             kForever);
  BOOST_TEST(effective([](Stream s) { return match(unless(event(s, "x"), event(s, "y"), 3)); }) ==
             kForever);
  BOOST_TEST(effective([](Stream s) {
               return match(sequence({event(s, "x"), event(s, "y")}, 3));
             }) < 20);
}

BOOST_AUTO_TEST_CASE(versions_do_not_change_what_is_settled) {
  OccurrenceIngress ingress(kNumber);
  Batch batch(kNumber);
  ingress.add(1, 0, kForever, 1, {in(7)}, batch);
  ingress.guarantee(3, batch);
  ingress.add(1, 5, 9, 2, {in(7)}, batch);  // would remove [0, inf)
  ingress.add(1, 0, 3, 3, {in(7)}, batch);
  ingress.add(2, 2, 9, 1, {in(8)}, batch);
  BOOST_TEST(ingress.overtaken() == 3u);
  ingress.add(1, 0, 4, 4, {in(7)}, batch);
  BOOST_TEST(text_of(batch) == "I(1,[0,inf):(7))\nR(1,4)\nG(3)\n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
