"""Training steps of 784-512-512-10 in eager torch, as its documentation has a user write them.

usage: mlp_torch.py <threads>
request: `reset`: the weights of test/bench/mlp.cpp again; `steps <n>`: ns a step, then the n
losses; `memory`: the most bytes at once.
"""

import sys

from peer import labels, missing, pattern, serve, torch_blas, training, use_threads

try:
    import torch
    from torch import nn
except Exception as error:
    missing(error)

use_threads(sys.argv[1])

BATCH, WIDTHS, BATCHES, RATE = 64, [784, 512, 512, 10], 8, 0.05


xs = [torch.from_numpy(pattern([BATCH, WIDTHS[0]], 2, 100 + i)) for i in range(BATCHES)]
ts = [labels(BATCH, 10, 200 + i) for i in range(BATCHES)]
weights = [pattern([n, m], 2 * (3 / n) ** 0.5, i + 1)
           for i, (n, m) in enumerate(zip(WIDTHS, WIDTHS[1:]))]

model = nn.Sequential(
    nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)


def reset():
    with torch.no_grad():
        for layer, w in zip([m for m in model if isinstance(m, nn.Linear)], weights):
            layer.weight.copy_(torch.from_numpy(w.T.copy()))
            layer.bias.zero_()


def step(i):
    optimizer.zero_grad()
    loss = criterion(model(xs[i % BATCHES]), ts[i % BATCHES])
    loss.backward()
    optimizer.step()
    return loss.item()


reset()
serve(torch.__version__, torch_blas(), training(reset, step, model, optimizer, xs + ts))
