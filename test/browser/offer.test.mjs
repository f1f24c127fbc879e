// The page shows what its server offers, and nothing else.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startBrowser, startDev, Tab, until, untilEqual } from "./kit.mjs";

/** Enters where there may be no room. */
async function enter(tab, name) {
  tab.name = name;
  await tab.at("name").fill(name);
  await tab.at("enter").click();
  await untilEqual(`${name} is connected`, () => tab.phase(), "online");
}

test("a server of friends alone", { timeout: 120_000 }, async (t) => {
  const [browser, { program, pages }] = await Promise.all([startBrowser(t), startDev(t, 1, "friend")]);
  const [ann, bob] = await Promise.all(["ann", "bob"].map(() => Tab.open(t, browser, pages[0])));
  await untilEqual("it has its name", () => ann.text("app"), "zgame friend");
  assert.equal(await ann.at("room").isVisible(), false, "it asks for no room");
  await Promise.all([enter(ann, "ann"), enter(bob, "bob")]);
  await ann.at("another-person").fill("bob");
  await ann.at("add").click();
  await until("bob is asked", async () => (await bob.person("ann")).status === "incoming");
  await bob.at("accept").click();
  await until("they are friends", async () => (await ann.person("bob")).status === "friend");
  await ann.talkTo("bob");
  for (const id of ["text", "send", "rooms", "join"]) assert.equal(await ann.at(id).isVisible(), false, `there is no ${id}`);
  assert.equal(await ann.page.title(), "bob - zgame friend");
  assert.deepEqual([ann.complaints, bob.complaints], [[], []]);
  await program.interrupt();
});

test("a server of chat alone", { timeout: 120_000 }, async (t) => {
  const [browser, { program, pages }] = await Promise.all([startBrowser(t), startDev(t, 1, "chat")]);
  const [ann, bob] = await Promise.all(["ann", "bob"].map(() => Tab.open(t, browser, pages[0])));
  await Promise.all([ann.enter("ann", "hall"), bob.enter("bob", "hall")]);
  assert.equal(await ann.text("app"), "zgame chat");
  await ann.at("another-person").fill("bob");
  await ann.at("add").click();
  await ann.say("psst");
  await until("bob sees that somebody whispers", async () => (await bob.at("persons").innerText()).includes("ann"));
  await bob.talkTo("ann");
  await until("bob hears it", async () => (await bob.lines()).some((l) => l.text === "psst"));
  assert.equal(await bob.at("befriend").count(), 0, "there are no friends to be made");
  assert.deepEqual([ann.complaints, bob.complaints], [[], []]);
  await program.interrupt();
});

test("only developers see where things live", { timeout: 120_000 }, async (t) => {
  const [browser, { program, pages }] = await Promise.all([startBrowser(t), startDev(t, 1)]);
  const tab = await Tab.open(t, browser, "about:blank");
  for (const dev of [true, false]) {
    await tab.page.route("**/config.json", async (route) => { // as the server says it whose gate.auth.kind is jwt
      const response = await route.fetch();
      const said = await response.json();
      assert.equal(said.dev, true);
      await route.fulfill({ json: { ...said, dev } });
    });
    await tab.page.goto(pages[0]);
    await enter(tab, "ann");
    assert.equal(await tab.at("dev").isVisible(), dev);
    await tab.page.unroute("**/config.json");
  }
  await program.interrupt();
});
