/**
 * The text language of queries, as far as a filter bar needs it: its tokens, and how to add to an expression.
 * The API alone decides what an expression means (docs/reference/queries.md).
 */

export type TokenType = "word" | "operator" | "string" | "pattern" | "number" | "bracket" | "space" | "unknown";

export interface Token {
  readonly type: TokenType;
  readonly text: string;
  readonly from: number;
  readonly to: number;
}

export const OPERATORS = ["==", "!=", "<=", ">=", "=~", "!~", "=*", "!*", "<", ">", "="] as const;
export const KEYWORDS = ["and", "or", "not", "in"] as const;

const TOKENS: readonly (readonly [TokenType, RegExp])[] = [
  ["space", /\s+/y],
  ["string", /"(?:[^"\\]|\\.)*("|$)|'(?:[^'\\]|\\.)*('|$)/sy],
  ["operator", /==|!=|<=|>=|=~|!~|=\*|!\*|[<>=]/y],
  ["bracket", /[()]/y],
  ["number", /[+-]?\d+(?![\w/.])/y],
  ["word", /[A-Za-z][\w/.]*/y],
];
// Only behind =~ and !~ : a slash begins a pattern there, and nothing elsewhere.
const PATTERN = /m?(?:\/(?:[^/\\]|\\.)*(\/|$)|#(?:[^#\\]|\\.)*(#|$)|\^(?:[^^\\]|\\.)*(\^|$)|\|(?:[^|\\]|\\.)*(\||$))[si]*/sy;
const PLAIN = /^[\w.*?-]+(\s+[\w.*?-]+)*$/;

export function tokensOf(text: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  while (at < text.length) {
    const token = tokenAt(text, at, lastOf(tokens));
    tokens.push(token);
    at = token.to;
  }
  return tokens;
}

function tokenAt(text: string, at: number, before: Token | undefined): Token {
  const isSearch = before !== undefined && (before.text === "=~" || before.text === "!~");
  const kinds: readonly (readonly [TokenType, RegExp])[] = isSearch ? [["pattern", PATTERN], ...TOKENS] : TOKENS;
  for (const [type, expression] of kinds) {
    expression.lastIndex = at;
    const found = expression.exec(text);
    if (found !== null) return { type, text: found[0], from: at, to: at + found[0].length };
  }
  return { type: "unknown", text: text.charAt(at), from: at, to: at + 1 };
}

/** The last token that is not space. */
export function lastOf(tokens: readonly Token[]): Token | undefined {
  return tokens.filter((token) => token.type !== "space").at(-1);
}

/**
 * The expression that a text of the filter bar says. Words without an operator search names: each has to be in it,
 * with * and ? as in file names. isFlag: whether a word is a field that is true or false, which is an expression.
 */
export function expressionOf(text: string, isFlag: (word: string) => boolean): string {
  const trimmed = text.trim();
  if (!isPlain(trimmed, isFlag)) return trimmed;
  return trimmed
    .split(/\s+/)
    .map((word) => `name =* "${/[*?]/.test(word) ? word : `*${word}*`}"`)
    .join(" and ");
}

function isPlain(text: string, isFlag: (word: string) => boolean): boolean {
  if (!PLAIN.test(text)) return false;
  const words = text.split(/\s+/);
  return !words.some((word) => isFlag(word) || (KEYWORDS as readonly string[]).includes(word));
}

/** `value` in quotes; null where the language has no way to say it. */
export function quoted(value: string): string | null {
  if (/(^|[^\\])(\\\\)*\\$/.test(value)) return null; // the quote after it would be a part of it
  if (!value.includes('"')) return `"${value}"`;
  return value.includes("'") ? null : `'${value}'`;
}

/** A condition that `field` has this value; null where the language cannot say it. */
export function isEqual(field: string, value: string | number | boolean): string | null {
  if (typeof value === "boolean") return value ? field : `not ${field}`;
  if (typeof value === "number") return Number.isInteger(value) ? `${field} == ${value}` : null;
  const text = quoted(value);
  return text === null ? null : `${field} == ${text}`;
}

/** The expression that also wants `condition`. */
export function narrowed(expression: string, condition: string): string {
  if (expression === "") return condition;
  if (hasOr(condition)) condition = `(${condition})`;
  return hasOr(expression) ? `(${expression}) and ${condition}` : `${expression} and ${condition}`;
}

/** The expression without `condition`, if that is one of those that it wants together; else the same. */
export function widened(expression: string, condition: string): string {
  if (expression === condition) return "";
  for (const part of [` and ${condition}`, `${condition} and `]) {
    if (wants(expression, condition) && expression.includes(part)) return expression.replace(part, "");
  }
  return expression;
}

/** Whether `condition` is one of those that the expression wants together. */
export function wants(expression: string, condition: string): boolean {
  return !hasOr(expression) && ` ${expression} `.includes(` ${condition} `);
}

function hasOr(expression: string): boolean {
  return tokensOf(expression).some((token) => token.type === "word" && token.text === "or");
}
