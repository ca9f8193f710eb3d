"""Products, chains, loops and training steps in torch, on its GPU or else on its CPU.

usage: gpu_torch.py
request: `copy <bytes> <n>`, `matmul <dtype> <extent> <n>`, `chain <elements> <n>`: ns a time;
`while <counter | data> <ops> <iterations>`: ns an iteration;
`losses <dtype> <n> <model...>`: the losses of n steps from the start;
`train <dtype> <eager | compiled | graph> <n> <model...>`: ns a step, with its loss fetched; 0 if
torch cannot run the model that way. Models: `mlp <batch> <width>`, `lstm <time> <batch> <units>`,
`transformer <batch> <positions> <width> <depth>`, `resnet <batch> <side> <width> <blocks...>`; they
have the weights and batches of test/bench/gpu_models.hpp.
"""

import sys
import time

from peer import labels, missing, pattern, serve, torch_blas

try:
    import torch
    from torch import nn
except Exception as error:
    missing(error)

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
          "f16": torch.float16}
torch.backends.cudnn.benchmark = True
torch.set_num_threads(1)


def use_tf32(is_on):
    torch.backends.cuda.matmul.allow_tf32 = is_on
    torch.backends.cudnn.allow_tf32 = is_on


def wait():
    if HAS_GPU:
        torch.cuda.synchronize()


def timed(count, work):
    """ns of each of `count` calls, enqueued one behind the other."""
    work()
    wait()
    start = time.perf_counter_ns()
    for _ in range(count):
        work()
    wait()
    return (time.perf_counter_ns() - start) / count


def chain(x):
    for _ in range(4):
        x = torch.tanh(x * 1.0001 + 0.5)
    return x


class Mlp(nn.Module):
    def __init__(self, batch, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width),
                                    nn.ReLU(), nn.Linear(width, 10))
        self.batch = [torch.from_numpy(pattern([batch, width], 2, 100)), labels(batch, 10, 200)]
        self.rate = 0.05

    def forward(self, x, t):
        return nn.functional.cross_entropy(self.layers(x).float(), t)


class Lstm(nn.Module):
    def __init__(self, time_, batch, units):
        super().__init__()
        self.lstm = nn.LSTM(units, units)
        self.batch = [torch.from_numpy(pattern([time_, batch, units], 2, 100)),
                      torch.from_numpy(pattern([time_, batch, units], 1, 200))]
        self.rate = 0.5

    def forward(self, x, target):
        return nn.functional.mse_loss(self.lstm(x)[0].float(), target)


class Transformer(nn.Module):
    def __init__(self, batch, positions, width, depth):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, width // depth, 4 * width, dropout=0.0,
                                                activation="gelu", batch_first=True,
                                                norm_first=True)
        self.batch = [torch.from_numpy(pattern([batch, positions, width], 2, 100)),
                      torch.from_numpy(pattern([batch, positions, width], 2, 200))]
        self.rate = 0.1

    def forward(self, x, target):
        return nn.functional.mse_loss(self.layer(x).float(), target)


class Bottleneck(nn.Module):
    def __init__(self, before, channels, stride, has_shortcut):
        super().__init__()
        self.parts = nn.Sequential(*normalized(before, channels, 1, 1), nn.ReLU(),
                                   *normalized(channels, channels, 3, stride), nn.ReLU(),
                                   *normalized(channels, 4 * channels, 1, 1))
        self.shortcut = (nn.Sequential(*normalized(before, 4 * channels, 1, stride))
                         if has_shortcut else nn.Identity())

    def forward(self, x):
        return torch.relu(self.parts(x) + self.shortcut(x))


def normalized(channels, filters, size, stride):
    return (nn.Conv2d(channels, filters, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(filters))


class Resnet(nn.Module):
    def __init__(self, batch, side, width, *blocks):
        super().__init__()
        parts = [*normalized(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        before, channels = width, width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                parts.append(Bottleneck(before, channels, stride, block == 0))
                before = 4 * channels
            channels *= 2
        self.parts = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                   nn.Linear(before, 10))
        images = pattern([batch, side, side, 3], 2, 100).transpose(0, 3, 1, 2).copy()
        self.batch = [torch.from_numpy(images), labels(batch, 10, 200)]
        self.rate = 0.01

    def forward(self, x, t):
        return nn.functional.cross_entropy(self.parts(x).float(), t)


MODELS = {"mlp": Mlp, "lstm": Lstm, "transformer": Transformer, "resnet": Resnet}


def start(model):
    """The weights of gpu_models.hpp: a parameter's place among them is its seed. A vector is a
    bias of zeros, or the scale of a normalisation."""
    place = 0
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.LayerNorm, nn.BatchNorm2d)):
                module.weight.fill_(1)
        for p in parameters(model):
            place += 1
            if p is None or p.dim() == 1:
                if p is not None and not getattr(p, "is_scale", False):
                    p.zero_()
                continue
            shape = ([*p.shape[2:], p.shape[1], p.shape[0]] if p.dim() == 4
                     else [p.shape[1], p.shape[0]])
            inputs = p.numel() // p.shape[0]
            values = pattern(shape, 2 * (3 / inputs) ** 0.5, place)
            p.copy_(torch.from_numpy(
                (values.transpose(3, 2, 0, 1) if p.dim() == 4 else values.T).copy()))


def parameters(model):
    """In the order of gpu_models.hpp, where an LSTM has one bias."""
    if isinstance(model, Lstm):
        of = model.lstm
        of.bias_hh_l0.data.zero_()
        of.bias_hh_l0.requires_grad_(False)
        return [of.weight_ih_l0, of.weight_hh_l0, of.bias_ih_l0]
    if isinstance(model, Transformer):
        layer = model.layer
        layer.norm1.weight.is_scale = layer.norm2.weight.is_scale = True
        at = layer.self_attn
        return [layer.norm1.weight, layer.norm1.bias, at.in_proj_weight, at.in_proj_bias,
                at.out_proj.weight, at.out_proj.bias, layer.norm2.weight, layer.norm2.bias,
                layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias]
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.is_scale = True
    return list(model.parameters())


class Training:
    """Steps of a model; `how` is eager, compiled or graph."""

    def __init__(self, dtype, how, words):
        use_tf32(dtype == "tf32")
        self.model = MODELS[words[0]](*(int(w) for w in words[1:])).to(DEVICE)
        if words[0] == "resnet":
            self.model = self.model.to(memory_format=torch.channels_last)
            self.model.batch[0] = self.model.batch[0].contiguous(
                memory_format=torch.channels_last)
        self.batch = [x.to(DEVICE) for x in self.model.batch]
        start(self.model)
        self.cast = torch.autocast(DEVICE, DTYPES[dtype], enabled=DTYPES[dtype] != torch.float32,
                                   cache_enabled=how != "graph")
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=self.model.rate, fused=True)
        self.run = torch.compile(self.model) if how == "compiled" else self.model
        self.graph = self.capture() if how == "graph" else None

    def enqueue(self):
        self.optimizer.zero_grad(set_to_none=False)
        with self.cast:
            loss = self.run(*self.batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.enqueue()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self.enqueue()
        return graph

    def step(self):
        if self.graph is None:
            return self.enqueue().item()
        self.graph.replay()
        return self.loss.item()


trainings, refused = {}, set()


def train(dtype, how, count, words):
    # It takes minutes to compile a ResNet.
    if how != "eager" and (not HAS_GPU or (how == "compiled" and words[0] == "resnet")):
        return [0]
    key = (dtype, how, *words)
    if key not in trainings and key not in refused:
        for other in [k for k in trainings if k[2:] != key[2:] or k[0] != dtype]:
            del trainings[other]  # the memory of one model at a time
        try:
            trainings[key] = Training(dtype, how, words)
            for _ in range(3):
                trainings[key].step()
        except Exception as error:
            print(f"{how} {words[0]}: {error}", file=sys.stderr)
            trainings.pop(key, None)
            refused.add(key)
    if key in refused:
        return [0]
    training = trainings[key]
    wait()
    begin = time.perf_counter_ns()
    for _ in range(count):
        training.step()
    return [(time.perf_counter_ns() - begin) / count]


def loop(kind, ops, iterations):
    x = torch.zeros(64, device=DEVICE)
    limit = float(iterations)
    wait()
    begin = time.perf_counter_ns()
    i = 0
    while (i < iterations) if kind == "counter" else (x[0] < limit):
        for _ in range(ops):
            x = x + 1 / ops
        i += 1
        if i > 2 * iterations:
            break
    wait()
    return (time.perf_counter_ns() - begin) / iterations


def answer(words):
    if words[0] == "copy":
        x = torch.zeros(int(words[1]) // 4, device=DEVICE)
        y = torch.empty_like(x)
        return [timed(int(words[2]), lambda: y.copy_(x))]
    if words[0] == "matmul":
        use_tf32(words[1] == "tf32")
        shape = [int(words[2])] * 2
        a, b = (torch.rand(shape, device=DEVICE).to(DTYPES[words[1]]) for _ in range(2))
        out = torch.empty_like(a)
        return [timed(int(words[3]), lambda: torch.matmul(a, b, out=out))]
    if words[0] == "chain":
        x = torch.rand(int(words[1]), device=DEVICE)
        work = torch.compile(chain) if HAS_GPU else chain
        return [timed(int(words[2]), lambda: work(x))]
    if words[0] == "while":
        return [loop(words[1], int(words[2]), int(words[3]))]
    if words[0] == "losses":
        training = Training(words[1], "eager", words[3:])
        return [training.step() for _ in range(int(words[2]))]
    return train(words[1], words[2], int(words[3]), words[4:])


name = torch.cuda.get_device_name() if HAS_GPU else "CPU"
serve(f"{torch.__version__} on {name}", torch_blas(), answer)
