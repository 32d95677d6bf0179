import assert from "node:assert/strict";
import test from "node:test";
import { expressionOf, isEqual, narrowed, quoted, tokensOf, wants, widened } from "../src/query/language";

const isFlag = (word: string): boolean => word === "offline";

test("words without an operator search names, each of them", () => {
  assert.equal(expressionOf("web", isFlag), 'name =* "*web*"');
  assert.equal(expressionOf(" web prod ", isFlag), 'name =* "*web*" and name =* "*prod*"');
  assert.equal(expressionOf("web-0?", isFlag), 'name =* "web-0?"');
});

test("an expression stays what it is", () => {
  for (const text of ["offline", 'cell == "a"', "not offline", '"spot" in tags', "(offline)"]) {
    assert.equal(expressionOf(text, isFlag), text);
  }
  assert.equal(expressionOf("", isFlag), "");
});

test("every character of a text is in exactly one token", () => {
  for (const text of ['a == "x y" and not (b =~ m/^w\\/1/i or c > -3)', 'a == "open', "a =~ /open", "€ and ¶", "disk.size/0 >= 4"]) {
    assert.equal(tokensOf(text).map((token) => token.text).join(""), text);
  }
});

test("a slash begins a pattern behind =~ alone", () => {
  assert.deepEqual(tokensOf("a =~ m/x y/i").map(({ type }) => type), ["word", "space", "operator", "space", "pattern"]);
  assert.deepEqual(tokensOf("be/memory > 1").map(({ text }) => text), ["be/memory", " ", ">", " ", "1"]);
});

test("a value is quoted so that the language reads it back, or not at all", () => {
  assert.equal(quoted("web"), '"web"');
  assert.equal(quoted('a "b"'), "'a \"b\"'");
  assert.equal(quoted("it's \"b\""), null);
  assert.equal(quoted("ends with \\"), null);
});

test("a condition of each kind of value", () => {
  assert.equal(isEqual("cell", "a"), 'cell == "a"');
  assert.equal(isEqual("be/vcpus", 4), "be/vcpus == 4");
  assert.equal(isEqual("be/vcpus", 4.5), null);
  assert.equal(isEqual("offline", false), "not offline");
});

test("a condition is added, found and taken away again", () => {
  const both = narrowed('cell == "a"', 'os == "b"');
  assert.equal(both, 'cell == "a" and os == "b"');
  assert.ok(wants(both, 'os == "b"'));
  assert.equal(widened(both, 'os == "b"'), 'cell == "a"');
  assert.equal(widened(both, 'cell == "a"'), 'os == "b"');
  assert.equal(widened('cell == "a"', 'cell == "a"'), "");
});

test("what is wanted together holds for every part of an expression with or", () => {
  assert.equal(narrowed("a or b", "c"), "(a or b) and c");
  assert.equal(narrowed("a", "b or c"), "a and (b or c)");
  assert.equal(wants("a or b", "a"), false);
});
