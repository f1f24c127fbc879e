// What the page knows of a room; no DOM here.
import type { Joined, Line, Presence } from "./gen/chat/chat_pb.js";

/** One entry of a room's list: a line, or a note of the page itself. */
export type Entry = { kind: "line"; line: Line } | { kind: "note"; text: string };

/** Oldest entries are forgotten beyond this. */
const maxEntries = 1000;

export class Room {
  readonly entries: Entry[] = [];
  readonly members = new Set<string>();
  /** The node that hosts the room, as of the last join. */
  node = "";
  unread = 0;
  private readonly seqs = new Set<bigint>(); // of the lines in entries
  private newest = 0n; // highest seq of them

  constructor(readonly name: string) {}

  /**
   * Takes what a join answered. Lines that are here already are not doubled (a push may come before the history that it is
   * part of), and a hole between what was here and the history is noted.
   */
  joined(j: Joined): void {
    this.node = j.node;
    this.members.clear();
    for (const m of j.members) this.members.add(m);
    const first = j.history[0]?.seq ?? 0n;
    let before = 0n;
    for (const s of this.seqs) if (s < first && s > before) before = s;
    if (before > 0n && before + 1n < first) {
      this.insert({ kind: "note", text: `${first - before - 1n} lines were missed` }, first);
    }
    for (const l of j.history) this.add(l);
  }

  /** Whether lines between the newest here and this one have not come: pushes are lost when the bus breaks. */
  skips(line: Line): boolean {
    return this.newest > 0n && line.seq > this.newest + 1n;
  }

  /** Takes a line; false when it is here already. */
  add(line: Line): boolean {
    if (this.seqs.has(line.seq)) return false;
    this.seqs.add(line.seq);
    if (line.seq > this.newest) this.newest = line.seq;
    this.insert({ kind: "line", line }, line.seq);
    return true;
  }

  presence(p: Presence): void {
    if (p.here) this.members.add(p.user);
    else this.members.delete(p.user);
  }

  note(text: string): void {
    this.insert({ kind: "note", text }, undefined);
  }

  /** Puts e behind everything that is older than seq; behind everything for undefined. */
  private insert(e: Entry, seq: bigint | undefined): void {
    let at = this.entries.length;
    if (seq !== undefined) {
      for (let i = at - 1; i >= 0; i--) {
        const other = this.entries[i];
        if (other?.kind !== "line") continue;
        if (other.line.seq < seq) break;
        at = i;
      }
    }
    this.entries.splice(at, 0, e);
    if (this.entries.length > maxEntries) {
      const gone = this.entries.shift();
      if (gone?.kind === "line") this.seqs.delete(gone.line.seq);
    }
  }
}
