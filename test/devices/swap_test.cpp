// Swapping on the simulated device, whose freed memory turns to NaN: lists of saved values in less
// memory than they need.
#include <troupe/devices/device/swap.hpp>

#include <boost/test/unit_test.hpp>

#include <map>
#include <random>

#include <troupe/devices/list/list.hpp>
#include <troupe/devices/sim/sim_device.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe {

BOOST_AUTO_TEST_SUITE(swap_test)

namespace {

using test::refusal;

constexpr std::int64_t kElements = 1024;
constexpr std::uint64_t kBytes = kElements * sizeof(float);

// A device with room for so many elements.
SimOptions room_for(std::uint64_t elements, SwapOptions swap = {}) {
  SimOptions o;
  o.memory_limit = elements * kBytes;
  o.max_delay_us = 0;
  o.swap = swap;
  o.swap.threshold = 1;
  return o;
}

struct Bench {
  explicit Bench(const SimOptions& options)
      : device(make_sim_device(options)), stream(device->compute_stream()) {}

  Tensor element(double v, const Shape& shape = {kElements}) {
    Tensor t = device->empty(DType::f32, shape);
    device->primitives().fill(*stream, Tensor::scalar(static_cast<float>(v)), View(t));
    return t;
  }
  List list() {
    List made(DType::f32, Shape::unknown());
    made.mark_saved(device->swapper());
    return made;
  }
  // Enqueued now, read when everything has run.
  void expect(const Tensor& t, double v) {
    BOOST_REQUIRE(t.device() == device.get());
    Tensor host = Tensor::empty(t.dtype(), t.shape().is_scalar() ? Shape{1} : t.shape());
    device->copy_to_host(*stream, t, View(host));
    expected.emplace_back(host, v);
  }
  void check() {
    stream->synchronize();
    int wrong = 0;
    for (const auto& [host, v] : expected)
      for (std::int64_t i = 0; i < host.elements(); ++i) wrong += host.at(i) != v;
    BOOST_TEST(wrong == 0);
    expected.clear();
  }
  SwapCounters counters() { return device->swapper()->counters(); }
  std::uint64_t in_use() { return device->allocator().counters().in_use; }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::vector<std::pair<Tensor, double>> expected;
};

}  // namespace

BOOST_AUTO_TEST_CASE(more_is_saved_than_the_device_holds) {
  constexpr int kSaved = 40;
  SwapOptions off;
  off.is_on = false;
  BOOST_TEST(refusal(
                 [&] {
                   Bench b(room_for(8, off));
                   List saved = b.list();
                   for (int i = 0; i < kSaved; ++i) saved.push(b.element(i));
                 },
                 Code::resource_exhausted)
                 .find("out of device memory") != std::string::npos);
  Bench b(room_for(8));
  List saved = b.list();
  for (int i = 0; i < kSaved; ++i) saved.push(b.element(i));
  BOOST_TEST(saved.bytes() == kSaved * kBytes);
  BOOST_TEST(b.counters().out >= kSaved - 8u);
  BOOST_TEST(b.counters().on_host >= (kSaved - 8) * kBytes);
  for (int i = kSaved; i-- > 0;) b.expect(saved.pop().tensor(), i);
  b.check();
  const SwapCounters c = b.counters();
  BOOST_TEST(c.in >= kSaved - 8u);
  BOOST_TEST(c.in_bytes == c.in * kBytes);
  BOOST_TEST(c.out_bytes == c.out * kBytes);
  BOOST_TEST(c.ahead == c.in);  // nothing was fetched only when it was needed
  BOOST_TEST(c.made_room > 0u);
  BOOST_TEST(c.on_host == 0u);
  BOOST_TEST(b.device->allocator().counters().peak <= 8 * kBytes);
  BOOST_TEST(b.in_use() == 0u);
}

BOOST_AUTO_TEST_CASE(the_oldest_goes_first_and_the_newest_stays) {
  Bench b(room_for(10, {.fill_level = 0.5}));
  List saved = b.list();
  for (int i = 0; i < 10; ++i) saved.push(b.element(i));
  BOOST_TEST(b.counters().out == 5u);
  BOOST_TEST(b.counters().made_room == 0u);  // no allocation has needed the memory yet
  // The newest five are here, and so are the older ones until their memory is needed.
  for (int i = 10; i-- > 0;) b.expect(saved.read(i).tensor(), i);
  BOOST_TEST(b.counters().in == 0u);
  b.check();
}

BOOST_AUTO_TEST_CASE(small_or_shared_tensors_stay_on_the_device) {
  SimOptions o = room_for(10, {.fill_level = 0.0});
  o.swap.threshold = kBytes;
  Bench b(o);
  List saved = b.list();
  for (int i = 0; i < 4; ++i) saved.push(b.element(i, {4}));
  saved.push(Tensor::scalar(4.f));
  BOOST_TEST(b.counters().out == 0u);
  Tensor held = b.element(5);
  saved.push(held);
  saved.push(b.element(6));
  saved.push(b.element(7));
  BOOST_TEST(b.counters().out == 1u);  // not the one with another holder, not the newest
  b.expect(held, 5);
  held.reset();
  saved.push(b.element(8));
  BOOST_TEST(b.counters().out == 3u);
  BOOST_TEST(saved.read(4).tensor().item<float>() == 4);
  for (int i : {5, 8, 0, 7, 6, 3}) b.expect(saved.read(i).tensor(), i);
  b.check();
}

BOOST_AUTO_TEST_CASE(lists_that_share_a_buffer_move_it_once) {
  Bench b(room_for(6, {.fill_level = 0.0}));
  List as_it_is = b.list(), again = b.list(), parts = b.list();
  constexpr int kSaved = 20;
  for (int i = 0; i < kSaved; ++i) {
    Tensor t = b.element(i);
    as_it_is.push(t);
    again.push(t);
    parts.push(t.rows(kElements / 2, kElements).reshaped({2, kElements / 4}));
  }
  BOOST_TEST(b.counters().out >= kSaved - 6u);
  BOOST_TEST(b.counters().out <= static_cast<std::uint64_t>(kSaved));
  for (int i = kSaved; i-- > 0;) {
    Tensor part = parts.pop().tensor();
    BOOST_TEST((part.shape() == Shape{2, kElements / 4}));
    b.expect(part, i);
    b.expect(as_it_is.pop().tensor(), i);
    b.expect(again.pop().tensor(), i);
  }
  BOOST_TEST(b.counters().in <= static_cast<std::uint64_t>(kSaved));
  b.check();
  BOOST_TEST(b.in_use() == 0u);
}

BOOST_AUTO_TEST_CASE(a_popped_tensor_has_one_holder) {
  Bench b(room_for(4, {.fill_level = 0.0}));
  List saved = b.list();
  for (int i = 0; i < 8; ++i) saved.push(b.element(i));
  for (int i = 8; i-- > 0;) {
    Tensor t = saved.pop().tensor();
    BOOST_TEST(t.is_sole_holder());
    // the copies read data behind it
    b.device->primitives().fill(*b.stream, Tensor::scalar(-1.f), View(t));
    b.expect(t, -1);
  }
  b.check();
}

BOOST_AUTO_TEST_CASE(a_copy_on_the_host_is_made_once) {
  Bench b(room_for(5));
  List saved = b.list();
  for (int i = 0; i < 12; ++i) saved.push(b.element(i));
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 12; ++i) b.expect(saved.read(i).tensor(), i);
  b.check();
  BOOST_TEST(b.counters().out <= 12u);
  BOOST_TEST(b.counters().again > 0u);
  BOOST_TEST(b.counters().in > 12u);
}

BOOST_AUTO_TEST_CASE(lists_of_lists) {
  Bench b(room_for(8));
  List outer(DType::f32, Shape::unknown(), 2);
  outer.mark_saved(b.device->swapper());
  for (int i = 0; i < 6; ++i) {
    List inner = b.list();
    for (int k = 0; k <= i; ++k) inner.push(b.element(10 * i + k));
    outer.push(std::move(inner));
  }
  List copy = outer;  // which keeps everything
  for (int i = 6; i-- > 0;) {
    List inner = std::move(outer.pop().list());
    for (int k = i + 1; k-- > 0;) b.expect(inner.pop().tensor(), 10 * i + k);
  }
  for (int i = 0; i < 6; ++i) b.expect(copy.read(i).list().read(i / 2).tensor(), 10 * i + i / 2);
  b.check();
  BOOST_TEST(b.counters().ahead > 0u);
  copy.reset();
  outer.reset();
  BOOST_TEST(b.in_use() == 0u);
}

BOOST_AUTO_TEST_CASE(peeking_brings_nothing_back) {
  Bench b(room_for(4));
  List saved = b.list();
  for (int i = 0; i < 12; ++i) saved.push(b.element(i));
  Value away = saved.peek(0), here = saved.peek(11);
  BOOST_TEST(away.tensor().is_on_host());
  BOOST_TEST((away.tensor().shape() == Shape{kElements}));
  BOOST_TEST(!here.tensor().is_on_host());
  BOOST_TEST(b.counters().in == 0u);
  b.stream->synchronize();
  BOOST_TEST(away.tensor().at(kElements - 1) == 0);
  b.expect(here.tensor(), 11);
  b.check();
}

// Random pushes, pops, reads, forks and drops of several lists, against what they should hold.
// Seeded delays.
BOOST_AUTO_TEST_CASE(random_list_operations_keep_every_element) {
  std::uint64_t out = 0, in = 0, again = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SimOptions o =
        room_for(12, {.fill_level = seed % 3 * 0.4, .prefetch = static_cast<int>(seed % 4)});
    o.seed = seed;
    o.max_delay_us = seed % 2 ? 20 : 0;
    Bench b(o);
    std::mt19937_64 random(seed);
    auto draw = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<List> lists;
    std::vector<std::vector<int>> model;
    for (int i = 0; i < 3; ++i) lists.push_back(b.list()), model.emplace_back();
    BOOST_TEST_CONTEXT("seed " << seed) {
      for (int n = 0; n < 400; ++n) {
        const std::size_t k = draw(lists.size());
        List& list = lists[k];
        std::vector<int>& holds = model[k];
        const std::size_t what = draw(20);
        if (what < 9 || holds.empty()) {
          list.push(b.element(n));
          holds.push_back(n);
        } else if (what < 14) {
          b.expect(list.pop().tensor(), holds.back());
          holds.pop_back();
        } else if (what < 17) {
          const std::size_t i = draw(holds.size());
          b.expect(list.read(static_cast<std::int64_t>(i)).tensor(), holds[i]);
        } else if (what == 17) {
          const std::size_t i = draw(holds.size());
          lists[(k + 1) % lists.size()].push(list.read(static_cast<std::int64_t>(i)));
          model[(k + 1) % lists.size()].push_back(holds[i]);
        } else if (what == 18 && lists.size() < 6) {
          lists.push_back(List(list));
          model.push_back(std::vector<int>(holds));
        } else if (lists.size() > 3) {
          lists.erase(lists.begin() + static_cast<std::ptrdiff_t>(k));
          model.erase(model.begin() + static_cast<std::ptrdiff_t>(k));
        }
      }
      b.check();
      out += b.counters().out, in += b.counters().in, again += b.counters().again;
      lists.clear();
      BOOST_TEST(b.in_use() == 0u);
      BOOST_TEST(b.counters().on_host == 0u);
    }
  }
  BOOST_TEST((out > 500 && in > 500 && again > 50),
             out << " out, " << in << " in, " << again << " again");
}

BOOST_AUTO_TEST_CASE(a_list_is_dropped_with_copies_under_way) {
  SimOptions o = room_for(4, {.fill_level = 0.0});
  o.manual = true;
  Bench b(o);
  Stream& out = b.device->swapper()->copies_out();
  {
    List saved = b.list();
    for (int i = 0; i < 3; ++i) saved.push(b.element(i));
    BOOST_TEST(b.counters().out == 2u);
  }
  BOOST_TEST(b.in_use() == 0u);  // by the host's account: on the device, behind the copies
  BOOST_TEST(b.counters().on_host == 0u);
  Tensor next = b.element(7);
  while (step(*b.stream)) {}
  Tensor host = Tensor::zeros(DType::f32, {kElements});
  b.device->copy_to_host(*b.stream, next, View(host));
  BOOST_TEST(!step(*b.stream));  // the block's last reader is a copy
  while (step(out)) {}
  while (step(*b.stream)) {}
  BOOST_TEST(host.at(0) == 7);
}

BOOST_AUTO_TEST_CASE(no_thread_waits_for_a_stream) {
  // Nothing runs until everything is enqueued: no call here could return if it waited.
  SimOptions o = room_for(6);
  o.manual = true;
  Bench b(o);
  List saved = b.list();
  for (int i = 0; i < 30; ++i) saved.push(b.element(i));
  for (int i = 30; i-- > 0;) b.expect(saved.pop().tensor(), i);
  BOOST_TEST(b.counters().out >= 24u);
  Swapper& swapper = *b.device->swapper();
  for (bool goes_on = true; goes_on;) {
    goes_on = step(swapper.copies_in());
    goes_on = step(swapper.copies_out()) || goes_on;
    goes_on = step(*b.stream) || goes_on;
  }
  b.check();
}

namespace {

// A pass that saves and one that reads back, each element with as much work as its copy takes
// twice.
struct Timeline {
  // time of the compute stream in kernels, and in waits between two kernels
  double compute_ns = 0, stalled_ns = 0;
  std::uint64_t copies = 0, beside_compute = 0;
};
Timeline timeline(SimOptions o) {
  o.is_traced = true;
  o.speed = {.launch_ns = 0, .bytes_per_ns = 1, .flops_per_ns = 1, .copy_bytes_per_ns = 1};
  Bench b(o);
  List saved = b.list();
  Tensor work = b.element(0, {2 * kElements});
  auto compute = [&] { b.device->primitives().fill(*b.stream, Tensor::scalar(1.f), View(work)); };
  for (int i = 0; i < 40; ++i) {
    compute();
    saved.push(b.element(i));
  }
  for (int i = 40; i-- > 0;) {
    Tensor t = saved.pop().tensor();
    b.device->primitives().fill(*b.stream, Tensor::scalar(0.f), View(t));  // its first use
    compute();
  }
  b.stream->synchronize();
  Timeline out;
  std::vector<SimSpan> spans = trace_of(*b.device), of_compute;
  double now = 0;
  for (const SimSpan& s : spans) {
    if (s.stream != "compute") continue;
    of_compute.push_back(s);
    out.compute_ns += s.end - s.begin;
    out.stalled_ns += s.begin - now;
    now = s.end;
  }
  for (const SimSpan& s : spans) {
    if (s.stream == "compute") continue;
    ++out.copies;
    double beside = 0;
    for (const SimSpan& c : of_compute)
      beside += std::max(0.0, std::min(c.end, s.end) - std::max(c.begin, s.begin));
    out.beside_compute += beside > 0.99 * (s.end - s.begin);
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(copies_overlap_compute_and_come_ahead_of_use) {
  Timeline ahead = timeline(room_for(12)), late = timeline(room_for(12, {.prefetch = 0}));
  BOOST_TEST(ahead.copies > 50u);
  BOOST_TEST(ahead.beside_compute == ahead.copies);
  BOOST_TEST(ahead.stalled_ns == 0.0);
  // Equally many copies, issued at their use: the compute stream waits for each.
  BOOST_TEST(late.copies == ahead.copies);
  BOOST_TEST(late.compute_ns == ahead.compute_ns);
  BOOST_TEST(late.stalled_ns > 0.9 * static_cast<double>(late.copies / 2 * kBytes));
}

BOOST_AUTO_TEST_CASE(expected_tensors_return_as_far_as_there_is_room) {
  constexpr int kSaved = 12;
  Bench b(room_for(8, {.prefetch = 0}));
  List saved = b.list();
  for (int i = 0; i < kSaved; ++i) saved.push(b.element(i));
  for (int i = kSaved; i-- > 9;) b.expect(saved.pop().tensor(), i);
  b.check();
  const SwapCounters before = b.counters();
  saved.expect(7);
  saved.expect(9);  // nothing is there
  for (int i = 9; i-- > 7;) b.expect(saved.pop().tensor(), i);
  // these two were not fetched when they were needed
  BOOST_TEST(b.counters().in == before.in + (b.counters().ahead - before.ahead));
  b.check();
  saved.expect(0);  // seven, beside which nothing has to leave
  const SwapCounters after = b.counters();
  BOOST_TEST(after.ahead > before.ahead);
  BOOST_TEST(after.in == before.in + (after.ahead - before.ahead));
  BOOST_TEST(b.in_use() <= 8 * kBytes);
  for (int i = 7; i-- > 0;) b.expect(saved.pop().tensor(), i);
  b.check();
}

BOOST_AUTO_TEST_CASE(errors_name_a_remedy) {
  auto says = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* p : parts)
      BOOST_TEST((text.find(p) != std::string::npos), "'" << p << "' is not in: " << text);
  };
  {  // A request that does not fit alone.
    Bench b(room_for(4));
    List saved = b.list();
    for (int i = 0; i < 10; ++i) saved.push(b.element(i));
    says(refusal([&] { b.element(0, {5 * kElements}); }, Code::resource_exhausted),
         {"out of device memory: 20480 bytes wanted", "of 16384 in use", "sim:0", "on the host",
          "raise the device's memory limit"});
    for (int i = 10; i-- > 0;) b.expect(saved.pop().tensor(), i);  // it is usable after
    b.check();
  }
  {  // Memory that others hold.
    Bench b(room_for(4));
    List saved = b.list();
    std::vector<Tensor> held;
    for (int i = 0; i < 4; ++i) saved.push(held.emplace_back(b.element(i)));
    says(refusal([&] { b.element(4); }, Code::resource_exhausted),
         {"16384 of 16384 in use", "0 bytes of saved values are on the host"});
    held.clear();
    b.element(4);
  }
  {  // A host that takes no more.
    Bench b(room_for(4, {.host_limit = 3 * kBytes}));
    List saved = b.list();
    says(refusal(
             [&] {
               for (int i = 0; i < 10; ++i) saved.push(b.element(i));
             },
             Code::resource_exhausted),
         {"its limit is 12288", "swap.host_limit"});
    BOOST_TEST(saved.length() == 7);
    BOOST_TEST(b.counters().peak_on_host == 3 * kBytes);
    for (int i = 7; i-- > 0;) b.expect(saved.pop().tensor(), i);
    b.check();
  }
  SwapOptions off;
  off.is_on = false;
  Bench b(room_for(4, off));
  says(refusal([&] { b.element(0, {5 * kElements}); }, Code::resource_exhausted),
       {"swapping of saved values is off"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe
