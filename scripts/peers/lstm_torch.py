"""Training steps of a one-layer LSTM in eager torch, as its documentation has a user write them.

usage: lstm_torch.py <threads>
request: `reset`: the weights of test/bench/lstm.cpp again; `steps <n>`: ns a step, then the n
losses; `memory`: the most bytes at once.
"""

import sys

from peer import missing, pattern, serve, torch_blas, training, use_threads

try:
    import torch
    from torch import nn
except Exception as error:
    missing(error)

use_threads(sys.argv[1])

TIME, BATCH, FEATURES, UNITS, BATCHES, RATE = 50, 32, 128, 256, 4, 0.5

xs = [torch.from_numpy(pattern([TIME, BATCH, FEATURES], 2, 100 + i)) for i in range(BATCHES)]
targets = [torch.from_numpy(pattern([TIME, BATCH, UNITS], 1, 200 + i)) for i in range(BATCHES)]
shapes = [[FEATURES, 4 * UNITS], [UNITS, 4 * UNITS], [4 * UNITS], [4 * UNITS]]
weights = [pattern(shape, 2 / UNITS**0.5, i + 1) for i, shape in enumerate(shapes)]

model = nn.LSTM(FEATURES, UNITS)  # its gates stand in the same order as Troupe's
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)


def reset():
    with torch.no_grad():
        for p, w in zip([model.weight_ih_l0, model.weight_hh_l0, model.bias_ih_l0,
                         model.bias_hh_l0], weights):
            p.copy_(torch.from_numpy(w.T.copy()))


def step(i):
    optimizer.zero_grad()
    outputs, _ = model(xs[i % BATCHES])
    loss = criterion(outputs, targets[i % BATCHES])
    loss.backward()
    optimizer.step()
    return loss.item()


reset()
serve(torch.__version__, torch_blas(), training(reset, step, model, optimizer, xs + targets))
