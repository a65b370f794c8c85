"""Builds the demo site: a folder of static files that any web server can hand out, from any path."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tang_edge import __version__
from tang_edge.cli import site_parts as parts
from tang_edge.cli.console import Stage
from tang_edge.cli.failure import needs_compiler
from tang_edge.errors import InputError


@dataclass(slots=True)
class Built:
    """What a build made: the folder, the models that were packed, and what is missing, each with its reason."""

    site: Path
    missing: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)


def build(site: Path, models: Path, stage: Stage) -> Built:
    """Write the site, or bring it up to date; what is there and right stays.

    Args:
        site: the folder to fill.
        models: where the ONNX files are kept; those that are missing are fetched.
        stage: told of the progress (what, done, total).

    Raises:
        InputError: there is nothing to build from, or a file could not be fetched.
        DeviceError: npm is missing or failed.
    """
    kit = parts.find_kit()
    built = Built(site)
    (site / "models").mkdir(parents=True, exist_ok=True)
    total = 3 + 2 * len(parts.MODELS)
    stage("building the pages", 0, total)
    kit.pages(site)
    for k, model in enumerate(parts.MODELS):
        stage(f"fetching {model.name}", 1 + k, total)
        kit.fetch((model.name,), models)
    kit.fetch((parts.GEOMETRY,), site / "models", "site.toml")
    _pack_all(site, models, built, lambda name, k: stage(f"packing {name}", 1 + len(parts.MODELS) + k, total))
    stage("fetching Python for the page", total - 2, total)
    compiler = _optional("compiler", built, lambda: kit.compiler(site))
    stage("fetching ONNX Runtime Web", total - 1, total)
    ort = _optional("ort", built, lambda: _ort(kit, site))
    # last: a folder with this file is complete
    parts.write_json(site / "site.json", _description(site, compiler, ort, built))
    return built


def _optional(name: str, built: Built, make: Any) -> Any:
    """A part that the site can do without: why it is missing is said on the page and here."""
    try:
        return make()
    except InputError as error:
        built.missing[name] = str(error)
        return None


def _ort(kit: parts.Kit, site: Path) -> dict[str, str]:
    folder = f"vendor/onnxruntime-web-{parts.ORT}/"
    kit.fetch(parts.ORT_FILES, site / folder, "site.toml")
    return {"folder": folder, "version": parts.ORT}


def _pack_all(site: Path, models: Path, built: Built, tell: Any) -> None:
    """Pack the models whose bundle is not of this model, these sizes and this compiler."""
    with needs_compiler():
        from tang_edge import compiler
        from tang_edge.onnx_in import DimRange
    record = site / "models" / "packed.json"
    keys = _read_keys(record)
    version = f"{parts.fingerprint()} {parts.zig()}"
    left_out: list[str] = []
    for k, model in enumerate(parts.MODELS):
        tell(model.name, k)
        source, out = models / f"{model.name}.onnx", site / "models" / f"{model.name}.tang"
        key = hashlib.sha256(f"{version} {sorted(model.dims.items())} ".encode() + source.read_bytes()).hexdigest()
        if out.is_file() and keys.get(model.name) == key:
            continue
        dims = {name: DimRange(*r) for name, r in model.dims.items()}
        report = compiler.pack(source, out, targets=("browser",), dims=dims, remember=False)
        built.made.append(model.name)
        shutil.copyfile(source, out.with_suffix(".onnx"))
        if model.name == "ppocr-rec":
            parts.write_json(site / "models" / parts.CHARACTERS, characters(source))
        left_out += [n for n in report.notes if "left out" in n]
        keys[model.name] = key
        parts.write_json(record, keys)
    if parts.zig() is None:
        built.missing["wasm"] = left_out[0] if left_out else "the bundles hold no WebAssembly: pip install 'tang-edge[c]'"


def _read_keys(record: Path) -> dict[str, str]:
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def characters(model: Path) -> list[str]:
    """The characters that a recognition network of PaddleOCR knows, from its own metadata; the space comes last.

    Raises:
        InputError: the file has no such list.
    """
    with needs_compiler():
        import onnx
    properties: Iterable[Any] = onnx.load(model, load_external_data=False).metadata_props
    text = next((p.value for p in properties if p.key == "character"), None)
    if text is None:
        raise InputError("the metadata holds no list of characters", where=str(model))
    return [*text.split("\n"), " "] if not text.endswith("\n") else [*text.split("\n")[:-1], " "]


def _description(site: Path, compiler: str | None, ort: dict[str, str] | None, built: Built) -> dict[str, Any]:
    def entry(model: parts.SiteModel) -> dict[str, Any]:
        bundle, onnx = (f"models/{model.name}{suffix}" for suffix in (".tang", ".onnx"))
        sizes = {"bundleBytes": (site / bundle).stat().st_size, "onnxBytes": (site / onnx).stat().st_size}
        return {"title": model.title, "bundle": bundle, "onnx": onnx, **sizes, "source": model.source}

    return {
        "version": __version__,
        "models": {m.name: entry(m) for m in parts.MODELS},
        "compiler": compiler,
        "ort": ort,
        "missing": built.missing,
    }
