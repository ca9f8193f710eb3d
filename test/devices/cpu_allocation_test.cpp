// Not under asan and tsan: it replaces malloc, as sanitizers do.
// After a program's first run the evaluator allocates nothing, on scalars or on arrays.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstdlib>

#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/one_thread.hpp>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

BOOST_AUTO_TEST_SUITE(cpu_allocation, TROUPE_ONE_THREAD)

namespace {
thread_local long allocations = 0;  // by malloc, of this thread
}

extern "C" void* __libc_malloc(std::size_t);
extern "C" void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}

using namespace troupe;

BOOST_AUTO_TEST_CASE(steady_state_allocates_nothing) {
  auto device = make_cpu_device();
  auto stream = device->make_stream();
  Recorder r(2);
  r.finish(select(r.input(0) > r.input(1), tanh(r.input(0)) + 1.0, r.input(1)));
  ScalarProgram p = r.typed(std::array{DType::f32, DType::f32});
  Value scalars[2] = {Tensor::scalar(1.f), Tensor::scalar(2.f)}, result;
  const Tensor one = Tensor::of<float>({1}), two = Tensor::of<float>({2});
  Tensor a = Tensor::zeros(DType::f32, Shape{300, 7}), b = Tensor::zeros(DType::f32, Shape{7}),
         c = Tensor::zeros(DType::f32, Shape{300, 7});
  auto work = [&] {
    evaluate_scalars(p, scalars, result);
    Value elements[2] = {one, two};
    evaluate_elements(p, elements, result);
    ConstView in[] = {a, b};
    View out[] = {View(c)};
    device->primitives().pointwise(*stream, p, in, out);
  };
  work();
  long before = allocations;
  for (int i = 0; i < 100; ++i) work();
  BOOST_TEST(allocations - before == 0);
  volatile auto* seen = new int;  // the counter counts
  delete seen;
  BOOST_TEST(allocations - before >= 1);
}

BOOST_AUTO_TEST_SUITE_END()

#endif
