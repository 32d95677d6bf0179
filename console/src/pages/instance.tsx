/** One instance: what it is, what became of it, what was done to it, and what can be done. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Answer, ask, sentenceOf } from "../api/client";
import { Badge } from "../list/badge";
import { LISTS } from "../list/kinds";
import { Awaited, Failed } from "../parts/awaited";
import { printable } from "../parts/glyphs";
import { Tabs } from "../parts/tabs";
import { address, titled } from "../state/address";
import { caller } from "../state/session";
import { Actions } from "./instance_actions";
import { History } from "./instance_history";
import { Item } from "./item";
import { Overview } from "./overview";
import { NEWEST, type Server } from "./server";

const TABS = ["overview", "fields", "history"] as const;
const INSTANCES = LISTS.find(({ path }) => path === "instances")!;
const REFRESH_MS = 3000;

export function InstancePage({ id }: { id: string }) {
  const server = useSignal<Answer<{ server: Server }> | null>(null);
  const problem = useSignal("");
  const read = async (): Promise<void> => {
    try {
      server.value = await serverOf(id);
      problem.value = "";
    } catch (error) {
      problem.value = sentenceOf(error);
    }
  };
  useEffect(() => {
    void read();
    const timer = setInterval(() => void read(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [id]);
  const found = server.value;
  if (found === null) return <Awaited problem={problem.value} onAgain={() => void read()} rows={12} />;
  const instance = found.body.server;
  const tab = TABS.find((each) => each === address.value.query["tab"]) ?? "overview";
  titled(printable(instance.name));
  return (
    <article>
      <header class="title">
        <h1><bdi>{printable(instance.name)}</bdi></h1>
        <span class={`state state-${instance["OS-EXT-STS:vm_state"]}`}>
          {instance["OS-EXT-STS:vm_state"]}
          {instance["OS-EXT-STS:task_state"] === null ? "" : `, ${instance["OS-EXT-STS:task_state"]}`}
        </span>
        {instance.locked === true && <span class="state">locked</span>}
        <Badge proof={found.proof.routes.length === 0 ? null : found.proof} request={null} />
        <code>{instance.id}</code>
      </header>
      {problem.value !== "" && <Failed problem={problem.value} onAgain={() => void read()} />}
      <Actions server={instance} isAdmin={caller().is_admin} onDone={() => void read()} />
      <Tabs names={TABS} chosen={tab} titles={{ overview: "Overview", fields: "Fields", history: "History" }} />
      {tab === "overview" && <Overview server={instance} />}
      {tab === "fields" && <Item kind={INSTANCES} id={id} />}
      {tab === "history" && <History id={id} />}
    </article>
  );
}

function serverOf(id: string): Promise<Answer<{ server: Server }>> {
  return ask<{ server: Server }>("GET", `/v2.1/servers/${encodeURIComponent(id)}`, { headers: NEWEST });
}
