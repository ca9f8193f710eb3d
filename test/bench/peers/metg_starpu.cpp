// StarPU's side of `metg`: a task a cell, which starts when the tasks that it names have ended.
//
//   metg_starpu <workers>
//   request: `run <pattern> <width> <steps> <iterations>`; answers ns, then the sum of the last row
//
// All tasks are made before the clock starts. The main thread submits them and then waits, beside
// the workers. While no request is there, the workers pause. Dependencies are named; found by the
// data that tasks read and write, a task takes 6 µs instead.
#include <starpu.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include <troupe/test/bench/metg_task.hpp>

namespace {

using namespace troupe::bench;

/// One task of the grid.
struct Cell {
  std::vector<const double*> from;
  double* to = nullptr;
  std::int64_t iterations = 0;
};

void run_cell(void**, void* argument) {
  const Cell& cell = *static_cast<const Cell*>(argument);
  double sum = 0;
  for (const double* x : cell.from) sum += *x;
  *cell.to = task(sum / static_cast<double>(cell.from.size()), cell.iterations);
}

class Grid {
 public:
  Grid(const TaskGrid& grid, int steps, std::int64_t iterations)
      : width_(static_cast<std::size_t>(grid.width)) {
    starpu_codelet_init(&codelet_);
    codelet_.cpu_funcs[0] = run_cell;
    const std::size_t rows = static_cast<std::size_t>(steps);
    values_.resize((rows + 1) * width_);
    cells_.resize(rows * width_);
    for (std::size_t c = 0; c < width_; ++c) values_[c] = seed_of(static_cast<int>(c));
    for (int step = 0; step < steps; ++step)
      for (int column = 0; column < grid.width; ++column) make(grid, step, column, iterations);
  }
  ~Grid() {
    for (starpu_task* t : tasks_) starpu_task_destroy(t);
  }
  Grid(const Grid&) = delete;

  /// ns until all tasks have ended.
  double run() {
    const auto start = std::chrono::steady_clock::now();
    for (starpu_task* t : tasks_)
      if (starpu_task_submit(t) != 0) {
        std::printf("error: StarPU takes no task\n");
        std::exit(1);
      }
    starpu_task_wait_for_all();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
        .count();
  }
  /// The sum of the last row.
  double sum() const {
    double sum = 0;
    for (std::size_t c = 0; c < width_; ++c) sum += values_[values_.size() - width_ + c];
    return sum;
  }

 private:
  void make(const TaskGrid& grid, int step, int column, std::int64_t iterations) {
    const std::size_t row = static_cast<std::size_t>(step) * width_,
                      at = row + static_cast<std::size_t>(column);
    Cell& cell = cells_[at];
    cell.to = &values_[at + width_];
    cell.iterations = iterations;
    starpu_task* const t = starpu_task_create();
    t->cl = &codelet_;
    t->cl_arg = &cell;
    t->cl_arg_size = sizeof cell;
    t->destroy = 0;
    t->detach = 1;
    std::vector<starpu_task*> needed;
    for (const int from : needs(grid, step, column)) {
      const std::size_t above = row + static_cast<std::size_t>(from);
      cell.from.push_back(&values_[above]);
      if (step > 0) needed.push_back(tasks_[above - width_]);
    }
    if (!needed.empty())
      starpu_task_declare_deps_array(t, static_cast<unsigned>(needed.size()), needed.data());
    tasks_.push_back(t);
  }

  const std::size_t width_;
  starpu_codelet codelet_;
  std::vector<double> values_;  // by step and column, the first row before the first step
  std::vector<Cell> cells_;     // by step and column
  std::vector<starpu_task*> tasks_;
};

}  // namespace

int main(int argc, char** argv) {
  setenv("STARPU_SILENT", "1", 1);
  starpu_conf conf;
  starpu_conf_init(&conf);
  conf.ncpus = argc > 1 ? std::atoi(argv[1]) : 1;
  conf.ncuda = conf.nopencl = 0;
  if (starpu_init(&conf) != 0 || static_cast<int>(starpu_cpu_worker_get_count()) != conf.ncpus) {
    std::printf("missing\tStarPU does not start %d workers\n", conf.ncpus);
    return 0;
  }
  int version[3];
  starpu_get_version(&version[0], &version[1], &version[2]);
  starpu_pause();
  std::printf("ready\t%d.%d.%d\t\n", version[0], version[1], version[2]);
  std::fflush(stdout);
  std::string line, word, pattern;
  while (std::getline(std::cin, line)) {
    TaskGrid grid;
    int steps = 0;
    std::int64_t iterations = 0;
    std::istringstream words(line);
    words >> word >> pattern >> grid.width >> steps >> iterations;
    const auto known = pattern_named(pattern);
    if (!words || !known || grid.width < 2) {
      std::printf("error: a request is 'run <pattern> <width> <steps> <iterations>'\n");
      return 1;
    }
    grid.pattern = *known;
    starpu_resume();
    {
      Grid tasks(grid, steps, iterations);
      const double took = tasks.run();
      std::printf("%.17g %.17g\n", took, tasks.sum());
    }
    starpu_pause();
    std::fflush(stdout);
  }
  starpu_resume();
  starpu_shutdown();
}
