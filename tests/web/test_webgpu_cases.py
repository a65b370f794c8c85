"""The case files on the WebGPU runtime of the package: every set of inputs, by every alternate of the kernels, in one page."""

from __future__ import annotations

import judging
import numpy as np
import pytest
import webkit

from tang_edge.errors import TargetLimit

pytestmark = pytest.mark.device


loader = judging.case_loader()
CASES = loader.cases()

RUN = """async (tang, [url, runs]) => {
  const model = await tang.open(url), steps = model.engine.variant.steps, results = [];
  const walk = (list) => list.flatMap((s) => [s, ...walk(s.then ?? []), ...walk(s.orelse ?? []), ...walk(s.body ?? [])]);
  const all = walk(steps), most = Math.max(1, ...all.map((s) => s.alternates?.length ?? 1));
  for (let alternate = 0; alternate < most; alternate++) {
    for (const s of all.filter((s) => s.kind === "step")) {
      await model.engine.choose(s.index, Math.min(alternate, s.alternates.length - 1));
    }
    for (const inputs of runs) results.push(tang.encoded(await model.run(tang.decoded(inputs))));
  }
  model.dispose();
  return results;
}"""


@pytest.fixture(scope="module")
def results(chromium, web_dist):
    """By case: the outputs of every run by every alternate, or why there are none."""
    found = {}
    with webkit.opened(chromium, web_dist) as kit:
        for case in CASES:
            if loader.any_wide(case.program):
                continue
            try:
                url = kit.put(loader.bundle_of(case.name, "webgpu"))
            except TargetLimit as error:
                found[case.name] = error
                continue
            try:
                found[case.name] = kit.perform(RUN, [url, [webkit.encoded(x) for x in case.runs]])
            except Exception as error:  # playwright's; told by the case it belongs to
                found[case.name] = error
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_values(case, results):
    if case.name not in results:
        pytest.skip("WGSL has no such dtype")
    made = results[case.name]
    if isinstance(made, TargetLimit) and "64-bit integers" in str(made):
        pytest.skip(str(made))
    if isinstance(made, Exception):
        raise made
    rtol = case.rtol(exact=False)
    for k, outputs in enumerate(made):
        got = {name: loader._ends(a) for name, a in webkit.decoded(outputs).items()}
        for name, want in case.expected(case.runs[k % len(case.runs)]).items():
            assert got[name].shape == want.shape, name
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(got[name], want, err_msg=f"{name}, alternate {k // len(case.runs)}")
                continue
            finite = np.abs(want[np.isfinite(want)])
            message = f"{name}, alternate {k // len(case.runs)}"
            np.testing.assert_allclose(got[name].astype(np.float64), want, rtol, rtol * finite.max(initial=0), err_msg=message)
