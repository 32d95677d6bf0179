/**
 * A table of any number of rows, of which those in the window are in the document.
 *
 * The scroll bar moves over a height that browsers can still draw, and its place says which row is the first; the table
 * itself stays in view. So neither the length of the list nor a browser's greatest height matters.
 */

import { type Signal, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Field } from "../api/types";
import { Value } from "../parts/glyphs";
import { labelOf, tooltipOf } from "../query/labels";
import { isNumeric } from "../query/values";
import { shownSpan } from "../query/times";
import { awayOf, type Row, type Rows } from "./rows";

const ROW_PX = 28;
/** Firefox draws nothing behind some 17.9 million pixels. */
const MOST_PX = 15_000_000;

export interface TableProps {
  readonly rows: Rows;
  readonly fields: readonly Field[];
  readonly label: string;
  readonly order: readonly string[];
  readonly selected: number;
  /** The row that is the first in the window; at the beginning, the one that is to be. */
  readonly first: Signal<number>;
  readonly onSort: (field: string) => void;
  readonly onSelect: (position: number) => void;
  /** Where an item is, by its key. */
  readonly hrefOf: (key: string) => string;
}

export function Table({ rows, fields, label, order, selected, first, onSort, onSelect, hrefOf }: TableProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const shown = useSignal(30);
  /** Where the list was left, until it is known to be so long. */
  const wanted = useRef(first.value);
  const total = rows.total.value ?? 0;
  void rows.version.value;
  const height = Math.min(MOST_PX, (total + 1) * ROW_PX);

  const look = (): void => {
    const element = scroller.current;
    if (element === null) return;
    const visible = Math.max(1, Math.floor(element.clientHeight / ROW_PX) - 1);
    const way = element.scrollHeight - element.clientHeight;
    const last = Math.max(0, total - visible);
    shown.value = visible;
    if (wanted.current > 0 && (total > wanted.current || rows.isWhole.value) && total > 0) {
      element.scrollTop = (Math.min(last, wanted.current) / Math.max(1, last)) * way;
      wanted.current = 0;
    }
    if (wanted.current === 0) first.value = way <= 0 ? 0 : Math.min(last, Math.round((element.scrollTop / way) * last));
  };
  useEffect(() => {
    look();
    const observer = new ResizeObserver(look);
    observer.observe(scroller.current!);
    return () => observer.disconnect();
  }, [rows, total]);
  useSignalEffect(() => rows.need(first.value, first.value + shown.value));
  useEffect(() => {
    const element = scroller.current!;
    if (wanted.current > 0) return;
    if (selected >= first.value && selected < first.value + shown.value) return;
    const last = Math.max(1, total - shown.value);
    const target = selected < first.value ? selected : selected - shown.value + 1;
    element.scrollTop = (target / last) * (element.scrollHeight - element.clientHeight);
  }, [selected]);

  const positions = Array.from({ length: Math.max(0, Math.min(shown.value + 1, total - first.value)) }, (_, index) => first.value + index);
  return (
    <div class="scroller" ref={scroller} onScroll={look} tabIndex={0} role="region" aria-label={label}>
      <div class="canvas" style={{ height: `${height}px` }}>
        <table aria-rowcount={rows.isWhole.value ? total + 1 : -1} aria-label={label}>
          <thead>
            <tr aria-rowindex={1}>
              {fields.map((field) => (
                <Heading key={field.name} field={field} order={order} onSort={onSort} />
              ))}
            </tr>
          </thead>
          <tbody>
            {positions.map((position) => (
              <Line
                key={position}
                row={rows.at(position)}
                position={position}
                rows={rows}
                fields={fields}
                isSelected={position === selected}
                onSelect={onSelect}
                hrefOf={hrefOf}
              />
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function Heading({ field, order, onSort }: { field: Field; order: readonly string[]; onSort: (name: string) => void }) {
  const [first] = order;
  const direction = first === field.name ? "ascending" : first === `-${field.name}` ? "descending" : "none";
  const sign = { ascending: " ↑", descending: " ↓", none: "" }[direction];
  return (
    <th scope="col" aria-sort={field.sortable === true ? direction : undefined} class={isNumeric(field) ? "number" : undefined} title={tooltipOf(field)}>
      {field.sortable === true ? (
        <button type="button" class="plain" onClick={() => onSort(field.name)}>
          {labelOf(field)}
          {sign}
        </button>
      ) : (
        labelOf(field)
      )}
    </th>
  );
}

interface LineProps {
  readonly row: Row | undefined;
  readonly position: number;
  readonly rows: Rows;
  readonly fields: readonly Field[];
  readonly isSelected: boolean;
  readonly onSelect: (position: number) => void;
  /** Where an item is, by its key. */
  readonly hrefOf: (key: string) => string;
}

function Line({ row, position, rows, fields, isSelected, onSelect, hrefOf }: LineProps) {
  const away = row === undefined ? null : awayOf(row, rows.proof.value);
  const since = away === null ? undefined : `Its cell does not answer; known ${away.ageS === null ? "from before" : `${shownSpan(away.ageS)} ago`}`;
  const classes = [isSelected && "selected", away !== null && "away", row?.mark].filter(Boolean).join(" ");
  const columnOf = (name: string): number => rows.fields.findIndex((field) => field.name === name);
  return (
    <tr
      aria-rowindex={position + 2}
      aria-selected={isSelected}
      class={classes || undefined}
      title={since}
      onClick={() => onSelect(position)}
    >
      {fields.map((field, index) => (
        <td
          key={field.name}
          class={isNumeric(field) ? "number" : undefined}
          onDblClick={(event) => void navigator.clipboard?.writeText(event.currentTarget.textContent ?? "")}
        >
          {index === 0 && row !== undefined ? (
            <a href={hrefOf(row.key)}><Value cell={row.cells[columnOf(field.name)]} field={field} /></a>
          ) : (
            <Value cell={row?.cells[columnOf(field.name)]} field={field} />
          )}
        </td>
      ))}
    </tr>
  );
}
