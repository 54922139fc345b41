"use strict";
const form = document.querySelector("form"), send = form.querySelector("button");
const told = document.querySelector("#status"), another = document.querySelector("#another");
const task = JSON.parse(form.dataset.task);
const KINDS = { sumvec: "sumVec" };
const REFUSED = {
  reportTooEarly: "The clock of this device is ahead. Correct its date and time, and send again.",
  reportRejected: "The survey has closed, so your answers were not taken. Thank you all the same.",
  unrecognizedTask: "This page does not belong to a survey that is running. Ask for a new address.",
};
const OFFLINE = "Your answers were not confirmed, because this device could not reach the survey. "
  + "Check the connection, and send again: your answers count once.";
const LATER = "The survey could not take your answers now. Send again in a minute: they count once.";

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

// One bit for each possible answer, or the place of the only answer.
const measure = () => {
  const bits = Array(task.vdaf.length).fill(0);
  for (const input of form.elements) {
    if (input.checked) bits[Number(input.value)] = 1;
    if (input.type !== "number") continue;
    const { first, bins } = input.dataset, low = Number(input.min);
    const part = Math.floor((input.valueAsNumber - low) / (Number(input.max) - low) * bins);
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

let name, client, report, isDoubtful = false;
// An upload that was not answered may have arrived. So the same report is sent again, with the
// same answers: a new one would count twice.
const upload = async (mayRenew = true) => {
  report ??= await client.generateReport(measure());
  try {
    await client.sendReport(report);
  } catch (error) {
    isDoubtful ||= !(error.shortType && error.status < 500);
    if (isDoubtful) throw error;
    report = undefined;
    if (error.shortType !== "outdatedConfig" || !mayRenew) throw error;
    client.invalidateHpkeConfig();
    await upload(false);
  }
};
const explain = error => {
  if (error instanceof TypeError) return OFFLINE;
  return REFUSED[error.shortType] || LATER;
};
form.addEventListener("submit", async event => {
  event.preventDefault();
  if (isClosed()) return show("This survey has closed.");
  send.disabled = true;
  say("Your answers are being sent.");
  const sets = [...form.querySelectorAll("fieldset")];
  try {
    await upload();
    report = undefined;
    remember(name, "answered");
    show("Thank you. Your answers have arrived.", true);
  } catch (error) {
    say(explain(error), true);
    send.disabled = false;
  }
  for (const each of sets) each.disabled = Boolean(report);
});
form.addEventListener("input", () => {
  for (const each of form.querySelectorAll("[data-most]")) {
    const boxes = [...each.querySelectorAll("input")], { most } = each.dataset;
    const isTooMany = boxes.filter(box => box.checked).length > most;
    boxes[0].setCustomValidity(isTooMany ? `Choose at most ${most} answers.` : "");
  }
});
another.addEventListener("click", () => {
  remember(name, "");
  isDoubtful = false;
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
  if (remember(name)) show("Somebody has already answered on this device.", true);
};
begin();
