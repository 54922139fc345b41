"use strict";
const form = document.querySelector("form"), send = form.querySelector("button");
const told = document.querySelector("#status"), another = document.querySelector("#another");
const task = JSON.parse(form.dataset.task);
const KINDS = { sumvec: "sumVec" };
const REFUSED = {
  reportTooEarly: "The clock of this device is ahead. Correct its date and time, and send again after "
    + "%TIME: your answers keep this time, and count once.",
  reportRejected: "The survey has closed, so your answers were not taken. Thank you all the same.",
  outdatedConfig: "The survey can no longer read the answers that this device has kept. To make "
    + "them anew could count you twice, so they are not sent. Thank you all the same.",
  unrecognizedTask: "This page does not belong to a survey that is running. Ask for a new address.",
};
const ENDED = ["reportRejected", "outdatedConfig"];
const OFFLINE = "Your answers were not confirmed, because this device could not reach the survey. "
  + "Check the connection, and send again: your answers count once.";
const LATER = "The survey could not take your answers now. Send again in a minute: they count once.";
const KEPT = "The answers from this device were not confirmed. Send them again: they count once.";
const ANSWERED = "answered";

const say = (text, isAlarm = false) => {
  told.textContent = text;
  told.classList.toggle("alarm", isAlarm);
  if (text) told.focus();
};

// The hash of the task's bytes as they are, in URL-safe Base64 (DAP-09, section 4.2).
const hash = async () => {
  const bytes = new TextEncoder().encode(form.dataset.task);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return btoa(String.fromCharCode(...digest)).replace(/[+]/g, "-").replace(/[/]/g, "_")
    .replace(/=/g, "");
};

// A number with a point or a comma. "1.250" is 1250 in some countries and 1.25 in others.
const read = input => {
  const text = input.value.trim(), { low, high } = input.dataset;
  const [all, whole, part] = /^([+-]?\d+)(?:[.,](\d+))?$/.exec(text) || [];
  if (!all) return { wrong: "Write a number, such as 12 or 12.5." };
  if (part?.length === 3 && Number(whole))
    return { wrong: `Write ${whole}${part}, or ${whole}.${part}0: ${text} can be either.` };
  const value = Number(`${whole}.${part || 0}`);
  return value >= low && value <= high ? { value } : { wrong: `Write a number from ${low} to ${high}.` };
};
// One bit for each possible answer, or the place of the only answer.
const measure = () => {
  const bits = Array(task.vdaf.length).fill(0);
  for (const input of form.elements) {
    if (input.checked) bits[Number(input.value)] = 1;
    if (!input.dataset.bins) continue;
    const { first, bins, low, high } = input.dataset;
    const part = Math.floor((read(input).value - low) / (high - low) * bins);
    bits[Number(first) + Math.min(part, bins - 1)] = 1;
  }
  return task.vdaf.kind === "histogram" ? bits.indexOf(1) : bits;
};

const show = (text, hasAnswered = false) => {
  form.hidden = true;
  another.hidden = !hasAnswered;
  say(text);
};
const isClosed = () => task.closes !== null && Date.now() / 1000 >= task.closes;
const remember = (name, value) => {
  try {
    if (value === undefined) return localStorage.getItem(name);
    if (value) localStorage.setItem(name, value); else localStorage.removeItem(name);
  } catch { /* a browser may refuse to store anything */ }
  return null;
};

let name, client, report;
// An upload that was not confirmed may have arrived, whatever the leader says. So this device makes
// one report, keeps its bytes, and sends them again: a new report would count twice.
const upload = async () => {
  if (!report) {
    report = (await client.generateReport(measure())).encode();
    remember(name, btoa(Array.from(report, byte => String.fromCharCode(byte)).join("")));
  }
  await client.sendReport({ encode: () => report });
};
// The time is in the 8 bytes after the 16 of the id (DAP-09, section 4.4.2).
const timeOf = bytes => {
  const seconds = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(16);
  return new Date(Number(seconds) * 1000).toLocaleString();
};
const fix = () => {
  for (const each of form.querySelectorAll("fieldset")) each.disabled = Boolean(report);
};
form.addEventListener("submit", async event => {
  event.preventDefault();
  if (isClosed()) return show("This survey has closed.");
  send.disabled = true;
  say("Your answers are being sent.");
  try {
    await upload();
    report = undefined;
    remember(name, ANSWERED);
    show("Thank you. Your answers have arrived.", true);
  } catch (error) {
    const why = error instanceof TypeError ? OFFLINE : REFUSED[error.shortType] || LATER;
    if (report && ENDED.includes(error.shortType)) show(why, true);
    else say(report ? why.replace("%TIME", timeOf(report)) : why, true);
    send.disabled = false;
  }
  fix();
});
form.addEventListener("input", () => {
  for (const each of form.querySelectorAll("[data-bins]"))
    each.setCustomValidity(each.value ? read(each).wrong || "" : "");
  for (const each of form.querySelectorAll("[data-most]")) {
    const boxes = [...each.querySelectorAll("input")], { most } = each.dataset;
    const isTooMany = boxes.filter(box => box.checked).length > most;
    boxes[0].setCustomValidity(isTooMany ? `Choose at most ${most} answers.` : "");
  }
});
another.addEventListener("click", () => {
  remember(name, "");
  report = undefined;
  fix();
  form.reset();
  form.hidden = send.disabled = false;
  another.hidden = true;
  say("");
  form.querySelector("input").focus();
});

const begin = async () => {
  if (!globalThis.crypto?.subtle) return show("Open this page by an address with https.");
  if (!globalThis.divviup) return show("A part of this page did not load. Load the page again.");
  if (isClosed()) return show("This survey has closed.");
  const id = await hash();
  name = `survey ${id}`;
  const { chunk_length: chunkLength, length, bits, kind } = task.vdaf;
  client = new divviup.dap.Task({
    type: KINDS[kind] || kind, id, leader: task.leader, helper: task.helper,
    timePrecisionSeconds: task.time_precision, length, chunkLength, ...(bits && { bits }),
  });
  const kept = remember(name);
  if (kept === ANSWERED) return show("Somebody has already answered on this device.", true);
  if (!kept) return;
  report = Uint8Array.from(atob(kept), character => character.charCodeAt(0));
  fix();
  say(KEPT);
};
begin();
