"""Records: the file format, and their effect on the order of alternates."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tang_edge import compiler
from tang_edge.bundle.read import open_bundle
from tang_edge.errors import InputError
from tang_edge.ir import scalar, tensor
from tang_edge.ir.dtype import f32
from tang_edge.schedule import records


def _program() -> tensor.Program:
    b = tensor.Builder("mlp")
    b.input("x", f32, (8, 64))
    b.constant("w", np.ones((64, 32), np.float32))
    r = scalar.fresh(64)
    b.bind("y", (8, 32), lambda i, j: scalar.reduce(scalar.sum_of(f32), [r], b.read("x", [i, r]) * b.read("w", [r, j])))
    b.output("y")
    return b.build()


def _tags(path) -> list[str]:
    with open_bundle(path) as bundle:
        return [a.tag for a in bundle.plan.variants[0].steps[0].alternates]


def test_a_record_moves_an_alternate_to_the_front(tmp_path) -> None:
    plain = tmp_path / "plain.tang"
    compiler.pack_program(_program(), plain, targets=("webgpu",), remember=False)
    before = _tags(plain)
    with open_bundle(plain) as bundle:
        key = json.loads(bundle.text("explain.json"))["keys"]["y"]
    chosen = before[-1]
    file = tmp_path / "records.json"
    row = {"key": key, "class": "browser", "tag": chosen, "source": "a test"}
    other = {"key": key, "class": "laptop", "tag": before[0], "source": "a test"}
    file.write_text(json.dumps({"version": 1, "records": [row, other]}))
    path = tmp_path / "measured.tang"
    compiler.pack_program(_program(), path, targets=("webgpu",), records=records.load(file), remember=False)
    after = _tags(path)
    assert after[0] == chosen and sorted(after) == sorted(before) and before != after
    with open_bundle(path) as bundle:
        assert json.loads(bundle.text("records.json"))["records"][0]["source"] == "a test"


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"version": 2, "records": []}',
        '{"version": 1, "records": [{"key": "x"}]}',
        '{"version": 1, "records": [{"key": "x", "class": "moon", "tag": "t", "source": "s"}]}',
    ],
)
def test_a_malformed_file_is_an_input_error(tmp_path, text: str) -> None:
    file = tmp_path / "records.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"records\.json"):
        records.load(file)
