"use strict";
/* Elements, numbers as text, and pictures of arrays. Text is only ever set as text, never as markup. */
function drawing(told) {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const colours = Object.fromEntries(Object.entries(told).map(([name, text]) => [name, bytes(text)]));

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") Object.assign(element.style, value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function number(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "undefined";
    if (value !== 0 && Math.abs(value) < 5e-4) return value.toExponential(1);
    return Number.isInteger(value) ? String(value) : value.toFixed(Math.abs(value) < 10 ? 3 : 1);
  }

  const percent = (value) => (Number.isNaN(value) ? "undefined" : `${(100 * value).toFixed(value < 0.0995 ? 2 : 1)}%`);

  /* Minutes and seconds, hours where there are any, tenths of a second where asked. */
  function clock(seconds, tenths = false) {
    if (seconds === null || seconds === undefined) return "no time";
    const units = Math.floor(Math.abs(seconds) * 10 + 1e-6), whole = Math.floor(units / 10), hours = Math.floor(whole / 3600);
    const two = (n) => String(n).padStart(2, "0");
    return `${seconds < 0 ? "−" : ""}${hours ? `${hours}:` : ""}${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}${tenths ? `.${units % 10}` : ""}`;
  }

  /* An array as `quantised` told it: the numbers, NaN where undefined. */
  function restored(told) {
    const levels = bytes(told.data), values = new Float64Array(levels.length);
    for (let i = 0; i < levels.length; i++) {
      const q = levels[i];
      values[i] = q === 255 ? NaN : told.scale * (told.signed ? (q - 127) / 127 : (q / 254) ** 2);
    }
    return values;
  }

  /* Stretches of consecutive true entries: [first, last + 1]. */
  function runs(flags) {
    const found = [];
    flags.forEach((flag, place) => {
      if (!flag) return;
      if (found.length && found.at(-1)[1] === place) found.at(-1)[1] = place + 1;
      else found.push([place, place + 1]);
    });
    return found;
  }

  function timeTicks(element, seconds, tenths) {
    const n = seconds.length, every = Math.max(1, Math.ceil(n / 6));
    for (let unit = 0; unit < n; unit += every)
      element.append(make("span", { style: { left: `${(100 * (unit + 0.5)) / n}%` } }, clock(seconds[unit], tenths)));
  }

  function labels(names, height) {
    const every = Math.max(1, Math.ceil((names.length * 13) / height));
    return make("div", { class: "rows", style: { height: `${height}px` } }, ...names.map((name, row) =>
      row % every ? null : make("span", { title: name, style: { top: `${(100 * (row + 0.5)) / names.length}%` } }, name)));
  }

  /* A map of rows x columns on a canvas, a pixel a cell. */
  function heat(values, rows, columns, { signed = false, lut = signed ? "signed" : "heat", scale = null, curve = Math.sqrt } = {}) {
    const canvas = make("canvas", { width: columns, height: rows });
    const pen = canvas.getContext("2d"), picture = pen.createImageData(columns, rows);
    const largest = scale ?? values.reduce((top, value) => (Number.isNaN(value) ? top : Math.max(top, Math.abs(value))), 0);
    for (let i = 0; i < rows * columns; i++) {
      const share = largest > 0 ? values[i] / largest : 0;
      const level = signed ? Math.round(127.5 + 127.5 * share) : Math.round(255 * curve(Math.max(0, Math.min(1, share))));
      const grey = Number.isNaN(values[i]);
      for (let c = 0; c < 3; c++) picture.data[4 * i + c] = grey ? 205 : colours[lut][3 * level + c];
      picture.data[4 * i + 3] = 255;
    }
    pen.putImageData(picture, 0, 0);
    return { canvas, largest };
  }

  function ramp(largest, signed, lut, as, square = !signed) {
    const steps = Float64Array.from({ length: 64 }, (_, i) => (signed ? -1 + (2 * i) / 63 : i / 63));
    const { canvas } = heat(steps, 1, 64, { signed, lut, curve: (share) => share });
    canvas.className = "ramp";
    return make("p", { class: "legend" }, make("span", {}, signed ? as(-largest) : as(0)), canvas, make("span", {}, as(largest)), signed ? null : make("span", {}, square ? "(square root)" : ""), make("span", {}, "grey: undefined"));
  }

  /* The picture in grey under the patches' colours; each patch fills its own rectangle. */
  function overlay(values, rows, columns, largest, source) {
    const canvas = make("canvas", { width: columns * 24, height: rows * 24 }), pen = canvas.getContext("2d");
    const paint = (picture) => {
      if (picture) { canvas.width = 480; canvas.height = Math.round((480 * picture.naturalHeight) / picture.naturalWidth); }
      const w = canvas.width / columns, h = canvas.height / rows;
      pen.fillStyle = "#cdcdcd";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      if (picture) { pen.filter = "grayscale(1)"; pen.drawImage(picture, 0, 0, canvas.width, canvas.height); pen.filter = "none"; }
      for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
        const value = values[row * columns + column];
        if (Number.isNaN(value)) continue;
        const level = Math.sqrt(Math.min(1, largest > 0 ? value / largest : 0)), at = 3 * Math.round(255 * level);
        const [r, g, b] = colours.overlay.subarray(at, at + 3);
        pen.fillStyle = `rgba(${r},${g},${b},${picture ? 0.15 + 0.55 * level : 1})`;
        const left = Math.round(column * w), up = Math.round(row * h);
        pen.fillRect(left, up, Math.round((column + 1) * w) - left, Math.round((row + 1) * h) - up);
      }
      canvas.dataset.painted = "yes";
    };
    if (source) {
      const picture = new Image();
      picture.onload = () => paint(picture);
      picture.src = source;
    } else paint(null);
    return canvas;
  }

  return { make, number, percent, clock, restored, runs, timeTicks, labels, heat, ramp, overlay };
}
