"""The inputs themselves: shapes, determinism, and that seeds and kinds differ. No model is needed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

pytest.importorskip("PIL")
from tests.models import real_inputs


def _chain(model: str, feeds: Mapping[str, real_inputs.Array]) -> real_inputs.Array:
    """Stands in for the wake-word models: the right shapes, values that depend on the input."""
    x = feeds[real_inputs.INPUT_NAMES[model]]
    if model == "oww-melspec":
        frames = x.shape[1] // 160 - 3
        loud = np.abs(x[0, : frames * 160]).reshape(frames, 160).mean(axis=1)
        return np.repeat(loud[None, None, :, None], 32, axis=3).astype(np.float32)
    return np.repeat(x.mean(axis=(1, 2, 3))[:, None, None, None], 96, axis=3)


@pytest.mark.parametrize(("model", "size", "kind"), real_inputs.cases(), ids=lambda v: getattr(v, "label", v))
def test_inputs(model: str, size: real_inputs.Size, kind: real_inputs.Kind) -> None:
    def make(seed: int) -> real_inputs.Array:
        (array,) = real_inputs.inputs(model, size, kind=kind, seed=seed, runner=_chain).values()
        return array

    one, again, other = make(3), make(3), make(4)
    assert one.shape == size.shape and one.dtype == np.float32 and one.flags.c_contiguous
    assert np.isfinite(one).all()
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_every_model_is_complete() -> None:
    assert set(real_inputs.MODELS) == set(real_inputs.INPUT_NAMES)
    assert len({(model, size.label) for model, size, _ in real_inputs.cases()}) * 2 == len(real_inputs.cases())


def test_mel_windows_overlap_and_are_rescaled() -> None:
    calls = []

    def runner(model: str, feeds: Mapping[str, real_inputs.Array]) -> real_inputs.Array:
        calls.append(model)
        return _chain(model, feeds)

    windows = real_inputs.mel_frames(16, np.random.default_rng(0), runner)
    assert windows.shape == (16, 76, 32, 1) and calls == ["oww-melspec"]
    assert np.array_equal(windows[0, 8:], windows[1, :-8])
    assert windows.min() >= 2  # the stand-in's loudness is not negative, and the chain adds 2
