// OpenMPI's side of `metg`: ranks that own columns, poll for what they need, and send what others
// need; no thread beside them.
//
//   mpirun -np 2 metg_openmpi
//   request: `run <pattern> <width> <steps> <iterations>`; answers ns, then the sum of the last row
//
// A value goes once to each rank that needs it. Columns of one rank are in its memory.
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <thread>

#include <troupe/test/bench/metg_task.hpp>

namespace {

using namespace troupe::bench;

struct Request {
  int pattern = 0, width = 0, steps = 0;
  std::int64_t iterations = -1;  // negative: the input has ended
};

/// This rank's columns and its messages, for each step of the period.
class Columns {
 public:
  Columns(const TaskGrid& grid, int rank, int ranks) : grid_(grid), rank_(rank), ranks_(ranks) {
    const std::size_t width = static_cast<std::size_t>(grid.width);
    for (int c = 0; c < grid.width; ++c) row_.push_back(seed_of(c));
    next_.resize(width);
    for (int step = 0; step < period(grid); ++step) steps_.push_back(step_at(step));
  }

  void run(int steps, std::int64_t iterations) {
    for (int step = 0; step < steps; ++step, row_.swap(next_)) {
      const Step& s = steps_[static_cast<std::size_t>(step) % steps_.size()];
      exchange(s);
      for (const Task& t : s.tasks) {
        double sum = 0;
        for (const int from : t.needs) sum += row_[static_cast<std::size_t>(from)];
        next_[static_cast<std::size_t>(t.column)] =
            task(sum / static_cast<double>(t.needs.size()), iterations);
      }
    }
  }
  /// The part of this rank's columns.
  double sum() const {
    double sum = 0;
    for (int c = 0; c < grid_.width; ++c)
      if (owner(c) == rank_) sum += row_[static_cast<std::size_t>(c)];
    return sum;
  }

 private:
  struct Message {
    int column, rank;
    bool operator==(const Message&) const = default;
  };
  struct Task {
    int column;
    std::vector<int> needs;
  };
  struct Step {
    std::vector<Message> to, from;
    std::vector<Task> tasks;
  };

  int owner(int column) const { return column * ranks_ / grid_.width; }

  Step step_at(int step) const {
    Step s;
    const auto once = [](std::vector<Message>& messages, Message m) {
      if (std::find(messages.begin(), messages.end(), m) == messages.end()) messages.push_back(m);
    };
    for (int c = 0; c < grid_.width; ++c) {
      const std::vector<int> columns = needs(grid_, step, c);
      if (owner(c) == rank_) s.tasks.push_back({c, columns});
      for (const int from : columns) {
        if (owner(c) == owner(from)) continue;
        if (owner(from) == rank_) once(s.to, {from, owner(c)});
        if (owner(c) == rank_) once(s.from, {from, owner(from)});
      }
    }
    return s;
  }

  void exchange(const Step& s) {
    requests_.clear();
    for (const Message& m : s.from)
      MPI_Irecv(&row_[static_cast<std::size_t>(m.column)], 1, MPI_DOUBLE, m.rank, m.column,
                MPI_COMM_WORLD, &requests_.emplace_back());
    for (const Message& m : s.to)
      MPI_Isend(&row_[static_cast<std::size_t>(m.column)], 1, MPI_DOUBLE, m.rank, m.column,
                MPI_COMM_WORLD, &requests_.emplace_back());
    if (!requests_.empty())
      MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

  const TaskGrid grid_;
  const int rank_, ranks_;
  std::vector<double> row_, next_;
  std::vector<Step> steps_;  // one period of them
  std::vector<MPI_Request> requests_;
};

/// The next request, known to all ranks. A rank without work leaves its core to the other side.
Request next_request(int rank) {
  Request request;
  std::string line, word, pattern;
  if (rank == 0 && std::getline(std::cin, line)) {
    std::istringstream words(line);
    words >> word >> pattern >> request.width >> request.steps >> request.iterations;
    const auto known = pattern_named(pattern);
    if (!words || !known || request.width < 2) {
      std::printf("error: a request is 'run <pattern> <width> <steps> <iterations>'\n");
      request.iterations = -1;
    } else {
      request.pattern = static_cast<int>(*known);
    }
  }
  MPI_Request broadcast;
  MPI_Ibcast(&request, sizeof request, MPI_BYTE, 0, MPI_COMM_WORLD, &broadcast);
  for (int arrived = 0; MPI_Test(&broadcast, &arrived, MPI_STATUS_IGNORE), !arrived;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Get_library_version(library, &length);
  const std::string text = library, version = text.substr(0, text.find(','));
  if (rank == 0) std::printf("ready\t%s\t\n", version.c_str()), std::fflush(stdout);
  for (;;) {
    const Request request = next_request(rank);
    if (request.iterations < 0) break;
    const TaskGrid grid{static_cast<Pattern>(request.pattern), request.width};
    Columns columns(grid, rank, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    columns.run(request.steps, request.iterations);
    MPI_Barrier(MPI_COMM_WORLD);
    const double took = MPI_Wtime() - start, mine = columns.sum();
    double sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) std::printf("%.17g %.17g\n", took * 1e9, sum), std::fflush(stdout);
  }
  MPI_Finalize();
}
