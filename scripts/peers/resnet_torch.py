"""Training steps of ResNet-18 in eager torch, as its documentation has a user write them.

usage: resnet_torch.py <threads> [contiguous | channels_last]
request: `reset`: the weights of test/bench/resnet.cpp again; `steps <n>`: ns a step, then the n
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
BATCH, SIDE, BATCHES, RATE = 8, 64, 2, 0.01
LAYOUT = torch.contiguous_format if "contiguous" in sys.argv else torch.channels_last


def conv(channels, filters, size, stride):
    return nn.Conv2d(channels, filters, size, stride, padding=size // 2, bias=False)


class Residual(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1, self.norm1 = conv(before, channels, 3, stride), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = conv(channels, channels, 3, 1), nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            conv(before, channels, 1, stride), nn.BatchNorm2d(channels))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
          (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
model = nn.Sequential(
    conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1),
    *(Residual(*w) for w in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
).to(memory_format=LAYOUT)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)

xs = [torch.from_numpy(pattern([BATCH, SIDE, SIDE, 3], 2, 100 + i).transpose(0, 3, 1, 2).copy())
      .to(memory_format=LAYOUT) for i in range(BATCHES)]
ts = [labels(BATCH, 10, 200 + i) for i in range(BATCHES)]


def start(p, seed):
    """Filters come as [window, channels, filters], the last product as [inputs, outputs]; the rest
    are scales that are one, and biases."""
    if p.dim() == 1:
        return None
    shape = list(p.shape[2:]) + [p.shape[1], p.shape[0]]
    values = pattern(shape, 2 * (3 / (p.numel() / p.shape[0])) ** 0.5, seed)
    return torch.from_numpy((values.transpose(3, 2, 0, 1) if p.dim() == 4 else values.T).copy())


starts = [start(p, i + 1) for i, p in enumerate(model.parameters())]


def reset():
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.fill_(1)
                module.bias.zero_()
        model[-1].bias.zero_()
        for p, w in zip(model.parameters(), starts):
            if w is not None:
                p.copy_(w)


def step(i):
    optimizer.zero_grad()
    loss = criterion(model(xs[i % BATCHES]), ts[i % BATCHES])
    loss.backward()
    optimizer.step()
    return loss.item()


reset()
serve(torch.__version__, torch_blas(), training(reset, step, model, optimizer, xs + ts))
