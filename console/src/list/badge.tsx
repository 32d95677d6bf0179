/** What an answer covers: whole or not, how old, and which cells came from where. */

import { useSignal } from "@preact/signals";
import { get, sentenceOf } from "../api/client";
import { ageOf, type CellRoute, isAway, type Proof } from "../api/proof";
import { Dialog } from "../parts/dialog";
import { Head } from "../parts/head";
import { Icon } from "../parts/icons";
import { shownSpan } from "../query/times";

interface Explanation {
  readonly remarks: readonly string[];
  readonly duration_ms: number;
  readonly rows_read: number;
  readonly cells: readonly {
    readonly cell: string;
    readonly route: string;
    readonly complete: boolean;
    readonly age_s: number | null;
    readonly matching: number | null;
    readonly why: string;
  }[];
}

/** request: what is explained, as `GET /path?…`; null where the caller may not ask for that. */
export function Badge({ proof, request }: { proof: Proof | null; request: string | null }) {
  const isOpen = useSignal(false);
  if (proof === null) return null;
  const away = proof.routes.filter((route) => isAway(route.route));
  return (
    <>
      <button
        type="button"
        class={proof.isComplete ? "badge whole" : "badge partial"}
        title="Why this answer is as it is"
        onClick={() => (isOpen.value = true)}
      >
        <Icon name={proof.isComplete ? "ok" : "partial"} /> {proof.isComplete ? "complete" : "not complete"}
        <span class="age">{ageText(proof)}</span>
        {away.length > 0 && <span> · {awayText(away)}</span>}
      </button>
      {isOpen.value && (
        <Dialog title="What this answer covers" onClose={() => (isOpen.value = false)}>
          <Covered proof={proof} request={request} />
        </Dialog>
      )}
    </>
  );
}

function ageText(proof: Proof): string {
  const age = ageOf(proof);
  return age === null ? "" : ` · ${age < 1 ? "under 1 s" : shownSpan(age)} old`;
}

function awayText(away: readonly CellRoute[]): string {
  const named = away.flatMap((route) => (route.cell === null ? [] : [route.cell]));
  const count = away.reduce((sum, route) => sum + route.count, 0);
  const cells = count === 1 ? (named[0] ?? "1 cell") : `${count} cells`;
  return `${cells} ${count === 1 ? "does" : "do"} not answer`;
}

function Covered({ proof, request }: { proof: Proof; request: string | null }) {
  const explanation = useSignal<Explanation | string | null>(null);
  const explain = async (): Promise<void> => {
    try {
      explanation.value = (await get<Explanation>("/fleetlight/explain", { request })).body;
    } catch (error) {
      explanation.value = sentenceOf(error);
    }
  };
  const found = explanation.value;
  return (
    <>
      <p>
        {proof.isComplete
          ? "Every cell gave every row that it has."
          : "Rows are missing, or may be older than is allowed. The cells below say which."}
      </p>
      <table class="small">
        <Head titles={["Cell", "From", "Age", "Up to change"]} numbers={["Age", "Up to change"]} />
        <tbody>
          {proof.routes.slice(0, 200).map((route, index) => (
            <tr key={index} class={isAway(route.route) ? "away" : undefined}>
              <td>{route.cell ?? `${route.count} cell${route.count === 1 ? "" : "s"}`}</td>
              <td>{route.route}</td>
              <td class="number">{route.ageS === null ? "–" : `${route.ageS} s`}</td>
              <td class="number">{route.watermark ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {request !== null && found === null && (
        <button type="button" onClick={() => void explain()}>
          Explain
        </button>
      )}
      {typeof found === "string" && <p role="alert">{found}</p>}
      {found !== null && typeof found !== "string" && (
        <>
          <p>{found.rows_read} rows were read in {Math.round(found.duration_ms)} ms. {found.remarks.join(" ")}</p>
          <dl>
            {found.cells.slice(0, 200).map((cell) => (
              <div key={cell.cell}>
                <dt>{cell.cell}: {cell.route}</dt>
                <dd>{cell.why}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
    </>
  );
}
