// @ts-check
// One node's drain: each object that goes over, and for how long it took no requests. Who looks at it sees it from the begin on, whoever asks for it.
import { follow, get, post } from "./api.js";
import { clock, count, el, keyText, objectHash, perform, setText, span, sure, Table } from "./dom.js";

export const title = "";

const kept = 2000; // rows that are shown, the newest

/** @type {(main: HTMLElement, me: any, args: string[]) => any} */
export function show(main, me, [node]) {
  const ended = new AbortController();
  let longest = 1;
  let over = false; // the objects are elsewhere, or it does not answer any more
  /** @type {any[]} */
  let moves = [];
  const step = el("b", { "data-testid": "step" }, "…");
  const facts = el("p", { class: "facts", "data-testid": "facts" });
  const bar = el("progress", { max: 1, value: 0, "aria-label": "objects that are elsewhere" });
  const fault = el("p", { class: "bad", role: "alert", "data-testid": "left" });
  const button = el("button", { type: "button", class: "danger", "data-testid": "drain", disabled: true, click: () => drain(node) }, `Drain ${node}`);
  const table = new Table({
    name: "moves", key: (row) => String(row.number),
    columns: [
      { title: "At", value: (row) => clock(row.at), class: "nowrap" },
      { title: "Object", value: (row) => el("a", { href: objectHash(row.key) }, `${row.kind} ${keyText(row.key)}`), once: true },
      { title: "What", value: (row) => row.what },
      { title: "To", value: (row) => row.to ?? "" },
      { title: "Version", value: (row) => row.version, class: "number" },
      { title: "Pause", value: (row) => (row.pause ? span(row.pause) : ""), class: "number" },
      { title: "", value: (row) => (row.pause ? el("meter", { min: 0, max: longest, value: row.pause, "aria-label": "pause" }) : "") },
    ],
    empty: "Nothing has left this node's memory since this page was opened.",
  });
  main.append(el("h1", {}, `Drain of ${node}`), me.operator ? el("p", {}, button) : "", el("p", { class: "facts" }, el("span", {}, "Step: ", step)), bar, facts, fault,
    el("h2", {}, "Objects that went"), table.element);
  const line = (status) => {
    button.disabled = status.step !== "serving";
    setText(step, status.step);
    setText(fault, status.error ?? "");
    const r = status.objects;
    if (r) {
      bar.max = Math.max(1, r.objects);
      bar.value = Math.max(0, r.objects - r.left);
      facts.replaceChildren(...[
        ["objects", r.phase], ["of", count(r.objects)], ["moved", count(r.moved)], ["released", count(r.released)], ["left", count(r.left)], ["on their way", count(r.moving)],
        ["tried again", count(r.retries)], ["longest pause", span(r.pause?.max_ns)], ["took", span(r.took_ns)], ...Object.entries(r.to ?? {}).map(([id, n]) => [`to ${id}`, count(n)]),
      ].map(([k, v]) => el("span", {}, `${k} `, el("b", {}, v))));
    }
    const gone = (status.passages ?? []).filter((p) => p.what !== "loaded").reverse();
    moves = [...gone, ...moves].slice(0, kept);
    longest = Math.max(1, ...moves.map((p) => p.pause ?? 0));
    if (gone.length > 0) table.show(moves);
  };
  const watch = async () => {
    const last = await get(`node/${encodeURIComponent(node)}/history`, { n: 1 }, ended.signal);
    await follow(`drain/${encodeURIComponent(node)}`, { since: last.at(-1)?.number ?? 0 }, line, ended.signal);
  };
  table.show([]);
  void watch().catch((e) => { if (!ended.signal.aborted && step.textContent === "…") setText(fault, e.message); }).finally(() => { over = true; });
  return {
    stop: () => ended.abort(),
    update: async () => {
      if (!over) return;
      button.disabled = true;
      const there = (await get("each/node")).find((n) => n.id === node);
      if (!there) setText(step, "it has stopped, and left the cluster");
      else if (there.data) setText(step, `its objects are elsewhere; it is ${there.data.state}`);
    },
  };
}

async function drain(node) {
  const yes = await sure(`Drain ${node}?`, [
    `Its objects go to the other nodes while players stay connected; then its clients are told to connect elsewhere, and ${node} stops.`,
    "It cannot be taken back: start the node again where it is wanted.",
  ], `Drain ${node}`);
  if (!yes) return;
  await perform(`${node} is asked to drain`, async () => {
    await post("drain", { node });
    return `${node} drains`;
  });
}
