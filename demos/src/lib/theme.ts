/** Runs before the first paint: the colours that were chosen on an earlier visit. */
const KEY = "tang-theme";
let chosen: string | null = null;
try {
  chosen = localStorage.getItem(KEY);
} catch {
  // storage may be denied: the system's colours then
}
if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
