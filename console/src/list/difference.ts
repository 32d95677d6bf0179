/**
 * What differs between a list as of one moment and as of another: both are read in the order of their keys, side by
 * side, so that neither has to be in memory as a whole.
 */

import { get } from "../api/client";
import { isAway, type Proof } from "../api/proof";
import type { Cell, QueryAnswer } from "../api/types";
import { parametersOf, type Question } from "./rows";

export interface Difference {
  readonly key: string;
  /** Its cells at each of the moments; null where it was not in the list. */
  readonly before: readonly Cell[] | null;
  readonly after: readonly Cell[] | null;
}

export interface Differences {
  readonly found: readonly Difference[];
  /** How many items were compared, and whether these were all. */
  readonly compared: number;
  readonly isWhole: boolean;
  readonly isComplete: boolean;
  /** The cells that were not whole at one of the moments: nothing is said of their items. */
  readonly leftOut: readonly string[];
}

export type ReadPage = (asOf: string | null, marker: string | null) => Promise<{ answer: QueryAnswer; proof: Proof }>;

/** Items of one moment, in the order of their keys. */
class Side {
  isComplete = true;
  readonly away = new Set<string>();
  private rows: readonly (readonly Cell[])[] = [];
  private at = 0;
  private marker: string | null = null;
  private isAtEnd = false;

  constructor(
    private readonly asOf: string | null,
    private readonly read: ReadPage,
  ) {}

  /** The next item; null at the end. */
  async first(): Promise<readonly Cell[] | null> {
    while (this.at >= this.rows.length && !this.isAtEnd) {
      const { answer, proof } = await this.read(this.asOf, this.marker);
      [this.rows, this.at, this.marker] = [answer.data, 0, answer.marker];
      this.isAtEnd = answer.marker === null;
      this.isComplete &&= proof.isComplete;
      for (const { cell, route } of proof.routes) if (cell !== null && isAway(route)) this.away.add(cell);
    }
    return this.rows[this.at] ?? null;
  }

  skip(): void {
    this.at++;
  }
}

/**
 * most: so many items are compared at the most. The key is the first value of a row; cellAt: the place of its cell, -1
 * where the caller does not see cells.
 */
export async function differences(
  before: string | null,
  after: string | null,
  most: number,
  cellAt: number,
  read: ReadPage,
): Promise<Differences> {
  const [left, right] = [new Side(before, read), new Side(after, read)];
  const cellOf = (pair: Difference): string => String((pair.before ?? pair.after)?.[cellAt]?.[1] ?? "");
  const found: Difference[] = [];
  const comparedOf = new Map<string, number>();
  let compared = 0;
  let [old, current] = await Promise.all([left.first(), right.first()]);
  while ((old !== null || current !== null) && compared < most) {
    const [oldKey, currentKey] = [keyOf(old), keyOf(current)];
    const key = oldKey < currentKey ? oldKey : currentKey;
    const pair = { key, before: oldKey === key ? old : null, after: currentKey === key ? current : null };
    if (isDifferent(pair)) found.push(pair);
    if (pair.before !== null) left.skip();
    if (pair.after !== null) right.skip();
    compared++;
    comparedOf.set(cellOf(pair), (comparedOf.get(cellOf(pair)) ?? 0) + 1);
    [old, current] = await Promise.all([left.first(), right.first()]);
  }
  // Known at the end: a cell may go away while its pages are read.
  const away = new Set([...left.away, ...right.away]);
  for (const cell of away) compared -= comparedOf.get(cell) ?? 0;
  return {
    found: found.filter((pair) => !away.has(cellOf(pair))),
    compared,
    isWhole: old === null && current === null,
    isComplete: left.isComplete && right.isComplete,
    leftOut: [...away].sort(),
  };
}

/** Pages of the question, in the order of its key. */
export function reader(question: Question, limit: number, signal: AbortSignal): ReadPage {
  return async (asOf, marker) => {
    const asked = { ...parametersOf({ ...question, order: [question.fields[0]!], asOf }), limit, marker };
    const answer = await get<QueryAnswer>("/fleetlight/query", asked, signal);
    return { answer: answer.body, proof: answer.proof };
  };
}

/** The greatest text of all where there is no item. */
function keyOf(cells: readonly Cell[] | null): string {
  return cells === null ? "￿" : String(cells[0]![1]);
}

function isDifferent({ before, after }: Difference): boolean {
  return before === null || after === null || JSON.stringify(before) !== JSON.stringify(after);
}
