"""One-element ops at once: plain, recorded by autograd, and with the backward pass.

usage: eager_torch.py <threads>
requests, each answered with ns an op or a call, then the last value:
  add <n>       a chain of n additions without autograd
  taped <n>     the same with autograd
  backward <n>  the same, and the gradient
"""

import sys
import time

from peer import missing, serve, torch_blas

try:
    import torch
except Exception as error:
    missing(error)

torch.set_num_threads(int(sys.argv[1]))
torch.set_num_interop_threads(1)


def chain(x, n, b):
    for _ in range(n):
        x = x + b
    return x


def answer(words):
    n = int(words[1])
    b = torch.tensor([1.0])
    if words[0] == "add":
        with torch.inference_mode():
            x = torch.tensor([0.0])
            start = time.perf_counter_ns()
            last = chain(x, n, b)
            elapsed = time.perf_counter_ns() - start
        return [elapsed / n, last.item()]
    x = torch.tensor([0.0], requires_grad=True)
    start = time.perf_counter_ns()
    last = chain(x, n, b)
    if words[0] == "backward":
        last.backward()
    elapsed = time.perf_counter_ns() - start
    return [elapsed / n, x.grad.item() if words[0] == "backward" else last.item()]


serve(torch.__version__, torch_blas(), answer)
