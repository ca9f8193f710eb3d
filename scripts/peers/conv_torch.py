"""Training steps of a small convolutional network in eager torch, as its documentation shows.

usage: conv_torch.py <threads> [contiguous | channels_last]
request: `reset`: the weights of test/bench/conv.cpp again; `steps <n>`: ns a step, then the n
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

BATCH, BATCHES, RATE = 64, 8, 0.01
LAYOUT = torch.contiguous_format if "contiguous" in sys.argv else torch.channels_last


def weight(shape, inputs, seed):
    return pattern(shape, 2 * (3 / inputs) ** 0.5, seed)


def image(seed):
    plain = pattern([BATCH, 28, 28, 1], 2, seed).transpose(0, 3, 1, 2).copy()
    return torch.from_numpy(plain).to(memory_format=LAYOUT)


xs = [image(100 + i) for i in range(BATCHES)]
ts = [labels(BATCH, 10, 200 + i) for i in range(BATCHES)]
# Filters come as [window, channels, filters], and the first product's rows in the order height,
# width, channels.
weights = [
    weight([3, 3, 1, 32], 9, 1).transpose(3, 2, 0, 1),
    weight([3, 3, 32, 64], 288, 2).transpose(3, 2, 0, 1),
    weight([3136, 128], 3136, 3).reshape(7, 7, 64, 128).transpose(2, 0, 1, 3).reshape(3136, 128).T,
    weight([128, 10], 128, 4).T,
]

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
).to(memory_format=LAYOUT)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)


def reset():
    with torch.no_grad():
        for layer, w in zip([m for m in model if hasattr(m, "weight")], weights):
            layer.weight.copy_(torch.from_numpy(w.copy()))
            layer.bias.zero_()


def step(i):
    optimizer.zero_grad()
    loss = criterion(model(xs[i % BATCHES]), ts[i % BATCHES])
    loss.backward()
    optimizer.step()
    return loss.item()


reset()
serve(torch.__version__, torch_blas(), training(reset, step, model, optimizer, xs + ts))
