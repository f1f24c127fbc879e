// @ts-check
import { get } from "./api.js";
import { count, el, span, Table } from "./dom.js";

export const title = "Nodes";

/** @type {(main: HTMLElement, me: any) => any} */
export function show(main, me) {
  const d = (row) => row.data ?? {};
  const table = new Table({
    name: "nodes", key: (row) => row.ref,
    columns: [
      { title: "Node", value: (row) => row.ref, class: "nowrap" },
      { title: "State", value: (row) => el("span", { class: stateClass(row) }, row.error ? `${row.state}, does not answer` : d(row).state ?? row.state) },
      { title: "Load", value: (row) => load(d(row).load) },
      { title: "Sessions", value: (row) => count(d(row).sessions), class: "number" },
      { title: "Away", value: (row) => count(d(row).suspended), class: "number" },
      { title: "Actors", value: (row) => count(d(row).actors), class: "number" },
      { title: "Objects", value: (row) => count(d(row).objects), class: "number" },
      { title: "Up", value: (row) => span(d(row).up), class: "number" },
      { title: "Zone", value: (row) => row.zone ?? "" },
      { title: "Version", value: (row) => row.version ?? "" },
      { title: "", value: (row) => row.error ?? "", class: "dim" },
    ],
    actions: (row) => [
      el("a", { href: `#/drain/${encodeURIComponent(row.id)}`, "data-act": "drain" }, me.operator ? "Drain …" : "Watch its drain"),
    ],
    empty: "Discovery names no node.",
  });
  main.append(el("h1", {}, "Nodes"), table.element);
  return { update: async () => table.show(await get("each/node")) };
}

function stateClass(row) {
  if (row.error) return "bad";
  return (row.data?.state ?? row.state) === "ready" ? "good" : "busy";
}

function load(thousandths) {
  const percent = Math.round((thousandths ?? 0) / 10);
  return el("span", {}, el("meter", { min: 0, max: 100, high: 80, value: percent, "aria-label": "load" }), ` ${percent} %`);
}
