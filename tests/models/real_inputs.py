"""Deterministic inputs for the acceptance models: random ones, and ones that look like real use.

    for size in SIZES["ppocr-rec"]:
        feeds = inputs("ppocr-rec", size, kind="real", seed=0)      # {"x": float32 [1, 3, 48, 320]}

`kind="random"` draws from a distribution of about the right scale; `kind="real"` renders text with Pillow
(OCR, detection), samples joint angles within a robot's limits, or synthesises a speech-like waveform. The
wake-word models form a chain (waveform -> melspec -> embedding -> jarvis): their real inputs are made by
running the earlier models through a `Runner`, ONNX Runtime by default, so that the same chain can also be
driven by the runtime under test.

Needs NumPy and Pillow; ONNX Runtime only for the default runner. The same seed gives the same arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Array = NDArray[np.float32]
Feeds = dict[str, Array]
Kind = Literal["random", "real"]
Runner = Callable[[str, Mapping[str, Array]], Array]
"""`runner(model, feeds)` gives the first output of an acceptance model."""

SAMPLE_RATE = 16_000
MEL_WINDOW = 76
"""mel frames (10 ms each) that one embedding sees"""
MEL_STEP = 8
"""mel frames between two embeddings"""
EMBEDDINGS = 16
"""embeddings that the wake-word classifier sees"""


@dataclass(frozen=True, slots=True)
class Size:
    """One size of a model's inputs: a label for test ids, and the shape of its only input."""

    label: str
    shape: tuple[int, ...]


def _fixed(*shape: int) -> tuple[Size, ...]:
    return (Size("x".join(map(str, shape)), shape),)


INPUT_NAMES: dict[str, str] = {
    "go2-policy": "obs",
    "reachy-fk": "input",
    "reachy-fk-dynamic": "input",
    "reachy-ik": "input",
    "reachy-fk-int8": "input",
    "ppocr-cls": "x",
    "ppocr-det": "x",
    "ppocr-rec": "x",
    "ddddocr-det": "images",
    "oww-melspec": "input",
    "oww-embedding": "input_1",
    "oww-jarvis": "x.1",
}

SIZES: dict[str, tuple[Size, ...]] = {
    "go2-policy": _fixed(1, 45),
    "reachy-fk": _fixed(1, 7),
    "reachy-fk-dynamic": tuple(Size(f"batch{n}", (n, 7)) for n in (1, 3, 64)),
    "reachy-ik": _fixed(1, 6),
    "reachy-fk-int8": _fixed(1, 7),
    "ppocr-cls": (Size("48x192", (1, 3, 48, 192)),),
    "ppocr-det": tuple(Size(f"{h}x{w}", (1, 3, h, w)) for h, w in ((640, 640), (320, 480), (736, 1280))),
    "ppocr-rec": tuple(Size(f"48x{w}", (1, 3, 48, w)) for w in (320, 160, 480)),
    "ddddocr-det": (Size("416x416", (1, 3, 416, 416)),),
    "oww-melspec": (Size("1s", (1, SAMPLE_RATE)), Size("110ms", (1, 1760))),
    "oww-embedding": (Size("batch1", (1, MEL_WINDOW, 32, 1)), Size("batch4", (4, MEL_WINDOW, 32, 1))),
    "oww-jarvis": _fixed(1, EMBEDDINGS, 96),
}
"""The sizes of each acceptance model; the first is the usual one (benchmarks take it)."""

MODELS: tuple[str, ...] = tuple(SIZES)

# Scale of the random inputs: (mean, standard deviation) of a normal distribution. Images are normalised to
# about [-1, 1] before these nets see them; the melspec net expects samples on the int16 scale.
_SCALE: dict[str, tuple[float, float]] = {
    "oww-melspec": (0.0, 3000.0),
    "oww-embedding": (8.0, 1.5),
    "oww-jarvis": (0.0, 10.0),
    "ddddocr-det": (114.0, 60.0),
}


def inputs(model: str, size: Size | None = None, *, kind: Kind = "real", seed: int = 0, runner: Runner | None = None) -> Feeds:
    """Give the feeds of `model` (`{name: float32 array of size.shape}`) at `size` (the usual one if None).

    `runner` runs the earlier models of the wake-word chain; it is used only for real oww-embedding and
    oww-jarvis inputs. Raises KeyError for an unknown model.
    """
    size = size or SIZES[model][0]
    make = _random if kind == "random" else _REAL[model]
    array = make(_Ask(model, size.shape, np.random.default_rng(seed), seed, runner))
    if array.shape != size.shape or array.dtype != np.float32:
        raise AssertionError(f"{model}: made {array.dtype} {array.shape}, wanted float32 {size.shape}")
    return {INPUT_NAMES[model]: np.ascontiguousarray(array)}


def cases() -> list[tuple[str, Size, Kind]]:
    """Every (model, size, kind), in a fixed order: the parameters of a test."""
    kinds: tuple[Kind, ...] = ("random", "real")
    return [(model, size, kind) for model in MODELS for size in SIZES[model] for kind in kinds]


def models_dir() -> Path:
    """The folder of the fetched models: $TANG_EDGE_MODELS, else `models/` at the root of the checkout."""
    return Path(os.environ.get("TANG_EDGE_MODELS") or Path(__file__).resolve().parents[2] / "models")


def model_path(model: str) -> Path:
    """The file of an acceptance model, fetched or not."""
    return models_dir() / f"{model}.onnx"


@lru_cache(maxsize=4)
def _ort_session(model: str):  # type: ignore[no-untyped-def]  # onnxruntime is imported only when this is called
    import onnxruntime

    return onnxruntime.InferenceSession(str(model_path(model)), providers=["CPUExecutionProvider"])


def ort_runner(model: str, feeds: Mapping[str, Array]) -> Array:
    """The default `Runner`: ONNX Runtime on the CPU."""
    return np.asarray(_ort_session(model).run(None, dict(feeds))[0])


@dataclass(frozen=True, slots=True)
class _Ask:
    model: str
    shape: tuple[int, ...]
    rng: np.random.Generator
    seed: int
    runner: Runner | None


def _random(ask: _Ask) -> Array:
    mean, deviation = _SCALE.get(ask.model, (0.0, 1.0))
    return ask.rng.normal(mean, deviation, ask.shape).astype(np.float32)


# --- robots ------------------------------------------------------------------------------------------------


def _policy_observation(ask: _Ask) -> Array:
    """A quadruped's observation while it trots: angular velocity, gravity, command, 12 angles, 12 speeds,
    last action.
    """
    rng = ask.rng
    phase = rng.uniform(0, 2 * np.pi) + np.array([0, np.pi, np.pi, 0]).repeat(3)
    swing = np.tile([0.05, 0.35, 0.45], 4)
    tilt = rng.normal(0, 0.04, 2)
    gravity = np.array([tilt[0], tilt[1], -np.sqrt(1 - np.sum(tilt**2))])
    parts = (
        rng.normal(0, 0.15, 3),
        gravity,
        rng.uniform([-0.5, -0.3, -0.5], [1.0, 0.3, 0.5]),
        swing * np.sin(phase),
        0.05 * swing * 2 * np.pi * 2 * np.cos(phase),
        swing * np.sin(phase + 0.2) * 4,
    )
    return np.concatenate(parts).astype(np.float32).reshape(ask.shape)


def _joint_angles(ask: _Ask) -> Array:
    """Angles in radians of a yaw joint and six crank arms, around their rest position."""
    batch = ask.shape[0]
    yaw = ask.rng.uniform(-1.2, 1.2, (batch, 1))
    arms = ask.rng.uniform(-0.6, 0.6, (batch, 6)) + 0.5 * np.array([1, -1, 1, -1, 1, -1])
    return np.concatenate([yaw, arms], axis=1).astype(np.float32)


def _head_pose(ask: _Ask) -> Array:
    """Position in metres and roll, pitch, yaw in radians of a head within its reach."""
    reach = np.array([0.02, 0.02, 0.03, 0.4, 0.4, 0.9])
    return (ask.rng.uniform(-1, 1, ask.shape) * reach).astype(np.float32)


# --- pictures ----------------------------------------------------------------------------------------------

_WORDS = (
    "edge",
    "robot",
    "kernel",
    "2026",
    "open",
    "Tang",
    "stop",
    "7.25",
    "left",
    "door",
    "№ 42",
    "turn",
    "water",
)


def _font(pixels: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    # Pillow ships this outline font itself: no font of the system changes the picture.
    return ImageFont.load_default(size=pixels)


def _paper(height: int, width: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """An unevenly lit, slightly noisy background, [height, width, 3] in 0..255."""
    y, x = np.mgrid[0:height, 0:width]
    light = 235 - 25 * (x / width) - 15 * (y / height)
    return light[..., None] + rng.normal(0, 2.5, (height, width, 3))


def _phrase(rng: np.random.Generator, count: int) -> str:
    return " ".join(_WORDS[int(k)] for k in rng.integers(0, len(_WORDS), count))


def text_line(height: int, width: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One rendered line of text that fills most of a `height` x `width` picture; uint8 [height, width, 3]."""
    image = Image.fromarray(np.clip(_paper(height, width, rng), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    font = _font(int(height * 0.7))
    text = _phrase(rng, max(1, width // 70))
    while len(text) > 1 and draw.textlength(text, font=font) > width - 8:
        text = text[:-1].rstrip()
    draw.text((4, height * 0.08), text, fill=(25, 25, 40), font=font)
    return np.asarray(image)


def page(height: int, width: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A page with several lines of text and some ruled boxes; uint8 [height, width, 3]."""
    image = Image.fromarray(np.clip(_paper(height, width, rng), 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    y = 12
    while y < height - 40:
        size = int(rng.integers(16, 36))
        left = int(rng.integers(8, max(9, width // 5)))
        draw.text((left, y), _phrase(rng, max(1, width // 160)), fill=(20, 20, 35), font=_font(size))
        y += int(size * rng.uniform(1.5, 2.6))
    for _ in range(3):
        x0, y0 = int(rng.integers(0, width // 2)), int(rng.integers(0, height // 2))
        draw.rectangle((x0, y0, x0 + width // 3, y0 + height // 5), outline=(90, 60, 40), width=2)
    return np.asarray(image)


def _nchw(picture: NDArray[np.uint8], mean: tuple[float, ...], deviation: tuple[float, ...]) -> Array:
    scaled = (picture.astype(np.float64) / 255 - np.array(mean)) / np.array(deviation)
    return scaled.transpose(2, 0, 1)[None].astype(np.float32)


_HALF = (0.5, 0.5, 0.5)
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def _line_input(ask: _Ask) -> Array:
    picture = text_line(ask.shape[2], ask.shape[3], ask.rng)
    if ask.model == "ppocr-cls" and ask.seed % 2:
        picture = picture[::-1, ::-1]  # upside down is the other class
    return _nchw(picture, _HALF, _HALF)


def _page_input(ask: _Ask) -> Array:
    return _nchw(page(ask.shape[2], ask.shape[3], ask.rng), *_IMAGENET)


def _captcha_input(ask: _Ask) -> Array:
    """A few big characters on a busy background, letterboxed with grey 114, blue first, 0..255 as the
    detector wants.
    """
    side, rng = ask.shape[2], ask.rng
    height = side * 5 // 8
    image = Image.fromarray(np.clip(_paper(height, side, rng) - 40, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for letter in "TANG"[: 2 + ask.seed % 3]:
        at = (int(rng.integers(0, side - 90)), int(rng.integers(0, height - 90)))
        ink = tuple(int(v) for v in rng.integers(0, 160, 3))
        draw.text(at, letter, fill=ink, font=_font(int(rng.integers(48, 84))))
    boxed = np.full((side, side, 3), 114, np.uint8)
    boxed[:height] = np.asarray(image)
    return boxed[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32)


# --- speech ------------------------------------------------------------------------------------------------


def speech_like(samples: int, rng: np.random.Generator) -> Array:
    """A waveform with the build of speech at 16 kHz on the int16 scale, float32 [samples].

    A glottal pulse train with a wandering pitch goes through three resonances that move from syllable to
    syllable; between the vowels there is noise (fricatives) and silence.
    """
    t = np.arange(samples) / SAMPLE_RATE
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * t + rng.uniform(0, 6)) + 8 * np.sin(2 * np.pi * 3.1 * t)
    turns = np.cumsum(pitch) / SAMPLE_RATE
    syllable = (t * 4.5 + rng.uniform()).astype(int)
    formants = rng.uniform([300, 900, 2300], [800, 2200, 3000], (int(syllable.max()) + 1, 3))
    voice = np.zeros(samples)
    for harmonic in range(1, 30):
        frequency = harmonic * pitch
        gain = sum(1 / (1 + ((frequency - formants[syllable, k]) / 120) ** 2) for k in range(3))
        voice += gain / harmonic**0.5 * np.sin(2 * np.pi * harmonic * turns)
    envelope = np.clip(np.sin(np.pi * ((t * 4.5) % 1)), 0, 1) ** 0.7
    hiss = np.diff(rng.normal(0, 1, samples + 1)) * np.clip(np.sin(2 * np.pi * 1.7 * t), 0, 1) ** 8
    sound = 2500 * voice * envelope + 700 * hiss + rng.normal(0, 15, samples)
    return np.round(np.clip(sound, -32768, 32767)).astype(np.float32)


def _waveform(ask: _Ask) -> Array:
    return np.stack([speech_like(ask.shape[1], ask.rng) for _ in range(ask.shape[0])])


def mel_frames(windows: int, rng: np.random.Generator, runner: Runner | None) -> Array:
    """Windows of mel features as the embedding model takes them: float32 [windows, 76, 32, 1]."""
    frames = MEL_WINDOW + (windows - 1) * MEL_STEP
    wave = speech_like((frames + 4) * (SAMPLE_RATE // 100), rng)[None]
    # The published chain scales the melspec net's output so that it matches the front end of the embedding's
    # training.
    mel = (runner or ort_runner)("oww-melspec", {INPUT_NAMES["oww-melspec"]: wave}).reshape(-1, 32) / 10 + 2
    return np.stack([mel[k * MEL_STEP : k * MEL_STEP + MEL_WINDOW, :, None] for k in range(windows)]).astype(np.float32)


def _mel_input(ask: _Ask) -> Array:
    return mel_frames(ask.shape[0], ask.rng, ask.runner)


def _embedding_input(ask: _Ask) -> Array:
    windows = mel_frames(ask.shape[1], ask.rng, ask.runner)
    run = ask.runner or ort_runner
    name = INPUT_NAMES["oww-embedding"]
    vectors = [run("oww-embedding", {name: window[None]}).reshape(96) for window in windows]
    return np.stack(vectors)[None].astype(np.float32)


_REAL: dict[str, Callable[[_Ask], Array]] = {
    "go2-policy": _policy_observation,
    "reachy-fk": _joint_angles,
    "reachy-fk-dynamic": _joint_angles,
    "reachy-fk-int8": _joint_angles,
    "reachy-ik": _head_pose,
    "ppocr-cls": _line_input,
    "ppocr-rec": _line_input,
    "ppocr-det": _page_input,
    "ddddocr-det": _captcha_input,
    "oww-melspec": _waveform,
    "oww-embedding": _mel_input,
    "oww-jarvis": _embedding_input,
}
