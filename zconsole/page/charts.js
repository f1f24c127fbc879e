// @ts-check
// The last hour of each node, as it keeps it.
import { get } from "./api.js";
import { el, setText, span, svg } from "./dom.js";

export const title = "Charts";

/** @type {(main: HTMLElement) => any} */
export function show(main) {
  const grid = el("div", { class: "charts" });
  const faults = el("p", { class: "dim", "data-testid": "faults" });
  const head = el("h1", {}, "The last hour");
  main.append(head, grid, faults);
  return {
    every: 5000,
    update: async () => {
      const all = await get("each/charts");
      const nodes = all.filter((n) => n.data);
      const steps = Math.max(fewest, ...nodes.map((n) => n.data.charts[0]?.values.length ?? 0));
      setText(head, nodes[0] ? `The last ${span(Math.min(points, steps) * nodes[0].data.step)}` : "The last hour");
      setText(faults, all.filter((n) => !n.data).map((n) => `${n.id}: ${n.error}`).join("; "));
      const charts = nodes[0]?.data.charts ?? [];
      grid.replaceChildren(...charts.map((c, i) => drawn(c, nodes.map((n) => ({ id: n.id, values: n.data.charts[i]?.values ?? [] })))));
    },
  };
}

const points = 720; // that a node keeps
const fewest = 60; // that the width stands for: a line that is young does not begin as a dot

/** @param {{name: string, unit: string}} chart @param {{id: string, values: (number|null)[]}[]} lines */
function drawn(chart, lines) {
  const width = Math.min(points, Math.max(fewest, ...lines.map((l) => l.values.length)));
  const most = Math.max(0, ...lines.flatMap((l) => l.values.map((v) => v ?? 0)));
  const top = nice(most);
  const unit = chart.unit ? ` ${chart.unit}` : "";
  const last = lines.map((l) => l.values.findLast((v) => v !== null));
  const text = (v) => (v === undefined || v === null ? "–" : `${short(v)}${unit}`);
  const name = `${chart.name}: ${lines.map((l, i) => `${l.id} ${text(last[i])}`).join(", ")}; at most ${text(most)}`;
  return el("section", { class: "card chart", "data-chart": chart.name },
    el("h2", {}, chart.name, el("span", { class: "dim" }, `  0 to ${short(top)}${unit}`)),
    svg("svg", { viewBox: `0 0 ${width} 100`, preserveAspectRatio: "none", role: "img", "aria-label": name },
      ...[0, 50, 100].map((y) => svg("line", { x1: 0, x2: width, y1: y, y2: y })),
      ...lines.map((l, i) => svg("path", { class: `s${i % 8}`, d: path(l.values, top, width), "data-node": l.id }))),
    el("div", { class: "legend" }, ...lines.map((l, i) => el("span", { class: `s${i % 8}` }, `${l.id} ${text(last[i])}`))));
}

/** The newest value stands at the right; what is not known is a gap. */
function path(values, top, width) {
  let d = "";
  let pen = false;
  values.forEach((v, i) => {
    if (v === null) {
      pen = false;
      return;
    }
    const x = width - values.length + i;
    const y = (100 - (98 * v) / top).toFixed(1);
    d += pen ? `L${x} ${y}` : `M${x} ${y}h.1`;
    pen = true;
  });
  return d || "M0 0";
}

/** A round number that is not below v. */
function nice(v) {
  if (!(v > 0)) return 1;
  const ten = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].map((f) => f * ten).find((x) => x >= v) ?? v;
}

function short(v) {
  return Number(v.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 3 });
}
