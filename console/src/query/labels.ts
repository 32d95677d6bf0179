/** The one word for a field wherever it is shown; what the query language calls it is beside the word, or its tooltip. */

import type { Field } from "../api/types";

const WORDS: Readonly<Record<string, string>> = {
  "be/maxmem": "Most memory",
  "be/memory": "Memory",
  "be/minmem": "Least memory",
  "be/vcpus": "vCPU",
  cnodes: "NUMA nodes",
  cnos: "CPUs of the system",
  created_at: "Created",
  csockets: "Sockets",
  ctime: "Created",
  ctotal: "CPUs",
  dfree: "Disk free",
  disk_usage: "Disk space",
  dtotal: "Disk",
  flavor_id: "Flavor",
  free_count: "Free addresses",
  inst_cnt: "Instances",
  ip_addresses: "Networks and addresses",
  master_candidate: "Master candidate",
  mfree: "Memory free",
  mnode: "Memory of the node",
  mtime: "Changed",
  mtotal: "Memory",
  "nic.ips": "Addresses",
  oper_ram: "Memory in use",
  oper_state: "Running",
  oper_vcpus: "vCPU in use",
  opresult: "Results",
  ops: "Operations",
  os: "Operating system",
  osparams: "Parameters of the system",
  pinst_cnt: "Instances",
  pinst_list: "Names of instances",
  pnode: "Primary node",
  reserved_count: "Reserved addresses",
  serial_no: "Revision",
  sinst_cnt: "Secondary instances",
  snodes: "Secondary nodes",
  spfree: "Spindles free",
  sptotal: "Spindles",
  vcpus: "vCPU",
  vm_state: "State",
};

export function labelOf({ name, title }: Pick<Field, "name" | "title">): string {
  return WORDS[name] ?? worded(title);
}

/** What the field is called in the query language, and what it says. */
export function tooltipOf({ name, doc }: Field): string {
  return `${name}: ${doc}`;
}

/** "Disk_template", "SecurityGroups" and "hv/cpu_mask" as words: "Disk template", "Security groups", "Cpu mask". "UUIDs" is one. */
function worded(title: string): string {
  const spaced = title.replace(/^[a-z]+\//, "").replaceAll("_", " ").replace(/([a-z0-9])([A-Z])|([A-Z]{2})([A-Z](?!s\b)[a-z])/g, "$1$3 $2$4");
  const [first = "", ...rest] = spaced.split(" ");
  return [first.charAt(0).toUpperCase() + first.slice(1), ...rest.map((word) => (/^[A-Z]{2}/.test(word) ? word : word.toLowerCase()))].join(" ");
}
