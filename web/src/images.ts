/** Pictures and video frames as tensors: resized by the browser, f32 in 0..1, u8 in 0..255. */

import type { ImageSource, Tensor } from "./api.js";
import type { Dim, Expr, Plan, PlanPort } from "./bundle/format.js";
import { show } from "./bundle/expr.js";
import { InputError } from "./errors.js";
import type { ReadImage } from "./runtime/inputs.js";

const TENSOR = "Pass { dtype, shape, data }";

/** Where the axes of a picture are among those of a port. */
interface Axes {
  readonly channel: number;
  readonly height: number;
  readonly width: number;
  readonly channels: 1 | 3 | 4;
}

interface Size {
  readonly width: number;
  readonly height: number;
}

/** Reads pictures for the ports of a plan: 1 channel is luma, 3 are RGB, 4 are RGBA. */
export function imageReader(plan: Plan): ReadImage {
  const dims = new Map(plan.dims.map((d) => [d.name, d]));
  return (source, port, fixed) => {
    const where = `input "${port.name}"`, axes = axesOf(port, where);
    const natural = sizeOf(source, where), size = fixed ? { height: fixed[axes.height]!, width: fixed[axes.width]! } : fit(port, axes, natural, dims, where);
    const pixels = draw(source, natural, size, axes.channels, where);
    const shape = port.shape.map((e, axis) => {
      if (axis === axes.height) return size.height;
      if (axis === axes.width) return size.width;
      return axis === axes.channel ? axes.channels : one(fixed?.[axis] ?? e, dims, where);
    });
    const float = port.dtype === "f32", data = new (float ? Float32Array : Uint8Array)(size.width * size.height * axes.channels);
    arrange(pixels, data, axes, float ? 1 / 255 : 1);
    return { dtype: port.dtype, shape, data } satisfies Tensor;
  };
}

function axesOf(port: PlanPort, where: string): Axes {
  const rank = port.shape.length, at = (axis: number): Expr | undefined => port.shape[axis];
  const channels = (e: Expr | undefined): e is 1 | 3 | 4 => e === 1 || e === 3 || e === 4;
  const first = at(rank - 3), last = at(rank - 1);
  if (rank >= 3 && (port.dtype === "f32" || port.dtype === "u8")) {
    // three in front or behind are colours rather than a height or a width
    if (channels(first) && (first === 3 || last !== 3)) return { channel: rank - 3, height: rank - 2, width: rank - 1, channels: first };
    if (channels(last)) return { channel: rank - 1, height: rank - 3, width: rank - 2, channels: last };
  }
  const shape = port.shape.map(show).join(", ");
  throw new InputError(`takes no picture: it is ${port.dtype} (${shape}), not f32 or u8 with 1, 3 or 4 channels`, where,
    TENSOR);
}

/** The other axes have one element. */
function one(e: Expr, dims: ReadonlyMap<string, Dim>, where: string): number {
  const dim = typeof e === "string" ? dims.get(e) : undefined;
  if (e === 1 || (dim && dim.min <= 1 && dim.multiple === 1)) return 1;
  throw new InputError(`takes no picture: an axis has the size ${show(e)}`, where, TENSOR);
}

function sizeOf(source: ImageSource, where: string): Size {
  const given = source as unknown as Record<string, number | undefined>;
  const side = (name: string): number | undefined => given[`video${name}`] ?? given[`natural${name}`] ?? given[`display${name}`] ?? given[name.toLowerCase()];
  const width = side("Width"), height = side("Height");
  if (typeof width !== "number" || typeof height !== "number") {
    throw new InputError("is neither an array nor a picture", where, TENSOR);
  }
  if (width > 0 && height > 0) return { width, height };
  throw new InputError("the picture has no pixels (yet)", where, "Wait for load or loadeddata");
}

/** The size that the port takes: the picture's where it is free, its aspect kept where one side is fixed. */
function fit(port: PlanPort, axes: Axes, natural: Size, dims: ReadonlyMap<string, Dim>, where: string): Size {
  const h = port.shape[axes.height]!, w = port.shape[axes.width]!;
  const scale = typeof h === "number" ? h / natural.height : typeof w === "number" ? w / natural.width : 1;
  const side = (e: Expr, pixels: number): number => {
    if (typeof e === "number") return e;
    const dim = typeof e === "string" ? dims.get(e) : undefined;
    if (!dim) throw new InputError(`a picture cannot tell its size ${show(e)}`, where, TENSOR);
    const { min, max, multiple } = dim;
    return Math.min(Math.floor(max / multiple), Math.max(Math.ceil(min / multiple), Math.round(pixels / multiple))) * multiple;
  };
  const { width, height } = natural, both = h === w ? Math.max(width, height) : 0; // one size for both
  return { height: side(h, (both || height) * scale), width: side(w, (both || width) * scale) };
}

type Canvas = OffscreenCanvas | HTMLCanvasElement;
type Context = OffscreenCanvasRenderingContext2D | CanvasRenderingContext2D;

function context({ width, height }: Size, alpha: boolean): Context {
  const canvas: Canvas = typeof OffscreenCanvas === "undefined" ? Object.assign(document.createElement("canvas"), { width, height }) : new OffscreenCanvas(width, height);
  return canvas.getContext("2d", { alpha, willReadFrequently: true }) as Context;
}

/** The pixels of the picture at a size, RGBA. */
function draw(source: ImageSource, natural: Size, size: Size, channels: number, where: string): Uint8ClampedArray {
  const data = typeof ImageData !== "undefined" && source instanceof ImageData ? source : null;
  if (data && natural.width === size.width && natural.height === size.height) return data.data as Uint8ClampedArray;
  const target = context(size, channels === 4);
  target.imageSmoothingQuality = "high";
  let drawn = source as CanvasImageSource;
  if (data) {
    const whole = context(natural, channels === 4);
    whole.putImageData(data, 0, 0);
    drawn = whole.canvas;
  }
  try {
    target.drawImage(drawn, 0, 0, size.width, size.height);
    return target.getImageData(0, 0, size.width, size.height).data;
  } catch (error) {
    throw new InputError(`the picture cannot be read (${String(error)})`, where, "It may need CORS, or be closed", { cause: error });
  }
}

function arrange(pixels: Uint8ClampedArray, data: Float32Array | Uint8Array, { channels, channel, height }: Axes, unit: number): void {
  const count = pixels.length / 4, planar = channel < height;
  for (let i = 0; i < count; i++) {
    const p = 4 * i;
    if (channels === 1) {
      const luma = 0.299 * pixels[p]! + 0.587 * pixels[p + 1]! + 0.114 * pixels[p + 2]!;
      data[i] = unit === 1 ? Math.round(luma) : luma * unit;
    } else {
      for (let c = 0; c < channels; c++) data[planar ? c * count + i : i * channels + c] = pixels[p + c]! * unit;
    }
  }
}
