/** The head of a desktop robot: a platform on six arms and rods (a Stewart platform) on a body that turns. Metres, radians. */

import { add, apply, fromAngles, length, rotation, sub, unapply, type Mat, type Vec } from "./space.js";

export interface Geometry {
  readonly arm: number;
  readonly rod: number;
  readonly height: number;
  readonly motors: readonly { readonly rotation: Mat; readonly place: Vec; readonly joint: Vec }[];
}

/** The file that the robot's own package carries (`models/reachy-geometry.json`). */
interface GeometryFile {
  readonly motor_arm_length: number;
  readonly rod_length: number;
  readonly head_z_offset: number;
  readonly motors: readonly { readonly T_motor_world: readonly (readonly number[])[]; readonly branch_position: readonly number[] }[];
}

export function readGeometry(file: GeometryFile): Geometry {
  const motors = file.motors.map(({ T_motor_world: t, branch_position: b }) => {
    // the file maps the world to the motor; here the inverse is wanted, whose rotation is the transposed one
    const rows = [0, 1, 2].map((i) => [t[i]![0]!, t[i]![1]!, t[i]![2]!] as const) as unknown as Mat;
    const shift: Vec = [t[0]![3]!, t[1]![3]!, t[2]![3]!];
    const place = unapply(rows, [-shift[0], -shift[1], -shift[2]]);
    return { rotation: rows, place, joint: [b[0]!, b[1]!, b[2]!] as const };
  });
  return { arm: file.motor_arm_length, rod: file.rod_length, height: file.head_z_offset, motors };
}

/** x, y, z, roll, pitch, yaw. */
export type Pose = readonly [number, number, number, number, number, number];

export interface Rod { readonly motor: Vec; readonly elbow: Vec; readonly joint: Vec; readonly length: number }

/** Where arms and rods are; `angles` are the body's yaw and the six motors. Rods have the length that the two ends give. */
export function rods(geometry: Geometry, pose: Pose, angles: ArrayLike<number>): Rod[] {
  const body = rotation([0, 0, angles[0]!]);
  const head = fromAngles(pose[3], pose[4], pose[5]);
  return geometry.motors.map((m, i) => {
    const turn = angles[i + 1]!;
    const tip = unapply(m.rotation, [geometry.arm * Math.cos(turn), geometry.arm * Math.sin(turn), 0]);
    const motor = apply(body, m.place);
    const elbow = apply(body, add(m.place, tip));
    const joint = add(headPlace(geometry, pose), apply(head, m.joint));
    return { motor, elbow, joint, length: length(sub(joint, elbow)) };
  });
}

export const headPlace = (geometry: Geometry, pose: Pose): Vec => [pose[0], pose[1], pose[2] + geometry.height];
