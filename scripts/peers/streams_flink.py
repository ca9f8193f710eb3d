"""Queries over event streams on Apache Flink, by the jars of PyPI's apache-flink-libraries.

usage: streams_flink.py
request: `<query> <events> <types> <rate>`. Rate 0: ns an event on one core, and outputs; else the
latency in ms, median and 99 %, at so many events a second on all cores.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile

from importlib.metadata import version

from peer import missing, serve

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.find_spec("pyflink")
if spec is None:
    missing("apache-flink-libraries is not installed")
if not shutil.which("javac"):
    missing("there is no javac; install a JDK of Java 17")
JARS = os.path.join(list(spec.submodule_search_locations)[0], "lib", "*")
OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util")]


def serve_from(classes):
    subprocess.run(["javac", "-nowarn", "-cp", JARS, "-d", classes,
                    os.path.join(HERE, "StreamsFlink.java")],
                   check=True, stderr=subprocess.DEVNULL)

    def answer(words):
        pinned = ["taskset", "-c", "0"] if words[3] == "0" else []
        job = subprocess.run([*pinned, "java", "-Xmx2g", *OPENED, "-cp", f"{JARS}:{classes}",
                              "StreamsFlink", *words],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if job.returncode != 0:
            raise RuntimeError(job.stderr.strip().splitlines()[-1])
        return [float(x) for x in job.stdout.strip().splitlines()[-1].split()]

    serve(version("apache-flink-libraries"), "", answer)


with tempfile.TemporaryDirectory() as directory:
    serve_from(directory)
