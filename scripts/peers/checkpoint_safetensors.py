"""Reads of files by the safetensors library.

usage: checkpoint_safetensors.py
request: `copied|mapped <path>...`: ns until the values are in memory of their own, or in pages of
the files, and a value of each page was read; the sum of these values
"""

import time

from peer import missing, serve, use_threads

try:
    import safetensors
    import torch
    from safetensors.torch import load_file
except Exception as error:
    missing(error)

use_threads(1)


def load(words):
    is_copied = words[0] == "copied"
    start = time.perf_counter_ns()
    total, kept = 0.0, []
    for path in words[1:]:
        for value in load_file(path).values():
            kept.append(value.clone() if is_copied else value)
            total += float(kept[-1][::1024].sum(dtype=torch.float64))
    return [time.perf_counter_ns() - start, total]


serve(f"safetensors {safetensors.__version__}, torch {torch.__version__}", "", load)
