import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

test("the page holds no script and no style of its own, which its Content-Security-Policy refuses", () => {
  const html = readFileSync("src/index.html", "utf8");
  assert.doesNotMatch(html, /<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|javascript:/i);
});
