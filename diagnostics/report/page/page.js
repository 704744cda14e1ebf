"use strict";
/* The item browser. Text of the data is only ever set as text (textContent), never as markup. */
(() => {
  const byId = (id) => document.getElementById(id);
  const parse = (id) => JSON.parse(byId(id).textContent);
  const listing = parse("listing");
  const files = byId("files") ? parse("files") : null;
  const drawn = drawing(parse("colours")), { make, number } = drawn;
  const { seen, patch, select } = seeing(drawn);
  const PAGE = 100;
  const OUTCOMES = { right: ["✓", "right"], wrong: ["✗", "wrong"], none: ["∅", "wrong: no letter"], unscored: ["–", "not scored"], failed: ["!", "failed"] };
  const variants = new Set(listing.variants);
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
    choices(filters.sort, [["", "item, condition"], ...Object.keys(listing.measures).filter((name) => !variants.has(name)).map((name) => [name, listing.words[name]])]);
    if (variants.size) filters.sort.append(make("optgroup", { label: "by definition, layer or set" }, ...listing.variants.map((name) => make("option", { value: name }, listing.words[name]))));
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

  /* Scrolls the list, and not the page, until an entry is seen. */
  function inList(button) {
    const list = byId("list").parentElement, frame = list.getBoundingClientRect(), box = button.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) list.scrollTop += box.top - frame.top - (frame.height - box.height) / 2;
  }

  async function open(place, scroll = true) {
    current = place;
    for (const button of byId("list").querySelectorAll("button"))
      if (Number(button.dataset.place) === place) { button.setAttribute("aria-current", "true"); inList(button); }
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
        make("span", { class: "text", dir: "auto" }, text ?? ""),
        p === null ? null : make("span", { class: "bar" }, make("i", { style: { width: `${100 * Math.min(1, p)}%` } })),
        p === null ? null : make("span", { class: "num" }, number(p)),
        words ? make("span", { class: "said" }, words) : null);
    });
    return make("div", {}, make("ol", { class: "options" }, ...rows),
      known ? make("p", { class: "note" }, "Bars: probability of each letter as the reply's first token.") : null);
  }

  function measures(place, detail) {
    const rows = Object.entries(listing.measures).filter(([name]) => !variants.has(name)).map(([name, column]) => [listing.words[name], column[place]]);
    const table = (entries) => make("div", { class: "wide" }, make("table", {}, make("tbody", {}, ...entries.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "num" }, number(value)))))));
    const more = Object.entries(detail.variants), seconds = Object.entries(detail.seconds);
    return make("div", {},
      rows.length ? make("details", {}, make("summary", {}, `${rows.length} measures`), table(rows)) : null,
      more.length ? make("details", {}, make("summary", {}, `${more.length} more numbers, by definition, layer or set`), table(more)) : null,
      seconds.length ? make("details", {}, make("summary", {}, "Seconds it took"), table(seconds)) : null,
      detail.selection ? make("p", { class: "note", dir: "auto" }, `Frames chosen by: ${detail.selection}`) : null);
  }

  /* ---- begin */

  fillFilters();
  for (const control of Object.values(filters)) control.addEventListener(control.type === "search" ? "input" : "change", refresh);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", showMore);
  refresh();
  /* `#item=<id>`; of several measurements of an item the first that failed, or else the first. */
  const linked = () => {
    const asked = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B")).get("item");
    if (asked === null) return undefined;
    const places = ALL.filter((place) => listing.item[place] === asked);
    return places.find((place) => listing.outcome[place] === "failed") ?? places[0];
  };
  window.addEventListener("hashchange", () => {
    const place = linked();
    if (place !== undefined) open(place, false).then(() => byId("items").scrollIntoView());
  });
  const begin = linked() ?? order[0];
  if (begin !== undefined) open(begin, false);
  window.report = { open, order: () => [...order], patch, select };
  document.documentElement.dataset.ready = "yes";
})();
