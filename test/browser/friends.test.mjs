// Two people become friends, talk and whisper, while the nodes that have their things are drained and killed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Cluster, startBrowser, Tab, until, untilEqual } from "./kit.mjs";

const leaseMs = 3000;
const [roomType, listType, userType] = [100, 110, 2147483649];

test("friends, through a drain and a kill", { timeout: 240_000 }, async (t) => {
  const cluster = new Cluster(t, ["a", "b", "c"], { ZGAME_ETCD_LEASE: `${leaseMs}ms` });
  const [browser] = await Promise.all([startBrowser(t), cluster.start()]);
  // Both are at the gate of a, which stays: what they need lives on the two other nodes.
  const [ann, bob] = await Promise.all(["ann", "bob"].map(() => Tab.open(t, browser, cluster.page("a"))));
  const both = [ann, bob];
  await Promise.all([ann.enter("ann", "hall"), bob.enter("bob", "hall")]);
  await cluster.move(roomType, "hall", "a");
  for (const [type, id, to] of [[roomType, "hall", "c"], [userType, "ann", "c"], [listType, "ann", "c"], [userType, "bob", "b"], [listType, "bob", "b"]]) {
    await cluster.move(type, id, to);
  }
  await untilEqual("the developer strip follows the room", () => ann.inRoom(), "c");
  await until("it says how long the move took", async () => /room hall on c, version \d+, moved in \d/.test(await bob.text("dev")));

  await t.test("they become friends", async () => {
    await bob.at("another-person").fill("ann");
    await bob.at("add").click();
    await untilEqual("bob has asked", () => bob.person("ann"), { status: "outgoing", online: "false" });
    await untilEqual("ann is asked", () => ann.person("bob"), { status: "incoming", online: "false" });
    await ann.shoot("request");
    await ann.at("accept").click();
    for (const [tab, other] of [[ann, "bob"], [bob, "ann"]]) {
      await untilEqual(`${tab.name} sees ${other} as a friend who is there`, () => tab.person(other), { status: "friend", online: "true" });
    }
  });

  const whispers = { ann: [], bob: [] };
  const whisper = async (from, to, text) => {
    await from.talkTo(to.name);
    await from.say(text);
    whispers[from.name].push(text);
  };
  const heardWhispers = async () => {
    for (const [tab, other] of [[ann, bob], [bob, ann]]) {
      await tab.talkTo(other.name);
      await untilEqual(`${tab.name} hears what ${other.name} whispers, once`,
        async () => (await tab.lines()).filter((l) => l.from === other.name).map((l) => l.text), whispers[other.name]);
      await tab.goTo("hall");
    }
  };

  await t.test("they whisper", async () => {
    await whisper(ann, bob, "psst");
    await until("bob's page shows that there is something", async () => (await bob.at("persons").innerText()).includes("1"));
    await whisper(bob, ann, "yes?");
    await bob.shoot("whisper");
    await heardWhispers();
  });

  const said = { ann: [], bob: [] };
  let number = 0;
  const write = async (tab, count) => {
    await tab.goTo("hall");
    for (let i = 0; i < count; i++) {
      const text = `${tab.name} ${++number}`;
      said[tab.name].push(text);
      await tab.write(text);
      await new Promise((done) => setTimeout(done, 60));
    }
  };
  /** All lines are there, once, in order, and the same at both. */
  const allThere = async (when) => {
    const count = said.ann.length + said.bob.length;
    for (const tab of both) await until(`${when}: all ${count} lines are at ${tab.name}`, async () => (await tab.lines()).length >= count);
    const [atAnn, atBob] = [await ann.lines(), await bob.lines()];
    assert.deepEqual(atAnn, atBob, `${when}: both see the same`);
    for (const tab of both) {
      assert.deepEqual(atAnn.filter((l) => l.from === tab.name).map((l) => l.text), said[tab.name], `${when}: the lines of ${tab.name}, once, in order`);
    }
  };

  await t.test("the node of the room and of ann is drained while they talk", async () => {
    await Promise.all([
      write(ann, 40), write(bob, 40),
      new Promise((done) => setTimeout(done, 600)).then(() => cluster.nodes.c.program.interrupt()),
    ]);
    await allThere("after the drain");
    for (const tab of both) {
      assert.equal(tab.sockets, 1, `${tab.name} has stayed connected`);
      await until(`${tab.name} is told where the room is`, async () => /room hall on [ab], version \d+, moved in \d/.test(await tab.text("dev")));
    }
    await whisper(bob, ann, "still there?");
    await whisper(ann, bob, "still here");
    await heardWhispers();
    assert.deepEqual([await ann.person("bob"), await bob.person("ann")], Array(2).fill({ status: "friend", online: "true" }), "nobody has gone");
  });

  await t.test("the node of bob, and now of the room, is killed", async (t) => {
    await cluster.move(roomType, "hall", "b");
    await cluster.move(userType, "bob", "b");
    await untilEqual("the room is on b", () => ann.inRoom(), "b");
    await write(ann, 5);
    await allThere("before the kill");
    await cluster.nodes.b.program.stop("SIGKILL");
    const killed = performance.now();
    await Promise.all([write(ann, 10), write(bob, 10)]);
    await allThere("after the kill");
    const took = performance.now() - killed;
    t.diagnostic(`recovered ${Math.round(took)} ms after the kill, with a lease of ${leaseMs} ms`);
    assert.ok(took < leaseMs + 2000 + slackMs, `it took ${Math.round(took)} ms`);
    await whisper(ann, bob, "and now?");
    await whisper(bob, ann, "now as well");
    await heardWhispers();
    for (const [tab, other] of [[ann, "bob"], [bob, "ann"]]) {
      await untilEqual(`${tab.name} sees ${other} as a friend who is there`, () => tab.person(other), { status: "friend", online: "true" });
      assert.equal(tab.sockets, 1, `${tab.name} has stayed connected`);
      assert.deepEqual(tab.complaints, [], `what ${tab.name}'s browser complained of`);
    }
    await ann.shoot("friends");
  });

  await t.test("bob's page is loaded again, and has what was whispered", async () => {
    const all = async () => (await bob.lines()).map((l) => `${l.from}: ${l.text}`);
    await bob.talkTo("ann");
    const before = await all();
    assert.equal(before.length, whispers.ann.length + whispers.bob.length);
    await bob.page.reload();
    await bob.enter("bob", "hall");
    await until("ann is on his list", async () => (await bob.person("ann")).status === "friend");
    await bob.talkTo("ann");
    await untilEqual("it is all there", all, before);
  });

  await t.test("they part", async () => {
    await bob.talkTo("ann");
    await bob.at("block").click();
    await untilEqual("bob has blocked ann", () => bob.person("ann"), { status: "blocked", online: "false" });
    await ann.talkTo("bob");
    await ann.say("and now, after all?"); // which looks as ever to her
    await bob.at("unblock").click();
    await ann.say("and again?");
    await until("bob hears ann again", async () => (await bob.lines()).some((l) => l.text === "and again?"));
    assert.ok(!(await bob.lines()).some((l) => l.text === "and now, after all?"), "bob does not hear whom he has blocked");
    await bob.at("block").click();
    await untilEqual("ann has no friend", () => ann.person("bob"), { status: "none", online: "false" });
    await ann.context.close();
    await untilEqual("bob sees ann go", () => bob.goTo("hall").then(() => bob.members()), ["bob"]);
  });

  await cluster.stop();
});

/** What a machine with little time may need more than the lease and two seconds. */
const slackMs = 10_000;
