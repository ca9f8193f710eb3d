"""A chain of one-element multiplications and additions, each op run eagerly by torch.

usage: chain_torch.py <ops> <rank> <threads>
request: `run <runs> <first>`; answers ns a run, then every run's result. Run i of a request starts
from the input x = (first + i) * 0.001; a = 0.999 and b = 0.5 are tensors too.
"""

import sys
import time

from peer import missing, serve, torch_blas

try:
    import torch
except Exception as error:
    missing(error)

OPS, RANK, THREADS = (int(a) for a in sys.argv[1:4])
torch.set_num_threads(THREADS)
torch.set_num_interop_threads(1)
SHAPE = [1] * RANK


@torch.inference_mode()
def answer(words):
    runs, first = int(words[1]), int(words[2])
    a = torch.full(SHAPE, 0.999)
    b = torch.full(SHAPE, 0.5)
    out = []
    start = time.perf_counter_ns()
    for i in range(runs):
        x = torch.full(SHAPE, (first + i) * 0.001)
        for _ in range(OPS // 2):
            x = x * a
            x = x + b
        out.append(x.item())
    return [(time.perf_counter_ns() - start) / runs, *out]


serve(torch.__version__, torch_blas(), answer)
