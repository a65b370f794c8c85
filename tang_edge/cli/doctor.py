"""`tang-edge doctor`: what this machine can run on, and what is missing, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape

from tang_edge.cli import console, machine

EXAMPLE = """\b
Examples:
  tang-edge doctor
  tang-edge doctor --json"""


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is not there: what it means, and how to get it. `needed` when nothing else does its work."""

    what: str
    means: str
    remedy: str
    needed: bool = False


def command(as_json: console.AsJson = False) -> None:
    """Say what this machine can run on, and what is missing.

    The exit code is 0 also where things are missing; with --json, `runs_on` says where a bundle would run.
    """
    with console.progress(as_json) as stage:
        stage("looking at drivers and compilers", 0, 1)
        facts = machine.facts()
    absent, places = missing(facts), runs_on(facts)
    if as_json:
        console.print_json({**facts, "missing": [asdict(m) for m in absent], "runs_on": places})
        return
    _show_software(facts)
    _show_devices(facts)
    _show_missing(absent)
    _show_verdict(places)


def runs_on(facts: Mapping[str, Any]) -> list[str]:
    """Where `device="auto"` would run a bundle, the first choice first; empty where nowhere."""
    gpus = [f"WebGPU on {a['name']}" for a in facts["adapters"] if not a["computes_on_cpu"]]
    cpus = [f"WebGPU on {a['name']}, which computes on the CPU" for a in facts["adapters"] if a["computes_on_cpu"]]
    classes = ", ".join(facts["processor"]["classes"])
    c = [f"C for this processor ({classes}), compiled by {facts['compiler']['version']}"] if facts["compiler"] else []
    return [*gpus, *c, *cpus]


def missing(facts: Mapping[str, Any]) -> list[Missing]:
    """What is not there, with the consequences."""
    out = _missing_devices(facts)
    packages = facts["packages"]
    absent = [p for p in ("onnx", "safetensors", "jsonschema") if packages[p] is None]
    if absent:
        means = "bundles run, but pack, explain and bisect do not work"
        out.append(Missing(f"the compiler's packages ({', '.join(absent)})", means, machine.PACKAGES["onnx"][1]))
    for name in ("onnxruntime", "pillow"):
        if packages[name] is None:
            use, how = machine.PACKAGES[name]
            out.append(Missing(name, f"only needed for {use}", how))
    for name, f in facts["folders"].items():
        if not f["writable"]:
            means = "compiled libraries cannot be kept" if name == "cache" else "bundles packed here are not trusted"
            out.append(Missing(f"a {name} folder that can be written ({f['path']})", means, f"Set TANG_EDGE_{name.upper()}."))
    return out


def _missing_devices(facts: Mapping[str, Any]) -> list[Missing]:
    out = []
    adapters, compiler = facts["adapters"], facts["compiler"]
    if not adapters:
        words = facts["no_adapter"] or "no adapter"
        drivers = "" if facts["vulkan_drivers"] else "; no Vulkan driver is installed"
        how = (
            "Install your GPU's Vulkan driver; without a GPU, Mesa's lavapipe (Debian and Ubuntu: "
            "apt install mesa-vulkan-drivers; Fedora: dnf install mesa-vulkan-drivers)."
        )
        if facts["packages"]["wgpu"] is None:
            how = "pip install wgpu"
        out.append(Missing("a WebGPU adapter", f"bundles run on C only ({words}{drivers})", how, compiler is None))
    elif all(a["computes_on_cpu"] for a in adapters):
        means = "WebGPU works, but computes on the CPU: a bundle runs on C first"
        out.append(Missing("a GPU", means, "If there is one, install its Vulkan driver."))
    if compiler is None:
        means = "bundles without a prebuilt library for this machine run on WebGPU only"
        how = "Install gcc or clang, or pip install 'tang-edge[c]'."
        out.append(Missing("a C compiler", means, how, not adapters))
    return out


def _show_software(facts: Mapping[str, Any]) -> None:
    out, python = console.out, facts["python"]
    out.print(f"tang-edge   {facts['tang_edge']} on Python {python['version']} ({escape(python['path'])})")
    out.print(f"system      {escape(python['platform'])}")
    found = [f"{n} {v}" for n, v in facts["packages"].items() if v]
    out.print(f"packages    {', '.join(found)}")
    for name, f in facts["folders"].items():
        state = f"{f['files']} files, {console.size(f['bytes'])}" + ("" if f["writable"] else ", not writable")
        out.print(f"{name:<11} {escape(f['path'])} ({state})")


def _show_devices(facts: Mapping[str, Any]) -> None:
    out, p = console.out, facts["processor"]
    out.print(f"processor   {p['machine']}, {p['usable_cores']} of {p['cores']} cores usable")
    out.print(f"classes     {', '.join(p['classes'])} (best first)")
    for name, version in facts["compilers"].items():
        if version:
            out.print(f"C compiler  {name}: {escape(version)}")
    if facts["compiler"]:
        out.print(f"            used: {escape(' '.join(facts['compiler']['command']))}")
    for path in facts["vulkan_drivers"]:
        out.print(f"Vulkan      {escape(path)}")
    for a in facts["adapters"]:
        kind = "computes on the CPU" if a["computes_on_cpu"] else a["type"]
        out.print(f"adapter     {escape(a['name'])}: {kind}" + (f", driver {escape(a['driver'])}" if a["driver"] else ""))
        limits = ", ".join(f"{k.removeprefix('max-')} {_number(k, n)}" for k, n in a["limits"].items())
        out.print(f"            {limits}")
        out.print(f"            features: {', '.join(a['features']) or 'none of those that matter here'}")


def _number(limit: str, value: int) -> str:
    return console.size(value) if limit.endswith("-size") else str(value)


def _show_missing(absent: list[Missing]) -> None:
    for m in absent:
        style = "bold red" if m.needed else "yellow"
        console.out.print(f"\n[{style}]missing[/]     {escape(m.what)}: {escape(m.means)}")
        console.out.print(f"            {escape(m.remedy)}")


def _show_verdict(places: list[str]) -> None:
    console.out.print()
    if not places:
        console.out.print("[bold red]A bundle runs nowhere on this machine[/]: see what is missing above.")
        return
    console.out.print(f"[bold]A bundle runs here on[/] {escape(places[0])}.")
    for place in places[1:]:
        console.out.print(f"  otherwise {escape(place)}")
    console.out.print("C needs a bundle that was packed on this machine, or trust (--trust).")
