/// <reference lib="webworker" />
/** Keeps the site usable without a network: its own files from the start, vendored runtimes and samples once they were used.
 *  Bundles (.tang) are left alone: the runtime keeps their checked parts itself. */

declare const SHELL_FILES: string[];
declare const SHELL_VERSION: string;
declare const self: ServiceWorkerGlobalScope;

const SHELL = `tang-shell-${SHELL_VERSION}`;
const KEPT = "tang-kept-1";
const base = new URL("./", self.location.href);

self.addEventListener("install", (event) => {
  event.waitUntil(fill().then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(tidy().then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return;
  const path = url.pathname.slice(base.pathname.length) || "index.html";
  if (path.endsWith(".tang") || event.request.headers.has("range")) return;
  if (SHELL_FILES.includes(path)) event.respondWith(shell(path, event.request));
  else if (path.startsWith("vendor/")) event.respondWith(once(event.request));
  else event.respondWith(fresh(event.request));
});

async function fill(): Promise<void> {
  const cache = await caches.open(SHELL);
  // not from the HTTP cache: a new version's files may have old names
  await cache.addAll(SHELL_FILES.map((f) => new Request(new URL(f, base), { cache: "reload" })));
}

async function tidy(): Promise<void> {
  const old = (await caches.keys()).filter((k) => k.startsWith("tang-shell-") && k !== SHELL);
  await Promise.all(old.map((k) => caches.delete(k)));
}

async function shell(path: string, request: Request): Promise<Response> {
  const cache = await caches.open(SHELL);
  return (await cache.match(new URL(path, base))) ?? fetch(request);
}

/** Files whose folder names their version never change. */
async function once(request: Request): Promise<Response> {
  const cache = await caches.open(KEPT);
  const kept = await cache.match(request);
  if (kept) return kept;
  const response = await fetch(request);
  if (response.status === 200) await cache.put(request, response.clone());
  return response;
}

/** From the network while there is one, else what was seen last. */
async function fresh(request: Request): Promise<Response> {
  const cache = await caches.open(KEPT);
  try {
    const response = await fetch(request);
    if (response.status === 200) await cache.put(request, response.clone());
    return response;
  } catch (problem) {
    const kept = await cache.match(request);
    if (kept) return kept;
    throw problem;
  }
}
