// Creates elements. Everything from the database is inserted as text, never as markup.

import { shownValue } from "./words.js";

/**
 * Return a new element with a text, or null for none, and with children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} kind
 * @param {string | null} text
 * @param {(Node | string)[]} children
 */
export function element(kind, text, ...children) {
  const node = document.createElement(kind);
  if (text !== null) node.textContent = text;
  node.append(...children);
  return node;
}

/**
 * Return the element, with attributes added.
 * @template {Element} E
 * @param {E} node
 * @param {Record<string, string | number>} attributes
 */
export function withAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/**
 * @param {string} href
 * @param {string} text
 */
export function link(href, text) {
  return withAttributes(element("a", text), { href });
}

/**
 * @param {string} text
 * @param {(node: HTMLButtonElement) => void} act
 */
export function button(text, act) {
  const node = element("button", text);
  node.type = "button";
  node.addEventListener("click", () => act(node));
  return node;
}

/** @param {string} text */
export function copyButton(text) {
  return button("copy", (node) => navigator.clipboard?.writeText(text).then(() => { node.textContent = "copied"; }));
}

/**
 * @param {string} label
 * @param {string[]} values
 * @param {string} chosen
 * @param {(select: HTMLSelectElement) => void} act
 */
export function choice(label, values, chosen, act) {
  const select = element("select", null, ...values.map((value) => element("option", value)));
  select.value = chosen;
  select.addEventListener("change", () => act(select));
  return element("label", label + " ", select);
}

/**
 * @param {string} label
 * @param {Node[]} children
 */
function scroller(label, ...children) {
  const scroll = element("div", null, ...children);
  scroll.className = "scroll";
  return withAttributes(scroll, { tabindex: 0, role: "region", "aria-label": label });
}

/**
 * Return a table; each cell is text or a node, and the first cell of a row is its heading.
 * @param {string} label
 * @param {string[]} header
 * @param {unknown[][]} rows
 */
export function tableOf(label, header, rows) {
  /** @type {(kind: "th" | "td", content: unknown) => HTMLElement} */
  const cell = (kind, content) => (content instanceof Node ? element(kind, null, content) : element(kind, null, element("bdi", shownValue(content))));
  const head = header.length ? [element("thead", null, element("tr", null, ...header.map((text) => withAttributes(element("th", text), { scope: "col" }))))] : [];
  const body = rows.map((row) => element("tr", null, ...row.map((content, number) => (number ? cell("td", content) : withAttributes(cell("th", content), { scope: "row" })))));
  return scroller(label, element("table", null, ...head, element("tbody", null, ...body)));
}

/**
 * @param {string} status
 * @param {string} [text]
 */
export function chip(status, text = status) {
  return withAttributes(element("span", text), { class: `chip s-${status}` });
}

/**
 * @param {string} name
 * @param {string | Blob} content
 * @param {string} [kind]
 */
export function download(name, content, kind) {
  const address = content instanceof Blob || !content.startsWith("data:") ? URL.createObjectURL(new Blob([content], { type: kind })) : content;
  withAttributes(link(address, ""), { download: name }).click();
  if (address.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(address), 1000);
}
