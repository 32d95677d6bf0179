/** Values of Query2 as text, and the sign of those that are none. */

import type { Cell, Field, Json, Kind, Status } from "../api/types";
import type { TimeStyle } from "../state/preferences";
import { momentOf, shownTime } from "./times";

export interface Glyph {
  readonly sign: string;
  readonly meaning: string;
}

/** By status: why there is no value. Each sign differs in shape, so that colour is never needed to read it. */
export const GLYPHS: Readonly<Record<Exclude<Status, 0>, Glyph>> = {
  1: { sign: "⊘", meaning: "not permitted, or no such field" },
  2: { sign: "?", meaning: "not known" },
  3: { sign: "–", meaning: "no value" },
  4: { sign: "⏻", meaning: "offline" },
};

export interface Shown {
  readonly now: number;
  readonly times: TimeStyle;
}

/** The glyph of a cell without a value; null where it has one. */
export function glyphOf([status, value]: Cell): Glyph | null {
  if (status !== 0) return GLYPHS[status];
  return value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0) ? GLYPHS[3] : null;
}

/** The text of a value, on one line. */
export function textOf(value: Json, kind: Kind, shown: Shown): string {
  if (value === null) return "";
  if (typeof value === "number") return numberText(value, kind, shown);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return kind === "timestamp" && value !== "" ? shownTime(momentOf(value), shown.times, shown.now) : value;
  const moment = splitTime(value);
  if (moment !== null) return shownTime(moment, shown.times, shown.now);
  if (Array.isArray(value)) return value.map((each) => textOf(each as Json, "other", shown)).join(", ");
  return Object.entries(value).map(([name, each]) => `${name}: ${textOf(each, "other", shown)}`).join(", ");
}

function numberText(value: number, kind: Kind, shown: Shown): string {
  if (kind === "unit") return shownSize(value);
  if (kind === "timestamp") return shownTime(value * 1000, shown.times, shown.now);
  return String(value);
}

/** Mebibytes, as the largest unit of which there is at least one: "512 MiB", "2 GiB", "1.5 TiB". */
export function shownSize(mib: number): string {
  const units = ["MiB", "GiB", "TiB", "PiB"];
  let size = mib;
  while (size >= 1024 && units.length > 1) {
    size /= 1024;
    units.shift();
  }
  return `${size >= 100 || Number.isInteger(size) ? Math.round(size).toLocaleString("en") : size.toFixed(1)} ${units[0]}`;
}

/** Times of jobs: whole seconds, and microseconds. */
function splitTime(value: Json): number | null {
  if (!Array.isArray(value) || value.length !== 2) return null;
  const [seconds, microseconds] = value as readonly Json[];
  if (typeof seconds !== "number" || typeof microseconds !== "number") return null;
  return seconds > 1_000_000_000 ? seconds * 1000 + microseconds / 1000 : null;
}

const POWERS: Readonly<Record<number, string>> = { 0: "not known", 1: "running", 3: "paused", 4: "off", 6: "crashed", 7: "suspended" };

/** Nova's number of a power state, in words. */
export function powerOf(value: Json): string {
  return POWERS[Number(value)] ?? String(value);
}

export function isObject(value: Json): value is { readonly [name: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether a column of this kind stands at the right. */
export function isNumeric(field: Field): boolean {
  return field.kind === "number" || field.kind === "float" || field.kind === "unit";
}
