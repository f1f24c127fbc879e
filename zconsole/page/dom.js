// @ts-check
// What pages are made of. All that comes from nodes becomes text, never markup: there is no innerHTML here, and the policy of the page forbids it.

/** Makes an element. Of props, functions listen, true and false are attributes that are there or not; children are elements or text.
 * @param {string} tag @param {Record<string, any>} [props] @param {...(Node|string|number|null|undefined)} children @returns {any} */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** el of SVG.
 * @param {string} tag @param {Record<string, any>} [props] @param {...Node} children @returns {any} */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(e, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") e.addEventListener(name, value);
    else if (name === "value") e.value = value;
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(name, String(value));
  }
  e.append(...children.filter((c) => c !== null && c !== undefined).map((c) => (typeof c === "number" ? String(c) : c)));
  return e;
}

/** Sets text where it is another: what does not change keeps selection and focus. */
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/** A field with its label. */
export function labelled(text, field, props = {}) {
  return el("label", props, text, field);
}

/** A number of nanoseconds for people. @param {number|undefined} ns */
export function span(ns) {
  if (!ns) return "0";
  const abs = Math.abs(ns);
  if (abs < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  if (abs < 1e9) return `${(ns / 1e6).toPrecision(3)} ms`;
  if (abs < 120e9) return `${(ns / 1e9).toPrecision(3)} s`;
  if (abs < 7200e9) return `${Math.round(ns / 60e9)} min`;
  if (abs < 48 * 3600e9) return `${Math.round(ns / 3600e9)} h`;
  return `${Math.round(ns / 86400e9)} d`;
}

/** The time of day of a time in JSON, "" for none. */
export function clock(time) {
  if (!time || time.startsWith("0001-")) return "";
  const d = new Date(time);
  return `${d.toLocaleTimeString("en-GB")}.${String(d.getMilliseconds()).padStart(3, "0")}`;
}

/** How long ago a time in JSON was, "" for none. */
export function ago(time) {
  return !time || time.startsWith("0001-") ? "" : span(Math.max(0, Date.now() - Date.parse(time)) * 1e6);
}

/** A number for people. @param {number} n */
export function count(n) {
  return Number(n ?? 0).toLocaleString("en-US");
}

/** TYPE/ZONE/ID of a key as nodes tell it. */
export function keyText(k) {
  return `${k.Type}/${k.Zone}/${k.ID}`;
}

/** The address of the page of an object. */
export function objectHash(k) {
  return `#/object/${k.Type}/${k.Zone}/${encodeURIComponent(k.ID)}`;
}

/** A table whose rows stay the same elements as long as their keys do, so that focus stays where it is while numbers change. */
export class Table {
  rows = new Map();

  /** Columns have title, value(row) (text, or an element that is made once), class. Actions, if set, makes the buttons of a new row.
   * @param {{name: string, key: (row: any) => string, columns: {title: string, value: (row: any) => any, class?: string, once?: boolean}[], actions?: (row: any) => any[], empty?: string}} of */
  constructor(of) {
    this.of = of;
    this.body = el("tbody");
    this.empty = el("p", { class: "dim", hidden: true }, of.empty ?? "Nothing.");
    const heads = of.columns.map((c) => el("th", { scope: "col", class: c.class ?? "" }, c.title));
    if (of.actions) heads.push(el("th", { scope: "col" }, el("span", { class: "dim" }, "")));
    this.frame = el("div", { class: "scroll" }, el("table", { "aria-label": of.name, "data-table": of.name }, el("thead", {}, el("tr", {}, ...heads)), this.body));
    this.element = el("div", {}, this.frame, this.empty);
  }

  /** Shows the rows, in their order. */
  show(list) {
    const seen = new Set();
    let at = this.body.firstChild;
    for (const row of list) {
      const key = this.of.key(row);
      if (seen.has(key)) continue;
      seen.add(key);
      let have = this.rows.get(key);
      if (!have) {
        const tr = el("tr", { "data-key": key });
        const cells = this.of.columns.map((c) => el("td", { class: c.class ?? "" }));
        have = { tr, cells, data: row, first: true };
        tr.append(...cells);
        if (this.of.actions) tr.append(el("td", { class: "actions" }, ...this.of.actions(row)));
        this.rows.set(key, have);
      }
      this.of.columns.forEach((c, i) => {
        if (c.once && !have.first) return;
        const value = c.value(row);
        if (value instanceof Node) have.cells[i].replaceChildren(value);
        else setText(have.cells[i], String(value ?? ""));
      });
      have.first = false;
      if (at === have.tr) at = at.nextSibling;
      else this.body.insertBefore(have.tr, at);
    }
    for (const [key, have] of this.rows) {
      if (!seen.has(key)) {
        have.tr.remove();
        this.rows.delete(key);
      }
    }
    this.frame.hidden = list.length === 0;
    this.empty.hidden = list.length > 0;
  }
}

/** Tells something below, for a while; faults stay until they are closed. At most five. */
export function note(text, kind = "") {
  const notes = document.getElementById("notes");
  const box = el("div", { class: `note ${kind}` }, el("span", {}, text), el("button", { type: "button", "aria-label": "Close this note", click: () => box.remove() }, "×"));
  notes?.append(box);
  while (notes && notes.children.length > 5) notes.firstChild?.remove();
  if (kind !== "bad") setTimeout(() => box.remove(), 12_000);
  return box;
}

/** Asks whether something is to be done. @param {string} title @param {(string|Node)[]} lines @param {string} verb @returns {Promise<boolean>} */
export function sure(title, lines, verb) {
  return new Promise((done) => {
    let answer = false;
    const yes = el("button", { type: "button", class: "main", "data-testid": "yes", click: () => { answer = true; dialog.close(); } }, verb);
    const dialog = el("dialog", { "aria-label": title, close: () => { dialog.remove(); done(answer); } },
      el("h2", {}, title), ...lines.map((l) => el("p", {}, l)),
      el("div", { class: "buttons" }, el("button", { type: "button", "data-testid": "no", click: () => dialog.close() }, "Cancel"), yes));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Does something for an operator, who sees that it runs, and how it ended. @param {string} what @param {() => Promise<string>} f */
export async function perform(what, f) {
  const running = note(what);
  running.setAttribute("aria-busy", "true");
  try {
    note(await f(), "good");
  } catch (e) {
    note(`${what}: ${e instanceof Error ? e.message : e}`, "bad");
  } finally {
    running.remove();
  }
}
