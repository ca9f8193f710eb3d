"""A step on 32 random rows of an embedding of 256 columns: sparse gradient, SGD.

usage: sparse_step_torch.py <threads>
request: `steps <rows> <n>`: ns a step
"""

import sys
import time

from peer import missing, serve, torch_blas, use_threads

try:
    import torch
except Exception as error:
    missing(error)

use_threads(sys.argv[1])
tables = {}


def steps(words):
    rows, count = int(words[1]), int(words[2])
    if rows not in tables:
        table = torch.nn.Embedding(rows, 256, sparse=True)
        with torch.no_grad():
            table.weight.fill_(1)
        tables[rows] = table, torch.optim.SGD(table.parameters(), lr=0.1)
    table, optimizer = tables[rows]
    ids = torch.randint(rows, (count, 32))
    start = time.perf_counter_ns()
    for i in range(count):
        optimizer.zero_grad()
        loss = table(ids[i]).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
    return [(time.perf_counter_ns() - start) / count]


serve(torch.__version__, torch_blas(), steps)
