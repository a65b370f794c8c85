/** Vectors, rotations, and a camera that looks at a target. x points forward, y left, z up. */

export type Vec = readonly [number, number, number];
/** Three rows. */
export type Mat = readonly [Vec, Vec, Vec];

export const IDENTITY: Mat = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
export const add = (a: Vec, b: Vec): Vec => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const sub = (a: Vec, b: Vec): Vec => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
export const times = (a: Vec, k: number): Vec => [a[0] * k, a[1] * k, a[2] * k];
export const dot = (a: Vec, b: Vec): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a: Vec, b: Vec): Vec => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
export const length = (a: Vec): number => Math.hypot(a[0], a[1], a[2]);
export const apply = (m: Mat, v: Vec): Vec => [dot(m[0], v), dot(m[1], v), dot(m[2], v)];
/** The transposed matrix on a vector: the inverse of a rotation. */
export const unapply = (m: Mat, v: Vec): Vec => [
  m[0][0] * v[0] + m[1][0] * v[1] + m[2][0] * v[2],
  m[0][1] * v[0] + m[1][1] * v[1] + m[2][1] * v[2],
  m[0][2] * v[0] + m[1][2] * v[1] + m[2][2] * v[2],
];
export const multiply = (a: Mat, b: Mat): Mat => {
  const row = (r: Vec): Vec => [
    r[0] * b[0][0] + r[1] * b[1][0] + r[2] * b[2][0],
    r[0] * b[0][1] + r[1] * b[1][1] + r[2] * b[2][1],
    r[0] * b[0][2] + r[1] * b[1][2] + r[2] * b[2][2],
  ];
  return [row(a[0]), row(a[1]), row(a[2])];
};

/** Rotation by |v| around v. */
export function rotation(v: Vec): Mat {
  const angle = length(v);
  if (angle < 1e-12) return IDENTITY;
  const [x, y, z] = times(v, 1 / angle);
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  const d = 1 - c;
  return [[c + x * x * d, x * y * d - z * s, x * z * d + y * s], [y * x * d + z * s, c + y * y * d, y * z * d - x * s], [z * x * d - y * s, z * y * d + x * s, c + z * z * d]];
}

/** Roll, pitch and yaw about the fixed axes x, y and z, in this order. */
export function fromAngles(roll: number, pitch: number, yaw: number): Mat {
  return multiply(rotation([0, 0, yaw]), multiply(rotation([0, pitch, 0]), rotation([roll, 0, 0])));
}

/** Rows that are again orthonormal after many small steps. */
export function orthonormal(m: Mat): Mat {
  const a = times(m[0], 1 / length(m[0]));
  const b0 = sub(m[1], times(a, dot(a, m[1])));
  const b = times(b0, 1 / length(b0));
  return [a, b, cross(a, b)];
}

/** Nothing nearer to the camera than this has a picture. */
const NEAR = 0.2;

export interface Seen { readonly x: number; readonly y: number; readonly depth: number; readonly scale: number }

/** A perspective camera on a sphere around its target; the picture's centre is (0, 0), y points down. */
export class Camera {
  target: Vec = [0, 0, 0];
  constructor(public azimuth: number, public elevation: number, public distance: number, private readonly focal: number) {}

  see(p: Vec): Seen {
    const [x, y, z] = sub(p, this.target);
    const [ca, sa] = [Math.cos(this.azimuth), Math.sin(this.azimuth)];
    const [ce, se] = [Math.cos(this.elevation), Math.sin(this.elevation)];
    const right = -sa * x + ca * y;
    const forward = -(ca * x + sa * y) * ce - z * se;
    const up = -(ca * x + sa * y) * se + z * ce;
    const depth = Math.max(NEAR, this.distance + forward);
    const scale = this.focal / depth;
    return { x: right * scale, y: -up * scale, depth, scale };
  }

  /** The part of a straight line in front of the camera; null where there is none. */
  line(a: Vec, b: Vec): [Seen, Seen] | null {
    const [da, db] = [this.ahead(a), this.ahead(b)];
    if (da <= NEAR && db <= NEAR) return null;
    const cut = add(a, times(sub(b, a), (NEAR - da) / (db - da)));
    return [this.see(da < NEAR ? cut : a), this.see(db < NEAR ? cut : b)];
  }

  private ahead(p: Vec): number {
    const [x, y, z] = sub(p, this.target);
    return this.distance - (Math.cos(this.azimuth) * x + Math.sin(this.azimuth) * y) * Math.cos(this.elevation) - z * Math.sin(this.elevation);
  }
}
