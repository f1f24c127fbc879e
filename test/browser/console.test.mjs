// The web console of three nodes: who may do what, and each page against what the nodes do.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { startBrowser, startDev, Tab, until, untilEqual } from "./kit.mjs";

const tokens = { reader: "a-token-for-those-who-look", operator: "a-token-for-those-who-act" };
const roomType = 100;

// Screenshots of the docs are written with SHOTS=docs, so that a run of the tests changes nothing.
const images = process.env.SHOTS === "docs" ? join(dirname(fileURLToPath(import.meta.url)), "../../docs/images") : join(dirname(fileURLToPath(import.meta.url)), "shots");
mkdirSync(images, { recursive: true });

/** The console in a browser. */
class Console extends Tab {
  static async open(t, browser, url, options = {}) {
    const tab = await Tab.open(t, browser, url, { viewport: { width: 1200, height: 760 }, ...options });
    return Object.setPrototypeOf(tab, Console.prototype);
  }

  async login(token) {
    await this.at("token").fill(token);
    await this.at("token").press("Enter");
  }

  async goTo(page) {
    await this.page.goto(`${this.page.url().split("#")[0]}#/${page}`);
  }

  /** The rows of a table, each a list of texts. */
  async rows(name) {
    return await this.page.evaluate((name) => [...document.querySelectorAll(`[data-table="${name}"] tbody tr`)].map((tr) => [...tr.cells].map((td) => td.innerText.trim())), name);
  }

  /** The row with that text in it. */
  row(name, text) {
    return this.page.locator(`[data-table="${name}"] tbody tr`, { hasText: text });
  }

  async shoot(name, options = {}) {
    await this.page.evaluate(() => document.getElementById("notes").replaceChildren()); // what was told meanwhile covers the page
    await this.page.screenshot({ path: join(images, `console-${name}.png`), ...options });
  }

  async notes() {
    return await this.page.evaluate(() => [...document.querySelectorAll("#notes .note span")].map((n) => n.textContent));
  }

  /** What the API answers to this page's own fetch, with whatever token. */
  async api(method, path, token) {
    return await this.page.evaluate(async ([method, path, token]) => {
      const r = await fetch(path, { method, headers: token ? { Authorization: `Bearer ${token}` } : {} });
      return { status: r.status, text: await r.text() };
    }, [method, path, token]);
  }
}

// faultsOf is what a tab has complained of, but for questions that a page took back since somebody left it.
const faultsOf = (tab) => tab.complaints.filter((c) => !(c.includes("/api/") && c.endsWith("net::ERR_ABORTED")));

test("the web console", { timeout: 300_000 }, async (t) => {
  const [dev, browser] = await Promise.all([
    startDev(t, 3, "gameserver", { ZGAME_CONSOLE_READ_TOKEN: tokens.reader, ZGAME_CONSOLE_OPERATOR_TOKEN: tokens.operator }), startBrowser(t),
  ]);
  const consoles = (await dev.program.find("console (http://\\S+)", 3));
  const base = consoles.map((c) => c.split("#")[0]);
  // Somebody to look at: at the gates of n1 and n3, in rooms.
  const [ann, bob] = await Promise.all([Tab.open(t, browser, dev.pages[0]), Tab.open(t, browser, dev.pages[2])]);
  await Promise.all([ann.enter("ann", "lobby"), bob.enter("bob", "lobby")]);
  for (const room of ["attic", "cellar", "garden", "kitchen", "hall", "den", "porch", "roof"]) await ann.goTo(room);
  await ann.goTo("lobby");

  const op = await Console.open(t, browser, consoles[0]);
  await t.test("the link that dev prints logs in, and leaves no token in the address", async () => {
    await until("the nodes are there", async () => (await op.rows("nodes")).length === 3);
    assert.ok(!op.page.url().includes("token"), op.page.url());
    assert.match(await op.page.textContent("#who"), /operator at n1/);
    const rows = await op.rows("nodes");
    assert.deepEqual(rows.map((r) => [r[0].split("@")[0], r[1]]), [["n1", "ready"], ["n2", "ready"], ["n3", "ready"]]);
    await until("sessions are counted", async () => (await op.rows("nodes")).map((r) => r[3]).join() === "1,0,1");
    await op.shoot("nodes");
  });

  await t.test("who has no token, or a wrong one, or that of readers", async (t) => {
    const tab = await Console.open(t, browser, base[1]);
    await tab.login("wrong-token-of-somebody");
    await until("it is refused", async () => (await tab.text("fault")) === "This token is not known here.");
    assert.equal((await tab.api("GET", "/api/each/node", "")).status, 401);
    assert.equal((await tab.api("GET", "/api/each/node", "wrong-token-of-somebody")).status, 401);
    tab.complaints.length = 0; // of these answers
    await tab.login(tokens.reader);
    await until("a reader sees the nodes", async () => (await tab.rows("nodes")).length === 3);
    assert.match(await tab.page.textContent("#who"), /reader at n2/);
    await tab.page.locator("[data-act=drain]").first().click();
    await untilEqual("a reader may watch a drain", () => tab.text("step"), "serving");
    assert.equal(await tab.at("drain").count(), 0, "no drain for readers");
    await tab.goTo("sessions");
    await until("a reader sees sessions", async () => (await tab.rows("sessions")).length === 2);
    assert.equal(await tab.page.locator("[data-act=kick]").count(), 0, "no kick for readers");
    await tab.goTo(`object/${roomType}/0/lobby`);
    await until("a reader sees objects", async () => (await tab.rows("history")).length > 0);
    assert.equal(await tab.at("move").isVisible(), false, "no move for readers");
    await tab.goTo("call");
    await until("a reader sees forms", () => tab.at("json").isVisible());
    assert.equal(await tab.at("send").count(), 0, "no call for readers");
    assert.deepEqual(faultsOf(tab), []);
    // And the server refuses, whatever the page shows.
    for (const path of ["/api/move?type=100&id=lobby&to=n2", "/api/kick?user=bob", "/api/drain?node=n2", "/api/call?message=chat.Who"]) {
      const r = await tab.api("POST", path, tokens.reader);
      assert.equal(r.status, 403, `${path}: ${r.text}`);
    }
    assert.equal((await tab.api("GET", "/api/drain?node=n2", tokens.reader)).status, 404, "nothing is done by a GET");
    assert.equal((await tab.api("GET", "/api/each/metrics", tokens.reader)).status, 404, "nothing else is handed through");
    assert.match(dev.program.output, /console: refused, for a reader.*api\/move/); // of the others in that second only how many
  });

  await t.test("an operator moves a room, and sees where it was", async () => {
    await op.goTo("objects");
    await until("all that there are", async () => (await op.rows("objects")).length >= 10);
    await op.shoot("objects");
    await op.at("match").fill("lobby");
    await untilEqual("the room is found", async () => (await op.rows("objects")).map((r) => r[1]), [`${roomType}/0/lobby`]);
    await op.page.getByRole("link", { name: `${roomType}/0/lobby`, exact: true }).click();
    const owner = async () => await op.page.locator("[data-fact=owner]").textContent();
    const was = await until("it has an owner", owner);
    const to = was === "n2" ? "n3" : "n2";
    await until("there is a choice", async () => await op.at("to").locator("option").count() === 3);
    await op.at("to").selectOption(to);
    await op.at("move").click();
    await op.at("no").click(); // asked first
    assert.equal(await owner(), was);
    await op.at("move").click();
    await op.at("yes").click();
    await untilEqual("the console says where it is", owner, to);
    await until("the history has the move with its pause", async () => (await op.rows("history")).some((r) => r[1] === was && r[2] === `moved to ${to}` && /s$/.test(r[4])));
    await until("and that it came", async () => (await op.rows("history")).some((r) => r[1] === to && r[2] === "loaded"));
    await until("it is said how that went", async () => (await op.notes()).some((n) => n.includes(`went from ${was} to ${to}`)));
    await op.shoot("object");
    await ann.say("still here");
  });

  await t.test("one user's messages are traced", async () => {
    await op.goTo("trace?user=ann");
    await until("she is followed at all nodes", async () => /Followed at 3 nodes/.test(await op.text("state")));
    await bob.say("not to be seen");
    await ann.say("to be seen");
    const trace = op.page.locator('[data-testid=trace][data-name="chat.Say"]').first();
    await until("her message is there, with what it led to", async () => {
      const kinds = await trace.locator("tr").evaluateAll((rows) => rows.map((tr) => tr.dataset.kind));
      return kinds[0] === "request" && kinds.includes("handler") && kinds.includes("push");
    });
    const text = await trace.innerText();
    assert.match(text, /request chat\.Say/);
    assert.match(text, /100\/0\/lobby, version \d+/);
    assert.match(text, /in the mailbox/);
    assert.ok(!text.includes("to be seen"), "no bodies");
    assert.ok(!(await op.at("traces").innerText()).includes("bob"), "nobody else's");
    await op.shoot("trace");
    await op.at("follow").click();
    assert.equal(await op.text("state"), "Nobody is followed.");
  });

  await t.test("a message is sent by its form, and the answer shown", async () => {
    await op.goTo("call/chat.Who");
    await op.page.locator('[data-field="room"]').fill("lobby");
    await untilEqual("the JSON follows the form", async () => JSON.parse(await op.at("json").inputValue()), { room: "lobby" });
    await op.at("send").click();
    await op.at("yes").click();
    await until("the answer is there", async () => (await op.text("answer")).includes('"members"'));
    assert.deepEqual(JSON.parse(await op.text("answer")).members, ["ann", "bob"]);
    await op.shoot("call", { fullPage: true });
    // A message that is refused is answered too.
    await op.page.locator('[data-field="room"]').fill("no spaces <b>");
    await op.at("send").click();
    await op.at("yes").click();
    await until("the fault is there", async () => /code \d+/.test(await op.text("answer")));
  });

  await t.test("a user is kicked, and reads why", async (t) => {
    const who = "mallory";
    const tab = await Tab.open(t, browser, dev.pages[1]);
    await tab.enter(who, "attic");
    await op.goTo("sessions");
    await op.at("match").fill(who);
    await until("the session is found", async () => (await op.rows("sessions")).length === 1);
    assert.equal((await op.rows("sessions"))[0][0], who);
    await op.at("match").fill("");
    await until("all are there", async () => (await op.rows("sessions")).length === 3);
    await op.shoot("sessions");
    await op.row("sessions", who).locator("[data-act=kick]").click();
    await op.at("kick-text").fill("see you <i>later</i>");
    await op.at("yes").click();
    await until("it is gone", async () => !(await op.rows("sessions")).some((r) => r[0] === who));
    await until("the page was told", async () => (await tab.page.evaluate(() => document.body.innerText)).includes("see you <i>later</i>"));
    tab.complaints.length = 0;
  });

  await t.test("whatever nodes say is text", async (t) => {
    const tab = await Console.open(t, browser, base[0]);
    await tab.login(tokens.operator);
    await until("it is in", async () => (await tab.rows("nodes")).length === 3);
    const bad = '<img src=x onerror="alert(1)"><i>x</i><script>alert(2)</script>"\'>javascript:alert(3)';
    /** Puts it in the place of every text that a node says, in keys and names too. */
    const hostile = (v) => {
      if (typeof v === "string") return /^\d{4}-\d\d-\d\dT/.test(v) ? v : `${bad}${v}`;
      if (Array.isArray(v)) return v.map(hostile);
      return v && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, hostile(x)])) : v;
    };
    await tab.page.route(/\/api\/(each|object|node|messages)\b/, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: hostile(await response.json()) });
    });
    for (const page of ["nodes", "actors", "sessions", "objects", `object/${roomType}/0/${encodeURIComponent(bad)}`, "charts", `call/${encodeURIComponent(bad)}`, `trace?user=${encodeURIComponent(bad)}`, `drain/${encodeURIComponent(bad)}`]) {
      await tab.goTo(page);
      if (!page.startsWith("trace") && !page.startsWith("drain")) {
        await until(`${page} shows it as it is`, async () => (await tab.page.evaluate(() => document.querySelector("main").textContent)).includes("<i>x</i>"));
      }
      await new Promise((done) => setTimeout(done, 200));
      assert.equal(await tab.page.evaluate(() => document.querySelectorAll("img, i, body script, [onerror]").length), 0, `${page} has made an element of it`);
      assert.deepEqual(await tab.page.evaluate(() => [...document.querySelectorAll("a")].map((a) => a.getAttribute("href")).filter((h) => !h.startsWith("#"))), [], `${page} has a link out of here`);
    }
    await tab.page.unrouteAll({ behavior: "ignoreErrors" });
    assert.deepEqual(tab.complaints.filter((c) => /dialog|CSP|exception/.test(c)), []);
  });

  await t.test("actors, handlers and charts", async () => {
    await op.goTo("actors");
    await until("actors are there", async () => (await op.rows("actors")).length > 3);
    await until("handlers have times", async () => (await op.rows("handlers")).some((r) => r[1] === "chat.Say" && Number(r[2]) >= 1 && /s$/.test(r[4])));
    await op.at("match").fill("friends");
    await untilEqual("those that match", async () => [...new Set((await op.rows("actors")).map((r) => r[3]))], ["friends"]);
    await op.shoot("actors");
    await op.goTo("charts");
    await until("a chart of each node has points", async () => await op.page.evaluate(() => {
      const lines = [...document.querySelectorAll('[data-chart="Sessions"] path')];
      return lines.length === 3 && lines.every((p) => /L/.test(p.getAttribute("d")));
    }));
    assert.ok(await op.page.locator("[data-chart]").count() >= 10);
    await op.shoot("charts", { fullPage: true });
    assert.deepEqual(faultsOf(op), []);
  });

  await t.test("with the keyboard alone, in the dark", async (t) => {
    const tab = await Console.open(t, browser, base[2], { colorScheme: "dark" });
    const back = await tab.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.notEqual(back, await op.page.evaluate(() => getComputedStyle(document.body).backgroundColor), "light and dark differ");
    const keys = tab.page.keyboard;
    await keys.type(tokens.operator); // the field has the focus
    await keys.press("Enter");
    await until("it is in", async () => (await tab.rows("nodes")).length === 3);
    const focused = () => tab.page.evaluate(() => document.activeElement?.textContent?.trim() ?? "");
    /** Presses Tab until what has the focus is called so. */
    const tabTo = async (what) => {
      for (let i = 0; i < 60; i++) {
        if (what.test(await focused())) return;
        await keys.press("Tab");
      }
      assert.fail(`${what} is not reached by Tab`);
    };
    await tabTo(/^Skip to the page$/);
    await tabTo(/^Sessions$/);
    await keys.press("Enter");
    await until("the page of sessions", async () => (await tab.rows("sessions")).length === 2);
    await tabTo(/^Kick$/);
    // The table is brought up to date meanwhile: the focus stays.
    await new Promise((done) => setTimeout(done, 1500));
    assert.equal(await focused(), "Kick");
    await keys.press("Enter");
    await until("it asks", () => tab.page.locator("dialog[open]").isVisible());
    await keys.press("Escape");
    await until("and takes it back", async () => await tab.page.locator("dialog").count() === 0);
    assert.equal((await tab.rows("sessions")).length, 2);
    const outline = await tab.page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", "the focus is seen");
    await tab.goTo("nodes");
    await until("the nodes again", async () => (await tab.rows("nodes")).length === 3);
    await tab.shoot("dark");
    assert.deepEqual(faultsOf(tab), []);
  });

  await t.test("a node is drained, and each object is seen to go over", async () => {
    await op.goTo("nodes");
    await until("the nodes are there", async () => (await op.rows("nodes")).length === 3);
    const objects = Number((await op.rows("nodes"))[1][6]);
    assert.ok(objects > 0, "there is something to drain on n2");
    await op.row("nodes", "n2@").locator("[data-act=drain]").click();
    await untilEqual("it is watched", () => op.text("step"), "serving");
    await op.at("drain").click();
    await op.at("yes").click();
    await until("objects go over, with their pauses", async () => {
      const rows = await op.rows("moves");
      return rows.length > 0 && rows.filter((r) => r[2] === "moved" && /^n[13]$/.test(r[3]) && /s$/.test(r[5])).length > 0;
    });
    await until("all of them", async () => /left 0/.test((await op.text("facts")).replace(/\s+/g, " ")));
    await op.shoot("drain");
    await until("it has stopped", async () => (await op.text("step")).includes("stopped"));
    await op.goTo("nodes");
    await until("it is gone", async () => (await op.rows("nodes")).length === 2);
    await ann.say("still connected");
    await bob.say("so am I");
    assert.deepEqual([ann.sockets, bob.sockets], [1, 1]);
  });

  await dev.program.interrupt();
});
