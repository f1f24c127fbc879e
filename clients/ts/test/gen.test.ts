// The generator on a protocol outside of this repository, as the README says.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("TypeScript of a protocol of one's own", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "zgame-own-"));
  t.after(() => rmSync(dir, { recursive: true }));
  writeFileSync(join(dir, "counter.proto"), `syntax = "proto3";
package counter;
import "zgame/options.proto";
option go_package = "counter/pb";
message Hit { option (zgame.id) = 1000; string name = 1; }
`);
  const gen = fileURLToPath(new URL("../../scripts/gen.mjs", import.meta.url)); // from dist/test
  execFileSync(process.execPath, [gen, "gen", ".", "counter.proto"], { cwd: dir, stdio: ["ignore", "inherit", "inherit"] });
  const text = readFileSync(join(dir, "gen", "counter_pb.ts"), "utf8");
  assert.match(text, /export const HitSchema\b/);
  assert.match(text, /from "@zgame\/client\/gen\/zgame\/options_pb\.js"/);
});
