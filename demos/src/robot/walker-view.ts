/** Draws the quadruped as SVG: ground, shadow, legs, trunk, the way it came. */

import { s } from "../lib/dom.js";
import type { Leg, Quadruped } from "./quadruped.js";
import { add, apply, Camera, type Seen, type Vec } from "./space.js";

const [WIDTH, HEIGHT] = [800, 560] as const;
const GRID = 0.5;
const REACH = 4;
const TRAIL = 240;

// the trunk and the head as boxes: centre, half sizes
const BOXES: readonly { readonly at: Vec; readonly half: Vec; readonly part: string }[] = [
  { at: [0, 0, 0.005], half: [0.19, 0.06, 0.05], part: "trunk" },
  { at: [0.245, 0, 0.012], half: [0.055, 0.045, 0.038], part: "head" },
];
// corners are numbered by the signs of x, y, z; each face turns to the left seen from outside
const FACES = [
  { of: [0, 1, 3, 2], shade: "end" }, { of: [4, 6, 7, 5], shade: "end" }, { of: [0, 4, 5, 1], shade: "side" },
  { of: [2, 3, 7, 6], shade: "side" }, { of: [0, 2, 6, 4], shade: "under" }, { of: [1, 5, 7, 3], shade: "over" },
] as const;

export class WalkerView {
  readonly element = s("svg", { class: "stage-svg", viewBox: `${-WIDTH / 2} ${-HEIGHT / 2} ${WIDTH} ${HEIGHT}`, "aria-hidden": true });
  readonly camera = new Camera(-0.95, 0.27, 2.7, 1850);
  private readonly grid = s("path", { class: "ground-grid" });
  private readonly trail = s("polyline", { class: "trail" });
  private readonly shadow = s("polygon", { class: "shadow" });
  private readonly body = s("g");
  private readonly way: Vec[] = [];

  constructor() {
    this.element.append(this.grid, this.trail, this.shadow, this.body);
  }

  forget(): void {
    this.way.length = 0;
  }

  draw(robot: Quadruped): void {
    const [x, y] = robot.position;
    this.camera.target = [x, y, 0.2];
    if (this.way.push([x, y, 0]) > TRAIL) this.way.shift();
    this.trail.setAttribute("points", this.points(this.way));
    this.grid.setAttribute("d", this.lines(x, y));
    const world = (p: Vec): Vec => add(robot.position, apply(robot.attitude, p));
    this.shadow.setAttribute("points", this.points(([[0.3, 0.13], [0.3, -0.13], [-0.24, -0.13], [-0.24, 0.13]] as const).map(([u, v]) => {
      const p = world([u, v, 0]);
      return [p[0], p[1], 0] as Vec;
    })));
    const parts = [...robot.legs().map((l, i) => this.legPart(l, world, robot.contact[i]!)), ...BOXES.flatMap((b) => this.boxParts(b, world))];
    parts.sort((a, b) => b.depth - a.depth);
    this.body.replaceChildren(...parts.map((p) => p.node));
  }

  private legPart(leg: Leg, world: (p: Vec) => Vec, onGround: boolean): { node: SVGElement; depth: number } {
    const [hip, shoulder, knee, foot] = [leg.hip, leg.shoulder, leg.knee, leg.foot].map((p) => this.camera.see(world(p))) as [Seen, Seen, Seen, Seen];
    const bone = (a: Seen, b: Seen, width: number, part: string): SVGElement =>
      s("line", { class: part, x1: a.x, y1: a.y, x2: b.x, y2: b.y, "stroke-width": width * b.scale });
    const node = s("g", {},
      bone(hip, shoulder, 0.055, "bone hip"), bone(knee, foot, 0.022, "bone calf"), bone(shoulder, knee, 0.04, "bone thigh"),
      s("circle", { class: "joint", cx: shoulder.x, cy: shoulder.y, r: 0.02 * shoulder.scale }),
      s("circle", { class: onGround ? "toe down" : "toe", cx: foot.x, cy: foot.y, r: 0.024 * foot.scale }));
    return { node, depth: (shoulder.depth + knee.depth) / 2 };
  }

  private boxParts({ at, half, part }: (typeof BOXES)[number], world: (p: Vec) => Vec): { node: SVGElement; depth: number }[] {
    const points: Seen[] = [];
    for (const dx of [-1, 1]) for (const dy of [-1, 1]) for (const dz of [-1, 1]) points.push(this.camera.see(world([at[0] + dx * half[0], at[1] + dy * half[1], at[2] + dz * half[2]])));
    return FACES.flatMap(({ of, shade }) => {
      const [a, b, c, d] = of.map((k) => points[k]!) as [Seen, Seen, Seen, Seen];
      if ((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x) >= 0) return [];
      const node = s("polygon", { class: `${part} ${shade}`, points: [a, b, c, d].map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(" ") });
      return [{ node, depth: (a.depth + b.depth + c.depth + d.depth) / 4 }];
    });
  }

  private points(all: readonly Vec[]): string {
    return all.map((p) => this.camera.see(p)).map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(" ");
  }

  private lines(x: number, y: number): string {
    const [cx, cy] = [Math.round(x / GRID) * GRID, Math.round(y / GRID) * GRID];
    const parts: string[] = [];
    const line = (a: Vec, b: Vec): void => {
      const seen = this.camera.line(a, b);
      if (seen) parts.push(`M${seen[0].x.toFixed(1)} ${seen[0].y.toFixed(1)}L${seen[1].x.toFixed(1)} ${seen[1].y.toFixed(1)}`);
    };
    for (let i = -REACH; i <= REACH; i += GRID) {
      line([cx + i, cy - REACH, 0], [cx + i, cy + REACH, 0]);
      line([cx - REACH, cy + i, 0], [cx + REACH, cy + i, 0]);
    }
    return parts.join("");
  }
}
