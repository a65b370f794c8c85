/** Draws the head as SVG: body, motors, arms, rods, platform, and a face with antennas. */

import { s } from "../lib/dom.js";
import { headPlace, rods, type Geometry, type Pose } from "./head.js";
import { add, apply, Camera, fromAngles, rotation, type Mat, type Seen, type Vec } from "./space.js";

const [WIDTH, HEIGHT] = [640, 560] as const;
const ROUND = 40;

interface Part { readonly node: SVGElement; readonly depth: number }

export class HeadView {
  readonly element = s("svg", { class: "stage-svg", viewBox: `${-WIDTH / 2} ${-HEIGHT / 2} ${WIDTH} ${HEIGHT}`, "aria-hidden": true });
  readonly camera = new Camera(0.5, 0.2, 0.85, 1080);

  constructor(private readonly geometry: Geometry) {
    this.camera.target = [0, 0, 0.145];
  }

  draw(pose: Pose, angles: ArrayLike<number>): void {
    const turn = rotation([0, 0, angles[0]!]);
    const head = fromAngles(pose[3], pose[4], pose[5]);
    const place = headPlace(this.geometry, pose);
    const onHead = (p: Vec): Vec => add(place, apply(head, p));
    const parts: Part[] = [
      ...this.drum([0, 0, 0], 0.075, 0, 0.062, "body", turn),
      ...rods(this.geometry, pose, angles).flatMap((r) => [
        this.bone(r.motor, r.elbow, 0.011, "arm"), this.bone(r.elbow, r.joint, 0.005, "rod"), this.ball(r.motor, 0.012, "motor"), this.ball(r.elbow, 0.007, "elbow"),
      ]),
      this.ring(onHead, 0.036, 0, "platform"),
      ...this.face(onHead),
    ];
    parts.sort((a, b) => b.depth - a.depth);
    this.element.replaceChildren(...parts.map((p) => p.node));
  }

  private outline(points: readonly Vec[], part: string, closer = 0): Part {
    const seen = points.map((p) => this.camera.see(p));
    return { node: s("polygon", { class: part, points: text(seen) }), depth: mean(seen) - closer };
  }

  private ring(at: (p: Vec) => Vec, radius: number, z: number, part: string): Part {
    return this.outline(circle(radius, z).map(at), part);
  }

  /** A cylinder: the side is the outline of both rims. */
  private drum(centre: Vec, radius: number, bottom: number, top: number, part: string, turn: Mat): Part[] {
    const rim = (z: number): Seen[] => circle(radius, z).map((p) => this.camera.see(add(centre, p)));
    const [low, high] = [rim(bottom), rim(top)];
    const left = low.reduce((best, p, i) => (p.x < low[best]!.x ? i : best), 0);
    const right = low.reduce((best, p, i) => (p.x > low[best]!.x ? i : best), 0);
    const front: Seen[] = [];
    for (let i = left; ; i = (i + 1) % ROUND) {
      front.push(low[i]!);
      if (i === right) break;
    }
    const side = [high[left]!, ...front, high[right]!];
    const mark = [0.02, 0.028].map((z) => this.camera.see(apply(turn, [radius, 0, z])));
    return [
      { node: s("polygon", { class: `${part} side`, points: text(side) }), depth: 9 },
      { node: s("polygon", { class: `${part} over`, points: text(high) }), depth: 8.9 },
      { node: s("circle", { class: "mark", cx: mark[0]!.x, cy: mark[0]!.y, r: 4 }), depth: mark[0]!.depth > this.camera.distance ? 9.1 : 8.8 },
    ];
  }

  private bone(a: Vec, b: Vec, width: number, part: string): Part {
    const [p, q] = [this.camera.see(a), this.camera.see(b)];
    return { node: s("line", { class: part, x1: p.x, y1: p.y, x2: q.x, y2: q.y, "stroke-width": width * q.scale }), depth: (p.depth + q.depth) / 2 };
  }

  private ball(at: Vec, radius: number, part: string): Part {
    const p = this.camera.see(at);
    return { node: s("circle", { class: part, cx: p.x, cy: p.y, r: radius * p.scale }), depth: p.depth - 0.004 };
  }

  /** A rounded shell over the platform: its outline, two eyes, two antennas. */
  private face(at: (p: Vec) => Vec): Part[] {
    const shell: Vec[] = [];
    for (let i = 0; i < 24; i++) {
      const a = (i / 24) * 2 * Math.PI;
      for (const [r, z] of [[0.052, 0.012], [0.062, 0.032], [0.062, 0.058], [0.05, 0.078]] as const) shell.push([r * Math.cos(a) * 0.85, r * Math.sin(a) * 1.12, z]);
    }
    const outline = around(shell.map((p) => this.camera.see(at(p))));
    const depth = mean(outline) - 0.07;
    const parts: Part[] = [{ node: s("polygon", { class: "skull", points: text(outline) }), depth }];
    for (const [side, radius] of [[1, 0.021], [-1, 0.017]] as const) {
      const eye: Vec[] = circle(radius, 0).map(([u, v]): Vec => [0.055, side * 0.03 + u, 0.047 + v]);
      const seen = eye.map((p) => this.camera.see(at(p)));
      // an eye on the far side is hidden by the head
      if (mean(seen) < this.camera.see(at([0, 0, 0.047])).depth) {
        parts.push({ node: s("polygon", { class: "eye", points: text(seen) }), depth: depth - 0.01 });
        const glint = this.camera.see(at([0.056, side * 0.03 + 0.006, 0.055]));
        parts.push({ node: s("circle", { class: "glint", cx: glint.x, cy: glint.y, r: 0.0045 * glint.scale }), depth: depth - 0.011 });
      }
      const antenna = [at([-0.01, side * 0.045, 0.07]), at([-0.03, side * 0.058, 0.15])] as const;
      parts.push({ ...this.bone(antenna[0], antenna[1], 0.0035, "antenna"), depth: depth + 0.02 }, { ...this.ball(antenna[1], 0.005, "antenna-tip"), depth: depth + 0.019 });
    }
    return parts;
  }
}

const circle = (radius: number, z: number): Vec[] => Array.from({ length: ROUND }, (_, i) => [radius * Math.cos((2 * Math.PI * i) / ROUND), radius * Math.sin((2 * Math.PI * i) / ROUND), z] as const);
const text = (points: readonly Seen[]): string => points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(" ");
const mean = (points: readonly Seen[]): number => points.reduce((sum, p) => sum + p.depth, 0) / points.length;

/** The convex outline of points in the picture. */
function around(points: readonly Seen[]): Seen[] {
  const sorted = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  const half = (all: readonly Seen[]): Seen[] => {
    const chain: Seen[] = [];
    for (const p of all) {
      while (chain.length > 1) {
        const [a, b] = [chain[chain.length - 2]!, chain[chain.length - 1]!];
        if ((b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x) > 0) break;
        chain.pop();
      }
      chain.push(p);
    }
    chain.pop();
    return chain;
  };
  return [...half(sorted), ...half(sorted.reverse())];
}
