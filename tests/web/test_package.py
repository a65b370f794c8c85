"""The package as its users get it: packed, in a fresh Vite project, from a plain script tag, and the example of its README."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import bundles
import pytest

pytestmark = pytest.mark.device

VITE = "5.4.21"
QUIET = ["--no-audit", "--no-fund", "--loglevel=error"]
WEB = Path(__file__).resolve().parents[2] / "web"
README = WEB / "README.md"
PAGE = "<!doctype html><meta charset=utf-8><link rel=icon href=data:,>"
STRICT = {"strict": True, "target": "ES2022", "module": "ESNext", "moduleResolution": "Bundler", "noEmit": True}


@pytest.fixture(scope="module")
def packed(web_dist, tmp_path_factory) -> Path:
    """What `npm pack` makes."""
    folder = tmp_path_factory.mktemp("packed")
    npm = shutil.which("npm")
    made = subprocess.run(
        [npm, "pack", "--json", "--ignore-scripts", f"--pack-destination={folder}"], cwd=WEB, check=True, capture_output=True
    )
    return folder / json.loads(made.stdout)[0]["filename"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> bytes:
    """The model of the README's example: y = 2 x for x f32 [n, 3]."""
    return bundles.doubling(tmp_path_factory.mktemp("model") / "model.tang").read_bytes()


def example() -> str:
    """The code of the README."""
    (code,) = re.findall(r"```js\n(.*?)```", README.read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    return code.replace("main();", "main().then(() => (window.ended = true), (error) => (window.failed = String(error)));")


def told(page) -> list[str]:
    """What the page logs, from now on."""
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text))
    return lines


def check(page, lines) -> None:
    """The example ran to its end, with the right answer."""
    page.wait_for_function("window.ended || window.failed")
    assert page.evaluate("window.failed ?? null") is None
    assert any(line.startswith("webgpu") for line in lines), lines
    assert any(line.endswith("2, 4, 6, 8, 10, 12") for line in lines), lines


def test_contents(packed):
    with tarfile.open(packed) as archive:
        names = {n.removeprefix("package/") for n in archive.getnames()}
        assert {"package.json", "README.md", "LICENSE", "dist/index.js", "dist/index.d.ts"} <= names
        assert not [n for n in names if n.startswith(("src", "test", "node_modules"))]
        about = json.load(archive.extractfile("package/package.json"))
    assert "dependencies" not in about and about["license"] == "Apache-2.0" and about["type"] == "module"


def test_the_readmes_example_in_a_plain_script(page, server, packed, model, tmp_path):
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    server.mount("/some/where/tang-edge", tmp_path / "package" / "dist")
    server.put("/some/where/model.tang", model, "application/octet-stream")
    code = example().replace('from "tang-edge"', 'from "./tang-edge/index.js"')
    server.put(
        "/some/where/", f"<!doctype html><meta charset=utf-8><link rel=icon href=data:,><script type=module>{code}</script>"
    )
    lines = told(page)
    page.goto(server.url + "/some/where/")
    check(page, lines)


def test_a_fresh_vite_project(page, packed, model, tmp_path, server):
    npm = shutil.which("npm")
    (tmp_path / "package.json").write_text(json.dumps({"name": "app", "private": True, "type": "module"}))
    subprocess.run([npm, "install", *QUIET, str(packed), f"vite@{VITE}", "typescript@5.9.3"], cwd=tmp_path, check=True)
    (tmp_path / "index.html").write_text(f"{PAGE}<script type=module src=/main.ts></script>")
    (tmp_path / "main.ts").write_text("declare global { interface Window { ended: boolean; failed: string } }\n" + example())
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "model.tang").write_bytes(model)
    options = {
        "strict": True,
        "target": "ES2022",
        "module": "ESNext",
        "moduleResolution": "Bundler",
        "noEmit": True,
        "lib": ["ES2022", "DOM"],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["main.ts"]}))
    subprocess.run([npm, "exec", "--", "tsc", "-p", "."], cwd=tmp_path, check=True)
    subprocess.run([npm, "exec", "--", "vite", "build", "--base=./"], cwd=tmp_path, check=True, capture_output=True)
    server.mount("/app", tmp_path / "dist")
    lines = told(page)
    page.goto(server.url + "/app/index.html")
    check(page, lines)
