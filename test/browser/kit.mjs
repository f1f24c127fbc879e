// What the tests stand on: the server's processes, a browser, a tab with the chat page, and waiting.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const gameserver = resolve(process.env.GAMESERVER ?? join(here, "../../bin/gameserver"));
const browserPath = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** Where screenshots go; not committed. */
const shots = join(here, "shots");

/** How long a condition may take. Generous: a slow machine makes a test slow, not red. */
const patienceMs = 45_000;

/** What is told when a wait was in vain: of each tab and program that is there. */
const witnesses = new Set();

/** Adds a witness until the test ends. */
function witness(t, tell) {
  witnesses.add(tell);
  t.after(() => witnesses.delete(tell));
}

async function testimony() {
  const told = [];
  for (const tell of witnesses) told.push(await tell().catch((e) => `(${e.message})`));
  return told.join("\n");
}

/** Waits until f returns something true, and returns it. What f throws counts as "not yet", and is told at the end. */
export async function until(what, f) {
  const deadline = Date.now() + patienceMs;
  for (let last; ; await new Promise((done) => setTimeout(done, 25))) {
    try {
      const value = await f();
      if (value) return value;
      last = undefined;
    } catch (e) {
      if (e.fatal) throw e;
      last = e;
    }
    if (Date.now() > deadline) {
      throw new Error(`waited ${patienceMs / 1000} s in vain: ${what}${last ? `: ${last}` : ""}\n${await testimony()}`);
    }
  }
}

/** Waits until f returns what is expected; the failure shows the last value beside it. */
export async function untilEqual(what, f, expected) {
  let value;
  try {
    await until(what, async () => JSON.stringify(value = await f()) === JSON.stringify(expected));
  } catch (e) {
    throw new Error(`${e.message}\nlast: ${JSON.stringify(value)}\nwant: ${JSON.stringify(expected)}`);
  }
}

// What ends with this process, also where it is told to end before the tests are over.
const programs = new Set();
const dirs = [];
process.on("exit", () => {
  for (const p of programs) p.kill("SIGKILL");
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true, maxRetries: 3 });
});
process.once("SIGTERM", () => process.exit(143));

/** A directory that goes at the end. */
export function tempDir() {
  const dir = mkdtempSync(join(tmpdir(), "zgame-browser-"));
  dirs.push(dir);
  return dir;
}

/** A port that is free now. */
export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** A running process of the server's binary. */
export class Program {
  output = "";

  /** Starts it; it is killed with the test at the latest. */
  constructor(t, name, args, env = {}, binary = gameserver) {
    if (!existsSync(binary)) {
      throw new Error(`there is no server at ${binary}: run "make browser-test", or set GAMESERVER`);
    }
    this.name = name;
    const inherited = { PATH: process.env.PATH, HOME: process.env.HOME };
    this.process = spawn(binary, args, { env: { ...inherited, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    programs.add(this.process);
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => { this.output += text; });
    }
    this.ended = new Promise((done) => {
      this.process.on("close", (code, signal) => done({ code, signal }));
      this.process.on("error", (e) => done({ code: -1, signal: String(e) }));
    }).then((end) => {
      programs.delete(this.process);
      return (this.end = end);
    });
    witness(t, async () => `-- ${name} ${this.end ? JSON.stringify(this.end) : "runs"}; the end of what it printed:\n${this.output.slice(-2000)}`);
    t.after(async () => {
      this.process.kill("SIGKILL");
      await this.ended;
    });
  }

  /** Waits until it prints what matches, and returns all matches of the first group. */
  async find(pattern, count = 1) {
    return await until(`${this.name} prints ${pattern}`, () => {
      const found = [...this.output.matchAll(new RegExp(pattern, "g"))].map((m) => m[1] ?? m[0]);
      if (found.length >= count) return found;
      if (this.end) {
        throw Object.assign(new Error(`${this.name} has ended (${JSON.stringify(this.end)}); it printed:\n${this.output}`), { fatal: true });
      }
      return undefined;
    });
  }

  /** Sends the signal and waits for the end. */
  async stop(signal) {
    this.process.kill(signal);
    return await until(`${this.name} ends after ${signal}`, () => this.end);
  }

  /** Ends it as Ctrl-C does, which must be clean. */
  async interrupt() {
    assert.deepEqual(await this.stop("SIGINT"), { code: 0, signal: null }, `${this.name} after SIGINT; it printed:\n${this.output}`);
  }
}

/** Starts `gameserver dev`, or that of another program beside it, with so many nodes; pages and gates are theirs, in order. */
export async function startDev(t, nodes, name = "gameserver", env = {}) {
  const any = "127.0.0.1:0";
  const args = ["dev", "--nodes", String(nodes), "--gate", any, "--page", any, "--admin", any, "--data", tempDir()];
  const program = new Program(t, `${name} dev`, args, env, name === "gameserver" ? gameserver : join(dirname(gameserver), name));
  await program.find("stop with Ctrl-C");
  return {
    program,
    pages: await program.find("page +(http://\\S+)", nodes),
    gates: await program.find("gate +(ws://\\S+)", nodes),
  };
}

/** The embedded servers in one process, and nodes in others, each with a gate, a page and an admin port. */
export class Cluster {
  nodes = {};

  constructor(t, ids, env = {}) {
    this.t = t;
    this.ids = ids;
    this.env = env;
  }

  async start() {
    this.services = new Program(this.t, "services", ["services", "--nats-port", "0", "--etcd-port", "0", "--data", tempDir()]);
    const [nats] = await this.services.find("url: (\\S+)");
    const [etcd] = await this.services.find("endpoints: \\[(\\S+)\\]");
    for (const id of this.ids) this.nodes[id] = { gate: await freePort(), page: await freePort(), admin: await freePort() };
    const origins = Object.values(this.nodes).flatMap((n) => [`http://localhost:${n.page}`, `http://127.0.0.1:${n.page}`]).join(",");
    this.common = {
      ZGAME_GATE_AUTH_KIND: "dev", ZGAME_GATE_ORIGINS: origins, ZGAME_NATS_URL: nats, ZGAME_ETCD_ENDPOINTS: etcd,
      ZGAME_ETCD_LEASE: "3s", ZGAME_STORE_DRIVER: "kv", ZGAME_DRAIN_DELAY: "50ms", ...this.env,
    };
    await Promise.all(this.ids.map((id) => this.startNode(id)));
  }

  /** Starts a node, or starts it again. */
  async startNode(id) {
    const n = this.nodes[id];
    n.program = new Program(this.t, `node ${id}`, ["run"], {
      ...this.common, ZGAME_NODE_ID: id, ZGAME_GATE_ADDRESS: `127.0.0.1:${n.gate}`, ZGAME_PAGE_ADDRESS: `127.0.0.1:${n.page}`,
      ZGAME_ADMIN_ADDRESS: `127.0.0.1:${n.admin}`,
    });
    await n.program.find("node is ready");
  }

  page(id) {
    return `http://localhost:${this.nodes[id].page}`;
  }

  /** Where an object lives: the id of a node. */
  async owner(type, id) {
    const some = Object.values(this.nodes).find((n) => !n.program.end);
    const response = await fetch(`http://127.0.0.1:${some.admin}/objects/${type}/0/${id}`);
    return (await response.json()).owner;
  }

  /** Moves an object. */
  async move(type, id, to) {
    await until(`${type}/${id} is on ${to}`, async () => {
      const at = await this.owner(type, id);
      if (at === to) return true;
      await fetch(`http://127.0.0.1:${this.nodes[at].admin}/objects/${type}/0/${id}/move?to=${to}`, { method: "POST" });
      return false;
    });
  }

  /** Ends what runs, cleanly. */
  async stop() {
    for (const n of Object.values(this.nodes)) if (!n.program.end) await n.program.interrupt();
    await this.services.interrupt();
  }
}

/** Starts the browser, which must be there: a test without it proves nothing, so it does not skip. */
export async function startBrowser(t) {
  if (!existsSync(browserPath)) {
    throw new Error(`there is no browser at ${browserPath}: install Debian's package chromium, or set CHROMIUM to one`);
  }
  const browser = await chromium.launch({
    executablePath: browserPath,
    headless: true,
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
    ],
  });
  t.after(() => browser.close());
  return browser;
}

/** The chat page in a browser context of its own: its own storage, as another person's browser has. */
export class Tab {
  /** What the page complained of: console errors and warnings, exceptions, violations of its content security policy. */
  complaints = [];
  /** How many websockets it has opened so far. */
  sockets = 0;

  /** Opens it in the browser, for as long as the test lasts. */
  static async open(t, browser, url, options = {}) {
    const tab = new Tab();
    tab.context = await browser.newContext(options);
    tab.page = await tab.context.newPage();
    tab.page.on("console", (m) => {
      if (["error", "warning"].includes(m.type())) tab.complaints.push(`${m.type()}: ${m.text()}`);
    });
    tab.page.on("pageerror", (e) => tab.complaints.push(`exception: ${e.stack ?? e}`));
    tab.page.on("dialog", (d) => {
      tab.complaints.push(`dialog: ${d.message()}`);
      void d.dismiss();
    });
    tab.page.on("requestfailed", (r) => tab.complaints.push(`request failed: ${r.url()} ${r.failure()?.errorText}`));
    tab.page.on("response", (r) => {
      if (r.status() >= 400) tab.complaints.push(`response ${r.status()}: ${r.url()}`);
    });
    tab.page.on("websocket", () => tab.sockets++);
    await tab.page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (e) => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`));
    });
    t.after(() => tab.context.close());
    witness(t, async () => `-- ${tab.name}'s tab: ${tab.page.isClosed() ? "closed" : await tab.page.evaluate(() => document.body.innerText.slice(0, 1000))}\ncomplaints: ${JSON.stringify(tab.complaints)}`);
    await tab.page.goto(url);
    return tab;
  }

  /** The element with the data-testid. */
  at(id) {
    return this.page.getByTestId(id);
  }

  async text(id) {
    return (await this.at(id).textContent()).trim();
  }

  async phase() {
    return await this.at("phase").getAttribute("data-phase");
  }

  /** Chooses a name, enters the room, and waits to be in it. */
  async enter(name, room, clicks = 1) {
    this.name = name;
    await this.at("name").fill(name);
    await this.at("room").fill(room);
    // In one go, before the page can answer the first.
    await this.at("enter").evaluate((button, n) => { for (; n > 0; n--) button.click(); }, clicks);
    await this.inRoom();
  }

  /** Goes to another room, with its button where it is joined already. */
  async goTo(room) {
    const known = this.at("rooms").locator(`[data-room="${room}"]`);
    if (await known.count() > 0) {
      await known.click();
      return;
    }
    await this.at("another-room").fill(room);
    await this.at("join").click();
    await this.inRoom();
  }

  /** Waits until the room that is shown is joined, and returns the node it is on. */
  async inRoom() {
    return await until(`${this.name} is in the room`, async () => /^room \S+ on ([^,]+),/.exec(await this.text("dev"))?.[1]);
  }

  /** Opens what is whispered with somebody. */
  async talkTo(person) {
    await this.at("persons").locator(`[data-person="${person}"] [data-testid=person]`).click();
    await untilEqual(`${this.name} looks at ${person}`, () => this.text("title"), person);
  }

  /** What the list on the left says of somebody. */
  async person(name) {
    return await this.page.evaluate((who) => {
      const li = document.querySelector(`[data-person="${who}"]`);
      return li ? { status: li.dataset.status, online: li.dataset.online } : { status: "none", online: "false" };
    }, name);
  }

  async leave() {
    await this.at("leave").click();
  }

  async shoot(name) {
    await this.page.screenshot({ path: join(shots, `${name}.png`) });
  }

  /** Writes a line, and waits for nothing. */
  async write(text) {
    await this.at("text").fill(text);
    await this.at("text").press("Enter");
  }

  /** Writes a line and waits until it is in the list. */
  async say(text) {
    await this.at("text").fill(text);
    await this.at("text").press("Enter");
    await until(`${this.name} sees the own line ${text}`, async () => (await this.lines()).some((l) => l.from === this.name && l.text === text));
  }

  /** Writes a line as someone does who does not give up: while the page says that it was not sent, once more. */
  async insist(text) {
    await this.at("text").fill(text);
    await until(`${this.name} gets rid of ${text}`, async () => {
      if ((await this.lines()).some((l) => l.text === text)) return true;
      if (await this.at("text").inputValue() === text) await this.at("text").press("Enter");
      return false;
    });
  }

  /** The lines that are shown, as someone sees them. */
  async lines() {
    return await this.page.evaluate(() => [...document.querySelectorAll("[data-testid=line]")].map((li) => ({
      from: li.querySelector(".from").innerText, text: li.querySelector(".text").innerText,
    })));
  }

  async notes() {
    return await this.page.evaluate(() => [...document.querySelectorAll("#lines .note")].map((li) => li.innerText));
  }

  /** Who is in the room that is shown. */
  async members() {
    return (await this.text("members")).replace(/^Here: /, "").split(", ");
  }
}
