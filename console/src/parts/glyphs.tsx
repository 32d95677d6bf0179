/** The value of a field, or the sign of why there is none. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Cell, Field, Json } from "../api/types";
import { momentOf, shownTime, utc } from "../query/times";
import { glyphOf, type Glyph, isObject, powerOf, textOf } from "../query/values";
import { timeStyle } from "../state/preferences";

const TICK_MS = 5000;

/** The moment that relative times are relative to. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, TICK_MS);

/** A value on one line. */
export function Value({ cell, field }: { cell: Cell | undefined; field: Field }) {
  if (cell === undefined) return <span class="loading">…</span>;
  const glyph = glyphOf(cell);
  return glyph !== null ? <Sign glyph={glyph} /> : <ValueText value={cell[1]} field={field} />;
}

/** A value on as many lines as it needs. */
export function WholeValue({ cell, field }: { cell: Cell | undefined; field: Field }) {
  const isNested = cell !== undefined && glyphOf(cell) === null && hasNames(cell[1]);
  return isNested ? <Nested value={cell[1]} /> : <Value cell={cell} field={field} />;
}

function Sign({ glyph }: { glyph: Glyph }) {
  return (
    <span class="glyph" role="img" aria-label={glyph.meaning} title={glyph.meaning}>{glyph.sign}</span>
  );
}

/** Names come from tenants: <bdi> keeps their direction to themselves, and nothing of them is markup. */
export function ValueText({ value, field }: { value: Json; field: Field }) {
  const glyph = glyphOf([0, value]);
  if (glyph !== null) return <Sign glyph={glyph} />;
  const shown = { now: now.value, times: timeStyle.value };
  const text = printable(field.name === "power_state" ? powerOf(value) : textOf(value, field.kind, shown));
  return <bdi class={field.name === "vm_state" || field.name === "status" ? `state state-${text}` : undefined}>{text}</bdi>;
}

function hasNames(value: Json): boolean {
  return Array.isArray(value) ? value.some(hasNames) : isObject(value);
}

/** Names and values, one below the other. */
function Nested({ value }: { value: Json }): ComponentChildren {
  if (Array.isArray(value)) {
    return (
      <ol class="nested">
        {value.map((each: Json, index) => (
          <li key={index}><Nested value={each} /></li>
        ))}
      </ol>
    );
  }
  if (!isObject(value)) return <ValueText value={value} field={{ name: "", title: "", kind: "other", doc: "" }} />;
  return (
    <ul class="nested">
      {Object.entries(value).map(([name, each]) => (
        <li key={name}><span class="hint">{printable(name)}:</span> <Nested value={each} /></li>
      ))}
    </ul>
  );
}

/** A moment of the API, as times are shown; its tooltip has the zone. */
export function Time({ at }: { at: string }) {
  const moment = momentOf(at);
  return (
    <time dateTime={at} title={`${utc(moment)} UTC`}>
      {shownTime(moment, timeStyle.value, now.value)}
    </time>
  );
}

/** Control and direction characters as their pictures, so that a name cannot hide what it is. */
export function printable(text: string): string {
  return text
    .replace(/[\u0000-\u001f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, "�");
}
