/** Moments, as people read them. All are milliseconds since the epoch inside of the console. */

import type { TimeStyle } from "../state/preferences";

const STEPS: readonly (readonly [number, string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

export function shownTime(at: number, style: TimeStyle, now: number): string {
  if (style === "relative") return relative(at, now);
  return style === "utc" ? `${utc(at)}Z` : local(at);
}

/** Clocks differ by less, and the moment that times are relative to is not older. */
const NOW_MS = 10_000;

/** "3 h ago", "in 5 min"; one unit, rounded down. */
export function relative(at: number, now: number): string {
  return at > now + NOW_MS ? `in ${shownSpan((at - now) / 1000)}` : `${shownSpan(Math.max(0, now - at) / 1000)} ago`;
}

/** A length of time in seconds: "42 s", "3 min", "2 d". */
export function shownSpan(seconds: number): string {
  for (const [length, unit] of STEPS) if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  return "0 s";
}

/** "2026-11-26 01:15:40" of Greenwich. */
export function utc(at: number): string {
  return new Date(at).toISOString().slice(0, 19).replace("T", " ");
}

/** The same, where the browser is. */
export function local(at: number): string {
  return utc(at - new Date(at).getTimezoneOffset() * 60_000);
}

/** What the API takes as a moment. */
export function instant(at: number): string {
  return new Date(at).toISOString();
}

const UNITS_S: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };

/** The filter with moments in place of times such as "10m ago", which streams of changes do not accept. */
export function fixed(filter: string, now: number): string {
  return filter.replace(/(["'])(\d{1,9}) ?([smhdw]) ago\1/g, (_, __, count: string, unit: string) => `"${instant(Math.max(0, now - Number(count) * UNITS_S[unit]! * 1000))}"`);
}

/** Of RFC 3339; a time without a zone is of Greenwich, as Nova writes it. */
export function momentOf(text: string): number {
  return Date.parse(/Z|[+-]\d\d:?\d\d$/.test(text) ? text : `${text}Z`);
}
