// The contestants of benchmarks/web.py in one page. `window.bench` has the same calls for each:
//   open(side, model, feeds)   load and run once; milliseconds from the first import to the first result
//   time(side, runs, feed)     milliseconds of each run, outputs brought back to JavaScript each time; runs shorter than what the
//                              page's clock can tell are timed together
//   outputs(side)              the arrays of the last run, in the model's order, as base64 of their bytes
//   close(side)
// Runtimes are imported by `open`, so that a fresh page measures a cold start, downloads included.

const sides = new Map();
const CLOCK = 2; // milliseconds; a page's clock has steps of 0.1
const MOST_TOGETHER = 64;

const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
function encode(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

/** Feeds come as [{name: {shape, data: base64 of float32}}]. */
const unpack = (feeds) =>
  feeds.map((feed) => Object.fromEntries(Object.entries(feed).map(([k, v]) => [k, { shape: v.shape, data: new Float32Array(decode(v.data).buffer) }])));

async function openTang(device, model, threads) {
  const { load } = await import("/tang/index.js");
  const session = await load(`/bundles/${model}.tang`, { device, verify: "off", threads });
  if (session.report.device !== device) throw new Error(`runs on ${session.report.device}`);
  return {
    run: async (feed) => {
      const inputs = Object.fromEntries(Object.entries(feed).map(([k, v]) => [k, { dtype: "f32", shape: v.shape, data: v.data }]));
      return Object.values(await session.run(inputs)).map((t) => ({ shape: t.shape, data: t.data }));
    },
    about: session.report.adapter,
    close: () => session.dispose(),
  };
}

async function openOrt(provider, model, threads) {
  // the build that its documentation names for each provider
  const ort = await import(provider === "webgpu" ? "/ort/ort.webgpu.min.mjs" : "/ort/ort.wasm.min.mjs");
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmPaths = "/ort/";
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(`/models/${model}.onnx`, { executionProviders: [provider], graphOptimizationLevel: "all" });
  return {
    run: async (feed) => {
      const inputs = Object.fromEntries(Object.entries(feed).map(([k, v]) => [k, new ort.Tensor("float32", v.data, v.shape)]));
      const outputs = await session.run(inputs);
      const found = [];
      for (const name of session.outputNames) found.push({ shape: outputs[name].dims, data: await outputs[name].getData() });
      return found;
    },
    about: provider,
    close: () => session.release(),
  };
}

const openers = {
  "tang-webgpu": (model, threads) => openTang("webgpu", model, threads),
  "tang-wasm": (model, threads) => openTang("wasm", model, threads),
  "ort-webgpu": (model, threads) => openOrt("webgpu", model, threads),
  "ort-wasm": (model, threads) => openOrt("wasm", model, threads),
};

window.bench = {
  async open(name, model, feeds, threads = 1) {
    const unpacked = unpack(feeds);
    const start = performance.now();
    const side = await openers[name](model, threads);
    const loaded = performance.now() - start;
    const last = await side.run(unpacked[0]);
    const first = performance.now() - start;
    sides.set(name, { ...side, feeds: unpacked, last });
    return { loaded, first, about: side.about };
  },
  async time(name, runs, feed) {
    const side = sides.get(name);
    const found = [];
    for (let i = 0; i < runs; ++i) {
      let count = 0, spent = 0;
      const start = performance.now();
      do {
        side.last = await side.run(side.feeds[feed]);
        spent = performance.now() - start;
      } while (++count < MOST_TOGETHER && spent < CLOCK);
      found.push(spent / count);
    }
    return found;
  },
  outputs(name) {
    return sides.get(name).last.map(({ shape, data }) => ({
      shape: [...shape].map(Number),
      type: data.constructor.name,
      data: encode(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)),
    }));
  },
  async close(name) {
    await sides.get(name)?.close();
    sides.delete(name);
  },
};
