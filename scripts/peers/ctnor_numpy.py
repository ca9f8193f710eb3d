"""EM of CT-NOR with NumPy: one output, three inputs with gamma delays, a support of 1 s.

usage: ctnor_numpy.py <threads> <events>
request: `iteration`: ns a pair and iteration, of 10 iterations, without making the pairs.
"""

import sys
import time

from math import lgamma

from peer import missing, serve

try:
    import numpy as np
except Exception as error:
    missing(error)

SUPPORT, LEAK, ITERATIONS = 1.0, 0.5, 10


def recording(events):
    random = np.random.default_rng(1)
    end = events / (3 + LEAK + 0.8 + 0.3)
    inputs = [np.sort(random.uniform(0, end, random.poisson(end))) for _ in range(3)]

    def caused(times, weight, delays):
        starts = np.repeat(times, random.poisson(weight, len(times)))
        return starts + delays(len(starts))

    outputs = np.concatenate([
        random.uniform(0, end, random.poisson(LEAK * end)),
        caused(inputs[0], 0.8, lambda n: random.exponential(0.05, n)),
        caused(inputs[1], 0.3, lambda n: random.gamma(4, 0.05, n)),
    ])
    return inputs, np.sort(outputs[outputs < end]), end


def pairs_of(inputs, outputs):
    first, last = np.searchsorted(inputs, outputs - SUPPORT), np.searchsorted(inputs, outputs)
    count = last - first
    output = np.repeat(np.arange(len(outputs)), count)
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)
    delays = np.maximum(outputs[output] - inputs[place], 1e-12)
    return delays, np.log(delays), output


INPUTS, OUTPUTS, END = recording(int(sys.argv[2]))
PAIRS = [pairs_of(times, OUTPUTS) for times in INPUTS]


def shape_of(s):
    """The first step of the maximum likelihood of a gamma density's shape, by Minka."""
    return (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)


def iterate(model):
    leak, causes = model
    parts, intensity = [], np.full(len(OUTPUTS), leak)
    for (weight, shape, rate), (delays, logs, output) in zip(causes, PAIRS):
        front = np.log(weight) + shape * np.log(rate) - lgamma(shape)
        parts.append(np.exp(front + (shape - 1) * logs - rate * delays))
        intensity += np.bincount(output, parts[-1], len(OUTPUTS))
    moved = []
    for part, times, (delays, logs, output) in zip(parts, INPUTS, PAIRS):
        part /= intensity[output]
        total = part.sum()
        mean = (part * delays).sum() / total
        shape = shape_of(np.log(mean) - (part * logs).sum() / total)
        moved.append((total / len(times), shape, shape / min(mean, SUPPORT / 4)))
    return (leak / intensity).sum() / END, moved


def answer(words):
    model = (len(OUTPUTS) / END / 2, [(0.2, 1.5, 1.5 / 0.2)] * 3)
    start = time.process_time_ns()
    for _ in range(ITERATIONS):
        model = iterate(model)
    elapsed = time.process_time_ns() - start
    return [elapsed / ITERATIONS / sum(len(delays) for delays, _, _ in PAIRS)]


serve(np.__version__, "", answer)
