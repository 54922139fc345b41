"use strict";
// Shows what holds at a step. All of it was worked out before: see `reporting/stepping.py`.
(() => {
  const byId = id => document.getElementById(id);
  const story = JSON.parse(byId("story").textContent);
  const steps = story.steps.map(([seconds, what, text, parties, message]) =>
    ({ seconds, what, text, parties, message }));
  const flights = story.flights.map(([from, to, kind, round, bytes, sent, first, last, received]) =>
    ({ from, to, kind, round, bytes, sent, first, last, received }));
  const spells = story.spells.map(([text, parties, first, last]) =>
    ({ text, parties, first, last: last ?? steps.length }));
  const moments = story.moments.map(list => list.map(
    ([step, state, round, received, awaited, waits]) =>
      ({ step, state, round, received, awaited, waits })));
  const TROUBLE = new Set(["fault", "lost", "mark", "end"]);
  const OUT = new Set(["crashed", "lost", "failed", "stopped", "left out"]);
  const FINE = new Set(["running", "done"]);
  const PLAY_MILLISECONDS = 600;
  const LANE = 30, TOP = 18, BOTTOM = 26, LETTER = 7.4, NAME_MAX = 12;
  const final = steps.length - 1;
  let at = story.opening, timer = null;

  const seconds = value => {
    const number = (n, digits) => n.toLocaleString("en", {
      minimumFractionDigits: digits, maximumFractionDigits: digits });
    if (value === null) return "not recorded";
    if (value === 0) return "0 s";
    if (Math.abs(value) >= 1) return number(value, 3) + " s";
    return Math.abs(value) >= 1e-3 ? number(value * 1e3, 3) + " ms" : number(value * 1e6, 0) + " µs";
  };
  const standing = (party, step) => {
    const list = moments[party];
    let low = 0, high = list.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle].step <= step) low = middle; else high = middle;
    }
    return list[low];
  };
  const holds = (one, step) => one.first <= step && step < one.last;
  const style = kind => kind % story.styles;

  const draw = (tag, attributes, parent, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.textContent = text;
    parent.append(element);
    return element;
  };
  // Roles are written out: as a block, a row of a narrow screen would lose its own.
  const fill = (body, rows) => body.replaceChildren(...rows.map(([name, cells]) => {
    const row = document.createElement("tr");
    row.className = name;
    row.setAttribute("role", "row");
    cells.forEach(([text, { kind = "", heads = false, swatch = null } = {}]) => {
      const cell = document.createElement(heads ? "th" : "td");
      cell.setAttribute("role", heads ? "rowheader" : "cell");
      cell.className = kind;
      if (swatch !== null) {
        const picture = draw("svg", { width: 9, height: 9, "aria-hidden": true }, cell);
        draw("circle", { cx: 4.5, cy: 4.5, r: 4.5, class: "d" + style(swatch) }, picture);
      }
      cell.append(text);
      row.append(cell);
    });
    return row;
  }));

  const told = message => {
    const { kind, from } = flights[message];
    return `${story.kinds[kind]} from ${story.parties[from]}`;
  };
  const size = message => `, ${flights[message].bytes.toLocaleString("en")} B`;

  const showTables = step => {
    fill(byId("stand-table").tBodies[0], story.parties.map((name, party) => {
      const { state, round, received, awaited, waits } = standing(party, at);
      const expects = awaited === null ? waits.join(", ") || "–" : told(awaited);
      const took = received === null ? "–" : told(received) + size(received);
      const corrupt = story.corrupt.includes(party) ? " (adversary)" : "";
      return [step.parties.includes(party) ? "acts" : "", [[name + corrupt, { heads: true }],
        [state, { kind: FINE.has(state) ? "" : "bad" }], [round || "set-up", { kind: "n" }],
        [took], [expects]]];
    }));
    const flying = [...flights.entries()].filter(([, flight]) => holds(flight, at));
    const rows = flying.map(([place, { from, to, kind, bytes, sent }]) => [
      place === step.message ? "acts" : "",
      [[story.parties[from]], [story.parties[to]], [story.kinds[kind], { swatch: kind }],
        [bytes.toLocaleString("en"), { kind: "n" }], [seconds(sent), { kind: "n" }]]]);
    const nothing = ["none", [["nothing"], [""], [""], [""], [""]]];
    fill(byId("flight-table").tBodies[0], rows.length ? rows : [nothing]);
    const now = spells.filter(spell => holds(spell, at));
    byId("faults-now").replaceChildren(...(now.length ? now : [null]).map(spell => {
      const item = document.createElement("li");
      item.textContent = spell ? spell.text : "none";
      item.className = spell ? (spell.first === at ? "strikes" : "") : "none";
      return item;
    }));
  };

  const short = name => name.length > NAME_MAX ? name.slice(0, NAME_MAX - 1) + "…" : name;

  const showView = step => {
    const view = byId("view");
    const width = view.clientWidth, pitch = width < 600 ? 24 : 34;
    const left = 16 + LETTER * Math.max(...story.parties.map(name => short(name).length));
    const columns = Math.max(4, Math.floor((width - left - 16) / pitch));
    const start = Math.max(0, Math.min(at - Math.round(columns * 0.6), final - columns));
    const end = start + columns;
    const height = TOP + LANE * story.parties.length + BOTTOM;
    const x = place => left + pitch * (place - start), y = party => TOP + LANE * (party + 0.5);
    const svg = draw("svg", { width, height }, document.createElement("div"));
    const clip = draw("clipPath", { id: "plot" }, draw("defs", {}, svg));
    draw("rect", { x: left - 8, y: 0, width: width - left + 8, height }, clip);
    story.parties.forEach((name, party) => draw("text", {
      x: 8, y: y(party) + 4, class: story.corrupt.includes(party) ? "corrupt-name" : "",
    }, svg, short(name)));
    const plot = draw("g", { "clip-path": "url(#plot)" }, svg);
    spells.filter(spell => spell.first <= end && spell.last > start).forEach(spell =>
      spell.parties.forEach(party => draw("rect", {
        class: "spell", y: y(party) - 9, height: 18, rx: 4,
        x: x(Math.max(spell.first, start - 1)),
        width: pitch * (Math.min(spell.last, end + 1) - Math.max(spell.first, start - 1)),
      }, plot)));
    moments.forEach((list, party) => list.forEach((moment, place) => {
      const until = place + 1 < list.length ? list[place + 1].step : final;
      if (until < start || moment.step > end) return;
      const out = OUT.has(moment.state) ? " out" : "";
      const corrupt = story.corrupt.includes(party) ? " corrupt" : "";
      draw("line", { class: "lane" + out + corrupt, y1: y(party), y2: y(party),
        x1: x(Math.max(moment.step, start - 1)), x2: x(Math.min(until, end + 1)) }, plot);
    }));
    flights.forEach(flight => {
      if (flight.last < start || flight.first > end) return;
      const inFlight = holds(flight, at), future = flight.first > at && flight.last > at;
      const share = flight.received ? 1 : 0.65, name = "m" + style(flight.kind);
      const point = { x: x(flight.last), y: y(flight.from) + share * (y(flight.to) - y(flight.from)) };
      const group = draw("g", { class: inFlight ? "" : future ? "future" : "past" }, plot);
      draw("line", { class: `arrow ${name}` + (inFlight ? " flying" : ""), x1: x(flight.first),
        y1: y(flight.from), x2: point.x, y2: point.y }, group);
      if (flight.received) {
        draw("circle", { class: "d" + style(flight.kind), cx: point.x, cy: point.y, r: 3 }, group);
      } else {
        draw("path", { class: `cross ${name}`,
          d: `M${point.x - 4} ${point.y - 4}l8 8m-8 0l8-8` }, group);
      }
    });
    draw("line", { class: "cursor", x1: x(at), x2: x(at), y1: 4, y2: height - BOTTOM + 6 }, plot);
    flights.filter(flight => holds(flight, at)).forEach(flight => {
      const share = (at - flight.first) / (flight.last - flight.first) * (flight.received ? 1 : 0.65);
      draw("circle", { class: "d" + style(flight.kind), r: 4.5, cx: x(at),
        cy: y(flight.from) + share * (y(flight.to) - y(flight.from)) }, plot);
    });
    const acts = step.what === "sent" ? step.parties.slice(0, 1)
      : step.message !== null ? step.parties.slice(1) : step.parties;
    acts.forEach(party => draw("circle", { class: "here", cx: x(at), cy: y(party), r: 8 }, plot));
    const label = `${seconds(step.seconds)}`, half = LETTER * label.length / 2;
    draw("text", { class: "dim", y: height - 6, "text-anchor": "middle",
      x: Math.max(left + half - 8, Math.min(x(at), width - half - 6)) }, svg, label);
    view.replaceChildren(svg);
  };

  // Not by the attribute `disabled`, which would take the focus away.
  const disable = (id, isOff) => byId(id).setAttribute("aria-disabled", isOff);
  const show = step => {
    at = Math.max(0, Math.min(final, step));
    const now = steps[at];
    byId("step-number").textContent = `Step ${at} of ${final}, ${seconds(now.seconds)}`;
    byId("step-text").textContent = now.text;
    byId("now").className = TROUBLE.has(now.what) ? "bad" : "";
    const slider = byId("slider");
    slider.value = at;
    slider.setAttribute("aria-valuetext", `step ${at} of ${final}: ${now.text}`);
    disable("first", at === 0);
    disable("back", at === 0);
    disable("last", at === final);
    disable("forward", at === final);
    disable("trouble", nextTrouble() === undefined);
    showTables(now);
    showView(now);
  };
  const nextTrouble = () => {
    const found = steps.findIndex((step, place) => place > at && TROUBLE.has(step.what));
    return found < 0 ? undefined : found;
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    byId("play").setAttribute("aria-label", "Play");
    byId("play").querySelector("path").setAttribute("d", "M4 2l9 6-9 6Z");
    byId("step-text").setAttribute("aria-live", "polite");
  };
  const play = () => {
    if (timer !== null) return pause();
    if (at === final) show(0);
    byId("play").setAttribute("aria-label", "Pause");
    byId("play").querySelector("path").setAttribute("d", "M4 2v12h2V2ZM11 2v12h2V2Z");
    byId("step-text").setAttribute("aria-live", "off"); // read aloud, each would cut off the last
    timer = setInterval(() => at < final ? show(at + 1) : pause(), PLAY_MILLISECONDS);
  };
  const go = step => { pause(); show(step); };
  const moves = {
    first: () => go(0), back: () => go(at - 1), forward: () => go(at + 1), last: () => go(final),
    trouble: () => go(nextTrouble() ?? at), play,
  };
  const keys = { Home: "first", ArrowLeft: "back", ArrowRight: "forward", End: "last", n: "trouble",
    N: "trouble", " ": "play" };

  Object.entries(moves).forEach(([id, move]) => byId(id).addEventListener("click", move));
  byId("slider").addEventListener("input", event => go(Number(event.target.value)));
  // Elsewhere on the page, Home, End and the space bar scroll it.
  document.addEventListener("keydown", event => {
    const inside = byId("player").contains(event.target);
    const presses = event.key === " " && event.target.tagName === "BUTTON";
    const isArrow = event.key === "ArrowLeft" || event.key === "ArrowRight";
    if (event.ctrlKey || event.altKey || event.metaKey || presses || !(event.key in keys)) return;
    if (!inside && !(isArrow && event.target === document.body)) return;
    event.preventDefault();
    moves[keys[event.key]]();
  });
  const overview = byId("overview");
  const across = place => `${(100 * place / Math.max(1, final)).toFixed(3)}%`;
  spells.forEach(spell => draw("rect", { class: "spell", x: across(spell.first), height: 8,
    width: across(Math.min(spell.last, final) - spell.first) }, overview));
  steps.forEach((step, place) => TROUBLE.has(step.what) &&
    draw("rect", { class: "tick", x: across(place), width: 2, height: 8 }, overview));
  byId("stepper").hidden = false;
  new ResizeObserver(() => showView(steps[at])).observe(byId("view"));
  show(at);
})();
