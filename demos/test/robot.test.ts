import assert from "node:assert/strict";
import test from "node:test";
import { leg, Quadruped, REST } from "../src/robot/quadruped.js";
import { apply, Camera, fromAngles, multiply, orthonormal, rotation, unapply, type Vec } from "../src/robot/space.js";

test("a straight leg hangs down by both bones", () => {
  const { foot, knee } = leg(1, [0, 0, 0]);
  assert.ok(Math.abs(foot[2] + 0.426) < 1e-9 && Math.abs(knee[2] + 0.213) < 1e-9);
  assert.ok(Math.abs(foot[1] - (0.0465 + 0.0955)) < 1e-9);
});

test("left and right legs mirror each other", () => {
  const [right, left] = [leg(0, [-0.2, 0.7, -1.4]), leg(1, [0.2, 0.7, -1.4])];
  assert.ok(Math.abs(right.foot[1] + left.foot[1]) < 1e-9 && Math.abs(right.foot[2] - left.foot[2]) < 1e-9);
});

test("it falls freely in the air, and its springs hold it on the ground", () => {
  const robot = new Quadruped();
  robot.position = [0, 0, 2];
  for (let i = 0; i < 10; i++) robot.advance();
  assert.ok(Math.abs(robot.velocity[2] + 9.81 * 0.2) < 1e-6);
  assert.ok(!robot.contact.some(Boolean));
  const standing = new Quadruped();
  // without a policy it holds for a moment only: nothing balances it
  for (let i = 0; i < 25; i++) standing.advance();
  assert.ok(standing.position[2] > 0.24 && standing.position[2] < 0.34, String(standing.position[2]));
  assert.ok(standing.attitude[2][2] > 0.97 && standing.contact.every(Boolean));
});

test("what it sees has the layout that the policy was trained on", () => {
  const robot = new Quadruped();
  robot.joints[0] = 0.3;
  const seen = robot.observe([1, 2, 3]);
  assert.equal(seen.length, 45);
  assert.deepEqual(Array.from(seen.slice(0, 9)), [0, 0, 0, 0, 0, -1, 1, 2, 3]);
  assert.ok(Math.abs(seen[9]! - 0.3) < 1e-6);
  robot.act(new Float32Array(12).fill(1));
  assert.deepEqual(Array.from(robot.observe([0, 0, 0]).slice(33)), new Array(12).fill(1));
  assert.ok(Math.abs(robot.targets[1]! - (REST[1] + 0.25)) < 1e-9 && Math.abs(robot.targets[0]! - 0.125) < 1e-9);
});

test("rotations turn and turn back", () => {
  const m = multiply(fromAngles(0.3, -0.2, 1), rotation([0.1, 0.2, 0.3]));
  const v: Vec = [1, 2, 3];
  const back = unapply(orthonormal(m), apply(m, v));
  assert.ok(back.every((x, i) => Math.abs(x - v[i]!) < 1e-9));
});

test("the camera sees its target in the middle, and what is higher above", () => {
  const camera = new Camera(0.4, 0.3, 2, 1000);
  const middle = camera.see([0, 0, 0]);
  assert.ok(Math.abs(middle.x) < 1e-9 && Math.abs(middle.y) < 1e-9);
  assert.ok(camera.see([0, 0, 0.1]).y < 0);
});
