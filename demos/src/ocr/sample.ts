/** A picture to read, painted here: a notice with level, tilted and upside-down lines. */

import { context } from "./pixels.js";

const [WIDTH, HEIGHT] = [960, 600] as const;

interface Words { readonly text: string; readonly font: string; readonly x: number; readonly y: number; readonly turn?: number; readonly colour?: string }

const LINES: readonly Words[] = [
  { text: "Night train to the coast", font: "560 58px Newsreader, Georgia, serif", x: 70, y: 120 },
  { text: "Platform 7, departs 22:45", font: "500 38px 'Instrument Sans', sans-serif", x: 72, y: 190, colour: "#4b443a" },
  { text: "Coach 12   Seat 36A", font: "560 34px 'JetBrains Mono', monospace", x: 72, y: 284 },
  { text: "Please keep this ticket", font: "480 32px 'Instrument Sans', sans-serif", x: 72, y: 350, colour: "#4b443a" },
  { text: "until you arrive.", font: "480 32px 'Instrument Sans', sans-serif", x: 72, y: 398, colour: "#4b443a" },
  { text: "PAID", font: "700 74px 'Instrument Sans', sans-serif", x: 660, y: 345, turn: -16, colour: "#b0301a" },
  { text: "Fold here, read this side up", font: "500 32px Newsreader, Georgia, serif", x: 888, y: 498, turn: 180, colour: "#4b443a" },
];

export function paintSample(canvas: HTMLCanvasElement): void {
  canvas.width = WIDTH;
  canvas.height = HEIGHT;
  const pen = context(canvas);
  pen.fillStyle = "#d9cfbb";
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = "#fbf7ee";
  pen.beginPath();
  pen.roundRect(28, 28, WIDTH - 56, HEIGHT - 56, 22);
  pen.fill();
  pen.strokeStyle = "#c9bea8";
  pen.setLineDash([10, 10]);
  pen.lineWidth = 3;
  pen.beginPath();
  pen.moveTo(60, 440);
  pen.lineTo(WIDTH - 60, 440);
  pen.stroke();
  pen.setLineDash([]);
  for (const { text, font, x, y, turn = 0, colour = "#1c1a16" } of LINES) {
    pen.save();
    pen.translate(x, y);
    pen.rotate((turn * Math.PI) / 180);
    pen.font = font;
    pen.fillStyle = colour;
    pen.fillText(text, 0, 0);
    pen.restore();
  }
}
