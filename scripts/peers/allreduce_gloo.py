"""All-reduces of torch.distributed over gloo, in a loop.

usage: allreduce_gloo.py <processes>
request: `run <floats> <times>`: ns an all-reduce
"""

import os
import sys
import tempfile
import time

from peer import missing, serve

try:
    import torch
    import torch.distributed as dist
except Exception as error:
    missing(error)

RANKS = int(sys.argv[1])
store = tempfile.NamedTemporaryFile().name
rank = 0
ends = []  # the first process's ends of pipes to the others
for other in range(1, RANKS):
    down, up = os.pipe()
    if os.fork() == 0:
        rank, requests = other, os.fdopen(down)
        os.close(up)
        for end in ends:
            end.close()
        ends.clear()
        os.dup2(2, 1)
        break
    os.close(down)
    ends.append(os.fdopen(up, "w"))

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)


def run(words):
    for end in ends:
        print(*words, file=end, flush=True)
    floats, times = int(words[1]), int(words[2])
    x = torch.zeros(floats)
    dist.all_reduce(x)
    dist.barrier()
    start = time.perf_counter_ns()
    for _ in range(times):
        dist.all_reduce(x)
    return [(time.perf_counter_ns() - start) / times]


if rank == 0:
    serve("torch " + torch.__version__, "", run)
else:
    for line in requests:
        run(line.split())
