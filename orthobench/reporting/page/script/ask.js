// The question of the overview: is one cell better than another?

import { unpack } from "./data.js";
import { copyButton, element, withAttributes } from "./elements.js";

const USUAL = ["scornn", "lstm"]; // the cells that are compared first

/** Fill the two lists of cells, and answer for the two that are chosen. */
export async function startAsk() {
  const place = document.getElementById("ask");
  if (!place) return;
  /** @type {Questions} */
  const questions = await unpack("abilities");
  const [first, second] = place.querySelectorAll("select");
  for (const [number, select] of [first, second].entries()) {
    select.append(...questions.members.map(({ label }, at) => withAttributes(element("option", label), { value: at })));
    select.value = String(Math.max(number, questions.members.findIndex(({ model }) => model === USUAL[number])));
    select.addEventListener("change", answer);
  }
  function answer() {
    place.querySelector("div").replaceChildren(...answersTo(questions, Number(first.value), Number(second.value)));
  }
  answer();
}

/**
 * Return the answer for each task, and the command that trains what would decide the open ones.
 * @param {Questions} questions
 * @param {number} one
 * @param {number} other
 */
function answersTo(questions, one, other) {
  if (one === other) return [element("p", "These are the same cell: choose two.")];
  const { members, columns, answers, swapped, open, seeds } = questions;
  const [first, second] = [members[one], members[other]];
  const pair = pairOf(questions, Math.min(one, other), Math.max(one, other));
  const rows = columns.map(({ label, note }, column) => {
    const [left, right] = [first.cells[column], second.cells[column]];
    const without = [first, second].filter(({ cells }) => !cells[column]).map((each) => each.label);
    const found = pair[column];
    if (!found) return { label, note, score: "", words: without.length ? `not run: ${without.join(", ")}` : "their data differ", isOpen: true };
    const number = one < other ? found[0] : swapped[found[0]];
    const older = [first, second].map(({ label, cells }) => (cells[column][4] ? `, ${label}: version ${cells[column][4]}` : ""));
    const counts = `${left[3]} and ${right[3]} seeds` + (found[1] === null ? "" : `, p = ${Number(found[1].toPrecision(2))}`) + older.join("");
    return { label, note, score: `${left[0]} : ${right[0]}`, words: answers[number], counts, isOpen: open.includes(number) };
  });
  const list = element("dl", null, ...rows.flatMap(({ label, note, score, words, counts }) => [
    withAttributes(element("dt", label), { title: note }), element("dd", null, element("b", score)),
    element("dd", null, element(/^(yes|no)/.test(words) ? "strong" : "span", words), ...(counts ? [element("small", ` ${counts}`)] : [])),
  ]));
  if (first.time && second.time) list.append(element("dt", "CPU ms per step"), element("dd", null, element("b", `${first.time.toFixed(1)} : ${second.time.toFixed(1)}`)), element("dd", `${(first.time / second.time).toFixed(1)} times`));
  const words = rows.map(({ isOpen }, column) => (isOpen ? columns[column].word : "")).filter(Boolean);
  if (!words.length) return [list];
  if (!first.model || !second.model) return [list, withAttributes(element("p", "With so few seeds no test can decide, and the tuned protocol does not train this variant."), { class: "note" })];
  const command = `${questions.command} ${words.join(",")} --models ${first.model},${second.model} --seeds ${seeds}`;
  return [list, withAttributes(element("p", "With so few seeds no test can decide. This command tunes both alike and trains as many as it takes:"), { class: "note" }), element("code", command), " ", copyButton(command)];
}

/**
 * Return the answers and p values of a pair: pairs are in the order of their first cell, and then of their second.
 * @param {Questions} questions
 * @param {number} low
 * @param {number} high
 */
function pairOf({ members, pairs }, low, high) {
  return pairs[low * members.length - (low * (low + 1)) / 2 + high - low - 1];
}
