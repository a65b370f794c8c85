/** What every page has: colours, the device found, the service worker. Each page's script calls `start()` once. */

import { byId, h } from "./dom.js";
import { findDevice, type Found } from "./device.js";

const ICONS = {
  system: '<circle cx="10" cy="10" r="6.5" fill="none" stroke="currentColor" stroke-width="1.7"/><path d="M10 3.5a6.5 6.5 0 0 1 0 13z" fill="currentColor"/>',
  light: '<circle cx="10" cy="10" r="3.6" fill="currentColor"/><path d="M10 1.5v2.6M10 15.9v2.6M1.5 10h2.6M15.9 10h2.6M4 4l1.8 1.8M14.2 14.2 16 16M16 4l-1.8 1.8M5.8 14.2 4 16" stroke="currentColor" stroke-width="1.7" stroke-linecap="round"/>',
  dark: '<path d="M16.5 12.4A7 7 0 0 1 7.6 3.5a7 7 0 1 0 8.9 8.9z" fill="currentColor"/>',
} as const;
type Theme = keyof typeof ICONS;
const WORDS: Record<Theme, string> = { system: "as the system", light: "light", dark: "dark" };

export function start(): Promise<Found> {
  colours();
  offline();
  return device();
}

function colours(): void {
  const button = byId("theme", HTMLButtonElement);
  const order: readonly Theme[] = ["system", "light", "dark"];
  let now = (document.documentElement.dataset["theme"] as Theme | undefined) ?? "system";
  const show = (): void => {
    button.innerHTML = `<svg viewBox="0 0 20 20" aria-hidden="true">${ICONS[now]}</svg>`;
    const label = `Colours: ${WORDS[now]}`;
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  button.addEventListener("click", () => {
    now = order[(order.indexOf(now) + 1) % order.length]!;
    if (now === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = now;
    try {
      localStorage.setItem("tang-theme", now);
    } catch {
      // kept for this page only where storage is denied
    }
    show();
  });
  show();
}

async function device(): Promise<Found> {
  const chip = byId("device-chip", HTMLElement);
  const found = await findDevice();
  chip.dataset["kind"] = found.kind;
  chip.replaceChildren(h("span", { title: found.words }, found.short));
  return found;
}

function offline(): void {
  const state = byId("offline-state", HTMLElement);
  const show = (): void => {
    state.textContent = navigator.onLine ? "" : " You are offline: what was loaded before works on.";
  };
  addEventListener("online", show);
  addEventListener("offline", show);
  show();
  if (!("serviceWorker" in navigator)) return;
  navigator.serviceWorker.register("sw.js").catch((problem: unknown) => {
    state.textContent = ` This browser does not keep the page for use offline (${problem instanceof Error ? problem.message : String(problem)}).`;
  });
}
