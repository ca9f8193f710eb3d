"""while x < n: x = x + 1, as onnxruntime's Loop with a tensor predicate.

usage: loop_onnxruntime.py <threads>
request: `run <iterations>`; answers ns an iteration, then the last x.
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

THREADS = int(sys.argv[1])


def model():
    scalar = lambda name, kind=TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, [])
    body = helper.make_graph(
        [
            helper.make_node("Add", ["x_in", "one"], ["x_out"]),
            helper.make_node("Less", ["x_out", "n"], ["more_out"]),
        ],
        "body",
        [scalar("i", TensorProto.INT64), scalar("more_in", TensorProto.BOOL), scalar("x_in")],
        [scalar("more_out", TensorProto.BOOL), scalar("x_out")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Less", ["x", "n"], ["more"]),
            helper.make_node("Loop", ["", "more", "x"], ["last"], body=body),
        ],
        "loop",
        [scalar("x"), scalar("n"), scalar("one")],
        [scalar("last")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


options = ort.SessionOptions()
options.intra_op_num_threads = THREADS
options.inter_op_num_threads = 1
session = ort.InferenceSession(model(), options, providers=["CPUExecutionProvider"])


def answer(words):
    n = int(words[1])
    feeds = {"x": np.float32(0), "n": np.float32(n), "one": np.float32(1)}
    feeds = {name: np.array(value, np.float32) for name, value in feeds.items()}
    start = time.perf_counter_ns()
    last = session.run(None, feeds)[0].item()
    return [(time.perf_counter_ns() - start) / n, last]


serve(ort.__version__, "", answer)
