// Lists: values that share a log, in any order of appends.
#include <troupe/devices/list/list_walk.hpp>
#include <troupe/devices/list/packed_list.hpp>

#include <boost/test/unit_test.hpp>

#include <latch>
#include <limits>
#include <set>
#include <thread>

#include <fmt/format.h>

#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe {

BOOST_AUTO_TEST_SUITE(list_test)

namespace {

using test::refusal;

Tensor number(double v) { return Tensor::scalar(v); }
Tensor vector_of(double v) { return Tensor::of<double>({v, v + 0.5}); }
List of(std::initializer_list<double> numbers) {
  List list(DType::f64, Shape());
  for (double v : numbers) list.push(number(v));
  return list;
}
std::vector<double> numbers_in(const List& list) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < list.length(); ++i)
    out.push_back(list.read(i).has_value() ? list.read(i).tensor().at(0) : -1);
  return out;
}
using Numbers = std::vector<double>;

}  // namespace

BOOST_AUTO_TEST_CASE(push_pop_and_read) {
  List list = of({1, 2, 3});
  BOOST_TEST(list.length() == 3);
  BOOST_TEST(list.pop().tensor().at(0) == 3);
  list.push(number(4));
  BOOST_TEST(numbers_in(list) == (Numbers{1, 2, 4}), boost::test_tools::per_element());
  BOOST_TEST((list.is_list() && list.has_value() && !list.is_inline()));
  Value value = list;  // a list is a value like another
  BOOST_TEST(value.list().length() == 3);
  value.reset();
  BOOST_TEST(list.is_sole_holder());
}

BOOST_AUTO_TEST_CASE(an_old_handle_sees_no_later_change) {
  List a = of({1, 2}), b = a, c = a;
  b.push(number(3));  // in place
  c.push(number(4));  // elsewhere
  BOOST_TEST(numbers_in(a) == (Numbers{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(numbers_in(b) == (Numbers{1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(numbers_in(c) == (Numbers{1, 2, 4}), boost::test_tools::per_element());
  BOOST_TEST((&a.slot(0) == &b.slot(0)));
  BOOST_TEST((&a.slot(0) != &c.slot(0)));
  b.pop();
  b.pop();
  b.push(number(5));  // a and the log still have a 2 there
  BOOST_TEST(numbers_in(a) == (Numbers{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(numbers_in(b) == (Numbers{1, 5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_last_holder_takes_back_what_others_appended) {
  List a = of({1, 2}), b = a;
  Tensor seen = vector_of(9);
  List wide(DType::f64, Shape::unknown());
  List longer = wide;
  longer.push(seen);
  BOOST_TEST(!seen.is_sole_holder());
  longer.reset();
  wide.push(number(1));  // over the slot that `longer` had
  BOOST_TEST(seen.is_sole_holder());
  BOOST_TEST(wide.length() == 1);
  b.push(number(3));
  b.push(number(5));
  b.reset();
  List grown = of({1}), other = grown;
  other.push(number(2));
  other.reset();
  grown.grow(3);
  BOOST_TEST((!grown.read(1).has_value() && !grown.read(2).has_value()));
  const Value* first = &a.slot(0);
  a.push(number(4));
  BOOST_TEST((&a.slot(0) == first));
  BOOST_TEST(numbers_in(a) == (Numbers{1, 2, 4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(popping_as_sole_holder_frees) {
  Tensor t = vector_of(1);
  List list(DType::f64, Shape{2});
  list.push(t);
  BOOST_TEST(!t.is_sole_holder());
  list.pop();
  BOOST_TEST(t.is_sole_holder());
  list.push(t);
  List shared = list;
  list.pop();
  BOOST_TEST(!t.is_sole_holder());  // shared still has it
  shared.reset();
  list.push(vector_of(2));
  BOOST_TEST(t.is_sole_holder());
}

BOOST_AUTO_TEST_CASE(list_keeps_its_joined_tensor_while_elements_are_unchanged) {
  const Tensor rows = Tensor::of<float>({1, 2, 3});
  List a = of({1, 2, 3}), b = a;
  BOOST_TEST(!a.joined().has_value());
  a.keep_joined(rows);
  BOOST_TEST(identical(b.joined(), rows));
  b.push(number(4));  // a sees no later change
  BOOST_TEST(!b.joined().has_value());
  BOOST_TEST(identical(a.joined(), rows));
  b = List();
  BOOST_TEST(a.is_sole_holder());
  a.pop();
  List c = a;
  a.push(number(5));  // as long again, and not the same
  BOOST_TEST(!a.joined().has_value());
  for (int change = 0; change < 4; ++change) {
    List list = of({1, 2, 3});
    list.keep_joined(rows);
    if (change == 0) list.put(1, number(7));
    if (change == 1) list.take(1), list.put(1, number(7));
    if (change == 2) list.pop(), list.push(number(7));
    if (change == 3) list.pop(), list.grow(3);
    BOOST_TEST(!list.joined().has_value(), change);
  }
}

BOOST_AUTO_TEST_CASE(growth_moves_nothing_and_takes_few_chunks) {
  constexpr int n = 10000;
  List list(DType::f64, Shape());
  std::vector<const Value*> where;
  std::vector<List> old;
  for (int i = 0; i < n; ++i) {
    if (i % 100 == 0) old.push_back(list);  // other holders do not make a push a copy
    list.push(number(i));
    where.push_back(&list.slot(i));
  }
  int chunks = 1;
  for (int i = 0; i < n; ++i) {
    BOOST_REQUIRE((&list.slot(i) == where[static_cast<std::size_t>(i)]));
    if (i > 0 && where[static_cast<std::size_t>(i)] != where[static_cast<std::size_t>(i - 1)] + 1)
      ++chunks;
  }
  BOOST_TEST(chunks <= 13);
  for (std::size_t k = 0; k < old.size(); ++k)
    BOOST_TEST(old[k].length() == static_cast<std::int64_t>(k) * 100);
  old.clear();
  // Push and pop by turns use one slot over and over.
  std::set<const Value*> slots;
  for (int i = 0; i < 1000; ++i) {
    list.push(number(i));
    slots.insert(&list.slot(n));
    list.pop();
  }
  BOOST_TEST(slots.size() == 1);
  while (list.length() > 0)
    BOOST_REQUIRE(list.pop().tensor().at(0) == static_cast<double>(list.length()));
}

BOOST_AUTO_TEST_CASE(elements_not_written) {
  List list(DType::f64, Shape{2});
  list.grow(5);
  BOOST_TEST(list.length() == 5);
  BOOST_TEST(!list.read(4).has_value());
  const List before = list;
  list.write(3, vector_of(3));
  BOOST_TEST(!before.read(3).has_value());
  BOOST_TEST(list.read(3).tensor().at(1) == 3.5);
  const Value* slot = &list.slot(3);
  list.write(1, vector_of(1));  // now as sole holder: in place
  BOOST_TEST((&list.slot(3) == slot));
  BOOST_TEST(
      refusal([&] { list.write(3, vector_of(4)); }, Code::failed_precondition).find("element 3") !=
      std::string::npos);
  BOOST_TEST(list.read(3).tensor().at(1) == 3.5);
  list.push(vector_of(5));
  BOOST_TEST(list.pop().tensor().at(0) == 5);
  BOOST_TEST(!list.pop().has_value());
  BOOST_TEST(list.length() == 4);
  BOOST_TEST(list.bytes() == 2 * 16u);
  // A push beside a reader of slots of the same chunk that were never written.
  List one = list, other(DType::f64, Shape());
  other.grow(2);
  List reader = other;
  other.push(number(1));
  BOOST_TEST(
      (!reader.read(1).has_value() && reader.length() == 2 && other.read(2).tensor().at(0) == 1));
}

BOOST_AUTO_TEST_CASE(chunks_of_a_dead_list_come_back_empty) {
  constexpr std::int64_t kMany = 5000;
  for (int round = 0; round < 3; ++round) {
    List full(DType::f64, Shape());
    for (std::int64_t i = 0; i < kMany; ++i) full.push(number(static_cast<double>(i)));
    BOOST_TEST(full.bytes() == kMany * sizeof(double));
    for (std::int64_t i = 0; i < kMany / 2; ++i) full.pop();
    full = List();
    List fresh(DType::f64, Shape());
    fresh.grow(kMany);
    fresh.write(kMany - 1, number(1));
    fresh.write(kMany / 8, number(2));
    std::int64_t written = 0;
    for (std::int64_t i = 0; i < kMany; ++i) written += fresh.read(i).has_value();
    BOOST_TEST(written == 2);
    BOOST_TEST(fresh.bytes() == 2 * sizeof(double));
  }
}

BOOST_AUTO_TEST_CASE(take_and_put) {
  List list = of({1, 2, 3}), before = list;
  BOOST_TEST(list.take(1).tensor().at(0) == 2);
  BOOST_TEST(!list.take(1).has_value());
  list.put(1, number(7));
  list.put(1, number(8));
  list.put(4, number(9));
  BOOST_TEST(numbers_in(list) == (Numbers{1, 8, 3, -1, 9}), boost::test_tools::per_element());
  BOOST_TEST(numbers_in(before) == (Numbers{1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(lists_of_lists) {
  List inner = of({1, 2}), outer(DType::f64, Shape(), 2);
  outer.push(inner);
  inner.push(number(3));
  outer.push(inner);
  BOOST_TEST(outer.read(0).list().length() == 2);
  BOOST_TEST(outer.read(1).list().length() == 3);
  BOOST_TEST(outer.bytes() == 5 * 8u);
  BOOST_TEST(outer.text() == "list(list(f64[])) of 2");
  refusal([&] { outer.push(number(1)); }, Code::invalid_argument);
  refusal([&] { outer.push(outer); }, Code::invalid_argument);
  List any(DType::f32, Shape::unknown(), List::kAnyDepth);
  any.push(number(1));
  any.push(outer);
  any.push(any);
  BOOST_TEST(any.read(2).list().read(1).list().length() == 2);
  refusal([&] { any.push(Value()); }, Code::invalid_argument);
}

BOOST_AUTO_TEST_CASE(wrong_uses_name_the_mistake) {
  List list(DType::f64, Shape{2});
  auto says = [](const std::string& text, const char* part) {
    BOOST_TEST(text.find(part) != std::string::npos, text);
  };
  says(refusal([&] { list.push(number(1)); }, Code::invalid_argument),
       "f64[] is no element of a list(f64[2]) of 0");
  says(refusal([&] { list.push(Tensor::of<float>({1, 2})); }, Code::invalid_argument), "f32[2]");
  says(refusal([&] { list.push(list); }, Code::invalid_argument), "list(f64[2])");
  says(refusal([&] { list.pop(); }, Code::out_of_range), "empty list");
  list.push(vector_of(1));
  says(refusal([&] { list.read(1); }, Code::out_of_range), "index 1 is outside a list of 1");
  says(refusal([&] { list.read(-1); }, Code::out_of_range), "index -1");
  says(refusal([&] { list.write(1, vector_of(1)); }, Code::out_of_range), "index 1");
  says(refusal([&] { list.put(-1, vector_of(1)); }, Code::out_of_range), "index -1");
  refusal([&] { list.grow(-1); }, Code::invalid_argument);
  BOOST_TEST(list.length() == 1);
}

// Two threads append through copies of one handle: one in place, the other in a log of its own; and
// readers meanwhile see what they held.
BOOST_AUTO_TEST_CASE(threads_append_to_what_they_share) {
  constexpr int kRounds = 200, kPushes = 40;
  int in_place = 0;
  for (int round = 0; round < kRounds; ++round) {
    List start(DType::f64, Shape());
    start.grow(1 + round % 5);  // their chunk may not be there yet
    start.push(number(-5));
    const Value* shared = &start.slot(start.length() - 1);
    std::latch ready(3);
    std::vector<List> ends(2);
    auto append = [&](int who, List mine) {
      ready.arrive_and_wait();
      for (int i = 0; i < kPushes; ++i) mine.push(number(100 * who + i));
      ends[static_cast<std::size_t>(who)] = std::move(mine);
    };
    auto look = [&](List mine) {
      ready.arrive_and_wait();
      bool right = true;
      for (int i = 0; i < 100; ++i)
        for (std::int64_t k = 0; k < mine.length(); ++k)
          right = right && mine.read(k).has_value() == (k + 1 == mine.length());
      BOOST_TEST(right);
    };
    std::thread a(append, 0, start), b(append, 1, start), c(look, start);
    a.join();
    b.join();
    c.join();
    int stayed = 0;
    for (int who = 0; who < 2; ++who) {
      const List& end = ends[static_cast<std::size_t>(who)];
      BOOST_REQUIRE(end.length() == start.length() + kPushes);
      for (int i = 0; i < kPushes; ++i)
        BOOST_REQUIRE(end.read(start.length() + i).tensor().at(0) == 100 * who + i);
      stayed += &end.slot(start.length() - 1) == shared;
    }
    BOOST_REQUIRE(stayed == 1);
    in_place += stayed;
    BOOST_REQUIRE(start.read(start.length() - 1).tensor().at(0) == -5);
  }
  BOOST_TEST(in_place == kRounds);
}

// The last of several threads to let go of a list may change it in place: it sees the others' reads
// ended.
BOOST_AUTO_TEST_CASE(a_sole_holder_comes_after_other_threads) {
  for (int round = 0; round < 100; ++round) {
    List list = of({1, 2, 3});
    std::latch ready(2);
    double sum = 0;
    std::thread reader([&, mine = list]() mutable {
      ready.arrive_and_wait();
      sum = mine.read(0).tensor().at(0) + mine.read(2).tensor().at(0);
      mine.push(number(9));
      mine.reset();
    });
    ready.arrive_and_wait();
    list.pop();
    list.push(number(4));
    list.take(0);
    reader.join();
    BOOST_TEST(sum == 4);
    BOOST_TEST(numbers_in(list) == (Numbers{-1, 2, 4}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(lists_in_lists_are_given_back_however_deep) {
  List outer(DType::f32, Shape::unknown(), List::kAnyDepth);
  for (int depth = 0; depth < 200'000; ++depth) {
    List next(DType::f32, Shape::unknown(), List::kAnyDepth);
    next.push(std::move(outer));
    outer = std::move(next);
  }
  BOOST_TEST(outer.length() == 1);
  outer = List(DType::f32, Shape{});
  BOOST_TEST(outer.length() == 0);
}

// Every timed firing asks: a walk over the elements, asked as often as there are elements, would
// not come to an end here.
BOOST_AUTO_TEST_CASE(bytes_are_known_without_a_walk) {
  constexpr int n = 1'000'000;
  List list(DType::f64, Shape());
  std::size_t sum = 0;
  for (int i = 0; i < n; ++i) {
    list.push(number(i));
    sum += list.bytes();
  }
  BOOST_TEST(sum == 8 * (std::size_t{n} * (n + 1) / 2));
  List nested(DType::f32, Shape::unknown(), List::kAnyDepth);
  for (int depth = 1; depth <= 300'000; ++depth) {
    List next(DType::f32, Shape::unknown(), List::kAnyDepth);
    next.push(number(1));
    next.push(std::move(nested));
    nested = std::move(next);
    BOOST_REQUIRE(nested.bytes() == 8u * static_cast<std::size_t>(depth));
  }
}

BOOST_AUTO_TEST_CASE(bytes_follow_what_a_list_holds) {
  List list(DType::f64, Shape::unknown());
  list.grow(4);
  BOOST_TEST(list.bytes() == 0u);
  list.write(1, vector_of(1));
  list.put(3, number(2));
  BOOST_TEST(list.bytes() == 24u);
  list.put(1, number(3));
  BOOST_TEST(list.bytes() == 16u);
  List shorter = list;
  list.push(vector_of(4));
  BOOST_TEST(list.bytes() == 32u);
  // four fifths of it: an estimate, for another handle has gone on
  BOOST_TEST(shorter.bytes() == 25u);
  List copy = list;
  copy.take(3);  // in a log of its own
  BOOST_TEST(copy.bytes() == 24u);
  BOOST_TEST(list.bytes() == 32u);
  shorter = List();
  BOOST_TEST(list.pop().tensor().bytes() == 16u);
  BOOST_TEST(list.bytes() == 16u);
  while (list.length() > 0) list.pop();
  BOOST_TEST(list.bytes() == 0u);
}

// One frame of the stack each, that would be.
BOOST_AUTO_TEST_CASE(lists_nested_deep_are_walked_and_made_anew) {
  constexpr int deep = 300'000;
  // in a buffer: a scalar lies in its handle
  const auto pair = [](double v) { return Tensor::of<double>({v, v}); };
  List nested(DType::f64, Shape::unknown(), List::kAnyDepth);
  for (int depth = 0; depth < deep; ++depth) {
    List next(DType::f64, Shape::unknown(), List::kAnyDepth);
    next.grow(1);
    next.push(pair(1));
    next.push(std::move(nested));
    nested = std::move(next);
  }
  int seen = 0;
  each_tensor(nested, [&](const Tensor&) { ++seen; });
  BOOST_TEST(seen == deep);
  Value made = with_tensors(nested, nullptr, [&](const Tensor&) { return pair(seen--); });
  double sum = 0;
  each_tensor(made, [&](const Tensor& t) { sum += t.at(0); });
  BOOST_TEST(sum == 0.5 * deep * (deep + 1.0));
  BOOST_TEST(made.list().length() == 3);
  BOOST_TEST(!made.list().read(0).has_value());
  BOOST_TEST(made.list().read(1).tensor().at(0) == deep);
}

// Whether a log would hold itself was asked of all lists within, on the stack.
BOOST_AUTO_TEST_CASE(a_deep_list_goes_into_one_that_others_hold) {
  const auto any = [] { return List(DType::f32, Shape::unknown(), List::kAnyDepth); };
  List shared = any(), other = shared, deep = any();
  for (int depth = 0; depth < 300'000; ++depth) {
    List next = any();
    next.push(std::move(deep));
    deep = std::move(next);
  }
  shared.push(deep);
  BOOST_TEST(shared.length() == 1);
  BOOST_TEST(other.length() == 0);
  // Into each other, both ways: neither log may come to hold itself.
  List a = any(), b = any(), kept = a;
  b.push(a);
  a.push(b);
  a.push(a);
  BOOST_TEST(a.length() == 2);
  BOOST_TEST(a.read(0).list().length() == 1);
  BOOST_TEST(a.read(1).list().length() == 1);
  BOOST_TEST(kept.length() == 0);
}

BOOST_AUTO_TEST_CASE(a_list_has_a_bound) {
  List list(DType::f64, Shape());
  const std::string most = std::to_string(List::kMost);
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  for (std::int64_t i : {List::kMost, std::int64_t{1} << 34, std::int64_t{1} << 60,
                         std::numeric_limits<std::int64_t>::max()}) {
    BOOST_TEST(has(refusal([&] { list.reach(i); }, Code::out_of_range),
                   "index " + std::to_string(i) + " is beyond the " + most));
    BOOST_TEST(
        has(refusal([&] { list.put(i, number(1)); }, Code::out_of_range), "beyond the " + most));
  }
  BOOST_TEST(
      has(refusal([&] { list.grow(List::kMost + 1); }, Code::out_of_range), most + " at most"));
  BOOST_TEST(has(refusal([&] { list.reach(-1); }, Code::out_of_range), "index -1 is outside"));
  list.grow(List::kMost);  // nothing is written: it takes no memory
  BOOST_TEST(!list.read(List::kMost - 1).has_value());
  BOOST_TEST(has(refusal([&] { list.push(number(1)); }, Code::out_of_range), most));
  BOOST_TEST(list.length() == List::kMost);
}

namespace {
List saved_scalars(DType dtype, std::int64_t n) {
  List list(dtype, Shape());
  list.mark_saved(nullptr);
  for (std::int64_t i = 0; i < n; ++i) list.push(Tensor::scalar_as(dtype, static_cast<double>(i)));
  return list;
}
bool is_packed(const List& list) { return PackedList::of(list).is_packed(); }
}  // namespace

BOOST_AUTO_TEST_CASE(saved_scalars_are_packed) {
  for (const DType dtype : {DType::boolean, DType::f16, DType::i32, DType::f64, DType::c128}) {
    constexpr std::int64_t kMany = 1000;
    List list = saved_scalars(dtype, kMany);
    BOOST_TEST(is_packed(list));
    BOOST_TEST(list.bytes() == kMany * size_of(dtype));
    const List old = list;
    list.pop();
    list.push(Tensor::scalar_as(dtype, 0));  // elsewhere: `old` has the end
    BOOST_TEST(old.read(kMany - 1).is_same_scalar(Tensor::scalar_as(dtype, kMany - 1)));
    BOOST_TEST(list.read(kMany - 1).is_same_scalar(Tensor::scalar_as(dtype, 0)));
    BOOST_TEST((is_packed(list) && is_packed(old)));
    list.pop();
    for (std::int64_t i = kMany - 1; i-- > 0;) {
      const Tensor wanted = Tensor::scalar_as(dtype, static_cast<double>(i));
      BOOST_REQUIRE(list.peek(i).is_same_scalar(wanted));
      BOOST_REQUIRE(list.find(i).is_same_scalar(wanted));
      BOOST_REQUIRE(list.pop().is_same_scalar(wanted));
    }
    BOOST_TEST(list.bytes() == 0u);
    BOOST_TEST(!list.find(0).has_value());
    refusal([&] { list.pop(); }, Code::out_of_range);
    refusal([&] { list.push(Tensor::of<float>({1})); }, Code::invalid_argument);
    BOOST_TEST(!old.joined().has_value());
  }
  List large(DType::f64, Shape{5, 7}), any(DType::f64, Shape::unknown());
  large.mark_saved(nullptr);
  any.mark_saved(nullptr);
  BOOST_TEST((!is_packed(large) && !is_packed(any)));
}

BOOST_AUTO_TEST_CASE(saved_small_tensors_are_packed) {
  const auto element = [](int i) {
    const float x = static_cast<float>(i);
    return Tensor::of<float>({x, -x, x / 2, 1, 2, x}, {2, 3});
  };
  List list(DType::f32, Shape{2, 3});
  list.mark_saved(nullptr);
  for (int i = 0; i < 100; ++i) list.push(element(i));
  BOOST_TEST(is_packed(list));
  BOOST_TEST(list.bytes() == 100u * 24);
  const List old = list;
  list.pop();
  list.push(element(7));
  BOOST_TEST(identical(old.read(99).tensor(), element(99)));
  BOOST_TEST(identical(list.peek(99).tensor(), element(7)));
  refusal([&] { list.push(Tensor::zeros(DType::f32, Shape{3, 2})); }, Code::invalid_argument);
  for (int i = 98; i > 40; --i) {
    list.pop();
    BOOST_REQUIRE(identical(list.read(i).tensor(), element(i)));
  }
  ElementCursor cursor;
  PackedList& packed = PackedList::of(list);
  BOOST_REQUIRE(packed.open(cursor));
  BOOST_TEST(cursor.end - cursor.begin == 32 * 24);
  const Tensor pushed = element(1000);
  std::memcpy(cursor.next, pushed.raw(), 24);
  cursor.next += 24;
  packed.close(cursor);
  BOOST_TEST(list.length() == 43);
  BOOST_TEST(identical(list.pop().tensor(), pushed));
  list.put(3, element(5));
  BOOST_TEST((!is_packed(list) && is_packed(old)));
  BOOST_TEST(identical(list.read(3).tensor(), element(5)));
  BOOST_TEST(identical(list.read(41).tensor(), element(41)));
}

BOOST_AUTO_TEST_CASE(packed_elements_become_handles_where_one_is_missing) {
  for (int change = 0; change < 5; ++change)
    for (const bool is_shared : {false, true}) {
      List list = saved_scalars(DType::f64, 40), other = is_shared ? list : List();
      if (change == 0) list.grow(42);
      if (change == 1) list.put(2, number(7));
      if (change == 2) list.take(2);
      if (change == 3) list.put(41, number(9));
      if (change == 4) list.grow(41), list.write(40, number(9));
      BOOST_TEST(!is_packed(list), change);
      BOOST_TEST(list.is_saved());
      BOOST_TEST(list.read(39).tensor().at(0) == 39);
      BOOST_TEST(list.length() == (change == 0 || change == 3 ? 42 : change == 4 ? 41 : 40));
      BOOST_TEST(list.bytes() == 8u * (change == 2 ? 39 : change < 2 ? 40 : 41));
      if (change == 1) BOOST_TEST(list.read(2).tensor().at(0) == 7);
      if (change == 2) BOOST_TEST(!list.read(2).has_value());
      if (change > 2) BOOST_TEST(list.pop().tensor().at(0) == 9);
      if (!is_shared) continue;
      BOOST_TEST(is_packed(other));
      for (std::int64_t i = 0; i < 40; ++i) BOOST_REQUIRE(other.read(i).tensor().at(0) == i);
    }
  refusal(
      [&] {
        List list = saved_scalars(DType::f64, 3);
        list.write(1, number(7));
      },
      Code::failed_precondition);
}

BOOST_AUTO_TEST_CASE(cursors_push_and_pop_packed_elements) {
  List list = saved_scalars(DType::i32, 18);
  PackedList& packed = PackedList::of(list);
  ElementCursor cursor;
  List other = list;
  BOOST_TEST(!packed.open(cursor));  // it has another holder
  other.reset();
  list.keep_joined(Tensor::of<float>({1, 2}));
  BOOST_REQUIRE(packed.open(cursor));
  BOOST_TEST(cursor.first == 16);
  BOOST_TEST((cursor.next == cursor.begin + 8 && cursor.end == cursor.begin + 32 * 4));
  const std::int32_t pushed = 77;
  std::memcpy(cursor.next, &pushed, sizeof pushed);
  cursor.next += sizeof pushed;
  packed.close(cursor);
  BOOST_TEST(!cursor.begin);
  BOOST_TEST((list.length() == 19 && list.bytes() == 19 * 4u && !list.joined().has_value()));
  BOOST_TEST(list.read(18).is_same_scalar(Tensor::scalar(pushed)));
  BOOST_REQUIRE(packed.open(cursor));
  cursor.next = cursor.begin;
  packed.close(cursor);
  BOOST_TEST(list.length() == 16);
  BOOST_TEST(list.pop().is_same_scalar(Tensor::scalar(std::int32_t{15})));
  List none = saved_scalars(DType::i32, 0);
  BOOST_TEST(!PackedList::of(none).open(cursor));
}

// Two threads append through copies of one handle of packed elements, while others read.
BOOST_AUTO_TEST_CASE(threads_append_to_packed_elements_that_they_share) {
  constexpr int kRounds = 100, kPushes = 60;
  for (int round = 0; round < kRounds; ++round) {
    const List start = saved_scalars(DType::f64, round % 20);
    std::latch ready(3);
    std::vector<List> ends(2);
    const auto append = [&](int who, List mine) {
      ready.arrive_and_wait();
      for (int i = 0; i < kPushes; ++i) mine.push(number(100 * who + i));
      ends[static_cast<std::size_t>(who)] = std::move(mine);
    };
    bool is_right = true;
    const auto look = [&](List mine) {
      ready.arrive_and_wait();
      for (std::int64_t k = 0; k < mine.length(); ++k)
        is_right = is_right && mine.read(k).tensor().at(0) == static_cast<double>(k);
    };
    std::thread a(append, 0, start), b(append, 1, start), c(look, start);
    a.join();
    b.join();
    c.join();
    BOOST_TEST(is_right);
    for (int who = 0; who < 2; ++who)
      for (int i = 0; i < kPushes; ++i)
        BOOST_REQUIRE(ends[static_cast<std::size_t>(who)].read(start.length() + i).tensor().at(0) ==
                      100 * who + i);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe
