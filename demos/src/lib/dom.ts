/** Small helpers around the DOM. */

type Child = Node | string | number | null | undefined | false;
type Props = Readonly<Record<string, string | number | boolean | EventListener | null | undefined>>;

const SVG = "http://www.w3.org/2000/svg";

function fill(node: Element, props: Props, children: readonly Child[]): void {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) node.append(typeof child === "number" ? String(child) : child);
}

/** An HTML element; function values are listeners by event name. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  fill(node, props, children);
  return node;
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  const node = document.createElementNS(SVG, tag);
  fill(node, props, children);
  return node;
}

/** The element with this id, of this class; a page without it is a bug. */
export function byId<T extends Element>(id: string, kind: abstract new (...args: never[]) => T): T {
  const node = document.getElementById(id);
  if (!(node instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return node;
}

export function replace(node: Element, ...children: Child[]): void {
  node.replaceChildren(...children.filter((c): c is Node | string => c instanceof Node || typeof c === "string"));
}

/** Lets the page paint. */
export const nextFrame = (): Promise<number> => new Promise((done) => requestAnimationFrame(done));

export const reducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Words for an error, with the remedy that the runtime's errors carry. */
export function words(problem: unknown): string {
  return problem instanceof Error ? problem.message : String(problem);
}

/** A message box for an error, announced at once. */
export function errorBox(problem: unknown): HTMLElement {
  const kind = problem instanceof Error ? problem.name : "Error";
  return h("div", { class: "message", role: "alert" }, h("strong", {}, kind === "Error" ? "That did not work" : kind), words(problem));
}
