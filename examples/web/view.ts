// How rooms and lines look.
import { LineKind } from "./gen/chat/chat_pb.js";
import { type Entry as Friend, Status } from "./gen/friend/friend_pb.js";
import { presence } from "./people.js";
import { type Entry, Room, type Talk } from "./talk.js";
import { $, element, text } from "./ui.js";

const elements = new WeakMap<object, HTMLElement>();

/** Brings the list up to date with t; elements that are there already stay. down: to the end, else only where it was there. */
export function showEntries(t: Talk | undefined, me: string, down: boolean): void {
  const list = $("lines");
  const follow = down || list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  const wanted = (t?.entries ?? []).map((e) => kept(e, () => entry(e, me)));
  for (const item of t?.outbox?.items ?? []) {
    wanted.push(kept(item, () => {
      const li = element("li", "line mine pending");
      li.append(element("span", "from", me), element("span", "text", item.text));
      return li;
    }));
  }
  const keep = new Set<Element>(wanted);
  for (const li of [...list.children]) if (!keep.has(li)) li.remove();
  let next = list.firstElementChild;
  for (const li of wanted) {
    if (li === next) next = li.nextElementSibling;
    else list.insertBefore(li, next);
  }
  if (follow) list.scrollTop = list.scrollHeight;
}

function kept(of: object, make: () => HTMLElement): HTMLElement {
  let e = elements.get(of);
  if (!e) elements.set(of, e = make());
  return e;
}

function entry(e: Entry, me: string): HTMLElement {
  if (e.kind === "note") return element("li", "note", e.text);
  if (e.kind === "line" && e.line.kind !== LineKind.SAID) {
    const li = element("li", "note", `${e.line.from} ${e.line.kind === LineKind.CAME ? "came in" : "left"}`);
    li.dataset["testid"] = "notice";
    return li;
  }
  const said = e.kind === "line" ? e.line : e.whisper;
  const at = new Date(Number(said.atMs));
  const time = element("time", "", at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
  time.dateTime = at.toISOString();
  const li = element("li", said.from === me ? "line mine" : "line");
  li.dataset["testid"] = "line";
  if (e.kind === "line") li.dataset["seq"] = String(e.line.seq);
  li.append(time, element("span", "from", said.from), element("span", "text", said.text));
  return li;
}

export function showRooms(rooms: Iterable<Room>, shown: Talk | undefined, open: (r: Room) => void): void {
  $("rooms").replaceChildren(...[...rooms].map((r) => {
    const b = element("button", "", r.name);
    b.type = "button";
    b.dataset["room"] = r.name;
    b.setAttribute("aria-current", String(r === shown));
    if (r.unread > 0) b.append(element("span", "unread", String(r.unread)));
    b.addEventListener("click", () => open(r));
    const li = element("li", "");
    li.append(b);
    return li;
  }));
}

/** The head of what is shown: who is there, and what can be done. */
export function showTitle(t: Talk | undefined, friend: Friend | undefined, actions: HTMLElement[]): void {
  text("title", t?.name ?? "");
  if (t instanceof Room) text("members", t.joined ? `Here: ${[...t.members].sort().join(", ")}` : "joining");
  else text("members", friend?.status === Status.FRIEND ? presence(friend) : "");
  $("actions").replaceChildren(...actions);
  $<HTMLInputElement>("text").disabled = !t;
  $<HTMLInputElement>("text").placeholder = t?.kind === "person" ? `Whisper to ${t.name}` : "Write something";
  document.title = [t?.name, $("app").textContent].filter(Boolean).join(" - ");
  if (!(t instanceof Room)) text("typing", "");
}

export function showTyping(r: Room): void {
  const at = performance.now();
  for (const [who, until] of r.typing) if (until < at) r.typing.delete(who);
  const who = [...r.typing.keys()].sort();
  text("typing", who.length === 0 ? "" : who.length > 3 ? "several people are typing" : `${who.join(", ")} ${who.length > 1 ? "are" : "is"} typing`);
}
