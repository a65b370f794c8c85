"""The example of the README runs, its targets are those of the compiler, and the links of the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import clikit
import pytest

from tang_edge.schedule.limits import TARGETS

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *map("docs/{}.md".format, ("bundle", "cli", "float-semantics")),
)


def _readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("needs_c")
def test_the_python_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    node = clikit.helper.make_node("Relu", ["x"], ["y"], "relu")
    shape = [1, 3, 48, 192]
    clikit.save(tmp_path / "model.onnx", [node], [("x", shape)], [("y", shape)])
    assert clikit.call("pack", "model.onnx", "--target", "cpu-generic").exit_code == 0
    (code,) = re.findall(r"```python\n(.*?)```", _readme(), re.S)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "self-test  passed" in printed and "(1, 3, 48, 192)" in printed


def test_the_targets():
    table = _readme().split("## Targets")[1].split("##")[0]
    first = re.findall(r"^\| (.*?) \|", table, re.M)[1:]
    named = {n for cell in first for n in re.findall(r"`([^`]+)`", cell)}
    full = {f"cpu-x86-64{n}" if n.startswith("-v") else n for n in named} - {"pack --target"}
    assert full == set(TARGETS)
    for name in ("laptop", "browser", "robot-soc"):
        row = next(line for line in table.splitlines() if line.startswith(f"| `{name}`"))
        assert re.findall(r"`([^`]+)`", row.split("|")[2]) == list(TARGETS[name].classes)


@pytest.mark.parametrize("page", PAGES)
def test_links(page):
    path = ROOT / page
    for link in re.findall(r"\]\(([^)#]+?)\)", path.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_files_that_the_architecture_names():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`((?:[a-z0-9_]+/)+[a-z_0-9]*\.(?:py|h|te))`", text)):
        assert (ROOT / "tang_edge" / name).exists() or (ROOT / name).exists(), name
