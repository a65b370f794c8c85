"""Pictures as inputs: layouts, channels, sizes that the picture decides, sources of a page and of a worker."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import webkit
from onnx import TensorProto, helper

pytestmark = pytest.mark.device

# name: dtype, shape; each has an output of its own, which is the input
PORTS = {
    "planar": (TensorProto.FLOAT, [1, 3, 5, 6]),
    "pixels": (TensorProto.FLOAT, ["n", 5, 6, 3]),
    "luma": (TensorProto.FLOAT, [1, 1, 5, 6]),
    "alpha": (TensorProto.FLOAT, [1, 5, 6, 4]),
    "bytes": (TensorProto.UINT8, [3, 5, 6]),
    "free": (TensorProto.FLOAT, [1, 3, "h", "w"]),
    "line": (TensorProto.FLOAT, [1, 3, 4, "l"]),
    "vector": (TensorProto.FLOAT, [5]),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A model that gives back what it gets."""
    from tang_edge.compiler import pack
    from tang_edge.onnx_in.dims import DimRange

    folder = tmp_path_factory.mktemp("images")
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in PORTS]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in PORTS.items()]
    outputs = [helper.make_tensor_value_info(f"{name}_out", kind, shape) for name, (kind, shape) in PORTS.items()]
    model = helper.make_model(helper.make_graph(nodes, "same", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, folder / "same.onnx")
    dims = {"n": DimRange(1, 2), "h": DimRange(8, 32, 8), "w": DimRange(8, 32, 8), "l": DimRange(4, 40, 4)}
    pack(str(folder / "same.onnx"), folder / "same.tang", targets=["webgpu"], dims=dims, remember=False)
    return folder / "same.tang"


@pytest.fixture(scope="module")
def kit(chromium, web_dist):
    """A page with the package."""
    with webkit.opened(chromium, web_dist) as made:
        yield made


# 6 x 5 pixels: red grows to the right, green downwards
SETUP = """
const data = (width, height, alpha = 255) => {
  const made = new ImageData(width, height);
  for (let y = 0, i = 0; y < height; y++) for (let x = 0; x < width; x++, i += 4) {
    made.data.set([Math.round(255 * x / (width - 1)), Math.round(255 * y / (height - 1)), 64, alpha], i);
  }
  return made;
};
const drawn = (width, height) => {
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(data(width, height), 0, 0);
  return canvas;
};
"""
REST = """
const zero = (...shape) => ({ dtype: "f32", shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) });
const rest = {
  planar: zero(1, 3, 5, 6), pixels: zero(1, 5, 6, 3), luma: zero(1, 1, 5, 6), alpha: zero(1, 5, 6, 4),
  bytes: { dtype: "u8", shape: [3, 5, 6], data: new Uint8Array(90) }, free: zero(1, 3, 8, 8),
  line: zero(1, 3, 4, 4), vector: zero(5),
};
"""


def run(kit, bundle, sources: dict[str, str], *, worker: bool = False):
    """The outputs for inputs given as JavaScript; the others are zeros. Or the error's name and message."""
    given = ", ".join(f"{name}: {source}" for name, source in sources.items())
    code = f"""async (tang, url) => {{
      {SETUP} {REST}
      const model = globalThis.model ??= await tang.open(url);
      try {{
        return tang.encoded(await model.run({{ ...rest, {given} }}));
      }} catch (e) {{
        return {{ error: e.name, message: e.message }};
      }}
    }}"""
    result = kit.perform(code, kit.put(bundle), worker=worker)
    return result if "error" in result else {k.removesuffix("_out"): v for k, v in webkit.decoded(result).items()}


def picture(width: int, height: int) -> np.ndarray:
    """The same pixels, height by width by RGB."""
    x, y = np.meshgrid(np.arange(width) / (width - 1), np.arange(height) / (height - 1))
    return np.stack([np.round(255 * x), np.round(255 * y), np.full_like(x, 64)], -1)


@pytest.mark.parametrize("worker", [False, True])
def test_layouts_and_channels(kit, bundle, worker):
    names = ("planar", "pixels", "luma", "alpha", "bytes")
    have = run(kit, bundle, {n: "data(6, 5)" for n in names}, worker=worker)
    rgb = picture(6, 5)
    np.testing.assert_allclose(have["planar"][0], rgb.transpose(2, 0, 1) / 255, atol=1e-6)
    np.testing.assert_allclose(have["pixels"][0], rgb / 255, atol=1e-6)
    np.testing.assert_allclose(have["luma"][0, 0], rgb @ [0.299, 0.587, 0.114] / 255, atol=1e-6)
    np.testing.assert_allclose(have["alpha"][0, ..., 3], 1)
    np.testing.assert_array_equal(have["bytes"], rgb.transpose(2, 0, 1).astype(np.uint8))


def test_sources_of_a_page(kit, bundle):
    rgb = picture(6, 5).transpose(2, 0, 1) / 255
    for source in (
        "drawn(6, 5)",
        "await createImageBitmap(data(6, 5))",
        "new VideoFrame(drawn(6, 5), { timestamp: 0 })",
        "Object.assign(document.createElement('canvas'), { width: 6, height: 5 })",
        "await (async () => { const i = new Image(); i.src = URL.createObjectURL(await drawn(6, 5).convertToBlob()); "
        "await i.decode(); return i; })()",
    ):
        have = run(kit, bundle, {"planar": source})
        assert "error" not in have, have
        np.testing.assert_allclose(have["planar"][0], 0 * rgb if "createElement" in source else rgb, atol=2 / 255)


def test_the_browser_resizes(kit, bundle):
    have = run(kit, bundle, {"planar": "data(60, 50)", "bytes": "drawn(12, 10)"})
    wanted = picture(6, 5).transpose(2, 0, 1)
    np.testing.assert_allclose(have["planar"][0] * 255, wanted, atol=45)  # a coarse gradient, averaged
    np.testing.assert_allclose(have["bytes"].astype(float), wanted, atol=45)
    assert np.all(np.diff(have["planar"][0, 0], axis=1) > 0) and np.all(np.diff(have["planar"][0, 1], axis=0) > 0)


@pytest.mark.parametrize(
    ("width", "height", "free", "line"),
    [(16, 24, (24, 16), 4), (17, 21, (24, 16), 4), (500, 2, (8, 32), 40), (40, 20, (24, 32), 8)],
)
def test_the_picture_decides_free_sizes(kit, bundle, width, height, free, line):
    have = run(kit, bundle, {"free": f"data({width}, {height})", "line": f"data({width}, {height})"})
    assert have["free"].shape == (1, 3, *free)
    assert have["line"].shape == (1, 3, 4, line)


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("vector", "data(6, 5)", "takes no picture"),
        ("planar", "{}", "neither an array nor"),
        ("planar", "document.createElement('video')", "no pixels"),
        ("planar", "new Image()", "no pixels"),
        ("planar", "(() => { const f = new VideoFrame(drawn(6, 5), { timestamp: 0 }); f.close(); return f; })()", "picture"),
    ],
)
def test_what_is_no_picture(kit, bundle, name, source, words):
    have = run(kit, bundle, {name: source})
    assert have.get("error") == "InputError" and words in have["message"], have
