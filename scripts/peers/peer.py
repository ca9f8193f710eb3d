"""The far end of test/bench/peer.hpp: one request a line in, one line of numbers out."""

import os
import sys

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes of its doings otherwise


def serve(version, blas, answer):
    """Answers requests until the input ends. `answer(words)` returns an iterable of numbers."""
    print("ready", version, blas, sep="\t", flush=True)
    for line in sys.stdin:
        try:
            print(*(repr(float(x)) for x in answer(line.split())), flush=True)
        except Exception as error:  # the benchmark reports it and stops
            print("error", type(error).__name__, str(error).replace("\n", " "), flush=True)


def training(reset, step, model, optimizer, batches):
    """Answers `reset`, `steps <n>` with ns a step, then the n losses that `step(i)` returns,
    `cores` with the processor time of a step of the last `steps`, in ns, and `memory` with the most
    bytes at once."""
    import time

    cores = [0]

    def answer(words):
        if words[0] == "reset":
            reset()
            return [0]
        if words[0] == "memory":
            return [peak_memory(step, model, optimizer, batches)]
        if words[0] == "cores":
            return cores
        count = int(words[1])
        start, of_cores = time.perf_counter_ns(), time.process_time_ns()
        losses = [step(i) for i in range(count)]
        elapsed = time.perf_counter_ns() - start
        cores[0] = (time.process_time_ns() - of_cores) / count
        return [elapsed / count, *losses]

    return answer


def peak_memory(step, model, optimizer, batches):
    """Bytes of tensors at the worst moment of a step: the tensors before it, and the allocations
    that torch's own profiler counts. Like ours it omits scratch memory of oneDNN and MKL."""
    import torch

    step(0)
    optimizer.zero_grad()
    with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step(0)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    held = [*model.parameters(), *model.buffers(), *batches]
    return most + sum(t.numel() * t.element_size() for t in held)


def use_threads(count):
    import torch

    torch.set_num_threads(int(count))
    torch.set_num_interop_threads(1)


def missing(error):
    print("missing", error, sep="\t", flush=True)
    sys.exit(0)


def torch_blas():
    """The library of torch's matrix products, from its own description of its build."""
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

    # x -> x * powers[i] + sums[i] is i + 1 steps; the second half of so many is the first after
    # them.
    count = int(np.prod(shape))
    powers, sums = np.array([1664525], np.uint32), np.array([1013904223], np.uint32)
    while len(powers) < count:
        powers, sums = (np.concatenate([powers, powers * powers[-1]]),
                        np.concatenate([sums, sums * powers[-1] + sums[-1]]))
    out = (powers[:count] * np.uint32(seed) + sums[:count]).astype(np.float64)
    return ((out / 4294967296.0 - 0.5) * scale).astype(np.float32).reshape(shape)


def labels(count, classes, seed):
    """The labels of test/bench/pattern.hpp, as a tensor."""
    import numpy as np
    import torch

    return torch.from_numpy(((pattern([count], 1, seed).astype(np.float64) + 0.5) * classes).astype(
        np.int64).clip(0, classes - 1))
