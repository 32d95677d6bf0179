/** A link of an operator, for a member: the same without what only administrators may ask for. */

import { KEYWORDS, type Token, tokensOf } from "./language";

/** Fields of instances that only administrators see (docs/reference/queries.md). */
const OF_OPERATORS =
  /^(cell|host|node|[ps]nodes?(\.\w+)*|hypervisor|hv\/\w+|hvparams|custom_(hv|nic)params|launched_on|fault|hidden|console|bridge|instance_name|instance_type_id|launch_index|network_port|nic.*(bridge|link|mode|vlan).*|(kernel|ramdisk|reservation)_id|root_device_name|user_data)$/;

export interface Permitted {
  readonly filter: string;
  /** What was left out of it, as it stood there. */
  readonly leftOut: readonly string[];
}

export function isOfOperators(field: string): boolean {
  return OF_OPERATORS.test(field);
}

/** Conditions go one by one where all of them are wanted together; else the whole filter goes. */
export function permitted(filter: string): Permitted {
  const tokens = tokensOf(filter).filter(({ type }) => type !== "space");
  const words = tokens.filter((token) => token.type === "word");
  if (!words.some(({ text }) => isOfOperators(text)) || !tokens.some(({ type }) => type === "operator")) return { filter, leftOut: [] };
  if (tokens.some(({ type, text }) => type === "bracket" || text === "or")) return { filter: "", leftOut: [filter] };
  const conditions: Token[][] = [[]];
  for (const token of tokens) {
    if (token.type === "word" && token.text === "and") conditions.push([]);
    else conditions.at(-1)!.push(token);
  }
  const isPermitted = (parts: readonly Token[]): boolean => !parts.some(({ type, text }) => type === "word" && !(KEYWORDS as readonly string[]).includes(text) && isOfOperators(text));
  const textOf = (parts: readonly Token[]): string => (parts.length === 0 ? "" : filter.slice(parts[0]!.from, parts.at(-1)!.to));
  return {
    filter: conditions.filter(isPermitted).map(textOf).join(" and "),
    leftOut: conditions.filter((parts) => !isPermitted(parts)).map(textOf),
  };
}
