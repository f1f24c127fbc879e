// @ts-check
// A form for each type of message, made of its descriptor. What it holds is the message's JSON, which may be written by hand as well.
import { get, post } from "./api.js";
import { el, labelled, note, setText, span, sure } from "./dom.js";

export const title = "Call";

/** @type {(main: HTMLElement, me: any, args: string[], query: URLSearchParams) => any} */
export function show(main, me, [chosen]) {
  const select = el("select", { "data-testid": "message" });
  const place = el("div", {});
  main.append(el("h1", {}, "Call"),
    me.operator ? el("p", { class: "dim" }, "The message goes to whoever handles it, as an actor's would: also to handlers that clients may not call. Nodes must have admin.call set.")
      : el("p", { class: "busy", "data-testid": "readers" }, "Readers see what messages there are; to send one is for operators."),
    el("div", { class: "filters" }, labelled("Message", select)), place);
  const open = async () => {
    const name = select.value;
    const form = await get(`messages/${encodeURIComponent(name)}`).catch((e) => note(e.message, "bad") && undefined);
    if (form && select.value === name) place.replaceChildren(formOf(form, me));
  };
  select.addEventListener("change", open);
  void get("messages").then((list) => {
    select.append(...list.map((m) => el("option", { value: m.name }, `${m.name}  (${m.id})`)));
    const ours = list.find((m) => m.name === chosen) ?? list.find((m) => m.id >= 1000) ?? list[0];
    if (ours) select.value = ours.name;
    return open();
  }).catch((e) => note(e.message, "bad"));
  return {};
}

function formOf(form, me) {
  const fields = messageFields(form, form.fields, 0);
  const json = el("textarea", { rows: 6, spellcheck: "false", "data-testid": "json", "aria-label": "The message as JSON" });
  const user = el("input", { "data-testid": "as-user", maxlength: 200 });
  const object = el("input", { placeholder: "TYPE/ZONE/ID", "data-testid": "object" });
  const answer = el("pre", { "data-testid": "answer", tabindex: 0, "aria-label": "Answer" });
  const took = el("p", { class: "dim", role: "status", "data-testid": "took" });
  const write = () => { json.value = JSON.stringify(fields.value(), null, 2); };
  fields.element.addEventListener("input", write);
  fields.element.addEventListener("change", write);
  write();
  return el("form", {
    submit: async (e) => {
      e.preventDefault();
      try {
        JSON.parse(json.value || "{}");
      } catch (e) {
        setText(took, `This is no JSON: ${e.message}`);
        return;
      }
      const params = { message: form.name, user: user.value };
      if (object.value) {
        const [, type, zone, id] = /^(\d+)\/(\d+)\/(.+)$/s.exec(object.value) ?? [];
        if (!id) {
          setText(took, "The object: expected TYPE/ZONE/ID, such as 100/0/lobby");
          return;
        }
        Object.assign(params, { type, zone, id });
      }
      if (!await sure(`Send ${form.name}?`, [el("pre", {}, json.value), user.value ? `On behalf of ${user.value}; handlers believe it.` : "On behalf of no user."], "Send")) return;
      setText(took, "Sent; the answer is awaited …");
      setText(answer, "");
      try {
        const r = await post("call", params, json.value);
        setText(took, `${r.error ? "It came to nothing" : r.message || "Answered"}, after ${span(r.took)}`);
        setText(answer, r.error ?? JSON.stringify(r.answer, null, 2));
        answer.className = r.error ? "bad" : "";
      } catch (e) {
        setText(took, e.message);
      }
    },
  }, el("h2", {}, form.name), el("div", { class: "fields" }, fields.element, labelled("As JSON", json), labelled("On behalf of the user", user), labelled("Object, where the message does not say", object),
    me.operator ? el("div", {}, el("button", { class: "main", "data-testid": "send" }, "Send")) : null, took, el("div", { class: "card" }, answer)));
}

const deepest = 6; // what is deeper is written as JSON

/** Fields of a message: element, and value() as JSON, undefined where nothing was said. */
function messageFields(form, list, depth) {
  const parts = list.map((f) => [f, fieldOf(form, f, depth)]);
  return {
    element: el(depth ? "fieldset" : "div", depth ? {} : { class: "fields" }, ...parts.map(([, p]) => p.element)),
    value: () => Object.fromEntries(parts.map(([f, p]) => [f.name, p.value()]).filter(([, v]) => v !== undefined)),
  };
}

function fieldOf(form, f, depth) {
  const text = `${f.name}${f.key ? " (key)" : ""}: ${f.map ? "map of " : ""}${f.type ?? f.kind}${f.repeated ? ", several" : ""}${f.oneof ? `, one of ${f.oneof}` : ""}`;
  if (f.map || depth >= deepest) return raw(text, f);
  if (!f.repeated) return single(form, f, text, depth);
  const items = [];
  const box = el("div", { class: "fields" });
  const add = el("button", { type: "button", click: () => {
    const item = single(form, f, `${f.name} ${items.length + 1}`, depth);
    const row = el("div", { class: "row" }, item.element, el("button", { type: "button", "aria-label": `Remove from ${f.name}`, click: () => {
      items.splice(items.indexOf(item), 1);
      row.remove();
      box.dispatchEvent(new Event("change", { bubbles: true }));
    } }, "×"));
    items.push(item);
    box.append(row);
    box.dispatchEvent(new Event("change", { bubbles: true }));
  } }, `Add to ${f.name}`);
  return {
    element: el("fieldset", {}, el("legend", {}, text), box, el("div", {}, add)),
    value: () => (items.length ? items.map((i) => i.value() ?? zero(f)) : undefined),
  };
}

const zero = (f) => (f.kind === "message" ? {} : f.kind === "bool" ? false : ["string", "bytes"].includes(f.kind) ? "" : 0);

function single(form, f, text, depth) {
  if (f.kind === "message" || f.kind === "group") {
    const inner = form.types[f.type];
    if (!inner || f.type.startsWith("google.protobuf.")) return raw(text, f); // their JSON is of its own
    const there = el("input", { type: "checkbox" });
    const holder = el("div", {});
    let part;
    there.addEventListener("change", () => {
      part ??= messageFields(form, inner, depth + 1);
      holder.replaceChildren(...(there.checked ? [part.element] : []));
    });
    return { element: el("div", {}, el("label", { class: "check" }, there, text), holder), value: () => (there.checked ? part.value() : undefined) };
  }
  if (f.kind === "bool") {
    const box = el("input", { type: "checkbox", "data-field": f.name });
    return { element: el("label", { class: "check" }, box, text), value: () => (box.checked ? true : undefined) };
  }
  if (f.kind === "enum") {
    const select = el("select", { "data-field": f.name }, el("option", { value: "" }, "–"), ...(form.enums[f.type] ?? []).map((v) => el("option", { value: v }, v)));
    return { element: labelled(text, select), value: () => select.value || undefined };
  }
  const number = !["string", "bytes"].includes(f.kind);
  const input = el("input", { "data-field": f.name, inputmode: number ? "decimal" : "text", placeholder: f.kind === "bytes" ? "base64" : "" });
  // 64 bits are text in JSON; NaN and Infinity too. What is no number the server names.
  const plain = ["int32", "sint32", "uint32", "fixed32", "sfixed32", "double", "float"].includes(f.kind);
  return { element: labelled(text, input), value: () => (input.value === "" ? undefined : plain && Number.isFinite(Number(input.value)) ? Number(input.value) : input.value) };
}

function raw(text, f) {
  const area = el("textarea", { rows: 2, placeholder: "JSON", "data-field": f.name });
  return {
    element: labelled(`${text}, as JSON`, area),
    value: () => {
      if (!area.value) return undefined;
      try {
        return JSON.parse(area.value);
      } catch {
        return area.value;
      }
    },
  };
}
