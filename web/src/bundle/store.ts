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

async function opfs(why: string): Promise<Store> {
  const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(NAME, { create: true });
  // some browsers have the folder but, outside of workers, no way to write
  if (!("createWritable" in FileSystemFileHandle.prototype)) throw new Error("cannot be written");
  return {
    kind: "opfs",
    why,
    async get(key) {
      try {
        const file = await (await folder.getFileHandle(key)).getFile();
        return file.size > 0 ? file : null; // empty: being written, or the page was closed while it was
      } catch {
        return null;
      }
    },
    async put(key, data) {
      // what is written takes the file's place when it is closed, not before
      const file = await (await folder.getFileHandle(key, { create: true })).createWritable();
      try {
        await file.write(data as FileSystemWriteChunkType);
        await file.close();
      } catch (error) {
        await file.abort().catch(() => {});
        throw error;
      }
    },
    async remove(key) {
      await folder.removeEntry(key).catch(() => {});
    },
    async keys() {
      const names: string[] = [];
      for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
      return names;
    },
  };
}

async function cached(why: string): Promise<Store> {
  const cache = await caches.open(NAME), place = new URL(`/${NAME}/`, location.href).href;
  return {
    kind: "cache",
    why,
    get: async (key) => (await (await cache.match(place + key).catch(() => null))?.blob()) ?? null,
    put: (key, data) => cache.put(place + key, new Response(data as BodyInit)),
    remove: async (key) => void (await cache.delete(place + key).catch(() => {})),
    keys: async () => (await cache.keys()).map((request) => request.url.slice(place.length)),
  };
}

export function nowhere(why: string): Store {
  return { kind: "none", why, get: async () => null, put: async () => {}, remove: async () => {}, keys: async () => [] };
}

/** A store whose entries are read, but that takes no more. */
export function readOnly(store: Store, why: string): Store {
  return { ...store, ...nowhere(why), get: store.get };
}

/** The store that was asked for; "auto" takes the best that there is. Never rejects: without storage it says why. */
export async function openStore(asked: "auto" | "opfs" | "cache" | "none"): Promise<Store> {
  if (asked === "none") return nowhere("as asked");
  const reasons: string[] = [];
  for (const [kind, make] of [["opfs", opfs], ["cache", cached]] as const) {
    if (asked !== "auto" && asked !== kind) continue;
    try {
      return await make(reasons.join("; "));
    } catch (error) {
      reasons.push(`${kind}: ${globalThis.isSecureContext ? String(error) : "needs https or localhost"}`);
    }
  }
  return nowhere(reasons.join("; "));
}
