/** load(): from an address to a model on a device. */

import type { LoadOptions, Progress, Report } from "./api.js";
import { Bundle } from "./bundle/bundle.js";
import type { Plan } from "./bundle/format.js";
import { openStore, type Store } from "./bundle/store.js";
import { choose, measure, type Candidate, type Choice } from "./choose.js";
import type { Engine } from "./engine.js";
import { DeviceError } from "./errors.js";
import { imageReader } from "./images.js";
import { Model } from "./runtime/model.js";
import { LiveReport } from "./runtime/report.js";

/** A bundle larger than this is not put on a second device to see whether that is faster. */
const MEASURED_BYTES = 512 * 2 ** 20;

/** Opens a bundle and puts it on a device; see LoadOptions. */
export async function load(from: string | URL | Blob, options: LoadOptions = {}): Promise<Model> {
  const loading = new AbortController(), { signal } = options;
  const stop = (): void => loading.abort(signal!.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  try {
    return await new Loader(options, loading.signal).load(from);
  } finally {
    signal?.removeEventListener("abort", stop); // a model that is there does not go when the signal aborts
  }
}

class Loader {
  #bundle!: Bundle;
  #plan!: Plan;
  #store!: Store;
  #choice!: Choice;
  #report!: LiveReport;
  #rest: Candidate[] = [];
  readonly #considered: { device: string; taken: boolean; why: string }[] = [];
  readonly #milliseconds: Record<string, number> = {};

  constructor(private readonly options: LoadOptions, private readonly signal: AbortSignal) {}

  async load(from: string | URL | Blob): Promise<Model> {
    const start = performance.now();
    this.signal.throwIfAborted();
    this.#tell("manifest", 0, 1);
    this.#bundle = await this.#timed("manifest", () => Bundle.open(from, { ...(this.options.cache && { cache: this.options.cache }), signal: this.signal }));
    this.#tell("manifest", 1, 1);
    this.#bundle.onWeights = (done, total) => this.#tell("weights", done, total);
    this.#plan = await this.#timed("plan", () => this.#bundle.plan());
    this.#store = await this.#memory();
    this.#choice = await choose(this.#plan, this.#bundle.id, this.options.device ?? "auto", this.#store);
    this.#considered.push(...this.#choice.passed);
    this.#rest = [...this.#choice.candidates];
    const engine = await this.#timed("device", () => this.#open(null));
    this.#report = new LiveReport(this.#first(engine!));
    const model = new Model(this.#parts(engine!));
    try {
      await this.#finish(model);
    } catch (error) {
      model.dispose();
      throw error;
    }
    this.#milliseconds.load = performance.now() - start;
    this.#update();
    this.#tell("ready", 1, 1);
    this.#measureLater(model);
    return model;
  }

  async #finish(model: Model): Promise<void> {
    const aborted = new Promise<never>((_, reject) => this.signal.addEventListener("abort", () => reject(this.signal.reason)));
    aborted.catch(() => {});
    this.signal.throwIfAborted();
    if (this.options.dims) await Promise.race([model.prepare(this.options.dims), aborted]);
    if (this.options.verify === "before") await Promise.race([model.certified, aborted]);
    this.signal.throwIfAborted();
  }

  /** Where measurements are remembered: with the bundle's members, or (for a file of the page) by themselves. */
  async #memory(): Promise<Store> {
    const { cache = "auto" } = this.options, { store } = this.#bundle;
    return store.kind === "none" && cache !== "none" ? openStore(cache) : store;
  }

  #parts(engine: Engine): ConstructorParameters<typeof Model>[0] {
    return {
      name: this.#bundle.manifest.name,
      plan: this.#plan,
      engine,
      report: this.#report,
      golden: (file) => this.#bundle.tensors(file),
      verify: this.options.verify ?? "background",
      next: (failure) => this.#open(failure),
      readImage: imageReader(this.#plan),
      onSelfTest: (done, total) => this.#tell("self-test", done, total),
    };
  }

  /** The next candidate that opens. `failure` is what became of the one before; null is returned where none is left after one. */
  async #open(failure: DeviceError | null): Promise<Engine | null> {
    let last = failure;
    if (failure) this.#considered.push({ ...this.#considered.pop()!, taken: false, why: failure.message });
    for (let candidate = this.#rest.shift(); candidate; candidate = this.#rest.shift()) {
      const device = `${candidate.device.kind} ${candidate.variant.id}`;
      try {
        const engine = await this.#engine(candidate);
        this.#considered.push({ device: `${device} on ${engine.adapter}`, taken: true, why: candidate.why });
        if (failure) this.#report.set(this.#where(engine));
        return engine;
      } catch (error) {
        this.signal.throwIfAborted();
        if (!(error instanceof DeviceError)) throw error;
        this.#considered.push({ device, taken: false, why: error.message });
        last = error;
      }
    }
    if (failure) return null;
    const why = this.#considered.map((c) => `${c.device}: ${c.why}`).join("; ");
    throw new DeviceError(`no variant of the bundle runs here: ${why}`, this.#bundle.manifest.name, "Pack it with --target browser", last ? { cause: last } : undefined);
  }

  #engine({ device, variant }: Candidate): Promise<Engine> {
    return device.open({
      plan: this.#plan,
      variant,
      weights: this.#bundle,
      threads: this.options.threads ?? 0,
      signal: this.signal,
      onPipeline: (done, total) => this.#tell("pipelines", done, total),
    });
  }

  #first(engine: Engine): Report {
    const { manifest } = this.#bundle;
    const selfTest = { outcome: "running", why: "", vectors: 0, runs: 0, worst: 0 } as const;
    return { model: manifest.name, selfTest, demotions: [], measured: this.#choice.measured, recoveries: 0, ...this.#where(engine), ...this.#state() };
  }

  #where(engine: Engine): Pick<Report, "device" | "adapter" | "variant" | "threads" | "considered"> {
    return { device: engine.kind, adapter: engine.adapter, variant: engine.variant.id, threads: engine.threads, considered: [...this.#considered] };
  }

  #state(): Pick<Report, "storage" | "bytes" | "milliseconds"> {
    return { storage: this.#bundle.storage, bytes: { ...this.#bundle.counters }, milliseconds: { ...this.#milliseconds } };
  }

  #update(): void {
    this.#report.set(this.#state());
  }

  /** Once the model is certified, and where another device could run it too: which is faster, for the next time. */
  #measureLater(model: Model): void {
    const { key } = this.#choice, other = this.#rest.find((c) => c.device.kind !== model.engine.kind);
    const bytes = [...this.#bundle.manifest.files.values()].reduce((sum, f) => sum + f.bytes, 0);
    const worth = key !== null && other && this.#store.kind !== "none" && this.#plan.golden.length > 0 && bytes < MEASURED_BYTES;
    void model.certified.then(async () => {
      this.#update();
      if (!worth || model.engine.kind === other.device.kind) return;
      const measured = await measure(this.#plan, (file) => this.#bundle.tensors(file), model.engine, () => this.#engine(other), this.#store, key);
      this.#report.set({ measured });
      this.#update();
    }).catch(() => this.#update()); // no measurement: the next load tries again
  }

  async #timed<T>(what: string, work: () => Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await work();
    } finally {
      this.#milliseconds[what] = performance.now() - start;
    }
  }

  #tell(stage: Progress["stage"], done: number, total: number): void {
    this.options.onProgress?.({ stage, done, total });
  }
}
