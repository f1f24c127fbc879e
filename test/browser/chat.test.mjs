// Two people at two nodes of one cluster, each with a browser.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { startBrowser, startDev, Tab, until, untilEqual } from "./kit.mjs";

test("chat through two nodes", { timeout: 180_000 }, async (t) => {
  const [{ program, pages, gates }, browser] = await Promise.all([startDev(t, 3), startBrowser(t)]);

  await t.test("two tabs on nodes 1 and 3 talk in one room", async (t) => {
    const [ann, bob] = await Promise.all([Tab.open(t, browser, pages[0]), Tab.open(t, browser, pages[2])]);
    await Promise.all([ann.enter("ann", "lobby"), bob.enter("bob", "lobby")]);
    for (const [tab, node] of [[ann, "n1"], [bob, "n3"]]) {
      await untilEqual(`${tab.name} is online`, () => tab.phase(), "online");
      assert.equal(await tab.text("status"), "connected");
      assert.equal(await tab.text("node"), node, "the node of the gate");
      await until(`${tab.name} sees a round-trip time`, async () => /^\d+(\.\d)? ms$/.test(await tab.text("rtt")));
      await untilEqual(`${tab.name} sees who is here`, () => tab.members(), ["ann", "bob"]);
    }
    const said = {
      ann: ["hello", "<b>bold?</b><img src=x onerror=alert(1)>", "👩‍👩‍👧‍👦 🎲 é", "line four"],
      bob: ["hi", "</li></ol><script>alert(2)</script>", "&lt;not a tag&gt; &amp;", "שלום مرحبا 你好"],
    };
    // Both at once, so that the order is the room's to decide.
    await Promise.all([ann, bob].map(async (tab) => {
      for (const line of said[tab.name]) await tab.say(line);
    }));
    const count = said.ann.length + said.bob.length;
    for (const tab of [ann, bob]) await until(`all lines are at ${tab.name}`, async () => (await tab.lines()).length >= count);
    const [atAnn, atBob] = [await ann.lines(), await bob.lines()];
    assert.deepEqual(atAnn, atBob, "both see the same lines in the same order");
    for (const name of ["ann", "bob"]) {
      assert.deepEqual(atAnn.filter((l) => l.from === name).map((l) => l.text), said[name], `the lines of ${name}: once, in order`);
    }

    await ann.shoot("desktop-chat");

    // Leaving tells the other; coming back shows what was said.
    await bob.leave();
    await untilEqual("ann sees bob leave", () => ann.members(), ["ann"]);
    await ann.say("while bob was out");
    await bob.goTo("lobby");
    await untilEqual("bob sees what he missed", () => bob.lines(), [...atAnn, { from: "ann", text: "while bob was out" }]);
    // A tab that is closed is out of the room.
    await bob.context.close();
    await untilEqual("ann sees bob's tab go", () => ann.members(), ["ann"]);
    assert.deepEqual([ann.complaints, bob.complaints], [[], []], "what the browser complained of");
  });

  await t.test("a refused room is said, and the page goes on", async (t) => {
    const tab = await Tab.open(t, browser, pages[1]);
    // Impatient people click twice.
    await tab.enter("cyd", "den", 2);
    assert.equal(tab.sockets, 1, "one connection for two clicks");
    // The form checks names by itself; what gets around it is refused by the room.
    await tab.at("another-room").evaluate((input) => input.removeAttribute("pattern"));
    await tab.at("another-room").fill("no spaces");
    await tab.at("join").click();
    await until("the page says why", async () => (await tab.text("error")).includes("1 to 32 letters"));
    await tab.say("still in the den");
    assert.equal(await tab.text("error"), "", "the next success clears the error");
    assert.deepEqual(tab.complaints, []);
  });

  await t.test("a phone and the dark", async (t) => {
    const backs = new Set();
    for (const colorScheme of ["light", "dark"]) {
      await t.test(colorScheme, async (t) => {
        const tab = await Tab.open(t, browser, pages[0], {
          viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme,
        });
        await tab.shoot(`phone-${colorScheme}-login`);
        await tab.enter("Maximiliane", `phone-${colorScheme}`);
        for (let i = 1; i <= 25; i++) {
          await tab.say(`${i} ${["A short line.", "A line that is long enough to need a second row, or a third, on the small screen of a phone."][i % 2]}`);
        }
        await tab.say("https://a.very-long-word.example/".padEnd(200, "abcdefgh"));
        for (const room of ["another-room", "a-third-one-with-a-long-name", "four", "five", "six"]) await tab.goTo(room);
        await tab.goTo(`phone-${colorScheme}`);
        await until("there is a round-trip time", () => tab.text("rtt"));
        await tab.shoot(`phone-${colorScheme}-chat`);
        const layout = await tab.page.evaluate(() => {
          const box = (id) => document.getElementById(id).getBoundingClientRect();
          const { scrollTop, scrollHeight, clientHeight } = document.getElementById("lines");
          return {
            wide: document.documentElement.scrollWidth, high: document.documentElement.scrollHeight,
            fieldBottom: box("text").bottom, linesHeight: box("lines").height, below: scrollHeight - scrollTop - clientHeight,
            small: [...document.querySelectorAll("button, input")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 36)
              .map((e) => e.id || e.textContent),
            back: getComputedStyle(document.body).backgroundColor,
          };
        });
        assert.equal(layout.wide, 390, "nothing is wider than the screen");
        assert.equal(layout.high, 844, "the page itself does not scroll");
        assert.ok(layout.fieldBottom <= 844, "the field to write in is on the screen");
        assert.ok(layout.linesHeight > 400, `most of the screen is the lines': ${layout.linesHeight} px`);
        assert.ok(layout.below <= 1, `the newest line is in sight: ${layout.below} px below`);
        assert.deepEqual(layout.small, [], "too small for a thumb");
        backs.add(layout.back);
        assert.deepEqual(tab.complaints, []);
      });
    }
    assert.equal(backs.size, 2, "light and dark differ");
  });

  await t.test("a page of a foreign origin does not get through", async (t) => {
    // Loopback as well, but another port: another origin.
    const server = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<!doctype html><title>evil</title>"));
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    t.after(() => server.close());
    const dial = async (url) => {
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(url);
      const results = await page.evaluate((gates) => Promise.all(gates.map((gate) => new Promise((done) => {
        const socket = new WebSocket(gate, "zgame.v1.pb");
        socket.onopen = () => done("open");
        socket.onclose = (e) => done(`refused ${e.code}`);
      }))), gates);
      await context.close();
      return results;
    };
    assert.deepEqual(await dial(`http://127.0.0.1:${server.address().port}/`), gates.map(() => "refused 1006"));
    // The same dial from a page of the cluster opens, at every node's gate: it is the origin that makes the difference.
    assert.deepEqual(await dial(pages[0]), gates.map(() => "open"));
    assert.deepEqual(await dial(pages[0].replace("localhost", "127.0.0.1")), gates.map(() => "open"));
  });

  await program.interrupt();
});
