// What somebody has written and the server does not have yet; no DOM here.
import { Outcome, ZgameError } from "@zgame/client";

export interface Item {
  readonly text: string;
  /** By this name the server knows it when it is sent again. */
  readonly once: string;
}

/** What is to be done about a failure: send it again, or give it up. */
export type Verdict = "again" | "refused";

/**
 * Sends one item after the other, each until it is there or refused: so nothing is lost, nothing comes twice (by its name), and nothing in
 * another order. What ended without anybody knowing whether it ran is sent again too.
 */
export class Outbox {
  readonly items: Item[] = [];
  private running = false;

  constructor(
    private readonly send: (item: Item) => Promise<void>,
    /** Looks at a failure that is none of the network's, and may mend what it is about. */
    private readonly judge: (e: ZgameError) => Promise<Verdict>,
    private readonly refused: (item: Item, e: ZgameError) => void,
    private readonly changed: () => void,
  ) {}

  add(text: string): void {
    this.items.push({ text, once: crypto.randomUUID() });
    this.changed();
    void this.run();
  }

  private async run(): Promise<void> {
    if (this.running) return;
    this.running = true;
    let wait = 100;
    for (let item = this.items[0]; item; item = this.items[0]) {
      try {
        await this.send(item);
      } catch (e) {
        const fault = e instanceof ZgameError ? e : new ZgameError(0, Outcome.UNKNOWN, String(e));
        if (fault.outcome === Outcome.UNKNOWN || fault.retryable || (await this.judge(fault)) === "again") {
          await new Promise((done) => setTimeout(done, wait));
          wait = Math.min(2 * wait, 2000);
          continue;
        }
        this.refused(item, fault);
      }
      wait = 100;
      this.items.shift();
      this.changed();
    }
    this.running = false;
  }
}
