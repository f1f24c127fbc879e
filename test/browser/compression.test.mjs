// A gate that compresses: browsers offer it by themselves, and nobody sees a difference.
import assert from "node:assert/strict";
import { test } from "node:test";
import { freePort, Program, startBrowser, Tab, tempDir, until, untilEqual } from "./kit.mjs";

test("compressed messages", { timeout: 180_000 }, async (t) => {
  const services = new Program(t, "services", ["services", "--nats-port", "0", "--etcd-port", "0", "--data", tempDir()]);
  const [nats] = await services.find("url: (\\S+)");
  const [etcd] = await services.find("endpoints: \\[(\\S+)\\]");
  const [gate, page, admin] = [await freePort(), await freePort(), await freePort()];
  const node = new Program(t, "node", ["run"], {
    ZGAME_NODE_ID: "a", ZGAME_GATE_AUTH_KIND: "dev", ZGAME_GATE_ADDRESS: `127.0.0.1:${gate}`, ZGAME_PAGE_ADDRESS: `127.0.0.1:${page}`,
    ZGAME_ADMIN_ADDRESS: `127.0.0.1:${admin}`, ZGAME_NATS_URL: nats, ZGAME_ETCD_ENDPOINTS: etcd, ZGAME_STORE_DRIVER: "kv",
    ZGAME_GATE_COMPRESSION: "true", ZGAME_GATE_COMPRESS_FROM: "40",
  });
  const [browser] = await Promise.all([startBrowser(t), node.find("node is ready")]);
  const [ann, bob] = await Promise.all(["ann", "bob"].map(() => Tab.open(t, browser, `http://localhost:${page}`)));
  await Promise.all([ann.enter("ann", "hall"), bob.enter("bob", "hall")]);
  const said = ["short", "the same again and ".repeat(15).trim(), "👩‍👩‍👧‍👦 🎲 é ".repeat(8).trim(), "short again"];
  for (const line of said) await ann.say(line);
  const lines = said.map((text) => ({ from: "ann", text }));
  for (const tab of [ann, bob]) await untilEqual(`the lines are at ${tab.name}`, () => tab.lines(), lines);
  assert.deepEqual([ann.complaints, bob.complaints, ann.sockets, bob.sockets], [[], [], 1, 1]);
  const bytes = async (way, form) => {
    const text = await (await fetch(`http://127.0.0.1:${admin}/metrics`)).text();
    return Number(text.match(new RegExp(`^zgame_gate_compression_bytes_total{form="${form}",way="${way}"} (\\S+)$`, "m"))?.[1] ?? 0);
  };
  for (const way of ["sent", "received"]) {
    await until(`what was ${way} was compressed`, async () => (await bytes(way, "deflated")) > 0);
    if (way === "sent") assert.ok((await bytes(way, "deflated")) < (await bytes(way, "plain")), "what is sent is smaller");
  }
  await node.interrupt();
});
