"""One function of one large tensor in eager torch.

usage: kernels_torch.py <threads> <name> <extents...>
request: `values`: up to 1000 elements of the result, evenly spaced; `run`: ns a call.
"""

import sys
import time

from peer import missing, pattern, serve, torch_blas, use_threads

try:
    import torch
    from torch.nn import functional as F
except Exception as error:
    missing(error)

use_threads(sys.argv[1])
NAME, SHAPE = sys.argv[2], [int(a) for a in sys.argv[3:]]
x = torch.from_numpy(pattern(SHAPE, 4, 1))
scale, bias = (torch.from_numpy(pattern(SHAPE[-1:], 1, seed)) if NAME.startswith("layer_norm") else None for seed in (2, 3))
FUNCTIONS = {
    "pointwise_chain_of_8": lambda: torch.sqrt(torch.abs(F.relu(x * 1.5 + 0.5) * x - 0.25)) * 0.75 + x,
    "softmax": lambda: torch.softmax(x, -1),
    "layer_norm": lambda: F.layer_norm(x, SHAPE[-1:], scale, bias),
    "sum": lambda: torch.sum(x),
    "sum_of_rows": lambda: torch.sum(x, 1),
    "sum_of_columns": lambda: torch.sum(x, 0),
}
f = FUNCTIONS[NAME.removesuffix("_wide")]


@torch.inference_mode()
def answer(words):
    if words[0] == "values":
        values = f().flatten()
        return values[:: max(1, len(values) // 1000)][:1000].tolist() if len(values) >= 1000 else values.tolist()
    f()
    count, start = 0, time.perf_counter_ns()
    while time.perf_counter_ns() - start < 20_000_000:
        f()
        count += 1
    return [(time.perf_counter_ns() - start) / count]


serve(torch.__version__, torch_blas(), answer)
