/** What can be done to an instance, each with what it will do, and what became of what was done. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, get, sentenceOf } from "../api/client";
import { Confirm, useAsked } from "../parts/confirm";
import { Time } from "../parts/glyphs";
import { Head } from "../parts/head";
import { link } from "../state/address";
import { nameOf } from "../state/people";
import { type Action, actionsFor, GROUPS } from "./actions";
import { imageOf, NEWEST, type Server } from "./server";

interface Done {
  readonly action: string;
  readonly request_id: string;
  readonly start_time: string;
  readonly user_id: string | null;
  readonly message: string | null;
}

interface Event {
  readonly event: string;
  readonly finish_time: string | null;
  readonly result: string | null;
}

const REFRESH_MS = 2000;

export function Actions({ server, isAdmin, onDone }: { server: Server; isAdmin: boolean; onDone: () => void }) {
  const asked = useAsked();
  const said = useSignal("");
  const followed = useSignal<string | null>(null);
  const carryOut = async (action: Action): Promise<void> => {
    const path = `/v2.1/servers/${server.id}`;
    try {
      const answer =
        action.body === null
          ? await ask("DELETE", path, { headers: NEWEST })
          : await ask("POST", `${path}/action`, { body: typeof action.body === "function" ? action.body(imageOf(server)) : action.body, headers: NEWEST });
      followed.value = answer.headers.get("X-OpenStack-Request-ID");
      said.value = `${action.title}: accepted.`;
    } catch (error) {
      said.value = `${action.title} was refused: ${sentenceOf(error)}`;
    }
    onDone();
  };
  const isBusy = server["OS-EXT-STS:task_state"] !== null;
  const possible = actionsFor(server["OS-EXT-STS:vm_state"], server.locked === true, isAdmin).filter(({ name }) => name !== "rebuild" || imageOf(server) !== "");
  const confirm = (action: Action): void => {
    asked.value = {
      title: `${action.title} ${server.name}`,
      does: action.does,
      verb: action.title,
      isSerious: action.isSerious === true,
      act: () => void carryOut(action),
    };
  };
  return (
    <section aria-label="Actions">
      <div class="tools">
        {GROUPS.map((group) => (
          <span key={group} class="group" role="group" aria-label={group}>
            {possible
              .filter((action) => action.group === group)
              .map((action) => (
                <button
                  key={action.name}
                  type="button"
                  title={action.does}
                  class={action === possible[0] ? "primary" : action.isSerious === true ? "serious" : undefined}
                  disabled={isBusy && action.name !== "delete"}
                  onClick={() => confirm(action)}
                >
                  {action.title}
                </button>
              ))}
          </span>
        ))}
      </div>
      {said.value !== "" && <p role="status">{said.value}</p>}
      <ActionsDone id={server.id} followed={followed.value} />
      {isAdmin && (
        <p><a href={link(["jobs"], { filter: `instance == "${server.id}"` })}>Its jobs</a></p>
      )}
      <Confirm asked={asked} />
    </section>
  );
}

/** followed: the request that was just made; its steps are shown until all have ended. */
function ActionsDone({ id, followed }: { id: string; followed: string | null }) {
  const done = useSignal<readonly Done[]>([]);
  const events = useSignal<readonly Event[]>([]);
  useEffect(() => {
    const path = `/v2.1/servers/${id}/os-instance-actions`;
    const read = async (): Promise<void> => {
      try {
        done.value = (await get<{ instanceActions: Done[] }>(path)).body.instanceActions;
        if (followed === null) return;
        const { body } = await get<{ instanceAction: { events: Event[] } }>(`${path}/${followed}`);
        events.value = body.instanceAction.events;
      } catch {
        // Cells that are only read keep no actions, or it is gone.
      }
    };
    void read();
    const timer = setInterval(() => void read(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [id, followed]);
  if (done.value.length === 0) return null;
  return (
    <details open={followed !== null}>
      <summary>What was done to it ({done.value.length})</summary>
      <table class="small">
        <Head titles={["Action", "When", "By", "How it went"]} />
        <tbody>
          {done.value.map((each) => (
            <tr key={`${each.request_id} ${each.action}`}>
              <td>{each.action}</td>
              <td><Time at={each.start_time} /></td>
              <td><bdi title={each.user_id ?? undefined}>{each.user_id === null ? "–" : nameOf(each.user_id)}</bdi></td>
              <td>{each.message ?? (each.request_id === followed ? progressOf(events.value) : "")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function progressOf(events: readonly Event[]): string {
  if (events.length === 0) return "waiting";
  return events.map(({ event, result, finish_time }) => `${event}: ${result ?? (finish_time === null ? "under way" : "ended")}`).join(", ");
}
