"""What is measured: one class a contestant, all with the same three methods.

A `Side` has a `name`, `time(runs, feed)` (seconds of each of `runs` runs on prepared feeds number `feed`),
`outputs()` (the arrays of the last run, in the model's order) and `close()`. The feeds are given when it is
made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.worker import poison, session_options

Arrays = Mapping[str, Any]
CPU = "CPUExecutionProvider"
WEBGPU = "WebGpuExecutionProvider"


class SideError(Exception):
    """A contestant cannot be measured: it did not load, it failed in a run, or it runs on another device than
    asked.
    """


class Side(Protocol):
    """A model loaded by one contestant."""

    name: str

    def time(self, runs: int, feed: int) -> list[float]:
        """Seconds of each of `runs` runs on feeds number `feed`."""

    def outputs(self) -> list[Any]:
        """The arrays of the last run, in the order of the model's outputs."""

    def close(self) -> None:
        """Give back what the side holds."""


class OrtCpu:
    """ONNX Runtime on the CPU in this process."""

    def __init__(self, model: Path, feeds: Sequence[Arrays], threads: int, spin: bool = True) -> None:
        import onnxruntime

        self.name = f"ort-cpu-{threads}"
        options = session_options(threads)
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        self._session = onnxruntime.InferenceSession(str(model), options, providers=[CPU])
        self._feeds = [dict(feed) for feed in feeds]
        self._outputs: list[Any] = []

    def time(self, runs: int, feed: int) -> list[float]:
        seconds = []
        for _ in range(runs):
            poison(self._outputs)
            start = time.perf_counter()
            self._outputs = self._session.run(None, self._feeds[feed])
            seconds.append(time.perf_counter() - start)
        return seconds

    def outputs(self) -> list[Any]:
        return self._outputs

    def close(self) -> None:
        del self._session


class TangEdge:
    """tang-edge through `tang_edge.load(...).run(...)`, on one device."""

    def __init__(self, bundle: Path, feeds: Sequence[Arrays], device: str, threads: int) -> None:
        import tang_edge

        self.name = f"tang-{device}" + (f"-{threads}" if device == "c" else "")
        self._model = tang_edge.load(str(bundle), device=device, threads=threads, trust=True)
        report = self._model.report
        if report.device != device:
            raise SideError(f"asked tang-edge for {device}, it took {report.device}: {report.why}")
        self.about = {
            "adapter": report.adapter,
            "variant": report.variant,
            "self_test": report.self_test.outcome,
            "demotions": len(report.demotions),
        }
        self._feeds = [dict(feed) for feed in feeds]
        self._outputs: list[Any] = []

    def time(self, runs: int, feed: int) -> list[float]:
        seconds = []
        for _ in range(runs):
            poison(self._outputs)
            start = time.perf_counter()
            answer = self._model.run(self._feeds[feed])
            seconds.append(time.perf_counter() - start)
            self._outputs = list(answer.values())
        return seconds

    def outputs(self) -> list[Any]:
        return self._outputs

    def close(self) -> None:
        close = getattr(self._model, "close", None)
        if close is not None:
            close()
        del self._model


class OrtWorker:
    """ONNX Runtime of another environment, in a process of its own; see `benchmarks.worker`."""

    def __init__(
        self,
        model: Path,
        feeds: Sequence[Arrays],
        python: str,
        environment: Mapping[str, str],
        provider: str = WEBGPU,
        threads: int = 1,
    ) -> None:
        self.name = "ort-webgpu" if provider == WEBGPU else f"ort-worker-{threads}"
        self._folder = tempfile.TemporaryDirectory()
        self._log = open(Path(self._folder.name) / "stderr", "w+")  # noqa: SIM115 (closed in close())
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **environment},
        )
        files = [str(Path(self._folder.name) / f"feed{k}.npz") for k in range(len(feeds))]
        for file, feed in zip(files, feeds, strict=True):
            np.savez(file, **feed)
        try:
            loaded = self._ask(op="load", model=str(model), providers=[provider], threads=threads, feeds=files)
            if loaded["providers"][0] != provider:
                raise SideError(f"asked for {provider}, ONNX Runtime took {loaded['providers']}: no adapter?")
        except SideError:
            self.close()
            raise

    def time(self, runs: int, feed: int) -> list[float]:
        return list(self._ask(op="time", runs=runs, feed=feed)["seconds"])

    def outputs(self) -> list[Any]:
        file = str(Path(self._folder.name) / "outputs.npz")
        self._ask(op="outputs", file=file)
        with np.load(file) as arrays:
            return [arrays[str(k)] for k in range(len(arrays.files))]

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._log.flush()
            self._log.seek(0)
            raise SideError(f"{self.name}: the worker ended: {self._log.read().strip()[-500:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SideError(f"{self.name}: {answer['error'][:500]}")
        return answer


def pack(model: Path, bundle: Path, extra: Sequence[str] = ()) -> float:
    """Pack `model` into `bundle` with the command line (the stable interface); seconds it took."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "tang_edge.cli", "pack", str(model), "-o", str(bundle), *extra]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"pack {model.name}: {(done.stderr or done.stdout).strip()[-800:]}")
    return time.perf_counter() - start
