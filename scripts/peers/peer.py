"""The far end of test/bench/peer.hpp: one request a line in, one line of numbers out."""

import sys


def serve(version, blas, answer):
    """Answers requests until the input ends. `answer(words)` returns an iterable of numbers."""
    print("ready", version, blas, sep="\t", flush=True)
    for line in sys.stdin:
        try:
            print(*(repr(float(x)) for x in answer(line.split())), flush=True)
        except Exception as error:  # the benchmark reports it and stops
            print("error", type(error).__name__, str(error).replace("\n", " "), flush=True)


def training(reset, step):
    """Answers `reset` and `steps <n>`: the latter with ns a step, then the n losses that `step(i)` returns."""
    import time

    def answer(words):
        if words[0] == "reset":
            reset()
            return [0]
        count = int(words[1])
        start = time.perf_counter_ns()
        losses = [step(i) for i in range(count)]
        return [(time.perf_counter_ns() - start) / count, *losses]

    return answer


def missing(error):
    print("missing", error, sep="\t", flush=True)
    sys.exit(0)


def torch_blas():
    """What torch multiplies matrices with, from its own description of its build."""
    import re

    import torch

    text = torch.__config__.show()
    blas = re.search(r"BLAS_INFO=(\w+)", text)
    mkl = re.search(r"Math Kernel Library Version ([\w.]+)", text)
    dnn = re.search(r"MKL-DNN v([\w.]+)", text)
    parts = [blas.group(1) if blas else "?"]
    parts += [f"MKL {mkl.group(1)}"] if mkl else []
    parts += [f"oneDNN {dnn.group(1)}"] if dnn else []
    return ", ".join(parts)


def pattern(shape, scale, seed):
    """The numbers of test/bench/pattern.hpp: a linear congruential sequence."""
    import numpy as np

    count = int(np.prod(shape))
    powers, sums = np.empty(count, np.uint64), np.empty(count, np.uint64)
    power, total = 1, 0
    for i in range(count):
        power, total = power * 1664525 % 2**32, (total * 1664525 + 1013904223) % 2**32
        powers[i], sums[i] = power, total
    out = ((powers * np.uint64(seed) + sums) % np.uint64(2**32)).astype(np.float64)
    return ((out / 4294967296.0 - 0.5) * scale).astype(np.float32).reshape(shape)
