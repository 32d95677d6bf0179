/** One instance: what it is, what became of it, what was done to it, and what can be done. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Answer, ask, sentenceOf } from "../api/client";
import { Badge } from "../list/badge";
import { LISTS } from "../list/kinds";
import { printable } from "../parts/glyphs";
import { address, choose } from "../state/address";
import { caller } from "../state/session";
import { Actions } from "./instance_actions";
import { History } from "./instance_history";
import { Item } from "./item";
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
  if (found === null) return <p role={problem.value === "" ? "status" : "alert"}>{problem.value || "Loading…"}</p>;
  const instance = found.body.server;
  const tab = TABS.find((each) => each === address.value.query["tab"]) ?? "overview";
  return (
    <article>
      <header class="title">
        <h1>
          <bdi>{printable(instance.name)}</bdi>
        </h1>
        <span class={`state state-${instance["OS-EXT-STS:vm_state"]}`}>
          {instance["OS-EXT-STS:vm_state"]}
          {instance["OS-EXT-STS:task_state"] === null ? "" : `, ${instance["OS-EXT-STS:task_state"]}`}
        </span>
        {instance.locked === true && <span class="state">locked</span>}
        <Badge proof={found.proof.routes.length === 0 ? null : found.proof} request={null} />
        <code>{instance.id}</code>
      </header>
      {problem.value !== "" && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      <Actions server={instance} isAdmin={caller().is_admin} onDone={() => void read()} />
      <div role="tablist" aria-label="Parts" class="tabs">
        {TABS.map((each) => (
          <button key={each} type="button" role="tab" aria-selected={each === tab} onClick={() => choose({ tab: each })}>
            {each.charAt(0).toUpperCase() + each.slice(1)}
          </button>
        ))}
      </div>
      {tab === "overview" && <Overview server={instance} />}
      {tab === "fields" && <Item kind={INSTANCES} id={id} />}
      {tab === "history" && <History id={id} />}
    </article>
  );
}

function serverOf(id: string): Promise<Answer<{ server: Server }>> {
  return ask<{ server: Server }>("GET", `/v2.1/servers/${encodeURIComponent(id)}`, { headers: NEWEST });
}

function Overview({ server }: { server: Server }) {
  const flavor = server.flavor;
  return (
    <div class="cards">
      <section>
        <h2>Flavor</h2>
        <p>
          <bdi>{printable(String(flavor["original_name"] ?? ""))}</bdi>: {String(flavor["vcpus"])} vCPU,{" "}
          {Number(flavor["ram"]) / 1024} GiB of memory, {String(flavor["disk"])} GiB of disk
        </p>
      </section>
      <section>
        <h2>Addresses</h2>
        <table class="small">
          <thead>
            <tr>
              <th scope="col">Network</th>
              <th scope="col">Address</th>
              <th scope="col">MAC</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(server.addresses).flatMap(([network, addresses]) =>
              addresses.map((each) => (
                <tr key={each.addr}>
                  <td>
                    <bdi>{printable(network)}</bdi>
                  </td>
                  <td>{each.addr}</td>
                  <td>{each["OS-EXT-IPS-MAC:mac_addr"]}</td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </section>
      <section>
        <h2>Volumes</h2>
        {server["os-extended-volumes:volumes_attached"].length === 0 ? (
          <p>None is attached.</p>
        ) : (
          <ul>
            {server["os-extended-volumes:volumes_attached"].map((volume) => (
              <li key={volume.id}>
                <code>{volume.id}</code>
                {volume.delete_on_termination ? ", deleted with the instance" : ""}
              </li>
            ))}
          </ul>
        )}
      </section>
    </div>
  );
}
