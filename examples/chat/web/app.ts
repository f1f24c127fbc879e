// The chat page: a name, rooms, lines. Text from people is only ever set as text, never as HTML.
import { Client, Code, Outcome, type Reason, type State, ZgameError } from "@zgame/client";
import {
  Code as ChatCode, HistorySchema, JoinedSchema, JoinSchema, LeaveSchema, LeftSchema, LineKind, LineSchema, LinesSchema, SaidSchema, SaySchema, WhereSchema,
} from "./gen/chat/chat_pb.js";
import { type Entry, Room } from "./room.js";

function $<E extends HTMLElement>(id: string): E {
  return document.getElementById(id) as E;
}

const rooms = new Map<string, Room>();
let shown: Room | undefined;
let client: Client | undefined;
let name = "";
let entering = false;
let retryAt = 0; // performance.now() of the next try to connect

// ---- connection ----

/** Where the gate is: ?gate=, or what the server of this page says. */
async function gateURL(): Promise<string> {
  const asked = new URLSearchParams(location.search).get("gate");
  if (asked) return asked;
  const response = await fetch("config.json", { cache: "no-store" });
  if (!response.ok) throw new Error(`config.json: ${response.status}`);
  return ((await response.json()) as { gate: string }).gate;
}

async function enter(as: string, room: string): Promise<void> {
  if (entering) return; // a second click must not become a second client
  entering = true;
  name = as;
  localStorage.setItem("zgame-chat-name", as);
  let gate: string;
  try {
    gate = await gateURL();
  } catch (e) {
    showError(`The page's server does not say where the gate is: ${String(e)}`);
    return;
  } finally {
    entering = false;
  }
  const z = new Client(gate, { token: as, name: "zgame-chat", retryFirst: true, requestTimeoutMs: 8000 });
  client = z;
  z.on(LineSchema, (line) => {
    const r = rooms.get(line.room);
    if (!r) return;
    if (r.add(line)) changed(r, line.kind === LineKind.SAID);
    void fill(z, r); // the history has what was lost on the way
  });
  z.on(WhereSchema, (w) => {
    const r = rooms.get(w.room);
    if (!r) return;
    r.node = w.node;
    changed(r, false);
  });
  z.onGap(() => {
    for (const r of rooms.values()) void join(z, r);
  });
  z.onState((s) => {
    retryAt = performance.now() + s.delayMs;
    showState(s);
    if (s.phase === "online") for (const r of rooms.values()) void join(z, r);
    if (s.phase === "closed" && client === z) {
      client = undefined;
      showLogin();
      if (s.reason && s.reason.kind !== "client") showError(`Disconnected: ${because(s.reason)}`);
    }
  });
  rooms.clear(); // of somebody else, perhaps
  rooms.set(room, new Room(room));
  $("login").hidden = true;
  $("chat").hidden = false;
  show(rooms.get(room));
  $("text").focus();
  z.connect().catch(() => {}); // the closed state says it
}

/** Joins r, and goes on trying while that may help: a shard moves, a gate is busy. */
async function join(z: Client, r: Room): Promise<void> {
  for (let wait = 500; ; wait = Math.min(2 * wait, 8000)) {
    try {
      r.joined(await z.request(JoinSchema, { room: r.name }, JoinedSchema));
      changed(r, false);
      void fill(z, r);
      return;
    } catch (e) {
      // A new connection joins anew.
      if (z.state.phase !== "online" || rooms.get(r.name) !== r) return;
      if (!(e instanceof ZgameError) || !(e.retryable || e.code === Code.NO_ROUTE)) {
        rooms.delete(r.name);
        if (shown === r) show(rooms.values().next().value);
        showError(`${r.name}: ${explain(e)}`);
        return;
      }
      r.note(`joining again: ${explain(e)}`);
      changed(r, false);
      await new Promise((done) => setTimeout(done, wait));
      if (z.state.phase !== "online" || rooms.get(r.name) !== r) return;
    }
  }
}

/** Asks for lines that are missing between those that are here. */
async function fill(z: Client, r: Room): Promise<void> {
  if (r.filling) return;
  r.filling = true;
  try {
    for (let hole = r.hole(); hole && rooms.get(r.name) === r; hole = r.hole()) {
      r.filled(hole, (await z.request(HistorySchema, { room: r.name, ...hole }, LinesSchema)).lines);
      changed(r, false);
    }
  } catch {
    // The next line, or the next join, asks again.
  } finally {
    r.filling = false;
  }
}

async function say(z: Client, r: Room, text: string): Promise<void> {
  const once = crypto.randomUUID();
  for (let wait = 250; ; wait = Math.min(2 * wait, 4000)) {
    try {
      await z.request(SaySchema, { room: r.name, text, once }, SaidSchema);
      return;
    } catch (e) { // by its name the line is said once, however often it is sent
      if (!(e instanceof ZgameError) || z.state.phase !== "online") throw e;
      if (e.code === (ChatCode.NOT_MEMBER as number) || e.code === Code.NOT_IN_SERVER) await join(z, r);
      else if (!e.retryable) throw e;
      else await new Promise((done) => setTimeout(done, wait));
    }
  }
}

function explain(e: unknown): string {
  if (!(e instanceof ZgameError)) return String(e);
  if (e.code === (ChatCode.BAD_ROOM as number)) return "a room is named by 1 to 32 letters, digits, - or _";
  return e.text || e.message;
}

// ---- what is shown ----

/** Why there is no connection, in the server's words where it gave any. */
function because(r: Reason): string {
  if (r.text) return r.text;
  switch (r.kind) {
    case "dial": return "no answer";
    case "lost": return "the connection was lost";
    default: return r.code ? `${r.kind} (${r.code})` : r.kind;
  }
}

function showState(s: State): void {
  $("dot").dataset["phase"] = s.phase;
  const why = s.reason ? `: ${because(s.reason)}` : "";
  $("status").textContent = {
    idle: "not connected",
    connecting: "connecting",
    online: "connected",
    waiting: `connecting again${why}`,
    closed: `disconnected${why}`,
  }[s.phase];
  $("node").textContent = s.phase === "online" && s.session ? s.session.node : "";
  if (s.phase === "online") showError("");
  showTimes();
}

/** What changes while nothing happens; outside the live region, so that it is not read aloud each second. */
function showTimes(): void {
  const left = client?.state.phase === "waiting" ? retryAt - performance.now() : -1;
  $("wait").textContent = left >= 0 ? `in ${Math.ceil(left / 1000)} s` : "";
  const rtt = client?.state.phase === "online" ? client.rtt : 0;
  $("rtt").textContent = rtt > 0 ? `${rtt < 10 ? rtt.toFixed(1) : Math.round(rtt)} ms` : "";
}

function showLogin(): void {
  $("login").hidden = false;
  $("chat").hidden = true;
}

function showError(text: string): void {
  $("error").textContent = text;
}

function show(r: Room | undefined): void {
  shown = r;
  if (r) r.unread = 0;
  showEntries();
  showRooms();
  scrollDown(true);
  document.querySelector("#rooms [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** r has changed: shows it, or that there is something new in it. */
function changed(r: Room, line: boolean): void {
  if (r === shown) {
    const list = $("lines");
    const follow = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
    showEntries();
    scrollDown(follow);
  } else if (line) {
    r.unread++;
  }
  showRooms();
}

/** Brings the list up to date with the room that is shown; elements that are there already stay. */
function showEntries(): void {
  const list = $("lines");
  const wanted = (shown?.entries ?? []).map((e) => elements.get(e) ?? element(e));
  const keep = new Set<Element>(wanted);
  for (const li of [...list.children]) if (!keep.has(li)) li.remove();
  let next = list.firstElementChild;
  for (const li of wanted) {
    if (li === next) next = li.nextElementSibling;
    else list.insertBefore(li, next);
  }
}

function scrollDown(follow: boolean): void {
  if (follow) $("lines").scrollTop = $("lines").scrollHeight;
}

const elements = new WeakMap<Entry, HTMLElement>();

function element(e: Entry): HTMLElement {
  const li = document.createElement("li");
  elements.set(e, li);
  if (e.kind === "note" || e.line.kind !== LineKind.SAID) {
    li.className = "note";
    li.textContent = e.kind === "note" ? e.text : `${e.line.from} ${e.line.kind === LineKind.CAME ? "came in" : "left"}`;
    return li;
  }
  const at = new Date(Number(e.line.atMs));
  const time = document.createElement("time");
  time.dateTime = at.toISOString();
  time.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const from = document.createElement("span");
  from.className = "from";
  from.textContent = e.line.from;
  const text = document.createElement("span");
  text.className = "text";
  text.textContent = e.line.text;
  li.className = e.line.from === name ? "line mine" : "line";
  li.dataset["testid"] = "line";
  li.dataset["seq"] = String(e.line.seq);
  li.append(time, from, text);
  return li;
}

function showRooms(): void {
  $("rooms").replaceChildren(...[...rooms.values()].map((r) => {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = r.name;
    b.dataset["room"] = r.name;
    b.setAttribute("aria-current", String(r === shown));
    if (r.unread > 0) {
      const n = document.createElement("span");
      n.className = "unread";
      n.textContent = String(r.unread);
      b.append(n);
    }
    b.addEventListener("click", () => show(r));
    const li = document.createElement("li");
    li.append(b);
    return li;
  }));
  const members = [...(shown?.members ?? [])].sort();
  $("members").textContent = members.length > 0 ? `Here: ${members.join(", ")}` : "";
  $("room-node").textContent = shown?.node ? `(room on ${shown.node})` : "";
  $<HTMLButtonElement>("leave").disabled = !shown;
  document.title = shown ? `${shown.name} - zgame chat` : "zgame chat";
}

// ---- what people do ----

function onSubmit(form: string, f: () => Promise<void>): void {
  $<HTMLFormElement>(form).addEventListener("submit", (e) => {
    e.preventDefault();
    showError("");
    f().catch((err: unknown) => showError(explain(err)));
  });
}

onSubmit("login-form", async () => {
  const who = $<HTMLInputElement>("name").value.trim();
  if (who) await enter(who, $<HTMLInputElement>("first-room").value.trim());
});

onSubmit("join-form", async () => {
  const input = $<HTMLInputElement>("another-room");
  const room = input.value.trim();
  input.value = "";
  const known = rooms.get(room);
  const r = known ?? new Room(room);
  rooms.set(room, r);
  show(r);
  if (client && !known && client.state.phase === "online") await join(client, r);
});

onSubmit("say-form", async () => {
  const input = $<HTMLInputElement>("text");
  const text = input.value.trim();
  if (!client || !shown || !text) return;
  input.value = "";
  try {
    await say(client, shown, text);
  } catch (e) {
    input.value ||= text; // to be sent again
    const unknown = e instanceof ZgameError && e.outcome === Outcome.UNKNOWN;
    showError(`${unknown ? "Perhaps not sent" : "Not sent"}: ${explain(e)}`);
  }
});

$("leave").addEventListener("click", () => {
  const r = shown;
  if (!r) return;
  rooms.delete(r.name);
  show(rooms.values().next().value);
  // A session that could not leave now has left when it ends.
  client?.request(LeaveSchema, { room: r.name }, LeftSchema).catch((e: unknown) => showError(explain(e)));
});

$<HTMLInputElement>("name").value = localStorage.getItem("zgame-chat-name") ?? "";
setInterval(showTimes, 1000);
