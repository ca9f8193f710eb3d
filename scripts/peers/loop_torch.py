"""while x < n: x = x + 1, with a tensor predicate, compiled by TorchScript.

usage: loop_torch.py <threads>
request: `run <iterations>`; answers ns an iteration, then the last x.
"""

import sys
import time
import warnings

from peer import missing, serve, torch_blas

try:
    import torch
except Exception as error:
    missing(error)

warnings.simplefilter("ignore")
torch.set_num_threads(int(sys.argv[1]))
torch.set_num_interop_threads(1)


@torch.jit.script
def count(x: torch.Tensor, n: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    while bool(x < n):
        x = x + one
    return x


@torch.inference_mode()
def answer(words):
    n = int(words[1])
    zero, limit, one = torch.tensor(0.0), torch.tensor(float(n)), torch.tensor(1.0)
    start = time.perf_counter_ns()
    last = count(zero, limit, one).item()
    return [(time.perf_counter_ns() - start) / n, last]


serve(torch.__version__, torch_blas(), answer)
