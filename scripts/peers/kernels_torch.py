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
scale, bias = (torch.from_numpy(pattern(SHAPE[-1:], 1, seed))
               if NAME.startswith("layer_norm") else None for seed in (2, 3))


def whole():
    return (x.abs() * 100).long()


FUNCTIONS = {
    "pointwise_chain_of_8": lambda: (
        torch.sqrt(torch.abs(F.relu(x * 1.5 + 0.5) * x - 0.25)) * 0.75 + x),
    "softmax": lambda: torch.softmax(x, -1),
    "layer_norm": lambda: F.layer_norm(x, SHAPE[-1:], scale, bias),
    "sum": lambda: torch.sum(x),
    "sum_of_rows": lambda: torch.sum(x, 1),
    "sum_of_columns": lambda: torch.sum(x, 0),
    "sum_of_columns_cached": lambda: torch.sum(x, 0),
    "max_of_rows": lambda: torch.amax(x, 1),
    "max_of_columns": lambda: torch.amax(x, 0),
    "product_of_rows": lambda: torch.prod(x * 0.001 + 1.0, 1),
    "sum_of_integers": lambda: torch.sum(whole(), 1).float(),
    "take_along": lambda: torch.gather(x, 1, whole()),
    "top_10": lambda: torch.topk(x, 10)[0],
    "sort_of_rows": lambda: torch.sort(x, stable=True)[0],
    "sort_of_one": lambda: torch.sort(x, stable=True)[0],
    "pad": lambda: F.pad(x, (0, 0, 1, 1, 1, 1)),
    "tan_atan2": lambda: torch.atan2(torch.tan(x * 0.3), x),
    "matmul_i64": lambda: (whole() @ whole()).float(),
    "conv_f64": lambda: F.conv2d(
        x.double().permute(0, 3, 1, 2),
        x[:3, :3, :32, :32].double().permute(3, 2, 0, 1)).permute(0, 2, 3, 1).float(),
}
f = FUNCTIONS[NAME.removesuffix("_wide")]


@torch.inference_mode()
def answer(words):
    if words[0] == "values":
        values = f().flatten()
        return (values[:: max(1, len(values) // 1000)][:1000].tolist() if len(values) >= 1000
                else values.tolist())
    f()
    count, start = 0, time.perf_counter_ns()
    while time.perf_counter_ns() - start < 20_000_000:
        f()
        count += 1
    return [(time.perf_counter_ns() - start) / count]


serve(torch.__version__, torch_blas(), answer)
