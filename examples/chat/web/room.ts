// What the page knows of a room; no DOM here.
import { type Joined, type Line, LineKind } from "./gen/chat/chat_pb.js";

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
  /** Whether lines are being asked for. */
  filling = false;
  private readonly seqs = new Set<bigint>(); // of the lines in entries
  private newest = 0n; // highest seq of them
  private readonly gone = new Set<bigint>(); // behind these the room has forgotten what came

  constructor(readonly name: string) {}

  /** Takes what a join answered. Lines that are here already are not doubled: a push may come before the history that it is part of. */
  joined(j: Joined): void {
    this.node = j.node;
    for (const l of j.history) this.add(l);
    this.members.clear();
    for (const m of j.members) this.members.add(m);
  }

  /** The newest hole between the lines that are here, which the room's history may fill: a line is missing between the two numbers. */
  hole(): { after: bigint; before: bigint } | undefined {
    let before: bigint | undefined;
    for (let i = this.entries.length - 1; i >= 0; i--) {
      const e = this.entries[i];
      if (e?.kind !== "line") continue;
      const seq = e.line.seq;
      if (before !== undefined && seq + 1n < before && !this.gone.has(seq)) return { after: seq, before };
      before = seq;
    }
    return undefined;
  }

  /** Takes what the room has of a hole; where it has nothing more, that is noted. */
  filled(hole: { after: bigint; before: bigint }, lines: Line[]): void {
    for (const l of lines) this.add(l);
    if (lines.length > 0) return;
    this.gone.add(hole.after);
    this.insert({ kind: "note", text: `${hole.before - hole.after - 1n} lines were missed` }, hole.before);
  }

  /** Takes a line; false when it is here already. */
  add(line: Line): boolean {
    if (this.seqs.has(line.seq)) return false;
    this.seqs.add(line.seq);
    if (line.seq > this.newest) { // an older one tells of what has been
      this.newest = line.seq;
      if (line.kind === LineKind.CAME) this.members.add(line.from);
      if (line.kind === LineKind.LEFT) this.members.delete(line.from);
    }
    this.insert({ kind: "line", line }, line.seq);
    return true;
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
