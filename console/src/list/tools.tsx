/** What can be done with a list as it is shown: read it again, share it, take it along. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { addressOf } from "../api/client";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { link } from "../state/address";
import { type TimeStyle, timeStyle } from "../state/preferences";
import { copies } from "./copies";
import type { ListKind } from "./kinds";
import { parametersOf, type Question, type Rows } from "./rows";
import { SavedViews } from "./saved_views";

export interface ToolsProps {
  readonly kind: ListKind;
  readonly question: Question;
  readonly rows: Rows;
  readonly onAgain: () => void;
  readonly children: ComponentChildren;
}

export function ListTools({ kind, question, rows, onAgain, children }: ToolsProps) {
  const isExporting = useSignal(false);
  return (
    <span class="tools" role="group" aria-label="Tools">
      <button type="button" onClick={onAgain} disabled={rows.isLoading.value}><Icon name="refresh" /> Refresh</button>
      {children}
      <SavedViews kind={kind} question={question} />
      <button type="button" onClick={() => (isExporting.value = true)}>
        <Icon name="download" /> Export
      </button>
      {kind.path === "instances" && question.asOf === null && (
        <a class="button" href={link(["bulk"], { filter: question.filter, mine: question.allProjects ? null : "1" })} title="Previewed first">
          <Icon name="many" /> Change all
        </a>
      )}
      <label>
        <Icon name="clock" />
        <span class="hidden">Times</span>
        <select value={timeStyle.value} onChange={(event) => (timeStyle.value = event.currentTarget.value as TimeStyle)}>
          <option value="relative">Relative</option>
          <option value="local">Local</option>
          <option value="utc">UTC</option>
        </select>
      </label>
      {isExporting.value && (
        <Dialog title="Export" onClose={() => (isExporting.value = false)}>
          <Export kind={kind} question={question} />
        </Dialog>
      )}
    </span>
  );
}

function Export({ kind, question }: { kind: ListKind; question: Question }) {
  const done = useSignal("");
  const asked = { ...parametersOf(question), fields: question.fields.join(",") };
  return (
    <>
      <p>All {kind.title.toLowerCase()} that the filter lets pass, with the fields of this view. A file that lacks cells says so in its name.</p>
      <p>
        <a download="" href={addressOf("/fleetlight/query/export", { ...asked, format: "csv" })}>
          CSV
        </a>{" "}
        <a download="" href={addressOf("/fleetlight/query/export", { ...asked, format: "jsonl" })}>JSON lines</a>
      </p>
      <h3>Copy as a command</h3>
      {copies(kind, question, location.origin).map(({ title, text }) => (
        <p key={title}>
          <button
            type="button"
            onClick={() => {
              void navigator.clipboard.writeText(text).then(() => {
                done.value = title;
              });
            }}
          >
            {done.value === title ? "Copied" : title}
          </button>
          <code class="command">{text}</code>
        </p>
      ))}
    </>
  );
}
