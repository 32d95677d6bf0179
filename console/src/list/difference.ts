/**
 * What differs between a list as of one moment and as of another: both are read in the order of their keys, side by
 * side, so that neither has to be in memory as a whole.
 */

import { get } from "../api/client";
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
}

export type ReadPage = (asOf: string | null, marker: string | null) => Promise<{ answer: QueryAnswer; isComplete: boolean }>;

/** Items of one moment, in the order of their keys. */
class Side {
  isComplete = true;
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
      const { answer, isComplete } = await this.read(this.asOf, this.marker);
      [this.rows, this.at, this.marker] = [answer.data, 0, answer.marker];
      this.isAtEnd = answer.marker === null;
      this.isComplete &&= isComplete;
    }
    return this.rows[this.at] ?? null;
  }

  skip(): void {
    this.at++;
  }
}

/** most: so many items are compared at the most. The key is the first cell of a row. */
export async function differences(before: string | null, after: string | null, most: number, read: ReadPage): Promise<Differences> {
  const [left, right] = [new Side(before, read), new Side(after, read)];
  const found: Difference[] = [];
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
    [old, current] = await Promise.all([left.first(), right.first()]);
  }
  return { found, compared, isWhole: old === null && current === null, isComplete: left.isComplete && right.isComplete };
}

/** Pages of the question, in the order of its key. */
export function reader(question: Question, limit: number, signal: AbortSignal): ReadPage {
  return async (asOf, marker) => {
    const asked = { ...parametersOf({ ...question, order: [question.fields[0]!], asOf }), limit, marker };
    const answer = await get<QueryAnswer>("/fleetlight/query", asked, signal);
    return { answer: answer.body, isComplete: answer.proof.isComplete };
  };
}

/** The greatest text of all where there is no item. */
function keyOf(cells: readonly Cell[] | null): string {
  return cells === null ? "￿" : String(cells[0]![1]);
}

function isDifferent({ before, after }: Difference): boolean {
  return before === null || after === null || JSON.stringify(before) !== JSON.stringify(after);
}
