/** The list that is shown, as commands for a terminal. */

import { addressOf } from "../api/client";
import type { ListKind } from "./kinds";
import { parametersOf, type Question } from "./rows";

export interface Copy {
  readonly title: string;
  readonly text: string;
}

/** origin: of the API, such as http://127.0.0.1:8774. */
export function copies(kind: ListKind, question: Question, origin: string): Copy[] {
  const url = origin + addressOf("/fleetlight/query", parametersOf(question));
  const found = [
    { title: "curl", text: `curl -sf -H "X-Auth-Token: $TOKEN" ${inShell(url)}` },
    { title: "fleetlight", text: fleetlight(question) },
  ];
  return kind.path === "instances" && question.filter === "" ? [...found, { title: "openstack", text: openstack(question) }] : found;
}

function fleetlight({ what, filter, fields, order, asOf }: Question): string {
  const words = ["fleetlight", "list", `${what}s`, "-o", fields.join(","), "--order", order.join(",")];
  if (filter !== "") words.push("-F", filter);
  if (asOf !== null) words.push("--as-of", asOf);
  return words.map(inShell).join(" ");
}

function openstack({ allProjects }: Question): string {
  return `openstack server list --long${allProjects ? " --all-projects" : ""}`;
}

/** One word of a POSIX shell. */
export function inShell(word: string): string {
  return /^[\w./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
