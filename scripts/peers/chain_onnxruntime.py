"""A chain of one-element multiplications and additions, run by onnxruntime with its graph
optimisations off.

usage: chain_onnxruntime.py <ops> <rank> <threads>
request: `run <runs> <first>`; answers ns a run, then every run's result. Run i of a request starts
from the input x = (first + i) * 0.001; a = 0.999 and b = 0.5 are inputs too.
"""

import sys
import time

from peer import missing, serve

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper
except Exception as error:
    missing(error)

OPS, RANK, THREADS = (int(a) for a in sys.argv[1:4])
SHAPE = [1] * RANK


def chain():
    nodes, at = [], "x"
    for i in range(OPS):
        to = "y" if i == OPS - 1 else f"v{i}"
        nodes.append(helper.make_node(
            "Mul" if i % 2 == 0 else "Add", [at, "a" if i % 2 == 0 else "b"], [to]))
        at = to
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph(nodes, "chain", [value("x"), value("a"), value("b")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


options = ort.SessionOptions()
options.intra_op_num_threads = THREADS
options.inter_op_num_threads = 1
options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession(chain(), options, providers=["CPUExecutionProvider"])


def answer(words):
    runs, first = int(words[1]), int(words[2])
    a = np.full(SHAPE, 0.999, np.float32)
    b = np.full(SHAPE, 0.5, np.float32)
    out = []
    start = time.perf_counter_ns()
    for i in range(runs):
        x = np.full(SHAPE, (first + i) * 0.001, np.float32)
        out.append(session.run(None, {"x": x, "a": a, "b": b})[0].item())
    return [(time.perf_counter_ns() - start) / runs, *out]


serve(ort.__version__, "", answer)
