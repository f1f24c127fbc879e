// The people on the left: friends with presence, requests, and who is blocked.
import { type Client } from "@zgame/client";
import type { DescMessage } from "@bufbuild/protobuf";
import {
  AcceptSchema, AddSchema, BlockSchema, ChangedSchema, EntriesSchema, type Entry, EntrySchema, ListSchema, NoteSchema, RemoveSchema, Status,
  UnblockSchema, type Where, WhereSchema,
} from "./gen/friend/friend_pb.js";
import type { Person, Talk } from "./talk.js";
import { $, button, element } from "./ui.js";

/** What a friend's presence reads like. */
export function presence(e: Entry): string {
  if (e.online) return "there";
  return e.seenMs > 0n ? `last there ${new Date(Number(e.seenMs)).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}` : "not there";
}

const order = [Status.INCOMING, Status.FRIEND, Status.NONE, Status.OUTGOING, Status.BLOCKED];

export class People {
  readonly entries = new Map<string, Entry>();
  /** Where the own list lives, as was last heard. */
  where: Where | undefined;
  private loading = false;

  constructor(private readonly client: () => Client | undefined, private readonly changed: () => void, private readonly failed: (e: unknown) => void) {}

  listen(z: Client): void {
    z.on(EntrySchema, (e) => this.take(e));
    z.on(WhereSchema, (w) => {
      this.where = w;
      this.changed();
    });
  }

  /** Asks for the list, and goes on trying while that may help. */
  async load(z: Client): Promise<void> {
    if (this.loading) return;
    this.loading = true;
    try {
      for (let wait = 250; this.client() === z; wait = Math.min(2 * wait, 1000)) {
        try {
          const all = await z.request(ListSchema, {}, EntriesSchema);
          this.entries.clear();
          for (const e of all.entries) this.entries.set(e.user, e);
          this.where = all.where;
          this.changed();
          return;
        } catch (e) {
          if (z.state.phase === "closed") return;
          await new Promise((done) => setTimeout(done, wait));
        }
      }
    } finally {
      this.loading = false;
    }
  }

  /** Asks somebody to be a friend. */
  async ask(user: string): Promise<void> {
    await this.change(AddSchema, { user });
  }

  private take(e: Entry): void {
    if (e.status === Status.NONE && !e.note) this.entries.delete(e.user);
    else this.entries.set(e.user, e);
    this.changed();
  }

  private async change(schema: DescMessage, init: { user: string; text?: string }): Promise<void> {
    const z = this.client();
    if (!z) return;
    const { entry } = await z.request(schema, init, ChangedSchema);
    if (entry) this.take(entry);
  }

  private do(label: string, schema: DescMessage, user: string, testid = label.toLowerCase()): HTMLButtonElement {
    return button(label, testid, () => this.change(schema, { user }).catch(this.failed));
  }

  /** What can be done about somebody. */
  actions(user: string): HTMLElement[] {
    const note = button("Note", "note", () => {
      const said = prompt(`A note about ${user}, for you alone`, this.entries.get(user)?.note ?? "");
      if (said !== null) this.change(NoteSchema, { user, text: said }).catch(this.failed);
    });
    switch (this.entries.get(user)?.status) {
      case Status.FRIEND: return [note, this.do("Remove", RemoveSchema, user), this.do("Block", BlockSchema, user)];
      case Status.INCOMING: return [this.do("Accept", AcceptSchema, user), this.do("Decline", RemoveSchema, user), this.do("Block", BlockSchema, user)];
      case Status.OUTGOING: return [this.do("Take back", RemoveSchema, user, "take-back"), this.do("Block", BlockSchema, user)];
      case Status.BLOCKED: return [this.do("Unblock", UnblockSchema, user)];
      default: return [this.do("Befriend", AddSchema, user), this.do("Block", BlockSchema, user)];
    }
  }

  /** Shows all, and those with whom something was whispered. */
  show(me: string, persons: Map<string, Person>, shown: Talk | undefined, open: (user: string) => void): void {
    const all = new Map<string, Entry | undefined>();
    for (const p of persons.keys()) all.set(p, undefined);
    for (const [user, e] of this.entries) all.set(user, e);
    all.delete(me);
    const rank = (e: Entry | undefined) => order.indexOf(e?.status ?? Status.NONE) * 2 + (e?.online ? 0 : 1);
    const sorted = [...all].sort(([a, x], [b, y]) => rank(x) - rank(y) || a.localeCompare(b));
    let news = 0;
    $("persons").replaceChildren(...sorted.map(([user, e]) => {
      const li = element("li", "person");
      li.dataset["person"] = user;
      li.dataset["status"] = Status[e?.status ?? Status.NONE].toLowerCase();
      li.dataset["online"] = String(e?.online ?? false);
      const b = button("", "person", () => open(user));
      b.setAttribute("aria-current", String(shown?.kind === "person" && shown.name === user));
      const dot = element("span", "dot");
      if (e?.status === Status.FRIEND) {
        dot.dataset["phase"] = e.online ? "online" : "idle";
        dot.title = presence(e);
        b.setAttribute("aria-label", `${user}, ${presence(e)}`);
      } else {
        dot.dataset["phase"] = "none";
      }
      b.append(dot, element("span", "who", user));
      const about = e?.note || { [Status.INCOMING]: "wants to be friends", [Status.OUTGOING]: "was asked", [Status.BLOCKED]: "is blocked" }[e?.status as number] || "";
      if (about) b.append(element("span", "about", about));
      const unread = persons.get(user)?.unread ?? 0;
      if (unread > 0) b.append(element("span", "unread", String(unread)));
      news += unread + (e?.status === Status.INCOMING ? 1 : 0);
      li.append(b);
      if (e?.status === Status.INCOMING) li.append(this.do("Accept", AcceptSchema, user), this.do("Decline", RemoveSchema, user));
      return li;
    }));
    const badge = news > 0 ? String(news) : "";
    if ($("people-news").textContent !== badge) $("people-news").textContent = badge;
  }
}
