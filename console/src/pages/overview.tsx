/** What people ask first of an instance: how it is, where, whose, since when; what it is made of; what changed last. */

import type { ComponentChildren } from "preact";
import type { QueryAnswer } from "../api/types";
import type { Change } from "../list/recent";
import { printable, Time } from "../parts/glyphs";
import { useGot } from "../parts/got";
import { quoted } from "../query/language";
import { powerOf, shownSize } from "../query/values";
import { link } from "../state/address";
import { nameOf } from "../state/people";
import { caller } from "../state/session";
import { Made } from "./instance_history";
import { imageOf, type Server } from "./server";

const LAST_CHANGES = 3;

export function Overview({ server }: { server: Server }) {
  const { flavor, fault } = server;
  const task = server["OS-EXT-STS:task_state"];
  const host = server["OS-EXT-SRV-ATTR:host"];
  const volumes = server["os-extended-volumes:volumes_attached"];
  const launched = server["OS-SRV-USG:launched_at"];
  const image = imageOf(server);
  return (
    <>
      <div class="cards">
        <Card title="State">
          <Row name="State">
            {server["OS-EXT-STS:vm_state"]}
            {task === null ? "" : `, ${task}`}
          </Row>
          {fault !== undefined && (
            <Row name="Fault">
              <span class="problem">{printable(fault.message)}</span> <span class="hint">{fault.code}, <Time at={fault.created} /></span>
            </Row>
          )}
          <Row name="Power">{powerOf(server["OS-EXT-STS:power_state"])}</Row>
          {server.locked === true && <Row name="Locked">{server.locked_reason ? printable(server.locked_reason) : "yes"}</Row>}
          <Row name="Created"><Time at={server.created} /></Row>
          <Row name="Launched">{launched === null ? "not yet" : <Time at={launched} />}</Row>
          <Row name="Changed"><Time at={server.updated} /></Row>
        </Card>
        <Card title="Where and whose">
          {caller().is_admin && <CellRow id={server.id} />}
          {host && (
            <Row name="Host">
              <a href={link(["nodes"], { filter: `name == ${quoted(host)}` })}>{host}</a>
              {server.host_status && server.host_status !== "UP" ? ` (${server.host_status})` : ""} · <a href={link(["instances"], { filter: `host == ${quoted(host)}` })}>its instances</a>
            </Row>
          )}
          <Row name="Zone">{server["OS-EXT-AZ:availability_zone"] || "–"}</Row>
          <Row name="Project">
            <a href={link(["instances"], { filter: `project_id == ${quoted(server.tenant_id)}` })}>{printable(server.tenant_id)}</a>
          </Row>
          <Row name="Owner"><bdi title={server.user_id}>{printable(nameOf(server.user_id))}</bdi></Row>
          {server.key_name && <Row name="Key">{printable(server.key_name)}</Row>}
        </Card>
        <Card title="Size">
          <Row name="Flavor"><bdi>{printable(String(flavor["original_name"] ?? "–"))}</bdi></Row>
          <Row name="vCPU">{String(flavor["vcpus"])}</Row>
          <Row name="Memory">{shownSize(Number(flavor["ram"]))}</Row>
          <Row name="Disk">{shownSize(Number(flavor["disk"]) * 1024)}</Row>
          <Row name="Image">{image === "" ? "none: from a volume" : <code>{image}</code>}</Row>
        </Card>
        <Card title="Network">
          {Object.keys(server.addresses).length === 0 && <Row name="Addresses">none</Row>}
          {Object.entries(server.addresses).map(([network, addresses]) => (
            <Row key={network} name={printable(network)}>
              {addresses.map((each) => (
                <div key={each.addr}>
                  {each.addr} <span class="hint">{each["OS-EXT-IPS-MAC:mac_addr"]}</span>
                </div>
              ))}
            </Row>
          ))}
          <Row name="Security groups">{listed((server.security_groups ?? []).map(({ name }) => name))}</Row>
        </Card>
        <Card title="Volumes">
          {volumes.length === 0 && <Row name="Attached">none</Row>}
          {volumes.map(({ id, delete_on_termination: goesToo }) => (
            <Row key={id} name={goesToo ? "Deleted with it" : "Stays"}>
              <code>{id}</code>
            </Row>
          ))}
        </Card>
        <Card title="Marks">
          {server.description && <Row name="Description">{printable(server.description)}</Row>}
          <Row name="Tags">{listed(server.tags ?? [])}</Row>
          {Object.entries(server.metadata).map(([name, value]) => (
            <Row key={name} name={printable(name)}>
              <bdi>{printable(value)}</bdi>
            </Row>
          ))}
        </Card>
      </div>
      <LastChanges key={server.updated} id={server.id} />
    </>
  );
}

function Card({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h2>{title}</h2>
      <dl class="values">{children}</dl>
    </section>
  );
}

function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function listed(names: readonly string[]): string {
  return names.length === 0 ? "none" : names.map(printable).join(", ");
}

/** The compute API does not say which cell it is in; queries do. */
function CellRow({ id }: { id: string }) {
  const found = useGot<QueryAnswer>("/fleetlight/query", { fields: "cell", filter: `uuid == ${quoted(id)}`, all_projects: true });
  const cell = String(found?.data[0]?.[0]?.[1] ?? "");
  return <Row name="Cell">{cell === "" ? "…" : <a href={link(["instances"], { filter: `cell == ${quoted(cell)}` })}>{cell}</a>}</Row>;
}

function LastChanges({ id }: { id: string }) {
  // Cells that are only read keep no past, as its history says.
  const changes = useGot<{ history: readonly Change[] }>(`/fleetlight/servers/${id}/history`, { limit: LAST_CHANGES })?.history ?? [];
  if (changes.length === 0) return null;
  return (
    <section>
      <h2>Last changes</h2>
      <ol class="history">
        {changes.map((change) => (
          <Made key={change.revision} change={change} />
        ))}
      </ol>
      <a href={link(["instances", id], { tab: "history" })}>All of its history</a>
    </section>
  );
}
