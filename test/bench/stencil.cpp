// Two columns of tasks that exchange a value each step (Task Bench's stencil_1d, width 2), a column
// a device: an engine of two workers against one of one worker. Budgets: 1.7 times the speed for
// tasks of 12 µs, 1.4 times for tasks of 2 µs. The columns without edges between them show what
// two cores give at best.
//
// The engines live in this process and alternate. Their results are compared bit for bit.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/bench/bench.hpp>

#include <cstdlib>

namespace troupe {
namespace {

// Iterations of a chain of dependent multiply-adds; the tasks of one benchmark take the same time.
std::int64_t iterations = 1;

double work(double x) {
  for (std::int64_t i = 0; i < iterations; ++i) x = x * 0.999999 + 1e-6;
  return x;
}

}  // namespace

TROUPE_OP(StencilTask) {
  op.doc("A task of the stencil benchmark: a chain of multiply-adds from the mean of its inputs.");
  op.inputs(1, 2);
  op.infer([](Inference& c) { c.output(DType::f64, Shape{}); });
  op.run([](KernelContext& c) {
    double sum = 0;
    for (int i = 0; i < c.inputs(); ++i) sum += c.input(i).at(0);
    c.set(0, Tensor::scalar(work(sum / c.inputs())));
  });
}

namespace {

constexpr int kSteps = 500, kRepetitions = 11;

// ns of one run of two columns on an engine.
class Columns {
 public:
  Columns(int workers, bool exchange)
      : engine_(EngineOptions{.workers = workers, .optimize = false}) {
    Graph g;
    Expr seed = g.input("x", DType::f64, {});
    Exprs row{seed, seed};
    for (int step = 0; step < kSteps; ++step) {
      Exprs next;
      for (int column = 0; column < 2; ++column) {
        const auto where = g.on_device("cpu:" + std::to_string(column));
        std::vector<Operand> inputs{Operand(row[static_cast<std::size_t>(column)])};
        if (exchange) inputs.emplace_back(row[static_cast<std::size_t>(1 - column)]);
        next.push_back(bind1("StencilTask", inputs, {}, Site(std::source_location::current())));
      }
      row = next;
    }
    function_ = engine_.compile(g, {seed}, row, {.optimize = false});
    for (int i = 0; i < 5; ++i) run();
  }
  double run() {
    const double start = bench::now_ns();
    result_ = function_({Tensor::scalar(1.0)});
    return bench::now_ns() - start;
  }
  const std::vector<Tensor>& result() const { return result_; }

 private:
  Engine engine_;
  Function function_;
  std::vector<Tensor> result_;
};

void compare(const char* name, double task_us, bool exchange, double budget) {
  iterations = 1000;
  volatile double sink = 1;  // the compiler cannot move the work out of the loop
  double fastest = 1e9;
  for (int i = 0; i < 50; ++i) {
    const double start = bench::now_ns();
    sink = work(sink + 0.5);
    fastest = std::min(fastest, bench::now_ns() - start);
  }
  iterations = static_cast<std::int64_t>(1000 * task_us * 1000 / fastest);
  Columns one(1, exchange), two(2, exchange);
  bench::Comparison c{.name = name,
                      .unit = "ns a step",
                      .peer = "the same engine with one worker",
                      .peer_version = "same build",
                      .budget = budget,
                      .threads = 2,
                      .speed_up = true};
  for (int i = 0; i < kRepetitions; ++i) {
    c.theirs.push_back(one.run() / kSteps);
    c.ours.push_back(two.run() / kSteps);
  }
  for (std::size_t i = 0; i < 2; ++i)
    if (!identical(one.result()[i], two.result()[i])) {
      std::fprintf(stderr, "engines of different workers disagree\n");
      std::exit(1);
    }
  c.print();
}

}  // namespace
}  // namespace troupe

int main() {
  troupe::compare("columns_apart_12us", 12, false, 1.8);
  troupe::compare("stencil_12us", 12, true, 1.7);
  troupe::compare("stencil_2us", 2, true, 1.4);
}
