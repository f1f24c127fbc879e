// The page of the game. Text from people is only ever set as text, never as HTML.
import { Client, ZgameError } from "@zgame/client";
import { HelloSchema, RolledSchema, RollSchema, ScoresSchema, SitSchema, WelcomeSchema } from "./gen/game/game_pb.js";

const $ = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const scores = new Map<string, bigint>();
let seen = 0n; // the last roll that is shown

/** Where the gate is: ?gate=, or what the server of this page says. */
async function gateURL(): Promise<string> {
  const asked = new URLSearchParams(location.search).get("gate");
  if (asked) return asked;
  const response = await fetch("config.json", { cache: "no-store" });
  if (!response.ok) throw new Error(`config.json: ${response.status}`);
  return ((await response.json()) as { gate: string }).gate;
}

async function play(name: string, table: string): Promise<void> {
  const z = new Client(await gateURL(), { token: name, name: "game", retryFirst: true });
  z.onState((s) => { $("status").textContent = s.phase; });
  z.on(RolledSchema, (r) => {
    if (r.roll <= seen) return; // it is in what the last Sit has answered
    seen = r.roll;
    scores.set(r.by, r.score);
    const line = document.createElement("li");
    line.textContent = `${r.by} rolled a ${r.value}`;
    $("rolls").prepend(line);
    showScores();
  });
  // Sitting again binds again, and has what was missed: a table tells with a gap that it may have forgotten who sits there.
  const sit = async () => {
    const s = await z.request(SitSchema, { table }, ScoresSchema);
    if (s.rolls < seen) return;
    seen = s.rolls;
    for (const [user, score] of Object.entries(s.of)) scores.set(user, score);
    showScores();
  };
  z.onGap(() => void sit().catch(showError));
  z.onLost(() => void sit().catch(showError));
  try {
    await z.connect();
    const w = await z.request(HelloSchema, {}, WelcomeSchema);
    $("welcome").textContent = `Welcome at ${w.node}, you are visitor ${w.visits}.`;
    await sit();
  } catch (e) {
    void z.close();
    throw e;
  }
  $("login").hidden = true;
  $("play").hidden = false;
  $("roll").onclick = () => void z.request(RollSchema, { table }, RolledSchema).then(() => showError(), showError);
}

function showScores(): void {
  $("scores").replaceChildren(...[...scores].sort((a, b) => Number(b[1] - a[1])).map(([user, score]) => {
    const item = document.createElement("li");
    item.textContent = `${user}: ${score}`;
    return item;
  }));
}

function showError(e?: unknown): void {
  $("error").textContent = e === undefined ? "" : e instanceof ZgameError ? e.message : String(e);
}

$<HTMLFormElement>("login").addEventListener("submit", (e) => {
  e.preventDefault();
  showError();
  $<HTMLButtonElement>("sit").disabled = true; // a second click must not become a second client
  void play($<HTMLInputElement>("name").value.trim(), $<HTMLInputElement>("table").value.trim()).catch((why) => {
    showError(why);
    $<HTMLButtonElement>("sit").disabled = false;
  });
});
