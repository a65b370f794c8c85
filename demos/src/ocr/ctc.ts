/** Connectionist temporal classification: the best character of each column, repeats and blanks dropped. */

import type { Tensor } from "tang-edge";

export interface Text { readonly text: string; readonly confidence: number }

/** `characters` are the classes from 1 on; class 0 is the blank. */
export function decode(scores: Tensor, characters: readonly string[]): Text[] {
  const [lines, columns, classes] = scores.shape as [number, number, number];
  if (classes !== characters.length + 1) throw new Error(`the network knows ${classes} classes, the list has ${characters.length} characters and the blank`);
  return Array.from({ length: lines }, (_, n) => decodeLine(scores.data as Float32Array, n * columns * classes, columns, classes, characters));
}

function decodeLine(data: Float32Array, offset: number, columns: number, classes: number, characters: readonly string[]): Text {
  let before = 0;
  let sum = 0;
  const text: string[] = [];
  for (let t = 0; t < columns; t++) {
    const at = offset + t * classes;
    let best = 0;
    for (let k = 1; k < classes; k++) if (data[at + k]! > data[at + best]!) best = k;
    if (best && best !== before) {
      text.push(characters[best - 1]!);
      sum += data[at + best]!;
    }
    before = best;
  }
  return { text: text.join(""), confidence: text.length ? sum / text.length : 0 };
}
