// Signals that arrive while matrix products are computed: on a caller's thread, and sent to the
// process.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <csignal>
#include <thread>

#include <troupe/devices/base/signals.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/numbers.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(signals_test)

namespace {

std::atomic<int> handled{0};

/// SIGUSR1 is counted while this lives.
struct Counting {
  Counting() {
    handled = 0;
    struct sigaction count {};
    count.sa_handler = [](int) { handled.fetch_add(1, std::memory_order_relaxed); };
    sigaction(SIGUSR1, &count, &before_);
  }
  ~Counting() { sigaction(SIGUSR1, &before_, nullptr); }
  struct sigaction before_;
};

}  // namespace

// Without SignalsBlocked this dies within a few products: the library's kernel has the stack
// pointer in a block of the heap, where the signal's frame lands.
BOOST_AUTO_TEST_CASE(come_between_products_not_within) {
  auto device = make_cpu_device();
  auto stream = device->make_stream();
  std::mt19937_64 random{7};
  const Tensor a = random_tensor(random, DType::f32, {64, 512}),
               b = random_tensor(random, DType::f32, {512, 512});
  Tensor expected = Tensor::empty(DType::f32, {64, 512});
  device->primitives().matmul(*stream, {a, b, View(expected)});

  Counting counting;
  std::atomic<bool> enough{false};
  std::thread sender([&enough, to = pthread_self()] {
    while (!enough.load(std::memory_order_relaxed)) pthread_kill(to, SIGUSR1);
  });
  int products = 0;
  for (; handled.load(std::memory_order_relaxed) < 1000 || products < 100; ++products) {
    Tensor c = Tensor::empty(DType::f32, {64, 512});
    device->primitives().matmul(*stream, {a, b, View(c)});
    if (!identical(c, expected)) break;
  }
  enough = true;
  sender.join();
  BOOST_TEST(products >= 100);
  BOOST_TEST(handled.load() >= 1000);
}

BOOST_AUTO_TEST_CASE(workers_do_not_handle_signals_of_the_process) {
  Counting counting;
  sigset_t usr1, before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);  // so that only a worker could take it
  {
    WorkerPool pool(2);
    std::atomic<int> blocked{0};
    pool.parallel_for(8, [&](int) {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked += sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGTERM) == 1 &&
                 sigismember(&mask, SIGSEGV) == 0;
    });
    kill(getpid(), SIGUSR1);
    pool.parallel_for(8, [](int) {});
    BOOST_TEST(handled.load() == 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  BOOST_TEST(handled.load() == 1);
}

BOOST_AUTO_TEST_CASE(are_handled_afterwards) {
  Counting counting;
  {
    SignalsBlocked none;
    raise(SIGUSR1);
    BOOST_TEST(handled.load() == 0);
  }
  BOOST_TEST(handled.load() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
