"""Training steps of one transformer layer in eager torch, written as its documentation does.

usage: transformer_torch.py <threads> <width> <positions> <batch>
request: `reset`: the weights of test/bench/transformer.cpp again; `steps <n>`: ns a step, then the
n losses; `memory`: the most bytes at once.
"""

import sys

from peer import missing, pattern, serve, torch_blas, training, use_threads

try:
    import torch
    from torch import nn
except Exception as error:
    missing(error)

use_threads(sys.argv[1])
D, POSITIONS, BATCH = (int(a) for a in sys.argv[2:5])
BATCHES, RATE = 2, 0.1

xs = [torch.from_numpy(pattern([BATCH, POSITIONS, D], 2, 100 + i)) for i in range(BATCHES)]
targets = [torch.from_numpy(pattern([BATCH, POSITIONS, D], 2, 200 + i)) for i in range(BATCHES)]

model = nn.TransformerEncoderLayer(
    D, D // 64, 4 * D, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)
products = [
    (model.self_attn.in_proj_weight, [D, 3 * D], 3),
    (model.self_attn.out_proj.weight, [D, D], 5),
    (model.linear1.weight, [D, 4 * D], 9),
    (model.linear2.weight, [4 * D, D], 11),
]


def reset():
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        for norm in (model.norm1, model.norm2):
            norm.weight.fill_(1)
        for p, shape, seed in products:
            p.copy_(torch.from_numpy(pattern(shape, 2 * (3 / shape[0]) ** 0.5, seed).T.copy()))


def step(i):
    optimizer.zero_grad()
    loss = criterion(model(xs[i % BATCHES]), targets[i % BATCHES])
    loss.backward()
    optimizer.step()
    return loss.item()


reset()
serve(torch.__version__, torch_blas(), training(reset, step, model, optimizer, xs + targets))
