"use strict";
/* The item browser. Text of the data is only ever set as text (textContent), never as markup. */
(() => {
  const byId = (id) => document.getElementById(id);
  const parse = (id) => JSON.parse(byId(id).textContent);
  const listing = parse("listing");
  const files = byId("files") ? parse("files") : null;
  const { make, number, percent, clock, restored, runs, timeTicks, labels, heat, ramp, overlay } = drawing(parse("colours"));
  const PAGE = 100;
  const OUTCOMES = { right: ["✓", "right"], wrong: ["✗", "wrong"], none: ["∅", "wrong: no letter"], unscored: ["–", "not scored"], failed: ["!", "failed"] };
  const ALL = listing.item.map((_, place) => place);

  /* ---- the list */

  const filters = Object.fromEntries(["task", "outcome", "lift", "condition", "sort", "order", "text"].map((name) => [name, byId(`f-${name}`)]));
  const distinct = (values) => [...new Set(values)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));

  function choices(select, entries) {
    select.replaceChildren(...entries.map(([value, text]) => make("option", { value }, text)));
  }

  function fillFilters() {
    choices(filters.task, [["", "all tasks"], ...distinct(listing.task).map((task) => [`=${task}`, task || "(no task)"])]);
    const outcomes = Object.keys(OUTCOMES).filter((name) => listing.outcome.includes(name));
    const wrong = listing.outcome.includes("none") ? [["wrong+none", "wrong, or no letter"]] : [];
    choices(filters.outcome, [["", "all outcomes"], ...wrong, ...outcomes.map((name) => [name, OUTCOMES[name][1]])]);
    choices(filters.lift, [["", "any"], ["above", "above its share"], ["below", "at or below its share"], ["undefined", "undefined"]]);
    byId("l-lift").hidden = listing.lift === null;
    const conditions = distinct(listing.condition);
    choices(filters.condition, [["", "all conditions"], ...conditions.map((told) => [`=${told}`, told || "(none)"])]);
    byId("l-condition").hidden = conditions.length < 2;
    choices(filters.sort, [["", "order of the run"], ...Object.keys(listing.measures).map((name) => [name, listing.words[name] || name.replaceAll("_", " ")])]);
  }

  function liftOf(place) {
    const value = listing.measures[listing.lift][place];
    return value === null ? "undefined" : value > listing.lift_even ? "above" : "below";
  }

  function chosen() {
    const { task, outcome, lift, condition, text } = filters;
    const outcomes = outcome.value.split("+"), sought = text.value.trim().toLowerCase();
    const kept = ALL.filter((place) =>
      (!task.value || `=${listing.task[place]}` === task.value) &&
      (!outcome.value || outcomes.includes(listing.outcome[place])) &&
      (!lift.value || listing.lift === null || liftOf(place) === lift.value) &&
      (!condition.value || `=${listing.condition[place]}` === condition.value) &&
      (!sought || `${listing.item[place]}\n${listing.question[place] || ""}`.toLowerCase().includes(sought)));
    const column = filters.sort.value ? listing.measures[filters.sort.value] : null;
    const sign = filters.order.value === "up" ? 1 : -1;
    if (column === null) return sign > 0 ? kept.reverse() : kept;
    /* Undefined numbers come last in either order. */
    return kept.sort((a, b) => {
      const left = column[a], right = column[b];
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      return sign * (left - right) || a - b;
    });
  }

  let order = [], shown = 0, current = null;

  function entry(place) {
    const [mark, words] = OUTCOMES[listing.outcome[place]];
    const sort = filters.sort.value;
    const sub = [listing.task[place], listing.condition[place], listing.question[place]].filter(Boolean).join(" · ");
    return make("li", {}, make("button", { type: "button", "data-place": place, "aria-current": place === current ? "true" : null, onclick: () => open(place) },
      make("span", { class: `mark-${listing.outcome[place]}`, title: words, "aria-label": words, role: "img" }, mark),
      make("span", { class: "name", dir: "auto" }, listing.item[place]),
      make("span", { class: "value" }, sort ? number(listing.measures[sort][place]) : ""),
      sub ? make("span", { class: "sub", dir: "auto" }, sub) : null));
  }

  function showMore() {
    byId("list").append(...order.slice(shown, shown + PAGE).map(entry));
    shown = Math.min(order.length, shown + PAGE);
    byId("more").hidden = shown >= order.length;
  }

  function refresh() {
    order = chosen();
    shown = 0;
    byId("list").replaceChildren();
    showMore();
    byId("count").textContent = `${order.length.toLocaleString("en")} of ${ALL.length.toLocaleString("en")} measurements`;
  }

  /* ---- one item */

  const details = new Map(), waiting = new Map();

  window.reportItem = (place, detail) => {
    details.set(place, detail);
    (waiting.get(place) || []).forEach((resolve) => resolve());
    waiting.delete(place);
  };

  async function detailOf(place) {
    if (!details.has(place)) {
      if (files === null) details.set(place, parse(`detail-${place}`));
      else await new Promise((resolve, reject) => {
        waiting.set(place, [...(waiting.get(place) || []), resolve]);
        document.head.append(make("script", { src: files[place], onerror: () => reject(new Error(files[place])) }));
      });
    }
    return details.get(place);
  }

  async function open(place, scroll = true) {
    current = place;
    for (const button of byId("list").querySelectorAll("button"))
      if (Number(button.dataset.place) === place) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    const target = byId("item");
    let detail;
    try {
      detail = await detailOf(place);
    } catch (error) {
      target.replaceChildren(make("p", { class: "error" }, `This item's file is missing: ${error.message}. It belongs beside this page.`));
      return;
    }
    if (current !== place) return;
    target.replaceChildren(...view(place, detail));
    target.dataset.place = place;
    if (scroll && window.matchMedia("(max-width: 860px)").matches) target.scrollIntoView();
  }

  function view(place, detail) {
    const [, words] = OUTCOMES[listing.outcome[place]];
    const told = [listing.task[place], listing.condition[place], `video ${detail.video}`].filter(Boolean).join(" · ");
    return [
      make("h3", { dir: "auto" }, detail.item),
      make("p", { class: "muted", dir: "auto" }, told),
      detail.error ? make("p", { class: "error", dir: "auto" }, make("strong", {}, detail.error[0]), ` ${detail.error[1]}`) : null,
      ...detail.turns.map(([role, text]) => make("p", { class: "muted", dir: "auto" }, `${role}: ${text}`)),
      make("p", { class: "asked", dir: "auto" }, detail.question === null ? "This run kept no question texts; the data set has them under this id." : detail.question),
      options(place, detail),
      make("p", {}, "Answer: ", make("strong", { dir: "auto" }, listing.answer[place] ?? "none"), " · truth: ", make("strong", { dir: "auto" }, listing.target[place] ?? "none"), " · ",
        make("span", { class: `mark-${listing.outcome[place]}` }, words)),
      detail.raw ? make("details", { open: listing.outcome[place] === "none" }, make("summary", {}, "The reply, word for word"), make("div", { class: "reply", dir: "auto" }, detail.raw)) : null,
      ...detail.warnings.map((text) => make("p", { class: "muted", dir: "auto" }, `⚠ ${text}`)),
      ...seen(detail),
      measures(place, detail),
    ].filter((child) => child !== null);
  }

  function options(place, detail) {
    if (!detail.options.length) return null;
    const known = detail.options.some((option) => option.p !== null);
    const rows = detail.options.map(({ letter, text, p }) => {
      const truth = letter === listing.target[place], said = letter === listing.answer[place];
      const words = [truth ? "✓ the truth" : "", said ? "● the model's answer" : ""].filter(Boolean).join(" · ");
      return make("li", { class: truth ? "truth" : null },
        make("span", { class: "letter" }, letter),
        make("span", { dir: "auto" }, text ?? ""),
        p === null ? null : make("span", { class: "bar" }, make("i", { style: { width: `${100 * Math.min(1, p)}%` } })),
        p === null ? null : make("span", { class: "num" }, number(p)),
        words ? make("span", { class: "said" }, words) : null);
    });
    return make("div", {}, make("ol", { class: "options" }, ...rows),
      known ? make("p", { class: "note" }, "Bars: probability of each letter as the reply's first token.") : null);
  }

  function measures(place, detail) {
    const rows = Object.entries(listing.measures).map(([name, column]) => [listing.words[name] || name, column[place]]);
    const table = (entries) => make("div", { class: "wide" }, make("table", {}, make("tbody", {}, ...entries.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "num" }, number(value)))))));
    const more = Object.entries(detail.variants), seconds = Object.entries(detail.seconds);
    return make("div", {},
      rows.length ? make("details", {}, make("summary", {}, `${rows.length} measures`), table(rows)) : null,
      more.length ? make("details", {}, make("summary", {}, `${more.length} more numbers, by definition, layer or set`), table(more)) : null,
      seconds.length ? make("details", {}, make("summary", {}, "Seconds it took"), table(seconds)) : null,
      detail.selection ? make("p", { class: "note", dir: "auto" }, `Frames chosen by: ${detail.selection}`) : null);
  }

  /* ---- what the model saw: strip, maps over the same units, patches */

  let select = () => {};
  let patchAt = () => null;

  function seen(detail) {
    const units = detail.units, n = units.seconds.length;
    if (!n) return [];
    const evidence = units.evidence || units.seconds.map((time) => time !== null && detail.windows.some(([start, end]) => start <= time && time < end));
    const share = detail.share ? restored(detail.share) : null;
    const parts = [], marks = [], picked = [];
    const pictures = new Map();
    for (const picture of detail.pictures) if (!pictures.has(picture.unit)) pictures.set(picture.unit, picture.src);
    const cards = units.seconds.map((time, unit) => make("button", {
      type: "button", class: `card${evidence[unit] ? " evidence" : ""}`, "data-unit": unit, "aria-pressed": "false",
      title: `${units.kind} ${unit}, source frame ${units.frames[unit].join(", ") || "none"}, told ${clock(units.shown[unit])}`, onclick: () => select(unit),
    },
    pictures.has(unit) ? make("img", { src: pictures.get(unit), alt: `${units.kind} ${unit} at ${clock(time)}` }) : pictures.size ? make("span", { class: "empty" }) : null,
    make("span", {}, clock(time)), share ? make("span", {}, percent(share[unit])) : null, evidence[unit] ? make("span", { class: "flag" }, "evidence") : null));
    const strip = make("div", { class: "strip", id: "strip" }, ...cards);
    const windows = detail.windows.map(([start, end]) => `${clock(start)} to ${clock(end)}`).join(", ");
    parts.push(make("h4", {}, `What the model saw: ${n} ${units.kind}${n === 1 ? "" : "s"}`),
      make("p", { class: "legend" }, "Below each: time in the video", share ? ", its share of the video's attention" : "", ".",
        evidence.some(Boolean) || windows ? ` Green: evidence${windows ? ` (window ${windows})` : ""}.` : "",
        pictures.size < n ? (pictures.size ? " Hatched: no picture was saved." : " No pictures were saved.") : "", share ? " Choose one to see its patches." : ""), strip);
    const bands = runs(evidence);
    const ticks = (element) => timeTicks(element, units.seconds);
    const axis = { n, bands, ticks, marks, pick: (unit) => select(unit), name: (unit) => `${units.kind} ${unit}, ${clock(units.seconds[unit])}` };
    if (share) parts.push(...shares(detail, share, axis));
    if (detail.attention) parts.push(...layers(detail, axis));
    const frame = detail.patches ? patches(detail, pictures, picked, axis) : null;
    if (frame) parts.splice(3, 0, ...frame);
    for (const panel of detail.panels || []) parts.push(...panelView(panel, axis));
    select = (unit) => {
      cards.forEach((card, place) => card.setAttribute("aria-pressed", place === unit ? "true" : "false"));
      for (const mark of marks) Object.assign(mark.style, { left: `${(100 * unit) / n}%`, width: `${100 / n}%`, display: "block" });
      for (const action of picked) action(unit);
      const card = cards[unit];
      strip.scrollTo({ left: card.offsetLeft - strip.offsetLeft - (strip.clientWidth - card.offsetWidth) / 2 });
    };
    const withPicture = [...pictures.keys()];
    const best = withPicture.length ? withPicture : [...Array(n).keys()];
    if (share || withPicture.length) queueMicrotask(() => select(best.reduce((a, b) => (share && share[b] > share[a] ? b : a))));
    return parts;
  }

  /* A plot with a column a unit: evidence bands behind, the chosen column marked, a click chooses. */
  function framed(content, height, axis, read, rows, over) {
    const plot = make("div", { class: over ? "plot over" : "plot", style: { height: `${height}px` } }, content,
      ...axis.bands.map(([start, end]) => make("span", { class: "window", style: { left: `${(100 * start) / axis.n}%`, width: `${(100 * (end - start)) / axis.n}%` } })));
    const column = make("span", { class: "column", style: { display: "none" } });
    plot.append(column);
    axis.marks.push(column);
    const readout = make("p", { class: "readout" });
    const at = (event) => {
      const box = plot.getBoundingClientRect();
      const place = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
      return [place((event.clientX - box.left) / box.width, axis.n), place((event.clientY - box.top) / box.height, rows)];
    };
    plot.addEventListener("mousemove", (event) => { readout.textContent = read(...at(event)); });
    plot.addEventListener("click", (event) => { const [unit, row] = at(event); axis.pick(unit, row); });
    const ticks = make("div", { class: "ticks" });
    axis.ticks(ticks);
    return { plot, ticks, readout };
  }

  function shares(detail, share, axis) {
    const control = detail.control ? restored(detail.control.share) : null;
    const n = axis.n, known = [...share, ...(control || []), 1 / n].filter((value) => !Number.isNaN(value));
    const top = Math.max(...known) * 1.05 || 1, height = 130;
    const spot = (name, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      return element;
    };
    const svg = spot("svg", { viewBox: `0 0 ${n} 100`, preserveAspectRatio: "none" });
    const stairs = (values, attributes) => {
      let path = "", gap = true;
      values.forEach((value, unit) => {
        if (Number.isNaN(value)) { gap = true; return; }
        const y = 100 - (100 * value) / top;
        path += `${gap ? "M" : "L"}${unit} ${y}H${unit + 1}`;
        gap = false;
      });
      svg.append(spot("path", { d: path, fill: "none", "vector-effect": "non-scaling-stroke", ...attributes }));
    };
    stairs(Array(n).fill(1 / n), { stroke: "#555", "stroke-dasharray": "6 4" });
    if (control) stairs([...control], { stroke: "#555", "stroke-dasharray": "2 3", "stroke-width": 1.5 });
    stairs([...share], { stroke: "#0072B2", "stroke-width": 2 });
    const { plot, ticks, readout } = framed(svg, height, axis, (unit) => `${axis.name(unit)}: ${percent(share[unit])}${control ? `, ${percent(control[unit])} by position only` : ""}`, 1);
    const key = (kind, text) => make("span", {}, make("i", { class: kind }), text);
    return [make("h4", {}, "Share of the video's attention on each unit"),
      make("p", { class: "legend" }, key("", "heads pooled"), control ? key("dot", `position only (${detail.control.kind})`) : null, key("dash", "uniform"), axis.bands.length ? key("box", "evidence") : null),
      make("div", { class: "map" }, scaleLabels(top, height), plot, ticks), readout];
  }

  function scaleLabels(top, height) {
    return make("div", { class: "rows", style: { height: `${height}px` } }, ...[0, 0.5, 1].map((share) =>
      make("span", { style: { top: `${100 - (share * 100) * 0.95 / 1 - 2.5 * (share === 0 ? 1 : 0)}%` } }, percent((share * 0.95) * top))));
  }

  function layers(detail, axis) {
    const told = detail.attention, n = axis.n, mass = restored(told.mass), nLayers = told.layers.length;
    const heads = told.heads ? restored(told.heads) : null;
    const box = make("div", { id: "layers" });
    const role = make("select", {}, ...told.roles.map((name) => make("option", { value: name }, name)));
    const layer = make("select", {}, make("option", { value: "" }, "all, mean over heads"), ...(heads ? told.layers.map((index, place) => make("option", { value: place }, `heads of layer ${index}`)) : []));
    role.value = told.role;
    const draw = () => {
      const first = axis.marks.indexOf(box.mark);
      if (first >= 0) axis.marks.splice(first, 1);
      const which = told.roles.indexOf(role.value), one = layer.value !== "";
      const rows = one ? told.n_heads : nLayers;
      const size = rows * n;
      const values = one ? heads.slice(Number(layer.value) * size, (Number(layer.value) + 1) * size) : mass.slice(which * size, (which + 1) * size);
      const names = one ? [...Array(rows).keys()].map((head) => `head ${head}`) : told.layers.map((index) => `layer ${index}`);
      const { canvas, largest } = heat(values, rows, n);
      const height = Math.max(80, Math.min(340, rows * 12));
      const { plot, ticks, readout } = framed(canvas, height, axis, (unit, row) => `${names[row]}, ${axis.name(unit)}: ${percent(values[row * n + unit])} of all attention`, rows, true);
      box.mark = axis.marks.at(-1);
      const before = axis.marks[0];
      if (before && before !== box.mark) Object.assign(box.mark.style, { left: before.style.left, width: before.style.width, display: before.style.display });
      box.replaceChildren(make("div", { class: "map" }, labels(names, height), plot, ticks), ramp(largest, false, "heat", percent), readout);
    };
    role.addEventListener("change", () => { layer.value = ""; draw(); });
    layer.addEventListener("change", () => { if (layer.value !== "") role.value = told.role; draw(); });
    draw();
    return [make("h4", {}, "Attention on each unit, by layer"),
      make("div", { class: "controls" }, make("label", {}, "rows of ", role), make("label", {}, "layers ", layer),
        heads ? null : make("span", { class: "muted" }, `${told.n_heads} heads a layer: in the tensor file only`)), box];
  }

  function panelView(panel, unitAxis) {
    const values = restored(panel.values), [rows, columns] = panel.values.shape, signed = panel.values.signed;
    const own = { n: columns, bands: [], marks: [], pick: () => {}, name: (place) => panel.columns[place],
      ticks: (element) => panel.columns.forEach((name, place) => { if (place % Math.max(1, Math.ceil(columns / 6)) === 0) element.append(make("span", { style: { left: `${(100 * (place + 0.5)) / columns}%` } }, name)); }) };
    const axis = panel.axis === "unit" ? unitAxis : own;
    const { canvas, largest } = heat(values, rows, columns, { signed, curve: (share) => share });
    const height = Math.max(24, Math.min(360, rows * 16));
    const { plot, ticks, readout } = framed(canvas, height, axis, (place, row) => `${panel.rows[row]}, ${axis.name(place)}: ${number(values[row * columns + place])}`, rows, true);
    const steps = ramp(largest, signed, signed ? "signed" : "heat", number, false);
    return [make("h4", {}, panel.title), make("p", { class: "note" }, panel.note), make("div", { class: "map" }, labels(panel.rows, height), plot, ticks),
      steps, readout];
  }

  function patches(detail, pictures, picked, axis) {
    const { grids, heat: told, layers: byLayer } = detail.patches;
    const whole = restored(told), each = byLayer ? restored(byLayer) : null;
    const starts = [0];
    for (const [rows, columns] of grids) starts.push(starts.at(-1) + rows * columns);
    const total = starts.at(-1);
    const layer = make("select", { id: "patch-layer" }, make("option", { value: "" }, `${detail.attention.definition.layers} layers`),
      ...(each ? detail.attention.layers.map((index, place) => make("option", { value: place }, `layer ${index}`)) : []));
    const box = make("div", { class: "frame", id: "patches" });
    let unit = 0;
    const current = () => (layer.value === "" ? whole : each.subarray(Number(layer.value) * total, (Number(layer.value) + 1) * total));
    patchAt = (place, row, column) => current()[starts[place] + row * grids[place][1] + column];
    const draw = () => {
      const values = current(), [rows, columns] = grids[unit];
      const largest = values.reduce((top, value) => (value > top ? value : top), 0);
      const part = values.slice(starts[unit], starts[unit + 1]);
      const readout = make("p", { class: "readout" }, "Point at a patch.");
      const canvas = overlay(part, rows, columns, largest, pictures.get(unit));
      canvas.addEventListener("mousemove", (event) => {
        const area = canvas.getBoundingClientRect();
        const row = Math.min(rows - 1, Math.floor(((event.clientY - area.top) / area.height) * rows));
        const column = Math.min(columns - 1, Math.floor(((event.clientX - area.left) / area.width) * columns));
        readout.textContent = `row ${row}, column ${column}: ${percent(patchAt(unit, row, column))} of the video's attention`;
      });
      const beside = pictures.has(unit) ? make("div", {}, make("img", { src: pictures.get(unit), alt: "the frame as shown", style: { display: "block", width: "100%" } })) : null;
      box.replaceChildren(...[make("div", {}, canvas, readout), beside].filter(Boolean));
      box.dataset.unit = unit;
      caption.textContent = `${axis.name(unit)}, ${rows} × ${columns} patches.`;
      scale.replaceChildren(ramp(largest, false, "overlay", percent));
    };
    const caption = make("span", { class: "muted" }), scale = make("div");
    layer.addEventListener("change", draw);
    picked.push((place) => { unit = place; draw(); });
    return [make("h4", {}, "Attention on the patches of one unit"), make("div", { class: "controls" }, make("label", {}, "layers ", layer), caption), box, scale];
  }

  /* ---- begin */

  fillFilters();
  for (const control of Object.values(filters)) control.addEventListener(control.type === "search" ? "input" : "change", refresh);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", showMore);
  refresh();
  const asked = new URLSearchParams(location.hash.slice(1)).get("item");
  const begin = asked === null ? order[0] : listing.item.indexOf(asked);
  if (begin !== undefined && begin >= 0) open(begin, false);
  window.report = { open, order: () => [...order], patch: (unit, row, column) => patchAt(unit, row, column), select: (unit) => select(unit) };
  document.documentElement.dataset.ready = "yes";
})();
