// The page of the examples: people with presence, rooms, whispers. Text from people is only ever set as text, never as HTML.
import { Client, Code, Outcome, type State, ZgameError } from "@zgame/client";
import {
  Code as ChatCode, HistorySchema, JoinedSchema, JoinSchema, LeaveSchema, LeftSchema, LineSchema, LinesSchema, SaidSchema, SaySchema, TypingSchema,
  WhereSchema, type Whispered, WhisperedSchema, WhisperSchema, WhispersKeptSchema, WhispersSchema,
} from "./gen/chat/chat_pb.js";
import { Offer } from "./offer.js";
import { Outbox } from "./outbox.js";
import { People } from "./people.js";
import { Person, Room, type Talk } from "./talk.js";
import { $, because, button, explain, now, text } from "./ui.js";
import { showEntries, showRooms, showTitle, showTyping } from "./view.js";

const rooms = new Map<string, Room>();
const persons = new Map<string, Person>();
let shown: Talk | undefined;
let client: Client | undefined;
let name = "";
let entering = false;
let retryAt = 0; // performance.now() of the next try to connect
const people = new People(() => client, () => showPeople(), (e) => showError(explain(e)));

// ---- connection ----

/** What this page's server offers, once it has said so. */
let offer: Offer | undefined;

async function look(): Promise<Offer> {
  offer ??= await Offer.ask();
  offer.show();
  return offer;
}

async function enter(as: string, room: string): Promise<void> {
  if (entering) return; // a second click must not become a second client
  entering = true;
  name = as;
  localStorage.setItem("zgame-chat-name", as);
  let has: Offer;
  try {
    has = await look();
  } catch (e) {
    showError(`The page's server does not say where the gate is: ${String(e)}`);
    return;
  } finally {
    entering = false;
  }
  const z = new Client(has.gate, { token: as, name: "zgame-chat", retryFirst: true, requestTimeoutMs: 4000, maxBackoffMs: 5000 });
  client = z;
  z.on(LineSchema, (line) => {
    const r = rooms.get(line.room);
    if (!r) return;
    if (r.add(line)) changed(r, line.text !== "" && line.from !== name);
    void fill(z, r); // the history has what was lost on the way
  });
  z.on(TypingSchema, (p) => {
    const r = rooms.get(p.room);
    r?.typing.set(p.user, performance.now() + 4000);
    if (r && r === shown) showTyping(r);
  });
  z.on(WhereSchema, (w) => {
    const r = rooms.get(w.room);
    if (r) r.where = w;
    showDev();
  });
  z.on(WhisperedSchema, hear);
  people.listen(z);
  z.onGap(() => reload(z)); // something may be missing: all that is here knows by numbers what it lacks
  z.onState((s) => {
    retryAt = performance.now() + s.delayMs;
    showState(s);
    if (s.phase === "online" && !s.session?.resumed) reload(z);
    if (s.phase === "closed" && client === z) {
      client = undefined;
      showLogin();
      if (s.reason && s.reason.kind !== "client") showError(`Disconnected: ${because(s.reason)}`);
    }
  });
  rooms.clear(); // of somebody else, perhaps
  persons.clear();
  people.entries.clear();
  $("login").hidden = true;
  $("chat").hidden = false;
  $("dev").hidden = !has.dev;
  showPeople();
  show(has.rooms ? openRoom(room) : undefined);
  document.body.classList.toggle("people-open", !has.rooms);
  $("text").focus();
  z.connect().catch(() => {}); // the closed state says it
}

/** Joins the rooms anew, and asks for the list. Both change nothing where they were not lost. */
function reload(z: Client): void {
  for (const r of rooms.values()) void join(z, r);
  if (offer?.friends) void people.load(z);
  if (offer?.whispers) void loadWhispers(z);
}

/** Asks for what was whispered, and goes on trying while that may help. */
async function loadWhispers(z: Client): Promise<void> {
  for (let wait = 250; client === z && z.state.phase !== "closed"; wait = Math.min(2 * wait, 1000)) {
    try {
      for (const w of (await z.request(WhispersSchema, {}, WhispersKeptSchema)).whispers) hear(w);
      return;
    } catch {
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

/** Takes a whisper, by this user or to him. It is news where no page of this browser has had it. */
function hear(w: Whispered): void {
  const p = person(w.from === name ? w.to : w.from);
  if (!p.add(w)) return;
  const heard = `zgame-heard ${name} ${p.name}`;
  const news = w.from !== name && w.atMs > BigInt(localStorage.getItem(heard) ?? 0);
  if (news) localStorage.setItem(heard, String(w.atMs));
  changed(p, news);
}

/** Joins r, and goes on trying while that may help: a room moves, a gate is busy. */
async function join(z: Client, r: Room): Promise<void> {
  if (r.joining) return;
  r.joining = true;
  try {
    for (let wait = 250; client === z && rooms.get(r.name) === r; wait = Math.min(2 * wait, 1000)) {
      try {
        r.entered(await z.request(JoinSchema, { room: r.name }, JoinedSchema));
        changed(r, false);
        void fill(z, r);
        return;
      } catch (e) {
        if (z.state.phase === "closed") return;
        if (!(e instanceof ZgameError) || !(e.retryable || e.outcome === Outcome.UNKNOWN || e.code === Code.NO_ROUTE)) {
          rooms.delete(r.name);
          if (shown === r) show(rooms.values().next().value);
          showRoomList();
          showError(`${r.name}: ${explain(e)}`);
          return;
        }
        if (z.state.phase === "online" && wait >= 1000) showError(`${r.name}: ${explain(e)}; trying again`);
        await new Promise((done) => setTimeout(done, wait));
      }
    }
  } finally {
    r.joining = false;
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

/** Loads what came before the oldest line that is here. */
async function older(z: Client, r: Room): Promise<void> {
  const { lines } = await z.request(HistorySchema, { room: r.name, before: r.oldest() }, LinesSchema);
  for (const l of lines) r.add(l);
  if (lines.length === 0) showError("The room remembers nothing older.");
  const list = $("lines");
  const bottom = list.scrollHeight - list.scrollTop;
  changed(r, false);
  list.scrollTop = list.scrollHeight - bottom;
}

function openRoom(room: string): Room {
  const known = rooms.get(room);
  if (known) return known;
  const r = new Room(room);
  r.outbox = new Outbox(
    async (item) => {
      await the().request(SaySchema, { room, ...item }, SaidSchema);
    },
    async (e) => {
      if (e.code !== (ChatCode.NOT_MEMBER as number) && e.code !== Code.NOT_IN_SERVER && e.code !== Code.NOT_FOUND) return "refused";
      await join(the(), r); // it has forgotten us
      return rooms.get(room) === r ? "again" : "refused";
    },
    refused,
    () => changed(r, false),
  );
  rooms.set(room, r);
  showRoomList();
  return r;
}

/** What is whispered with somebody. */
function person(who: string): Person {
  const known = persons.get(who);
  if (known) return known;
  const p = new Person(who);
  p.outbox = new Outbox(
    async (item) => {
      hear(await the().request(WhisperSchema, { to: who, ...item }, WhisperedSchema));
    },
    () => Promise.resolve("refused"),
    refused,
    () => changed(p, false),
  );
  persons.set(who, p);
  return p;
}

function the(): Client {
  if (!client) throw new ZgameError(Code.CANCELLED, Outcome.NOT_EXECUTED, "you are not connected");
  return client;
}

function refused(item: { text: string }, e: ZgameError): void {
  const input = $<HTMLInputElement>("text");
  input.value ||= item.text; // to be sent again
  showError(`Not sent: ${explain(e)}`);
}

// ---- what is shown ----

function showState(s: State): void {
  $("dot").dataset["phase"] = s.phase;
  const why = s.reason ? `: ${because(s.reason)}` : "";
  text("status", {
    idle: "not connected",
    connecting: "connecting",
    online: "connected",
    waiting: `connecting again${why}`,
    closed: `disconnected${why}`,
  }[s.phase]);
  text("node", s.phase === "online" && s.session ? s.session.node : "");
  if (s.phase === "online") showError("");
  showTimes();
  showDev();
}

/** What changes while nothing happens; outside the live region, so that it is not read aloud each second. */
function showTimes(): void {
  const left = client?.state.phase === "waiting" ? retryAt - performance.now() : -1;
  text("wait", left >= 0 ? `in ${Math.ceil(left / 1000)} s` : "");
  const rtt = client?.state.phase === "online" ? client.rtt : 0;
  text("rtt", rtt > 0 ? `${rtt < 10 ? rtt.toFixed(1) : Math.round(rtt)} ms` : "");
  if (shown instanceof Room) showTyping(shown);
}

/** For developers: where the object is that one looks at, how often it has changed its owner, and how long its last move took. */
function showDev(): void {
  const parts: string[] = [];
  const at = (what: string, w: { node: string; version: bigint; pauseMs: number } | undefined) => {
    if (w) parts.push(`${what} on ${w.node}, version ${w.version}${w.pauseMs > 0 ? `, moved in ${w.pauseMs.toFixed(1)} ms` : ""}`);
  };
  if (shown instanceof Room) at(`room ${shown.name}`, shown.where);
  at("your list", people.where);
  const s = client?.session;
  if (s) parts.push(`session ${s.id}, generation ${s.generation}, at ${s.node}`);
  text("dev", parts.join(" · "));
}

function showLogin(): void {
  $("login").hidden = false;
  $("chat").hidden = true;
  $("dev").hidden = true;
}

function showError(what: string): void {
  text("error", what);
}

function show(t: Talk | undefined): void {
  shown = t;
  if (t) t.unread = 0;
  if (t) document.body.classList.remove("people-open");
  $("people-toggle").setAttribute("aria-expanded", String(!t));
  showEntries(t, name, true);
  showRoomList();
  showPeople();
  showHead();
  document.querySelector("#rooms [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** t has changed: shows it, or that there is something new in it. */
function changed(t: Talk, news: boolean): void {
  if (t === shown) showEntries(t, name, false);
  else if (news) t.unread++;
  if (t instanceof Room) showRoomList();
  else showPeople();
  if (t === shown) showHead();
}

function showRoomList(): void {
  showRooms(rooms.values(), shown, show);
}

function showPeople(): void {
  people.show(name, persons, shown, (who) => show(person(who)));
  if (shown instanceof Person) showHead();
  else showDev();
}

function showHead(): void {
  const actions: HTMLElement[] = [];
  const t = shown;
  if (t instanceof Room) {
    if (t.oldest() > 1n) actions.push(button("Older", "older", () => older(the(), t).catch((e: unknown) => showError(explain(e)))));
    actions.push(button("Leave", "leave", () => leave(t)));
  } else if (t) {
    if (offer?.friends) actions.push(...people.actions(t.name));
  }
  showTitle(t, people.entries.get(t?.name ?? ""), actions);
  showDev();
}

// ---- what people do ----

function leave(r: Room): void {
  rooms.delete(r.name);
  show(rooms.values().next().value);
  // A session that could not leave now has left when it ends.
  client?.request(LeaveSchema, { room: r.name }, LeftSchema).catch((e: unknown) => {
    if (!(e instanceof ZgameError) || (e.code !== Code.NOT_IN_SERVER && e.code !== Code.NOT_FOUND)) showError(explain(e));
  });
}

function onSubmit(form: string, f: () => Promise<void>): void {
  $<HTMLFormElement>(form).addEventListener("submit", (e) => {
    e.preventDefault();
    showError("");
    f().catch((err: unknown) => showError(explain(err)));
  });
}

function taken(id: string): string {
  const input = $<HTMLInputElement>(id);
  const value = input.value.trim();
  input.value = "";
  return value;
}

onSubmit("login-form", async () => {
  const who = $<HTMLInputElement>("name").value.trim();
  if (who) await enter(who, $<HTMLInputElement>("first-room").value.trim());
});

onSubmit("join-form", async () => {
  const r = openRoom(taken("another-room"));
  show(r);
  if (client && !r.joined) await join(client, r);
});

onSubmit("add-form", async () => {
  const who = taken("another-person");
  if (offer?.friends) await people.ask(who);
  else show(person(who));
});

onSubmit("say-form", async () => {
  const said = taken("text");
  if (shown && said) shown.outbox.add(said);
});

let typed = 0; // when the others were last told
$("text").addEventListener("input", () => {
  const at = now();
  if (!(shown instanceof Room) || !shown.joined || at - typed < 2000 || client?.state.phase !== "online") return;
  typed = at;
  try {
    client.send(TypingSchema, { room: shown.name });
  } catch {
    // nobody misses it
  }
});

$("people-toggle").addEventListener("click", () => {
  const open = document.body.classList.toggle("people-open");
  $("people-toggle").setAttribute("aria-expanded", String(open));
});

$<HTMLInputElement>("name").value = localStorage.getItem("zgame-chat-name") ?? "";
setInterval(showTimes, 1000);
look().catch(() => {}); // whoever enters is told
