// OpenMPI's side of `allreduce`: a loop of MPI_Allreduce over all ranks.
//
//   mpirun -np 2 allreduce_openmpi
//   request: `run <floats> <times>`; answers ns an all-reduce
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Request {
  int floats = 0, times = -1;  // negative: the input has ended
};

/// The next request, known to all ranks. A rank without work leaves its core to the other side.
Request next_request(int rank) {
  Request request;
  std::string line, word;
  if (rank == 0 && std::getline(std::cin, line)) {
    std::istringstream words(line);
    words >> word >> request.floats >> request.times;
    if (!words || request.floats < 1 || request.times < 1) {
      std::printf("error: a request is 'run <floats> <times>'\n");
      request.times = -1;
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
  int rank = 0, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Get_library_version(library, &length);
  const std::string text = library, version = text.substr(0, text.find(','));
  if (rank == 0) std::printf("ready\t%s\t\n", version.c_str()), std::fflush(stdout);
  for (;;) {
    const Request request = next_request(rank);
    if (request.times < 0) break;
    std::vector<float> mine(static_cast<std::size_t>(request.floats), 1.0f), sum(mine.size());
    MPI_Allreduce(mine.data(), sum.data(), request.floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < request.times; ++i)
      MPI_Allreduce(mine.data(), sum.data(), request.floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double took = MPI_Wtime() - start;
    if (rank == 0) std::printf("%.17g\n", took * 1e9 / request.times), std::fflush(stdout);
  }
  MPI_Finalize();
}
