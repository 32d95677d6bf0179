/** What may follow at the caret of the filter bar, and what a mistyped name was meant to be. */

import type { Field, Kind } from "../api/types";
import { labelOf } from "./labels";
import { KEYWORDS, lastOf, quoted, type Token, tokensOf } from "./language";

export interface Suggestion {
  /** What stands there after it was taken, instead of the text from `from` to `to`. */
  readonly text: string;
  readonly hint: string;
  readonly from: number;
  readonly to: number;
}

const MOST = 12;
const NUMBERS: readonly Kind[] = ["number", "float", "unit"];
/** Of a field of time: so long before the list. The API takes any number of s, m, h, d or w. */
export const TIMES = ["10m ago", "1h ago", "6h ago", "1d ago", "1w ago", "4w ago"];
const HINTS: Readonly<Record<string, string>> = {
  "==": "is",
  "!=": "is not",
  "<": "less than",
  ">": "more than",
  "<=": "at most",
  ">=": "at least",
  "=*": "is like, with * and ?",
  "!*": "is not like",
  "=~": "has, as a regular expression m/…/",
  "!~": "has not",
};

/** valuesOf: known values of a field, the commonest first. */
export function suggestions(
  text: string,
  caret: number,
  fields: readonly Field[],
  valuesOf: (field: Field) => readonly string[],
): Suggestion[] {
  const before = tokensOf(text.slice(0, caret));
  const typed = before.at(-1)?.type === "space" ? undefined : before.at(-1);
  const done = lastOf(typed === undefined ? before : before.slice(0, -1));
  const from = typed?.from ?? caret;
  const make = (text: string, hint: string): Suggestion => ({ text, hint, from, to: caret });
  const begun = typed?.text ?? "";
  if (done?.type === "operator") {
    const field = fieldBefore(before, done, fields);
    return field === undefined ? [] : values(field, begun, valuesOf).map((value) => make(value, labelOf(field)));
  }
  const ended = done !== undefined && isOperand(done, before, fields);
  if (ended === "field" && typed?.type !== "word") {
    const field = fields.find((each) => each.name === done?.text);
    return operatorsOf(field).filter(startsWith(begun)).map((each) => make(`${each} `, HINTS[each] ?? ""));
  }
  if (ended !== false) {
    return ["and", "or"].filter(startsWith(begun)).map((each) => make(`${each} `, `${each} another condition`));
  }
  return ranked(fields, begun).map((field) => make(`${field.name} `, `${labelOf(field)}: ${field.doc}`));
}

/** Those of jobs have no kind of their own. */
export function isTime({ kind, name }: Field): boolean {
  return kind === "timestamp" || name.endsWith("_ts");
}

/** The operators that a field's kind can be asked with. */
export function operatorsOf(field: Field | undefined): readonly string[] {
  if (field === undefined) return [];
  if (field.kind === "bool") return [];
  if (NUMBERS.includes(field.kind) || isTime(field)) return ["==", "!=", "<", ">", "<=", ">="];
  return ["==", "!=", "=*", "!*", "=~", "!~"];
}

/** The name that `typed` was meant to be: the nearest, if it is near. */
export function meant(typed: string, names: readonly string[]): string | null {
  const most = Math.max(1, Math.floor(typed.length / 3));
  let best: string | null = null;
  let least = most + 1;
  for (const name of names) {
    const cost = distance(typed.toLowerCase(), name.toLowerCase(), least);
    if (cost < least) [best, least] = [name, cost];
  }
  return best;
}

/** A word of the filter that is no field, and the field that was meant. */
export function meantIn(filter: string, fields: readonly Field[]): { typed: string; name: string } | null {
  const names = fields.map((field) => field.name);
  for (const { type, text } of tokensOf(filter)) {
    if (type !== "word" || names.includes(text) || (KEYWORDS as readonly string[]).includes(text)) continue;
    const name = meant(text, names);
    if (name !== null) return { typed: text, name };
  }
  return null;
}

/** Fields whose name begins with what was typed, then those that have it in their name or title. */
function ranked(fields: readonly Field[], begun: string): readonly Field[] {
  const wanted = begun.toLowerCase();
  const inside = (field: Field) => `${field.name} ${labelOf(field)} ${field.title}`.toLowerCase().includes(wanted);
  const first = fields.filter((field) => field.name.toLowerCase().startsWith(wanted));
  const others = fields.filter((field) => !first.includes(field) && inside(field));
  return [...first, ...others].slice(0, MOST);
}

function values(field: Field, begun: string, valuesOf: (field: Field) => readonly string[]): string[] {
  const wanted = begun.replace(/^["']|["']$/g, "").toLowerCase();
  return (isTime(field) ? TIMES : valuesOf(field))
    .filter((value) => value.toLowerCase().includes(wanted))
    .slice(0, MOST)
    .flatMap((value) => (NUMBERS.includes(field.kind) ? value : (quoted(value) ?? [])))
    .map((value) => `${value} `);
}

/** The field that stands before an operator. */
function fieldBefore(tokens: readonly Token[], operator: Token, fields: readonly Field[]): Field | undefined {
  const before = lastOf(tokens.filter((token) => token.to <= operator.from));
  return fields.find((field) => field.name === before?.text);
}

/** Whether a token ends a condition: "field" if one may go on with an operator. */
function isOperand(token: Token, tokens: readonly Token[], fields: readonly Field[]): "field" | boolean {
  if (token.type === "string" || token.type === "number" || token.type === "pattern") return true;
  if (token.text === ")") return true;
  const field = fields.find((each) => each.name === token.text);
  if (field === undefined || token.type !== "word") return false;
  const before = lastOf(tokens.filter((each) => each.to <= token.from));
  return before?.text === "in" || field.kind === "bool" ? true : "field";
}

function startsWith(begun: string): (text: string) => boolean {
  return (text) => text.startsWith(begun);
}

/** How many letters have to be changed, added, left out or swapped with their neighbours; `most` if it is more. */
function distance(left: string, right: string, most: number): number {
  if (Math.abs(left.length - right.length) >= most) return most;
  let [earlier, before]: [number[], number[]] = [[], Array.from({ length: right.length + 1 }, (_, index) => index)];
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const isSame = left[row - 1] === right[column - 1];
      let cost = Math.min(before[column]! + 1, current[column - 1]! + 1, before[column - 1]! + (isSame ? 0 : 1));
      const isSwapped = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (row > 1 && column > 1 && isSwapped) cost = Math.min(cost, earlier[column - 2]! + 1);
      current.push(cost);
    }
    [earlier, before] = [before, current];
  }
  return before.at(-1)!;
}
