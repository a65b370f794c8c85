/**
 * Where members are kept: by the SHA-256 of their content, so that bundles share them; and what was last read of each URL.
 * Entries appear whole or not at all, and the content of one never differs between writers, so tabs need no locks.
 */

export interface Store {
  readonly kind: "opfs" | "cache" | "none";
  /** Why it is not the one that was asked for, or not the best; "" where it is. */
  readonly why: string;
  get(key: string): Promise<Blob | null>;
  put(key: string, data: Uint8Array | Blob): Promise<void>;
  remove(key: string): Promise<void>;
  keys(): Promise<string[]>;
}

const NAME = "tang-edge-1";

class Opfs implements Store {
  readonly kind = "opfs";
  constructor(private readonly folder: FileSystemDirectoryHandle, readonly why: string) {}

  static async open(why: string): Promise<Store> {
    const root = await navigator.storage.getDirectory();
    const store = new Opfs(await root.getDirectoryHandle(NAME, { create: true }), why);
    // some browsers have the folder but, outside of workers, no way to write
    if (!("createWritable" in FileSystemFileHandle.prototype)) throw new Error("it cannot be written here");
    return store;
  }

  async get(key: string): Promise<Blob | null> {
    try {
      const file = await (await this.folder.getFileHandle(key)).getFile();
      return file.size > 0 ? file : null; // empty: being written, or the page was closed while it was
    } catch {
      return null;
    }
  }

  async put(key: string, data: Uint8Array | Blob): Promise<void> {
    const file = await this.folder.getFileHandle(key, { create: true });
    // what is written takes the file's place when it is closed, not before
    const writable = await file.createWritable();
    try {
      await writable.write(data as FileSystemWriteChunkType);
      await writable.close();
    } catch (error) {
      await writable.abort().catch(() => {});
      throw error;
    }
  }

  async remove(key: string): Promise<void> {
    await this.folder.removeEntry(key).catch(() => {});
  }

  async keys(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of (this.folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    return names;
  }
}

class Cached implements Store {
  readonly kind = "cache";
  constructor(private readonly cache: Cache, readonly why: string) {}

  static async open(why: string): Promise<Store> {
    return new Cached(await caches.open(NAME), why);
  }

  #url(key: string): string {
    return new URL(`/${NAME}/${key}`, location.href).href;
  }

  async get(key: string): Promise<Blob | null> {
    return (await (await this.cache.match(this.#url(key)).catch(() => undefined))?.blob()) ?? null;
  }

  async put(key: string, data: Uint8Array | Blob): Promise<void> {
    await this.cache.put(this.#url(key), new Response(data as BodyInit));
  }

  async remove(key: string): Promise<void> {
    await this.cache.delete(this.#url(key)).catch(() => false);
  }

  async keys(): Promise<string[]> {
    return (await this.cache.keys()).map((request) => request.url.slice(this.#url("").length));
  }
}

class Nowhere implements Store {
  readonly kind = "none";
  constructor(readonly why: string) {}
  async get(): Promise<null> { return null; }
  async put(): Promise<void> {}
  async remove(): Promise<void> {}
  async keys(): Promise<string[]> { return []; }
}

export function nowhere(why: string): Store {
  return new Nowhere(why);
}

/** A store whose entries are read, but that takes no more. */
export function readOnly(store: Store, why: string): Store {
  const { get, remove, keys } = store;
  return { kind: "none", why, put: async () => {}, get: get.bind(store), remove: remove.bind(store), keys: keys.bind(store) };
}

/** The store that was asked for; "auto" takes the best that there is. Never rejects: without storage it says why. */
export async function openStore(asked: "auto" | "opfs" | "cache" | "none"): Promise<Store> {
  if (asked === "none") return nowhere("as asked");
  const reasons: string[] = [];
  for (const [kind, make] of [["opfs", Opfs.open], ["cache", Cached.open]] as const) {
    if (asked !== "auto" && asked !== kind) continue;
    try {
      return await make(reasons.join("; "));
    } catch (error) {
      reasons.push(`${kind}: ${globalThis.isSecureContext ? String(error) : "the page is no secure context (https or localhost)"}`);
    }
  }
  return nowhere(reasons.join("; "));
}
