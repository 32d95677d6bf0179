/** What differs between the list as of a moment and the list now. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { sentenceOf } from "../api/client";
import type { Cell, Field } from "../api/types";
import { Value } from "../parts/glyphs";
import { labelOf, tooltipOf } from "../query/labels";
import { link } from "../state/address";
import { type Difference, type Differences, differences, reader } from "./difference";
import type { Question } from "./rows";

const MOST_COMPARED = 50_000;
const MOST_SHOWN = 500;
const PAGE = 1000;

export function DifferenceTable({ question, fields }: { question: Question; fields: readonly Field[] }) {
  const found = useSignal<Differences | null>(null);
  const problem = useSignal("");
  useEffect(() => {
    const aborting = new AbortController();
    differences(question.asOf, null, MOST_COMPARED, question.fields.indexOf("cell"), reader(question, PAGE, aborting.signal))
      .then((all) => {
        found.value = all;
      })
      .catch((error: unknown) => {
        if (!aborting.signal.aborted) problem.value = sentenceOf(error);
      });
    return () => aborting.abort();
  }, [JSON.stringify(question)]);
  if (problem.value !== "") return <p role="alert">{problem.value}</p>;
  const all = found.value;
  if (all === null) return <p class="loading">Comparing…</p>;
  const shown = fields.flatMap((field) => {
    const column = question.fields.indexOf(field.name);
    return column === -1 ? [] : [{ field, column }];
  });
  return (
    <div class="scroller" role="region" aria-label="Differences" tabIndex={0}>
      <p role="status">
        {all.found.length.toLocaleString("en")} of {all.compared.toLocaleString("en")} differ.
        {!all.isWhole && " The others were not compared: narrow the filter."}
        {all.leftOut.length > 0 && ` Left out, since not whole in both lists: ${all.leftOut.join(", ")}.`}
        {!all.isComplete && all.leftOut.length === 0 && " One of the lists is not complete."}
        {all.found.length > MOST_SHOWN && ` The first ${MOST_SHOWN} are shown.`}
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">What</th>
            {shown.map(({ field }) => (
              <th key={field.name} scope="col" title={tooltipOf(field)}>{labelOf(field)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {[...all.found].sort(byFirst(shown[0]?.column ?? 0)).slice(0, MOST_SHOWN).map((each) => (
            <tr key={each.key}>
              <td><a href={link(["instances", each.key], { tab: "history" })}>{kindOf(each)}</a></td>
              {shown.map(({ field, column }) => (
                <td key={field.name}><Changed before={each.before?.[column]} after={each.after?.[column]} field={field} /></td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

/** The order of the values of a column, as it was before where an item is gone. */
function byFirst(column: number): (one: Difference, other: Difference) => number {
  const text = ({ before, after }: Difference): string => String((after ?? before)?.[column]?.[1] ?? "");
  return (one, other) => COLLATOR.compare(text(one), text(other));
}

function kindOf({ before, after }: Difference): string {
  return before === null ? "+ new" : after === null ? "− gone" : "≠ changed";
}

function Changed({ before, after, field }: { before: Cell | undefined; after: Cell | undefined; field: Field }) {
  if (before === undefined || after === undefined || JSON.stringify(before) === JSON.stringify(after)) {
    return <Value cell={after ?? before} field={field} />;
  }
  return (
    <>
      <del>
        <Value cell={before} field={field} />
      </del>{" "}
      <ins><Value cell={after} field={field} /></ins>
    </>
  );
}
