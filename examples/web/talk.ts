// What the page knows of a room, or of what was whispered with somebody; no DOM here.
import { type Joined, type Line, LineKind, type Where, type Whispered } from "./gen/chat/chat_pb.js";
import type { Outbox } from "./outbox.js";

/** One entry of a list: a line of a room, a whisper, or a note of the page itself. */
export type Entry = { kind: "line"; line: Line } | { kind: "whisper"; whisper: Whispered } | { kind: "note"; text: string };

/** Oldest entries are forgotten beyond this. */
const maxEntries = 1000;

/** A list of entries that somebody can look at and write to. */
export abstract class Talk {
  readonly entries: Entry[] = [];
  unread = 0;
  outbox!: Outbox;
  abstract readonly kind: "room" | "person";

  constructor(readonly name: string) {}

  note(text: string): void {
    this.entries.push({ kind: "note", text });
    this.trim();
  }

  protected trim(): Entry | undefined {
    return this.entries.length > maxEntries ? this.entries.shift() : undefined;
  }
}

/** What was whispered with one user, in the order in which it was said. */
export class Person extends Talk {
  readonly kind = "person";
  private readonly seen = new Set<string>();

  /** Takes a whisper; false when it is here already. */
  add(whisper: Whispered): boolean {
    const key = `${whisper.from}/${whisper.once}`;
    if (whisper.once && this.seen.has(key)) return false;
    this.seen.add(key);
    let at = this.entries.length; // what was kept may come behind what is pushed
    for (let e = this.entries[at - 1]; e?.kind === "whisper" && e.whisper.atMs > whisper.atMs; e = this.entries[at - 1]) at--;
    this.entries.splice(at, 0, { kind: "whisper", whisper });
    this.trim();
    return true;
  }
}

/** A room: its lines have numbers without a hole. */
export class Room extends Talk {
  readonly kind = "room";
  readonly members = new Set<string>();
  /** Where the room lives, as was last heard. */
  where: Where | undefined;
  joined = false;
  /** Whether a join is under way, and whether lines are being asked for. */
  joining = false;
  filling = false;
  /** Who is typing, until when (performance.now()). */
  readonly typing = new Map<string, number>();
  private readonly seqs = new Set<bigint>(); // of the lines in entries
  private newest = 0n; // highest seq of them
  private readonly gone = new Set<bigint>(); // behind these the room has forgotten what came

  /** Takes what a join answered. Lines that are here already are not doubled: a push may come before the history that it is part of. */
  entered(j: Joined): void {
    this.joined = true;
    this.where = j.where;
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

  /** The oldest line that is here, above which older ones may be asked for; 0n: there is none. */
  oldest(): bigint {
    for (const e of this.entries) if (e.kind === "line") return e.line.seq;
    return 0n;
  }

  /** Takes a line; false when it is here already. */
  add(line: Line): boolean {
    if (this.seqs.has(line.seq)) return false;
    this.seqs.add(line.seq);
    if (line.seq > this.newest) { // an older one tells of what has been
      this.newest = line.seq;
      this.typing.delete(line.from);
      if (line.kind === LineKind.CAME) this.members.add(line.from);
      if (line.kind === LineKind.LEFT) this.members.delete(line.from);
    }
    this.insert({ kind: "line", line }, line.seq);
    return true;
  }

  /** Puts e behind everything that is older than seq. */
  private insert(e: Entry, seq: bigint): void {
    let at = this.entries.length;
    for (let i = at - 1; i >= 0; i--) {
      const other = this.entries[i];
      if (other?.kind !== "line") continue;
      if (other.line.seq < seq) break;
      at = i;
    }
    this.entries.splice(at, 0, e);
    const gone = this.trim();
    if (gone?.kind === "line") this.seqs.delete(gone.line.seq);
  }
}
