// Kill -9 of a node: those at the other node go on, those who were at it come back.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Cluster, startBrowser, Tab, until, untilEqual } from "./kit.mjs";

test("a node is killed and started again", { timeout: 180_000 }, async (t) => {
  const cluster = new Cluster(t, ["a", "b"]);
  const [browser] = await Promise.all([startBrowser(t), cluster.start()]);
  const { nodes } = cluster;
  const [ann, bob] = await Promise.all(["a", "b"].map((id) => Tab.open(t, browser, cluster.page(id))));
  await Promise.all([ann.enter("ann", "hall"), bob.enter("bob", "hall")]);

  // A room on each node: one that stays where it is, one that dies with its node.
  const near = await roomOn(ann, "a");
  const far = await roomOn(ann, "b");
  const said = { [near]: [], [far]: [] };
  for (const room of [near, far]) {
    for (const tab of [ann, bob]) {
      await tab.goTo(room);
      await untilEqual(`${tab.name} is on the right node`, () => tab.text("node"), tab === ann ? "a" : "b");
      const text = `${tab.name} before, in ${room}`;
      await tab.say(text);
      said[room].push(text);
    }
    for (const tab of [ann, bob]) await untilEqual(`${tab.name} sees both`, () => tab.members(), ["ann", "bob"]);
  }
  assert.deepEqual([ann.complaints, bob.complaints], [[], []], "before the kill");

  await nodes.b.program.stop("SIGKILL");
  await until("bob's tab says that it is connecting again", async () => {
    return (await bob.phase()) === "waiting" && /^connecting again/.test(await bob.text("status")) && /^in \d+ s$/.test(await bob.text("wait"));
  });
  await bob.shoot("reconnecting");
  assert.equal(await bob.text("rtt"), "", "no round trip to a node that is gone");

  // Ann's node needs nobody for the near room: it goes on at once. More lines than a room remembers.
  await ann.goTo(near);
  for (let i = 1; i <= 60; i++) {
    const text = `without bob ${i}`;
    await ann.say(text);
    said[near].push(text);
  }
  // The far room was the dead node's: it comes to node a within the lease.
  await ann.goTo(far);
  for (let i = 1; i <= 3; i++) {
    const text = `far without bob ${i}`;
    await ann.insist(text);
    said[far].push(text);
  }
  assert.equal(await ann.phase(), "online");
  for (const room of [near, far]) {
    await ann.goTo(room);
    await untilEqual(`ann sees bob gone from ${room}`, () => ann.members(), ["ann"]);
    await untilEqual(`ann's lines in ${room}`, async () => (await ann.lines()).map((l) => l.text), said[room]);
  }
  assert.notEqual(await bob.phase(), "online");

  await cluster.startNode("b");
  await untilEqual("bob is connected again", () => bob.phase(), "online");
  assert.equal(await bob.text("node"), "b");
  for (const room of [near, far]) {
    await bob.goTo(room);
    // More than a join answers with: the page asks for the rest.
    await untilEqual(`bob sees in ${room} what he missed, once`, async () => (await bob.lines()).map((l) => l.text), said[room]);
    await untilEqual(`bob sees who is in ${room}`, () => bob.members(), ["ann", "bob"]);
    await ann.goTo(room);
    await untilEqual(`ann sees bob again in ${room}`, () => ann.members(), ["ann", "bob"]);
    await ann.insist(`welcome back to ${room}`);
    await bob.insist(`back in ${room}`);
    for (const tab of [ann, bob]) {
      await untilEqual(`${tab.name} sees both go on`, async () => (await tab.lines()).slice(-2),
        [{ from: "ann", text: `welcome back to ${room}` }, { from: "bob", text: `back in ${room}` }]);
    }
  }
  assert.deepEqual(ann.complaints, [], "what ann's browser complained of");
  // What a browser says of a gate that is not there, and nothing else.
  const noise = new RegExp(`^error: WebSocket connection to 'ws://localhost:${nodes.b.gate}/ws' failed: `);
  assert.deepEqual(bob.complaints.filter((c) => !noise.test(c)), [], "what bob's browser complained of");

  await cluster.stop();
});

/** Finds a room that lives on the node, and is in it afterwards; leaves those that do not. */
async function roomOn(tab, node) {
  let i = 0;
  return await until(`a room lives on ${node}`, async () => {
    const room = `room-${node}-${i++}`;
    await tab.goTo(room);
    if (await tab.inRoom() === node) return room;
    await tab.leave();
    return undefined;
  });
}
