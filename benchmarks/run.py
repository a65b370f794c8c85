"""Measure tang-edge against ONNX Runtime, side by side on this machine.

    python -m benchmarks.run [--models go2-policy,ppocr-cls] [--quick] [--json out.json] [--plot out.png]

On the CPU: tang-edge's C against ONNX Runtime's CPU provider, with the same numbers of threads. On WebGPU:
tang-edge against onnxruntime-webgpu, which runs in an environment of its own (prepared by
tools/peer_webgpu/prepare.py) on the same adapter. All sides of a model take turns in one run of this program.
Answers are compared before and after the timing; sides that disagree get no figure. A ratio is the peer's
time over ours: above 1, tang-edge is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.measure import QUICK, Disagreement, Effort, check, measure, reference
from benchmarks.sides import OrtCpu, OrtWorker, Side, SideError, TangEdge, pack
from tests.models import real_inputs

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".peer-webgpu"

# float32 nets in different orders of summation differ by less than this in relative norm. The int8 net rounds
# to a grid inside, where one ULP of difference may move a value by a whole step.
TOLERANCE = 2e-3
TOLERANCES = {"reachy-fk-int8": 5e-2}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure and with which sides; made of the command line."""

    models: list[str]
    threads: list[int]
    webgpu: bool
    cpu: bool
    ours: bool
    effort: Effort
    bundles: Path
    pack_args: list[str]
    peer_python: str = ""
    peer_environment: dict[str, str] | None = None


def main(argv: list[str] | None = None) -> int:
    """The command line; 0 when every side of every model could be measured, else 1."""
    options = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        plan = _plan(options, Path(scratch))
        if plan.webgpu:
            plan = _with_peer(plan)
        results = []
        for case in plan.models:
            results.append(measure_case(case, plan))
            print(report.progress(results[-1]), file=sys.stderr, flush=True)
    document = {"machine": machine(plan), "results": results, "means": report.means(results)}
    report.table(document)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.plot:
        report.plot(document, options.plot)
    return 1 if any(result["problems"] for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", default=",".join(real_inputs.MODELS), help="names, or name@size (ppocr-rec@48x160)")
    parser.add_argument("--threads", default="1,2", help="thread counts of the CPU sides")
    parser.add_argument("--webgpu", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cpu", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--ours", action=argparse.BooleanOptionalAction, default=True, help="--no-ours: the peers only")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: an orientation, not a figure to quote")
    parser.add_argument("--bundles", type=Path, help="keep the packed bundles here (default: a temporary folder)")
    parser.add_argument("--pack-args", default="", help="more arguments for `tang-edge pack`, separated by blanks")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser


def _plan(options: argparse.Namespace, scratch: Path) -> Plan:
    models = [name.strip() for name in options.models.split(",") if name.strip()]
    for name in models:
        find_size(name)
    bundles = options.bundles or scratch
    bundles.mkdir(parents=True, exist_ok=True)
    threads = [int(n) for n in options.threads.split(",")]
    effort = QUICK if options.quick else Effort()
    extra = options.pack_args.split()
    return Plan(models, threads, options.webgpu, options.cpu, options.ours, effort, bundles, extra)


def find_size(case: str) -> tuple[str, real_inputs.Size]:
    """Split `model` or `model@size` into the model and its size; SystemExit with the known ones otherwise."""
    model, _, label = case.partition("@")
    sizes = {size.label: size for size in real_inputs.SIZES.get(model, ())}
    if not sizes:
        raise SystemExit(f"unknown model {model!r}; known: {', '.join(real_inputs.MODELS)}")
    if label and label not in sizes:
        raise SystemExit(f"{model} has no size {label!r}; known: {', '.join(sizes)}")
    return model, sizes[label] if label else next(iter(sizes.values()))


def _with_peer(plan: Plan) -> Plan:
    """Prepare the peer's environment, and put this process on its adapter before any driver is loaded."""
    script = ROOT / "tools" / "peer_webgpu" / "prepare.py"
    command = [sys.executable, str(script), "--dest", str(PEER), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit("the WebGPU peer cannot run here (see above); measure the CPU with --no-webgpu")
    answer = json.loads(done.stdout)
    environment: dict[str, str] = answer["environment"]
    # The layer is for Dawn alone: our side takes the driver as it is.
    os.environ.update({k: v for k, v in environment.items() if k in ("XDG_RUNTIME_DIR", "VK_ICD_FILENAMES")})
    return replace(plan, peer_python=answer["python"], peer_environment=environment)


def measure_case(case: str, plan: Plan) -> dict[str, Any]:
    """Measure all sides of one model: {"case", "figures": {side: ..}, "errors": {side: ..}, "problems":
    [text]}.
    """
    model, size = find_size(case)
    result: dict[str, Any] = {"case": f"{model}@{size.label}", "figures": {}, "errors": {}, "problems": []}
    # Real inputs may saturate a classifier, where a wrong net still answers 0 or 1: random ones do not.
    kinds: tuple[real_inputs.Kind, ...] = ("real", "real", "random")
    feeds = [real_inputs.inputs(model, size, kind=kind, seed=seed) for seed, kind in enumerate(kinds)]
    tolerance = TOLERANCES.get(model, TOLERANCE)
    with ExitStack() as stack:
        sides = _load(model, feeds, plan, stack, result)
        if not sides:
            return result
        try:
            answers = reference(sides[0], len(feeds))
            agreeing = [side for side in sides if _agrees(side, answers, tolerance, result)]
            figures = measure(agreeing, answers, tolerance, plan.effort)
        except (Disagreement, SideError) as problem:
            result["problems"].append(str(problem))
        else:
            result["figures"] = {figure.side: asdict(figure) for figure in figures}
    return result


def _agrees(side: Side, answers: list[list[Any]], tolerance: float, result: dict[str, Any]) -> bool:
    """Check a side's answers; what is wrong with it goes into `result`, and the others are still measured."""
    try:
        result["errors"][side.name] = check(side, answers, tolerance)
    except Exception as problem:  # whatever a runtime raises is this side's problem, reported as such
        result["problems"].append(f"{side.name}: {type(problem).__name__}: {problem}")
        return False
    return True


def _load(model: str, feeds: list[Any], plan: Plan, stack: ExitStack, result: dict[str, Any]) -> list[Side]:
    """Load every side; one that cannot be loaded is a problem in `result`. The first is the reference."""
    path = real_inputs.model_path(model)
    if not path.exists():
        raise SystemExit(f"{path} is missing: python tools/fetch_models.py --dest {path.parent}")
    bundle = plan.bundles / f"{model}.tang"
    makers: list[Any] = []
    for threads in plan.threads if plan.cpu else plan.threads[:1]:
        makers.append(lambda n=threads: OrtCpu(path, feeds, n))
    if plan.ours:
        try:
            result["pack_seconds"] = pack(path, bundle, plan.pack_args)
        except SideError as problem:
            result["problems"].append(str(problem))
        else:
            if plan.cpu:
                makers += [lambda n=n: TangEdge(bundle, feeds, "c", n) for n in plan.threads]
            if plan.webgpu:
                makers.append(lambda: TangEdge(bundle, feeds, "webgpu", 1))
    if plan.webgpu:
        makers.append(lambda: OrtWorker(path, feeds, plan.peer_python, plan.peer_environment or {}))
    sides: list[Side] = []
    for make in makers:
        try:
            side = make()
        except Exception as problem:  # the same: one side must not end the run
            result["problems"].append(f"{type(problem).__name__}: {problem}")
            continue
        stack.callback(side.close)
        if isinstance(side, TangEdge):
            result.setdefault("ours", {})[side.name] = side.about
        sides.append(side)
    return sides


def machine(plan: Plan) -> dict[str, Any]:
    """What the figures were taken on: processor, cores, versions, our WebGPU adapter if one was measured."""
    from importlib.metadata import PackageNotFoundError, version

    import onnxruntime

    about: dict[str, Any] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
    }
    try:
        about["tang-edge"] = version("tang-edge")
    except PackageNotFoundError:
        about["tang-edge"] = "not installed"
    if plan.webgpu:
        import wgpu

        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        about["adapter"] = str(adapter.info["device"])
    return about


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    raise SystemExit(main())
