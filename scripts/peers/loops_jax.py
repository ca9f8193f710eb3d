"""Loops compiled by JAX on the CPU, one thread: the far end of bench/loop, loop_grad, hmc, ode and
scan_small.

usage: loops_jax.py <count | fma | hmc | ode | gru> <threads> [batch]
request: `run <iterations>`; answers ns a call (of count and fma: an iteration), then numbers that
both sides compare. `grad <iterations>`: the same with a gradient.
"""

import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

from peer import missing, pattern, serve

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
except Exception as error:
    missing(error)

WHAT = sys.argv[1]
BATCH = int(sys.argv[3]) if len(sys.argv) > 3 else 1




def count():
    @jax.jit
    def run(n):
        return lax.while_loop(lambda x: x < n, lambda x: x + 1.0, jnp.float32(0))

    return run, lambda n: (jnp.float32(n),), None


def fma():
    jax.config.update("jax_enable_x64", True)

    def loop(x, a, b, n):
        def step(v, _):
            return v * a + b, None

        return lax.scan(step, x, None, length=n)[0]

    values = (jnp.float64(0.5), jnp.float64(0.9999), jnp.float64(1e-4))
    forward = jax.jit(loop, static_argnums=3)
    both = jax.jit(jax.value_and_grad(loop, argnums=(0, 1, 2)), static_argnums=3)
    return forward, lambda n: (*values, n), both


def hmc():
    precision = jnp.array([[50.25, -49.75], [-49.75, 50.25]], jnp.float32)

    def energy(q):
        return 0.5 * jnp.sum((q @ precision) * q, axis=1)

    def loop(q, eps, momenta, levels):
        def leapfrog(_, qp):
            q, p = qp
            p = p - eps * 0.5 * (q @ precision)
            q = q + eps * p
            return q, p - eps * 0.5 * (q @ precision)

        def step(q, given):
            p, level = given
            before = energy(q) + 0.5 * jnp.sum(p * p, axis=1)
            moved, ended = lax.fori_loop(0, 10, leapfrog, (q, p))
            after = energy(moved) + 0.5 * jnp.sum(ended * ended, axis=1)
            accepted = level < jnp.exp(before - after)
            return jnp.where(accepted[:, None], moved, q), None

        return jnp.sum(lax.scan(step, q, (momenta, levels))[0])

    def arguments(n):
        momenta, levels = pattern([n, BATCH, 2], 2, 2), pattern([n, BATCH], 1, 3)
        return pattern([BATCH, 2], 1, 1), jnp.float32(0.05), momenta, levels

    return jax.jit(loop), arguments, jax.jit(jax.value_and_grad(loop, argnums=1))


def ode():
    def loop(y, w1, b1, w2, b2, n):
        def f(y):
            return jnp.tanh(y @ w1 + b1) @ w2 + b2

        def step(y, _):
            h = 0.05
            k1 = f(y)
            k2 = f(y + k1 * (h / 2))
            k3 = f(y + k2 * (h / 2))
            k4 = f(y + k3 * h)
            return y + (k1 + (k2 + k3) * 2.0 + k4) * (h / 6), None

        return jnp.sum(lax.scan(step, y, None, length=n)[0])

    shapes = [BATCH, 2], [2, 50], [50], [50, 2], [2]
    values = [pattern(shape, 1, 1 + i) for i, shape in enumerate(shapes)]
    arguments = lambda n: (*values, n)
    both = jax.value_and_grad(loop, argnums=(1, 2, 3, 4))
    return jax.jit(loop, static_argnums=5), arguments, jax.jit(both, static_argnums=5)


def gru():
    units = 32

    def loop(xs, h, w, u, b):
        def step(h, x):
            of_x, of_h = x @ w + b, h @ u
            z = jax.nn.sigmoid(of_x[:, :units] + of_h[:, :units])
            r = jax.nn.sigmoid(of_x[:, units : 2 * units] + of_h[:, units : 2 * units])
            new = jnp.tanh(of_x[:, 2 * units :] + r * of_h[:, 2 * units :])
            return (1.0 - z) * new + z * h, None

        return jnp.sum(lax.scan(step, h, xs)[0])

    w, u = (pattern([units, 3 * units], 0.5, seed) for seed in (3, 4))
    others = pattern([BATCH, units], 1, 2), w, u, pattern([3 * units], 1, 5)
    arguments = lambda n: (pattern([n, BATCH, units], 1, 1), *others)
    return jax.jit(loop), arguments, jax.jit(jax.value_and_grad(loop, argnums=(2, 3, 4)))


forward, arguments, both = {"count": count, "fma": fma, "hmc": hmc, "ode": ode, "gru": gru}[WHAT]()
prepared = {}


def answer(words):
    n = int(words[1])
    f = both if words[0] == "grad" else forward
    if (words[0], n) not in prepared:
        given = tuple(jnp.asarray(a) if not isinstance(a, int) else a for a in arguments(n))
        prepared[words[0], n] = given
    given = prepared[words[0], n]
    jax.block_until_ready(f(*given))  # the other side's run has filled the caches
    start = time.perf_counter_ns()
    out = jax.block_until_ready(f(*given))
    took = time.perf_counter_ns() - start
    leaves = jax.tree_util.tree_leaves(out)
    took /= n if WHAT in ("count", "fma") else 1
    return [took] + [float(jnp.sum(leaf)) for leaf in leaves]


serve(jax.__version__, "", answer)
