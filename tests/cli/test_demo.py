"""`tang-edge demo`: what is served and how, what is refused, what a build keeps. The site itself: tests/web/test_site.py."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import clikit
import onnx
import pytest
from onnx import TensorProto, helper

from tang_edge.cli import site_build, site_parts, site_server
from tang_edge.errors import DeviceError, InputError


@contextmanager
def _served(folder: Path, isolate: bool = False) -> Iterator[http.client.HTTPConnection]:
    uvicorn = pytest.importorskip("uvicorn", reason="the extra 'serve' is missing")
    listener = site_server.listen("127.0.0.1", 0)
    config = uvicorn.Config(site_server.application(folder, isolate), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=20)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def _get(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text("<title>site</title>")
    for name in ("a.wasm", "b.mjs", "c.tang", "d.webmanifest"):
        (tmp_path / name).write_bytes(bytes(range(100)))
    return tmp_path


def test_types_ranges_and_pages(folder: Path) -> None:
    with _served(folder) as connection:
        status, headers, body = _get(connection, "/")
        assert status == 200 and b"site" in body and headers["cache-control"] == "no-cache"
        assert "cross-origin-opener-policy" not in headers
        kinds = {name: _get(connection, f"/{name}")[1]["content-type"].split(";")[0] for name in ("a.wasm", "b.mjs", "c.tang")}
        assert kinds == {"a.wasm": "application/wasm", "b.mjs": "text/javascript", "c.tang": "application/octet-stream"}
        status, headers, body = _get(connection, "/c.tang", Range="bytes=10-19")
        assert (status, body) == (206, bytes(range(10, 20))) and headers["content-range"] == "bytes 10-19/100"
        status, headers, _ = _get(connection, "/c.tang")
        assert _get(connection, "/c.tang", **{"If-None-Match": headers["etag"]})[0] == 304
        assert _get(connection, "/missing")[0] == 404
        assert _get(connection, "/../secret")[0] == 404


def test_isolation_is_asked_for(folder: Path) -> None:
    with _served(folder, isolate=True) as connection:
        _, headers, _ = _get(connection, "/")
        assert (
            headers["cross-origin-opener-policy"] == "same-origin" and headers["cross-origin-embedder-policy"] == "require-corp"
        )


def test_a_port_in_use_is_told() -> None:
    with site_server.listen("127.0.0.1", 0) as taken, pytest.raises(InputError, match=r"cannot listen .* --port"):
        site_server.listen("127.0.0.1", taken.getsockname()[1])


def test_without_a_site_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(site_parts, "PACKAGE", tmp_path / "tang_edge")
    said = clikit.refused("demo", "--build", tmp_path / "out")
    assert "carries no demo site" in said and "checkout" in said


def test_a_wheel_brings_its_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell = tmp_path / "tang_edge" / "site" / "shell"
    shell.mkdir(parents=True)
    (shell / "index.html").write_text("pages")
    monkeypatch.setattr(site_parts, "PACKAGE", tmp_path / "tang_edge")
    kit = site_parts.find_kit()
    assert not kit.checkout
    kit.pages(tmp_path / "out")
    assert (tmp_path / "out" / "index.html").read_text() == "pages"
    with pytest.raises(InputError, match="no wheel of the compiler"):
        kit.compiler(tmp_path / "out")


def test_without_npm_a_checkout_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(site_parts.shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match="npm is not installed"):
        site_parts.Kit(tmp_path, checkout=True).pages(tmp_path / "out")


def test_a_failed_fetch_is_told_with_its_script(tmp_path: Path) -> None:
    script = tmp_path / "fetch.py"
    script.write_text("import sys; print('first', file=sys.stderr); sys.exit('no such package')")
    with pytest.raises(InputError, match=r"fetch\.py: no such package\. What was fetched is kept"):
        site_parts.run_tool([site_parts.sys.executable, str(script)])


def test_the_characters_of_a_network(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    model = helper.make_model(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", values[:1], values[1:]))
    path = tmp_path / "rec.onnx"
    onnx.save(model, path)
    with pytest.raises(InputError, match="no list of characters"):
        site_build.characters(path)
    for text in ("a\nb\nc", "a\nb\nc\n"):
        del model.metadata_props[:]
        model.metadata_props.add(key="character", value=text)
        onnx.save(model, path)
        assert site_build.characters(path) == ["a", "b", "c", " "]


def test_a_build_packs_once_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    models, site = tmp_path / "models", tmp_path / "site"
    models.mkdir()
    clikit.mlp(models / "toy.onnx")
    monkeypatch.setattr(site_parts, "MODELS", (site_parts.SiteModel("toy", "A toy", "here", {"n": (1, 4, 1)}),))
    kit = _Kit()
    monkeypatch.setattr(site_parts, "find_kit", lambda: kit)
    stages: list[str] = []
    built = site_build.build(site, models, lambda what, done, total: stages.append(what))
    assert built.made == ["toy"] and {"compiler", "ort"} <= built.missing.keys()
    facts = json.loads((site / "site.json").read_text())
    assert facts["models"]["toy"]["bundle"] == "models/toy.tang" and facts["compiler"] is None
    assert facts["models"]["toy"]["bundleBytes"] == (site / "models" / "toy.tang").stat().st_size
    assert "packing toy" in stages
    before = (site / "models" / "toy.tang").stat().st_mtime_ns
    assert site_build.build(site, models, lambda *_: None).made == []
    assert (site / "models" / "toy.tang").stat().st_mtime_ns == before


class _Kit:
    """Pages that are there; nothing that would be fetched from outside."""

    def pages(self, site: Path) -> None:
        (site / "index.html").write_text("pages")

    def fetch(self, names: tuple[str, ...], dest: Path, table: str = "models.toml") -> None:
        if "ort" in names[0]:
            raise InputError("not to be had")

    def compiler(self, site: Path) -> str:
        raise InputError("not to be had")
