/** What became of an instance: each change, with what it changed, who made it and when. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Fault, get, sentenceOf } from "../api/client";
import { type Change, eventText } from "../list/recent";
import { Awaited } from "../parts/awaited";
import { Differences } from "../parts/difference";
import { printable, Time } from "../parts/glyphs";
import { momentOf, utc } from "../query/times";
import { nameOf } from "../state/people";

interface HistoryAnswer {
  readonly history: readonly Change[];
  readonly before: number | null;
}

const PAGE = 50;

export function History({ id }: { id: string }) {
  const changes = useSignal<readonly Change[]>([]);
  const before = useSignal<number | null>(null);
  const problem = useSignal("");
  const isRead = useSignal(false);
  const read = async (): Promise<void> => {
    try {
      const { body } = await get<HistoryAnswer>(`/fleetlight/servers/${id}/history`, { limit: PAGE, before: before.value });
      changes.value = [...changes.value, ...body.history];
      before.value = body.before;
    } catch (error) {
      const isOther = error instanceof Fault && error.status === 501;
      problem.value = isOther ? `No past is kept of it: ${error.message}` : sentenceOf(error);
    }
    isRead.value = true;
  };
  useEffect(() => void read(), [id]);
  const oldest = changes.value.at(-1);
  return (
    <section aria-label="History">
      {!isRead.value && <Awaited problem="" onAgain={() => void read()} />}
      {problem.value !== "" && <p role="alert">{problem.value}</p>}
      <ol class="history">
        {changes.value.map((change) => (
          <Made key={change.revision} change={change} />
        ))}
      </ol>
      {before.value !== null && (
        <button type="button" onClick={() => void read()}>
          Older changes
        </button>
      )}
      {isRead.value && before.value === null && oldest !== undefined && (
        <p class="hint">
          {oldest.changed === null || oldest.revision > 1
            ? `Changes before ${utc(momentOf(oldest.at))} UTC are not kept any more.`
            : "This is all of it, from the beginning."}
        </p>
      )}
    </section>
  );
}

export function Made({ change }: { change: Change }) {
  return (
    <li>
      <p>
        <Time at={change.at} /> <strong title={change.event ?? undefined}>{eventText(change.event)}</strong> by{" "}
        <bdi>{printable(change.user_id === null ? (change.publisher ?? "the cell itself") : nameOf(change.user_id))}</bdi>{" "}
        <span class="hint">
          revision {change.revision}
          {change.request_id === null ? "" : `, ${change.request_id}`}
        </span>
      </p>
      {change.changed !== null && isCreation(change) && <p class="hint">{Object.keys(change.changed).length} fields got their first values.</p>}
      {change.changed !== null && !isCreation(change) && <Differences changed={change.changed} />}
    </li>
  );
}

function isCreation({ changed }: Change): boolean {
  return changed !== null && Object.values(changed).every(([old]) => old === null) && "uuid" in changed;
}
