"use strict";
/* What the model saw in one item: the film strip, maps over the same units, patches over a picture. */
function seeing({ make, number, percent, clock, restored, runs, timeTicks, labels, heat, ramp, overlay }) {
  const SHORT = 64;
  let select = () => {};
  let patchAt = () => null;

  function seen(detail) {
    const units = detail.units, n = units.seconds.length;
    if (!n) return detail.selection === "nothing" ? [make("p", { class: "muted" }, "The model was shown no picture.")] : [];
    const evidence = units.evidence, share = detail.share ? restored(detail.share) : null;
    const parts = [], marks = [], picked = [];
    const pictures = new Map(detail.pictures.map((picture) => [picture.unit, picture]));
    const times = units.seconds.map((time, unit) => time ?? units.shown[unit]);
    const exact = closeTogether(times);
    const film = filmStrip(units, evidence, share, pictures, exact);
    parts.push(make("h4", {}, `${detail.error ? "What was to be shown" : "What the model saw"}: ${n.toLocaleString("en")} ${units.kind}${n === 1 ? "" : "s"}`),
      make("p", { class: "legend" }, stripLegend(detail, evidence, share, pictures, exact)), film.strip);
    const bands = runs(evidence);
    const ticks = (element) => timeTicks(element, times, exact);
    const axis = { n, bands, ticks, marks, pick: (unit) => select(unit), name: (unit) => `${units.kind} ${unit}, ${clock(times[unit], exact)}` };
    if (share) parts.push(...shares(detail, share, axis));
    if (detail.attention) parts.push(...layers(detail, axis));
    const frame = detail.patches ? patches(detail, pictures, picked, axis) : null;
    if (frame) parts.splice(3, 0, ...frame);
    for (const panel of detail.panels || []) parts.push(...panelView(panel, axis));
    select = (unit) => {
      film.mark(unit);
      for (const mark of marks) Object.assign(mark.style, { left: `${(100 * unit) / n}%`, width: `${100 / n}%`, display: "block" });
      for (const action of picked) action(unit);
    };
    const withPicture = [...pictures.keys()];
    const best = withPicture.length ? withPicture : [...Array(n).keys()];
    if (share || withPicture.length) queueMicrotask(() => select(best.reduce((a, b) => (share && share[b] > share[a] ? b : a))));
    return parts;
  }

  /* Whether times need tenths of a second: half of the steps are shorter than one. */
  function closeTogether(times) {
    const steps = times.slice(1).map((time, place) => Math.abs(time - times[place])).sort((a, b) => a - b);
    return steps.length > 0 && steps[Math.floor(steps.length / 2)] < 1;
  }

  function stripLegend(detail, evidence, share, pictures, exact) {
    const { units, windows } = detail, n = units.seconds.length, told = ["Below each: time in the video", share ? ", its share of the video's attention." : "."];
    if (evidence.some(Boolean) || windows.length) {
      const tenths = exact || windows.flat().some((time) => time % 1 !== 0);
      const parts = windows.map(([start, end]) => `${clock(start, tenths)} to ${clock(end, tenths)}`);
      told.push(` Green: evidence${parts.length ? ` (window${parts.length === 1 ? "" : "s"} ${parts.join(", ")})` : ""}.`);
      if (!evidence.some(Boolean)) told.push(" None of it was shown.");
    }
    if (!pictures.size) told.push(" No pictures were saved.");
    else if (pictures.size < n) told.push(` Pictures of ${pictures.size.toLocaleString("en")} of ${n.toLocaleString("en")} were saved.`);
    if (pictures.size && units.frames.some((frames) => frames.length > 1)) told.push(" A unit of several frames is shown by one of them.");
    if (share) told.push(" Choose one to see its patches.");
    return told.join("");
  }

  /* The strip, and `mark`, which shows a unit as chosen. Of long videos units without a picture are folded. */
  function filmStrip(units, evidence, share, pictures, exact) {
    const n = units.seconds.length, strip = make("div", { class: "strip", id: "strip" }), cards = [];
    const folds = n > SHORT && pictures.size > 0;
    let chosen = null;
    const timeOf = (unit) => {
      const time = units.seconds[unit], shown = units.shown[unit], other = units.other[unit];
      const told = shown !== null && (time === null || Math.abs(time - shown) > 0.5) ? `told ${clock(shown, exact)}` : null;
      return [other, time === null && (other || told) ? null : clock(time, exact), told].filter(Boolean);
    };
    const card = (unit) => make("button", {
      type: "button", class: `card${evidence[unit] ? " evidence" : ""}`, "data-unit": unit, "aria-pressed": "false",
      title: `${units.kind} ${unit}, source frame ${units.frames[unit].join(", ") || "none"}, told ${clock(units.shown[unit], exact)}`, onclick: () => select(unit),
    },
    pictures.has(unit) ? make("img", { src: pictures.get(unit).src, width: pictures.get(unit).size[0], height: pictures.get(unit).size[1], alt: `${units.kind} ${unit} at ${clock(units.seconds[unit], exact)}` }) : pictures.size ? make("span", { class: "empty" }) : null,
    ...timeOf(unit).map((told) => make("span", { class: "time", dir: "auto" }, told)), share ? make("span", {}, percent(share[unit])) : null, evidence[unit] ? make("span", { class: "flag" }, "evidence") : null);
    const fold = (start, end) => make("button", {
      type: "button", class: `card fold${evidence[start] ? " evidence" : ""}`, "aria-pressed": "false", title: `${units.kind}s ${start} to ${end - 1}, without pictures: show them`,
      onclick: (event) => {
        for (let unit = start; unit < end; unit++) cards[unit] = card(unit);
        event.currentTarget.replaceWith(...cards.slice(start, end));
        if (chosen !== null) mark(chosen);
      },
    }, make("span", { class: "empty" }), make("span", {}, `+${end - start}`));
    const hidden = (unit) => folds && !pictures.has(unit);
    for (let unit = 0; unit < n;) {
      let end = unit + 1;
      while (end < n && hidden(unit) && hidden(end) && evidence[end] === evidence[unit]) end++;
      const made = end - unit > 1 ? fold(unit, end) : card(unit);
      for (; unit < end; unit++) cards[unit] = made;
      strip.append(made);
    }
    function mark(unit) {
      for (const one of strip.querySelectorAll("[aria-pressed='true']")) one.setAttribute("aria-pressed", "false");
      chosen = unit;
      cards[unit].setAttribute("aria-pressed", "true");
      strip.scrollTo({ left: cards[unit].offsetLeft - strip.offsetLeft - (strip.clientWidth - cards[unit].offsetWidth) / 2 });
    }
    return { strip, mark };
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
    return [make("h4", {}, `Share of the video's attention on each unit${detail.attention.of ? ` (${detail.attention.of})` : ""}`),
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
      const canvas = overlay(part, rows, columns, largest, pictures.get(unit)?.src);
      canvas.addEventListener("mousemove", (event) => {
        const area = canvas.getBoundingClientRect();
        const row = Math.min(rows - 1, Math.floor(((event.clientY - area.top) / area.height) * rows));
        const column = Math.min(columns - 1, Math.floor(((event.clientX - area.left) / area.width) * columns));
        readout.textContent = `row ${row}, column ${column}: ${percent(patchAt(unit, row, column))} of the video's attention`;
      });
      const beside = pictures.has(unit) ? make("div", {}, make("img", { src: pictures.get(unit).src, alt: "the frame as shown", style: { display: "block", width: "100%" } })) : null;
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

  return { seen, patch: (unit, row, column) => patchAt(unit, row, column), select: (unit) => select(unit) };
}
