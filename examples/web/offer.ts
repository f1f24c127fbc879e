// What the page's server offers; the page shows nothing else.
import { $, text } from "./ui.js";

export class Offer {
  readonly rooms: boolean;
  readonly whispers: boolean;
  readonly friends: boolean;

  private constructor(readonly gate: string, readonly name: string, readonly dev: boolean, kinds: string[]) {
    [this.rooms, this.whispers, this.friends] = ["rooms", "whispers", "friends"].map((k) => kinds.includes(k)) as [boolean, boolean, boolean];
  }

  /** Asks the server. Another gate may be named by ?gate=. */
  static async ask(): Promise<Offer> {
    const response = await fetch("config.json", { cache: "no-store" });
    if (!response.ok) throw new Error(`config.json: ${response.status}`);
    const said = (await response.json()) as { gate: string; name: string; dev: boolean; kinds: string[] | null };
    return new Offer(new URLSearchParams(location.search).get("gate") ?? said.gate, said.name, said.dev, said.kinds ?? []);
  }

  show(): void {
    text("app", this.name);
    document.title = this.name;
    document.body.classList.toggle("no-rooms", !this.rooms);
    document.body.classList.toggle("no-talk", !this.rooms && !this.whispers);
    $<HTMLInputElement>("first-room").required = this.rooms;
    $("people").hidden = $("people-toggle").hidden = !this.friends && !this.whispers;
    text("add", this.friends ? "Ask" : "Whisper");
    $("another-person").setAttribute("aria-label", this.friends ? "Ask somebody to be a friend" : "Whisper to somebody");
  }
}
