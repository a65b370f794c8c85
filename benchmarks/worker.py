"""The process that runs ONNX Runtime in an environment of its own, so that two builds of it can be measured
together.

Started by `benchmarks.sides.OrtWorker` as `python worker.py` with the peer's interpreter: it must need only
onnxruntime and NumPy. One JSON request a line on standard input, one JSON answer a line on standard output:

    {"op": "load", "model": path, "providers": [..], "threads": n, "feeds": [npz, ..]}  -> {"providers": [..]}
    {"op": "time", "runs": n, "feed": k}     -> {"seconds": [..]}   n timed runs on feeds[k]
    {"op": "outputs", "file": npz}           -> {}                  the arrays of the last timed run, in graph
    order anything that fails                      -> {"error": text}
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import onnxruntime


class Peer:
    """One loaded session and the outputs of its last run."""

    def __init__(self) -> None:
        self.session: Any = None
        self.feeds: list[dict[str, Any]] = []
        self.outputs: list[Any] = []

    def load(self, model: str, providers: list[str], threads: int, feeds: list[str]) -> dict[str, Any]:
        """Make the session: sequential, all optimisations, `threads` inside an operator."""
        self.session = onnxruntime.InferenceSession(model, session_options(threads), providers=providers)
        self.feeds = []
        for file in feeds:
            with np.load(file) as arrays:
                self.feeds.append(dict(arrays))
        return {"providers": self.session.get_providers(), "version": onnxruntime.__version__}

    def time(self, runs: int, feed: int) -> dict[str, Any]:
        """Time `runs` runs; outputs are poisoned after each but the last, so that none can pass as a later
        one's.
        """
        seconds = []
        for _ in range(runs):
            poison(self.outputs)
            start = time.perf_counter()
            self.outputs = self.session.run(None, self.feeds[feed])
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}

    def save(self, file: str) -> dict[str, Any]:
        """Write the outputs of the last run, named by their position."""
        np.savez(file, **{str(k): value for k, value in enumerate(self.outputs)})
        return {}


def session_options(threads: int) -> Any:
    """ONNX Runtime's options as every side here uses them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return options


def poison(outputs: list[Any]) -> None:
    """Overwrite arrays with values no model gives: an output buffer not written again is then seen."""
    for array in outputs:
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array.fill(np.nan if array.dtype.kind == "f" else 113)


def main() -> None:
    """Answer requests until standard input ends."""
    # Drivers write to standard output as they like: keep it for answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer()
    operations = {"load": peer.load, "time": peer.time, "outputs": peer.save}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = operations[request.pop("op")](**request)
        except Exception as error:  # the other side gets the text and raises it there
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
