"""Training steps over a mesh of host devices in JAX: the models of test/bench/mesh_models.hpp, by
data and by model, with shardings of the inputs, so that its compiler inserts the collectives.

usage: mesh_jax.py <devices>
request: `losses <case> <n>`: the losses of the first n steps; `steps <case> <n>`: ns a step. Cases
are mlp_data, mlp_model, block_data and block_model.
"""

import os
import sys
import time

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[1]}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from peer import missing, pattern, serve

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
except Exception as error:
    missing(error)

RATE = 0.01
mesh = Mesh(np.array(jax.devices()[:int(sys.argv[1])]), ("p",))


def start(shape, fan_in, seed):
    if fan_in == 0:
        return np.zeros(shape, np.float32)
    return pattern(shape, 2 * (3 / fan_in) ** 0.5, seed)


def weights(rows):
    """{name: value} of rows (name, shape, fan_in), numbered from 1 on as ours."""
    return {name: start(shape, fan, i + 1) for i, (name, shape, fan) in enumerate(rows)}


def mlp_loss(w, x, t):
    h = jax.nn.relu(x @ w["w1"] + w["b1"])
    h = jax.nn.relu(h @ w["w2"] + w["b2"])
    z = h @ w["w3"]
    chosen = jnp.take_along_axis(z, t[:, None], 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(z, 1) - chosen)


def normal(x):
    m = x.mean(-1, keepdims=True)
    return (x - m) / jnp.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)


def block_loss(w, x, target):
    h = normal(x)
    q, k, v = (jnp.einsum("bld,dhe->bhle", h, w[n]) for n in "qkv")
    scores = jnp.einsum("bhle,bhme->bhlm", q, k) / q.shape[-1] ** 0.5
    seen = jnp.einsum("bhlm,bhme->bhle", jax.nn.softmax(scores, -1), v)
    y = x + jnp.einsum("bhle,hed->bld", seen, w["o"])
    y = y + jax.nn.relu(normal(y) @ w["f1"]) @ w["f2"]
    return jnp.mean((y - target) ** 2)


LABELS = ((pattern([256], 1, 200).astype(np.float64) + 0.5) * 10).astype(np.int64).clip(0, 9)
MODELS = {
    "mlp": (
        mlp_loss,
        weights([("w1", [784, 2048], 784), ("b1", [2048], 0), ("w2", [2048, 2048], 2048),
                 ("b2", [2048], 0), ("w3", [2048, 10], 2048)]),
        (pattern([256, 784], 2, 100), LABELS.astype(np.int32)),
        {"w1": P(None, "p"), "b1": P("p"), "w2": P("p", None), "b2": P(), "w3": P()},
    ),
    "block": (
        block_loss,
        weights([("q", [256, 8, 32], 256), ("k", [256, 8, 32], 256), ("v", [256, 8, 32], 256),
                 ("o", [8, 32, 256], 256), ("f1", [256, 1024], 256), ("f2", [1024, 256], 1024)]),
        (pattern([16, 64, 256], 2, 100), pattern([16, 64, 256], 2, 200)),
        {"q": P(None, "p"), "k": P(None, "p"), "v": P(None, "p"), "o": P("p"),
         "f1": P(None, "p"), "f2": P("p", None)},
    ),
}


class Case:
    def __init__(self, model, how):
        loss, self.first, batch, split = MODELS[model]
        specs = {k: P() if how == "data" else split[k] for k in self.first}
        self.places = {k: NamedSharding(mesh, s) for k, s in specs.items()}
        of_batch = NamedSharding(mesh, P("p") if how == "data" else P())
        self.batch = [jax.device_put(b, of_batch) for b in batch]

        def step(w, x, t):
            value, grads = jax.value_and_grad(loss)(w, x, t)
            return {k: w[k] - RATE * grads[k] for k in w}, value

        self.step = jax.jit(
            step, donate_argnums=0, out_shardings=(self.places, NamedSharding(mesh, P())))
        self.reset()

    def reset(self):
        self.w = {k: jax.device_put(v, self.places[k]) for k, v in self.first.items()}

    def run(self, count):
        losses = []
        for _ in range(count):
            self.w, value = self.step(self.w, *self.batch)
            losses.append(float(value))
        return losses


cases = {}


def answer(words):
    case = cases.setdefault(words[1], None) or Case(*words[1].split("_"))
    cases[words[1]] = case
    if words[0] == "losses":
        case.reset()
        return case.run(int(words[2]))
    start_ns = time.perf_counter_ns()
    case.run(int(words[2]))
    return [(time.perf_counter_ns() - start_ns) / int(words[2])]


serve("JAX " + jax.__version__, "XLA", answer)
