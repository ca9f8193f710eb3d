"""Compares values of Troupe's operations with the results of torch and numpy for the same inputs.

    op_table.py FILE

FILE is a safetensors file that test/ops/peers_test.cpp wrote: tensors `<case>/x<i>` and
`<case>/y<i>`, real parts if there is also `<same>.imaginary`, and for each case metadata of its
name: JSON with op, dtype, attributes and tolerance. Peers compute in double precision (integers in
64 bits, cut to the width). Prints one line for each mismatch, then the numbers of compared ops and
cases. Exit status 1: a result differs.
"""

import json
import struct
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print("missing", error)
    sys.exit(77)

FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
INTEGERS = {
    "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8",
    "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8"}


def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    tensors = {}
    for name, e in header.items():
        if name == "__metadata__":
            continue
        begin, end = e["data_offsets"]
        raw = bytearray(data[8 + n + begin : 8 + n + end])
        shape = e["shape"]
        if e["dtype"] in FLOATS:
            t = (torch.frombuffer(raw, dtype=FLOATS[e["dtype"]]).double() if raw
                 else torch.zeros(0, dtype=torch.float64))
        elif e["dtype"] == "BOOL":
            t = torch.frombuffer(raw, dtype=torch.bool) if raw else torch.zeros(0, dtype=torch.bool)
        else:
            t = torch.from_numpy(
                np.frombuffer(raw, dtype="<" + INTEGERS[e["dtype"]]).astype(np.int64))
        tensors[name] = t.reshape(shape)
    for name in [n for n in tensors if n.endswith(".imaginary")]:
        whole = name.removesuffix(".imaginary")
        tensors[whole] = torch.complex(tensors[whole], tensors.pop(name))
    return header["__metadata__"], tensors


def axes_of(x, a):
    return tuple(int(k) for k in a.get("axes") or range(x[0].dim()))


def over(f):
    """A reduction whose function takes (tensor, axes, keepdim)."""
    return lambda x, a: (f(x[0], axes_of(x, a), a.get("keep_dims", False)) if x[0].dim()
                         else f(x[0].reshape(1), (0,), False))


def one_by_one(f):
    def reduce(t, axes, keep):
        for k in sorted((k % t.dim() for k in axes), reverse=True):
            t = f(t, k, keep)
        return t

    return reduce


def along_last(f):
    return lambda x, a: f(x[0])


def running(f, start):
    def run(x, a):
        axis = int(a.get("axis", -1))
        t = x[0].flip(axis) if a.get("reverse") else x[0]
        y = f(t, axis)
        if a.get("exclusive"):
            n = t.shape[axis]
            first = torch.full_like(t.narrow(axis, 0, min(1, n)), start)
            y = torch.cat([first, y.narrow(axis, 0, max(0, n - 1))], axis)
        return y.flip(axis) if a.get("reverse") else y

    return run


def scattered(x, a):
    batch, mode = int(a.get("batch_axes", 0)), a["mode"]
    out, where, updates = x[0].clone(), x[1], x[2]
    depth = where.shape[-1]
    lead = where.shape[:-1]
    for at in np.ndindex(*lead):
        to = tuple(at[:batch]) + tuple(int(k) for k in where[at])
        u = updates[at]
        old = out[to]
        out[to] = {"update": u, "add": old + u, "sub": old - u, "mul": old * u,
                   "min": torch.min(old, u), "max": torch.max(old, u)
                   }[mode] if mode != "update" else u
    return out


def gathered(x, a):
    batch = int(a.get("batch_axes", 0))
    lead = x[1].shape[:-1]
    rest = x[0].shape[batch + x[1].shape[-1] :]
    out = torch.zeros(tuple(lead) + tuple(rest), dtype=x[0].dtype)
    for at in np.ndindex(*lead):
        out[at] = x[0][tuple(at[:batch]) + tuple(int(k) for k in x[1][at])]
    return out


def channel_moments(x, a):
    by_item = a.get("by_item", False)
    axes = list(range(1 if by_item else 0, x[0].dim() - 1))
    if not axes:
        return x[0], torch.zeros_like(x[0])
    variance, mean = torch.var_mean(x[0], axes, correction=0, keepdim=by_item)
    return mean, variance


def chosen(x, a):
    axis = int(a.get("axis", 0)) % x[0].dim()
    y = torch.index_select(x[0], axis, x[1].reshape(-1))
    return y.reshape(tuple(x[0].shape[:axis]) + tuple(x[1].shape) + tuple(x[0].shape[axis + 1 :]))


def product(x, a):
    left = x[0].transpose(-1, -2) if a.get("transpose_a") else x[0]
    right = x[1].transpose(-1, -2) if a.get("transpose_b") else x[1]
    return left @ right


def norm_gradient(x, a):
    rows, scale = x[0].shape[-1:], x[1].expand(x[0].shape[-1:]).contiguous()
    return torch.ops.aten.native_layer_norm_backward(
        x[4], x[0], rows, x[2].unsqueeze(-1), x[3].unsqueeze(-1), scale, scale, [True] * 3)


def recurrent(x, a):
    """The layer of torch whose input weights are the identity, one example after the other: y, h
    and, for an LSTM, c."""
    cell, units, columns = a["cell"], x[1].shape[0], x[1].shape[1]
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(cell, torch.nn.RNN)
    layer = kind(columns, units, dtype=torch.float64,
                 **({"nonlinearity": cell} if kind is torch.nn.RNN else {}))
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.eye(columns, dtype=torch.float64))
        layer.weight_hh_l0.copy_(x[1].T)
        layer.bias_ih_l0.copy_(x[2])
        layer.bias_hh_l0.zero_()
        states = x[3 : 5 if cell == "lstm" else 4]
        rest = x[3 + len(states) :]
        y, last = (torch.zeros(*x[0].shape[:2], units, dtype=torch.float64),
                   [s.clone() for s in states])
        for b in range(x[0].shape[1]):
            n = min(int(rest[0][b]), x[0].shape[0]) if rest else x[0].shape[0]
            if n == 0:
                continue
            first = [s[b].reshape(1, 1, units) for s in states]
            of = x[0][:n, b : b + 1]
            out, end = layer(of.flip(0) if a["reverse"] else of,
                             tuple(first) if len(first) == 2 else first[0])
            y[:n, b : b + 1] = out.flip(0) if a["reverse"] else out
            for s, e in zip(last, end if len(first) == 2 else [end]):
                s[b] = e[0, 0]
    return [y, *last]


def whole(f, g):
    """f of floating and complex inputs, g of integers."""
    return lambda x, a: (f if x[0].is_floating_point() or x[0].is_complex() else g)(*x)


def guarded(f):
    """Integer division with Troupe's result of a division by 0."""
    return lambda x, y: torch.where(y == 0, torch.zeros_like(x),
                                    f(x, torch.where(y == 0, torch.ones_like(y), y)))


def plain(f):
    return lambda x, a: f(*x)


TORCH = {
    **{name: plain(getattr(torch, f)) for name, f in {
        "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "Asin": "asin",
        "Asinh": "asinh", "Atan": "atan", "Atan2": "atan2", "Atanh": "atanh",
        "BitAnd": "bitwise_and", "BitNot": "bitwise_not", "BitOr": "bitwise_or",
        "BitXor": "bitwise_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Equal": "eq",
        "Erf": "erf", "Exp": "exp", "Expm1": "expm1", "Floor": "floor", "Greater": "gt",
        "GreaterEqual": "ge", "IsFinite": "isfinite", "IsInf": "isinf", "IsNan": "isnan",
        "Less": "lt", "LessEqual": "le", "Log": "log", "Log1p": "log1p",
        "LogicalAnd": "logical_and", "LogicalNot": "logical_not", "LogicalOr": "logical_or",
        "LogicalXor": "logical_xor", "Maximum": "maximum", "Minimum": "minimum", "Mul": "mul",
        "Neg": "neg", "NotEqual": "ne", "Relu": "relu", "Round": "round", "Rsqrt": "rsqrt",
        "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt",
        "Square": "square", "Sub": "sub", "Tan": "tan", "Tanh": "tanh", "Trunc": "trunc"}.items()},
    "Div": whole(torch.div, guarded(lambda x, y: torch.div(x, y, rounding_mode="trunc"))),
    "FloorDiv": whole(lambda x, y: torch.floor(x / y), guarded(torch.floor_divide)),
    "Mod": whole(torch.remainder, guarded(torch.remainder)),
    "Gelu": plain(F.gelu), "Silu": plain(F.silu), "Mish": plain(F.mish), "Selu": plain(F.selu),
    "Softsign": plain(F.softsign), "Relu6": plain(F.relu6), "HardTanh": plain(F.hardtanh),
    "HardSwish": plain(F.hardswish), "HardSigmoid": plain(F.hardsigmoid),
    "LogSigmoid": plain(F.logsigmoid),
    "Softplus": plain(lambda x: F.softplus(x, threshold=1e9)),
    "Elu": lambda x, a: F.elu(x[0], a.get("alpha", 1.0)),
    "LeakyRelu": lambda x, a: F.leaky_relu(x[0], a.get("alpha", 0.01)),
    "SquaredDifference": plain(lambda x, y: (x - y) ** 2),
    "Where": plain(torch.where),
    "Sum": over(lambda t, k, d: torch.sum(t, k, d)),
    "Mean": over(lambda t, k, d: torch.mean(t, k, d)),
    "Max": over(lambda t, k, d: torch.amax(t, k, d)),
    "Min": over(lambda t, k, d: torch.amin(t, k, d)),
    "LogSumExp": over(lambda t, k, d: torch.logsumexp(t, k, d)),
    "Product": over(one_by_one(torch.prod)), "Any": over(one_by_one(torch.any)),
    "All": over(one_by_one(torch.all)),
    "ArgMax": lambda x, a: torch.argmax(x[0], axes_of(x, a)[0], a.get("keep_dims", False)),
    "ArgMin": lambda x, a: torch.argmin(x[0], axes_of(x, a)[0], a.get("keep_dims", False)),
    "CumSum": running(torch.cumsum, 0), "CumProd": running(torch.cumprod, 1),
    "Sort": lambda x, a: torch.sort(
        x[0], dim=-1, descending=a.get("descending", False), stable=True),
    "TopK": lambda x, a: torch.topk(x[0], int(a["k"]), -1, a.get("largest", True)),
    "SearchSorted": lambda x, a: torch.searchsorted(
        x[0].contiguous(), x[1].contiguous(), right=a.get("right", False)),
    "Unique": lambda x, a: torch.unique(x[0], return_inverse=True, return_counts=True),
    "NonZero": plain(torch.nonzero),
    "MatMul": product, "Int8MatMul": product,
    "Softmax": along_last(lambda t: torch.softmax(t, -1)),
    "LogSoftmax": along_last(lambda t: torch.log_softmax(t, -1)),
    "LayerNorm": lambda x, a: F.layer_norm(
        x[0], x[0].shape[-1:], x[1].expand(x[0].shape[-1:]), x[2].expand(x[0].shape[-1:]),
        a["epsilon"]),
    "RmsNorm": lambda x, a: F.rms_norm(
        x[0], x[0].shape[-1:], x[1].expand(x[0].shape[-1:]), a["epsilon"]),
    "LayerNormGradient": norm_gradient, "ChannelMoments": channel_moments,
    "RecurrentLayer": recurrent,
    "CrossEntropy": plain(lambda x, y: F.cross_entropy(
        x.reshape(y.numel(), x.shape[-1]), y.reshape(-1), reduction="none").reshape(y.shape)),
    "Transpose": lambda x, a: torch.permute(x[0], [int(k) for k in a["permutation"]]),
    "Concat": lambda x, a: torch.cat(x, int(a["axis"])),
    "Split": lambda x, a: torch.split(
        x[0], [int(e) for e in a["extents"]], int(a.get("axis", 0))),
    "Gather": chosen, "GatherNd": gathered, "ScatterNd": scattered,
    "ScatterAdd": lambda x, a: x[0].clone().index_add(
        0, x[1].reshape(-1), x[2].reshape((-1,) + tuple(x[0].shape[1:]))),
    "TakeAlong": lambda x, a: torch.gather(x[0], int(a.get("axis", -1)), x[1]),
    "AddAlong": lambda x, a: torch.zeros_like(x[2]).scatter_add(int(a.get("axis", -1)), x[1], x[0]),
}

NUMPY = {
    **{name: (lambda f: lambda x, a: f(*x))(getattr(np, f)) for name, f in {
        "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Add": "add", "Asin": "arcsin",
        "Asinh": "arcsinh", "Atan": "arctan", "Atan2": "arctan2", "Atanh": "arctanh",
        "BitAnd": "bitwise_and", "BitOr": "bitwise_or", "BitXor": "bitwise_xor",
        "BitNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Equal": "equal",
        "Exp": "exp", "Expm1": "expm1", "Floor": "floor", "Greater": "greater",
        "GreaterEqual": "greater_equal", "IsFinite": "isfinite", "IsInf": "isinf", "IsNan": "isnan",
        "Less": "less", "LessEqual": "less_equal", "Log": "log", "Log1p": "log1p",
        "LogicalAnd": "logical_and", "LogicalNot": "logical_not", "LogicalOr": "logical_or",
        "LogicalXor": "logical_xor", "Maximum": "maximum", "Minimum": "minimum", "Mul": "multiply",
        "Neg": "negative", "NotEqual": "not_equal", "Round": "rint", "Sign": "sign", "Sin": "sin",
        "Sinh": "sinh", "Sqrt": "sqrt", "Square": "square", "Sub": "subtract", "Tan": "tan",
        "Tanh": "tanh", "Trunc": "trunc", "Where": "where", "MatMul": "matmul",
        "Int8MatMul": "matmul"}.items()},
    "Sum": lambda x, a: np.sum(
        x[0], axis=tuple(int(k) for k in a.get("axes") or range(x[0].ndim)),
        keepdims=a.get("keep_dims", False)),
    "Max": lambda x, a: np.max(
        x[0], axis=tuple(int(k) for k in a.get("axes") or range(x[0].ndim)),
        keepdims=a.get("keep_dims", False)),
    "Min": lambda x, a: np.min(
        x[0], axis=tuple(int(k) for k in a.get("axes") or range(x[0].ndim)),
        keepdims=a.get("keep_dims", False)),
    "Product": lambda x, a: np.prod(
        x[0], axis=tuple(int(k) for k in a.get("axes") or range(x[0].ndim)),
        keepdims=a.get("keep_dims", False)),
    "Mean": lambda x, a: np.mean(
        x[0], axis=tuple(int(k) for k in a.get("axes") or range(x[0].ndim)),
        keepdims=a.get("keep_dims", False)),
    "Transpose": lambda x, a: np.transpose(x[0], [int(k) for k in a["permutation"]]),
    "Concat": lambda x, a: np.concatenate(x, axis=int(a["axis"])),
    "Gather": lambda x, a: np.take(x[0], x[1], axis=int(a.get("axis", 0))),
    "TakeAlong": lambda x, a: np.take_along_axis(x[0], x[1], axis=int(a.get("axis", -1))),
    "Sort": lambda x, a: (
        np.flip(np.sort(x[0], -1), -1) if a.get("descending") else np.sort(x[0], -1)),
    "Unique": lambda x, a: np.unique(x[0], return_inverse=True, return_counts=True),
    "NonZero": lambda x, a: np.argwhere(x[0]),
}
NUMPY_TRANSPOSES = {"MatMul"}


def differs(got, want, tolerance, bits):
    want = want if isinstance(want, torch.Tensor) else torch.as_tensor(np.array(want, order="C"))
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
    if not got.is_floating_point() and not got.is_complex():
        a, b = got.to(torch.int64), want.to(torch.int64)
        if bits and bits < 64:
            a, b = a % (1 << bits), b % (1 << bits)
        bad = (a != b).nonzero()
    else:
        want = want.to(got.dtype)
        close = (got == want) | (got.isnan() & want.isnan()) | (
            (got - want).abs() <= tolerance * want.abs().clamp(min=1))
        bad = (~close).nonzero()
    if len(bad) == 0:
        return None
    at = tuple(int(k) for k in bad[0])
    return f"[{', '.join(map(str, at))}] is {got[at].item()}, not {want[at].item()}"


def compare(peer, name, case, got, want):
    if not isinstance(want, (tuple, list)):
        want = [want]
    if case["op"] in ("Sort", "TopK") and (peer == "numpy" or case["op"] == "TopK"):
        got, want = got[:1], want[:1]  # each peer orders equals differently
    for k, (g, w) in enumerate(zip(got, want)):
        why = differs(g, w, case["tolerance"], case["bits"])
        if why:
            print(f"{case['op']} {case['dtype']} {case['attributes']} ({name}) against {peer}: "
                  f"output {k}{why}")
            return 1
    return 0


def main():
    metadata, tensors = read(sys.argv[1])
    wrong, compared, ops, failed, without = (
        0, {"torch": 0, "numpy": 0}, {"torch": set(), "numpy": set()}, [], set())
    for name, text in sorted(metadata.items()):
        if not name.isdigit():
            continue
        case = json.loads(text)
        op, a = case["op"], case["attributes"]
        x = [tensors[f"{name}/x{i}"] for i in range(case["inputs"])]
        y = [tensors[f"{name}/y{i}"] for i in range(case["outputs"])]
        if op not in TORCH and op not in NUMPY:
            without.add(op)
            continue
        for peer, table in (("torch", TORCH), ("numpy", NUMPY)):
            if op not in table or (peer == "numpy" and op in NUMPY_TRANSPOSES and
                                   (a.get("transpose_a") or a.get("transpose_b"))):
                continue
            try:
                with np.errstate(all="ignore"):
                    want = table[op](x if peer == "torch" else [t.numpy() for t in x], a)
            except Exception as error:  # no mismatch, but printed: the peer lacks the op
                failed.append(f"{peer} {op} {case['dtype']}: {type(error).__name__}")
                continue
            wrong += compare(peer, name, case, y, want)
            compared[peer] += 1
            ops[peer].add(op)
    for line in sorted(set(failed)):
        print("not done by", line)
    print("without a counterpart here:", " ".join(sorted(without)))
    print(f"compared {len(ops['torch'])} ops with torch {torch.__version__} "
          f"({compared['torch']} cases), {len(ops['numpy'])} with numpy {np.__version__} "
          f"({compared['numpy']} cases); {wrong} differ")
    sys.exit(1 if wrong else 0)


main()
