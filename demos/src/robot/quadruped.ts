/** A reduced model of a walking quadruped, so that the policy has a body to move: one rigid trunk, legs without mass but with
 *  inertia at their joints, springs with friction under the feet. It is no physics engine, but enough for the policy to walk.
 *
 *  Joints: front right, front left, rear right, rear left; each hip, thigh, calf. Lengths in metres, angles in radians. */

import { add, apply, cross, multiply, orthonormal, rotation, sub, times, unapply, IDENTITY, type Mat, type Vec } from "./space.js";

export const REST = [0, 0.8, -1.5, 0, 0.8, -1.5, 0, 0.8, -1.5, 0, 0.8, -1.5] as const;
const ACTION_SCALE = [0.125, 0.25, 0.25] as const;
export const TICK = 0.02;

const HIPS: readonly Vec[] = [[0.1934, -0.0465, 0], [0.1934, 0.0465, 0], [-0.1934, -0.0465, 0], [-0.1934, 0.0465, 0]];
const SIDES = [-1, 1, -1, 1] as const;
const BONE = 0.213;
const OFFSET = 0.0955;
const FOOT = 0.022;
const LOWEST = [-1.05, -1.57, -2.72] as const;
const HIGHEST = [1.05, 3.49, -0.84] as const;

const SUBSTEPS = 40;
const MASS = 15;
const INERTIA: Vec = [0.2, 0.42, 0.52];
const CENTRE: Vec = [0.021, 0, -0.005];
const JOINT_INERTIA = [0.05, 0.05, 0.02] as const;
const [STIFF, DAMP, TORQUE, LOSS] = [20, 0.5, 23.7, 0.5] as const;
const [GROUND_STIFF, GROUND_DAMP, GROUND_DRAG, FRICTION] = [8000, 150, 300, 0.8] as const;

export interface Leg { readonly hip: Vec; readonly shoulder: Vec; readonly knee: Vec; readonly foot: Vec }

/** The joints of a leg in the trunk's frame. */
export function leg(index: number, [a, b, c]: Vec): Leg {
  const hip = HIPS[index]!;
  const y = SIDES[index]! * OFFSET;
  const [ca, sa] = [Math.cos(a), Math.sin(a)];
  const at = (x: number, z: number): Vec => [hip[0] + x, hip[1] + y * ca - z * sa, hip[2] + y * sa + z * ca];
  const [kx, kz] = [-BONE * Math.sin(b), -BONE * Math.cos(b)];
  return { hip, shoulder: at(0, 0), knee: at(kx, kz), foot: at(kx - BONE * Math.sin(b + c), kz - BONE * Math.cos(b + c)) };
}

/** What a robot's driver does around the policy: trims the command by the integral of the error of the smoothed velocity. */
export class Trim {
  private measured: Vec = [0, 0, 0];
  private trim: Vec = [0, 0, 0];
  private static readonly gain: Vec = [1.5, 1.5, 2];
  private static readonly limit: Vec = [0.4, 0.3, 0.6];
  private static readonly smooth = 0.3;

  apply(command: Vec, measured: Vec): Vec {
    const share = TICK / (Trim.smooth + TICK);
    this.measured = add(this.measured, times(sub(measured, this.measured), share));
    const error = sub(command, this.measured);
    this.trim = this.trim.map((t, i) => Math.max(-Trim.limit[i]!, Math.min(Trim.limit[i]!, t + Trim.gain[i]! * error[i]! * TICK))) as unknown as Vec;
    return add(command, this.trim);
  }
}

export class Quadruped {
  position: Vec = [0, 0, 0.33];
  attitude: Mat = IDENTITY;
  velocity: Vec = [0, 0, 0];
  /** In the trunk's frame. */
  spin: Vec = [0, 0, 0];
  readonly joints = Float64Array.from(REST);
  readonly rates = new Float64Array(12);
  readonly targets = Float64Array.from(REST);
  readonly actions = new Float64Array(12);
  readonly contact = [true, true, true, true];

  /** What the policy sees: spin, direction of gravity, command, joint angles and rates, its last actions. */
  observe(command: Vec): Float32Array {
    const gravity = unapply(this.attitude, [0, 0, -1]);
    const joints = Array.from(this.joints, (q, i) => q - REST[i]!);
    const rates = Array.from(this.rates, (v) => v * 0.05);
    const all = [...times(this.spin, 0.25), ...gravity, ...command, ...joints, ...rates, ...this.actions];
    return Float32Array.from(all, (v) => Math.max(-100, Math.min(100, v)));
  }

  /** Takes the policy's actions as targets of the joints. */
  act(actions: ArrayLike<number>): void {
    for (let i = 0; i < 12; i++) {
      this.actions[i] = Math.max(-100, Math.min(100, actions[i]!));
      this.targets[i] = REST[i]! + this.actions[i]! * ACTION_SCALE[i % 3]!;
    }
  }

  /** One tick of 20 ms. */
  advance(): void {
    this.contact.fill(false);
    for (let i = 0; i < SUBSTEPS; i++) this.step(TICK / SUBSTEPS);
    this.attitude = orthonormal(this.attitude);
  }

  push(by: Vec): void {
    this.velocity = add(this.velocity, apply(this.attitude, by));
  }

  get fallen(): boolean {
    return this.attitude[2][2] < 0.35 || !Number.isFinite(this.position[2]);
  }

  /** Forward and left along the ground in the direction that it faces, and how fast it turns. */
  get motion(): Vec {
    const heading = Math.atan2(this.attitude[1][0], this.attitude[0][0]);
    const [c, s] = [Math.cos(heading), Math.sin(heading)];
    const [vx, vy] = this.velocity;
    return [c * vx + s * vy, c * vy - s * vx, apply(this.attitude, this.spin)[2]];
  }

  legs(): Leg[] {
    return [0, 1, 2, 3].map((i) => leg(i, this.jointsOf(i)));
  }

  private jointsOf(i: number): Vec {
    return [this.joints[3 * i]!, this.joints[3 * i + 1]!, this.joints[3 * i + 2]!];
  }

  private step(dt: number): void {
    let force: Vec = [0, 0, -9.81 * MASS];
    let moment: Vec = [0, 0, 0];
    for (let i = 0; i < 4; i++) {
      const bones = leg(i, this.jointsOf(i));
      const columns = this.jacobian(i, bones);
      const push = this.ground(i, bones.foot, columns);
      const inTrunk = push && unapply(this.attitude, push);
      if (push && inTrunk) {
        force = add(force, push);
        moment = add(moment, cross(sub(bones.foot, CENTRE), inTrunk));
      }
      for (let k = 0; k < 3; k++) this.moveJoint(3 * i + k, k, inTrunk ? columns[k]!.reduce((sum, v, axis) => sum + v * inTrunk[axis]!, 0) : 0, dt);
    }
    this.velocity = add(this.velocity, times(force, dt / MASS));
    const [wx, wy, wz] = this.spin;
    const gyro = cross(this.spin, [INERTIA[0] * wx, INERTIA[1] * wy, INERTIA[2] * wz]);
    this.spin = add(this.spin, [((moment[0] - gyro[0]) / INERTIA[0]) * dt, ((moment[1] - gyro[1]) / INERTIA[1]) * dt, ((moment[2] - gyro[2]) / INERTIA[2]) * dt]);
    this.position = add(this.position, times(this.velocity, dt));
    this.attitude = multiply(this.attitude, rotation(times(this.spin, dt)));
  }

  /** How the foot moves with each joint, in the trunk's frame. */
  private jacobian(i: number, { hip, shoulder, knee, foot }: Leg): [Vec, Vec, Vec] {
    const a = this.joints[3 * i]!;
    const axis: Vec = [0, Math.cos(a), Math.sin(a)];
    return [cross([1, 0, 0], sub(foot, hip)), cross(axis, sub(foot, shoulder)), cross(axis, sub(foot, knee))];
  }

  /** The ground's force on a foot, in the world; null in the air. */
  private ground(i: number, foot: Vec, columns: readonly Vec[]): Vec | null {
    const depth = FOOT - add(this.position, apply(this.attitude, foot))[2];
    if (depth <= 0) return null;
    this.contact[i] = true;
    let moving = cross(this.spin, foot);
    for (let k = 0; k < 3; k++) moving = add(moving, times(columns[k]!, this.rates[3 * i + k]!));
    const v = add(this.velocity, apply(this.attitude, moving));
    const normal = Math.max(0, GROUND_STIFF * depth - GROUND_DAMP * v[2]);
    const slide = Math.hypot(v[0], v[1]);
    const drag = slide * GROUND_DRAG > FRICTION * normal ? (FRICTION * normal) / slide : GROUND_DRAG;
    return [-v[0] * drag, -v[1] * drag, normal];
  }

  private moveJoint(j: number, part: number, load: number, dt: number): void {
    const drive = STIFF * (this.targets[j]! - this.joints[j]!) - DAMP * this.rates[j]!;
    const torque = Math.max(-TORQUE, Math.min(TORQUE, drive)) - LOSS * this.rates[j]! + load;
    const rate = Math.max(-30, Math.min(30, this.rates[j]! + (torque / JOINT_INERTIA[part]!) * dt));
    const wanted = this.joints[j]! + rate * dt;
    this.joints[j] = Math.max(LOWEST[part]!, Math.min(HIGHEST[part]!, wanted));
    this.rates[j] = this.joints[j] === wanted ? rate : 0;
  }
}
