/** The value of a field, or the sign of why there is none. */

import { signal } from "@preact/signals";
import type { Cell, Field } from "../api/types";
import { glyphOf, textOf } from "../query/values";
import { timeStyle } from "../state/preferences";

const TICK_MS = 5000;

/** The moment that relative times are relative to. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, TICK_MS);

/** Names come from tenants: <bdi> keeps their direction to themselves, and nothing of them is markup. */
export function Value({ cell, field }: { cell: Cell | undefined; field: Field }) {
  if (cell === undefined) return <span class="loading">…</span>;
  const glyph = glyphOf(cell);
  if (glyph !== null) {
    return (
      <span class="glyph" role="img" aria-label={glyph.meaning} title={glyph.meaning}>
        {glyph.sign}
      </span>
    );
  }
  const text = printable(textOf(cell[1], field.kind, { now: now.value, times: timeStyle.value }));
  return <bdi class={field.name === "vm_state" || field.name === "status" ? `state state-${text}` : undefined}>{text}</bdi>;
}

/** Control and direction characters as their pictures, so that a name cannot hide what it is. */
export function printable(text: string): string {
  return text
    .replace(/[\u0000-\u001f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, "�");
}
