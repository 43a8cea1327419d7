// Draws the blocks that dashboards/website/blocks.py makes.
"use strict";

deadheat.blocks = (() => {
  const { h } = deadheat;

  // A number and its percent sign stay on one line, as a date does.
  function hold(text) {
    const parts = String(text).replace(/(\d) %/g, "$1\u00a0%").split(/(\d{4}-\d\d-\d\d)/);
    if (parts.length === 1) return parts[0];
    return h("span", {}, ...parts.map((each, place) => (place % 2 ? h("span", { class: "short" }, each) : each)));
  }

  // A cell: text or number, or {text, href, badge, title, note, value, help}.
  function cell(value) {
    if (value === null || value === undefined) return [""];
    if (typeof value !== "object") return [hold(value)];
    let shown = hold(value.text);
    if (value.badge) shown = h("span", { class: `badge ${value.badge}${value.text.length > 20 ? " long" : ""}` }, shown);
    if (value.help) shown = deadheat.explain(value.text, value.help);
    if (value.href) shown = h("a", { href: value.href, title: value.title }, shown);
    else if (value.title) shown = h("span", { title: value.title }, shown);
    const note = value.note ? h("div", { class: "remark", title: value.note }, hold(value.note)) : null;
    return [shown, note].filter(Boolean);
  }

  const plain = (value) =>
    value && typeof value === "object" ? (value.value !== undefined ? value.value : value.text) : value;

  function heading(level, title, id) {
    return h(`h${level}`, { id: id ? `${id}-title` : null }, title);
  }

  function section(block, level) {
    return h("section", { id: block.id, "aria-labelledby": `${block.id}-title` },
      heading(Math.min(level, 4), block.title, block.id),
      block.aside ? h("p", { class: "aside" }, block.aside) : null,
      ...block.blocks.map((each) => render(each, level + 1)));
  }

  function facts(block) {
    const ids = block.ids || [];
    return h("dl", {}, ...block.pairs.flatMap(([term, value], place) => [
      h("dt", { id: ids[place] || null }, ids.length ? term : deadheat.explain(term)), h("dd", {}, ...cell(value)),
    ]));
  }

  // A page with filters of its own says `filtered`, and has no box for words.
  function grid(block) {
    let rows = block.rows;
    const head = h("tr", { role: "row" }, h("th", { scope: "col", role: "columnheader" }, block.corner),
      ...block.columns.map((each) => h("th", { scope: "col", role: "columnheader" }, ...cell(each))));
    const line = (row) => h("tr", { role: "row" },
      h("th", { scope: "row", role: "rowheader" }, ...cell(row.head)),
      ...row.cells.map((each, place) => {
        const level = each && each.level !== undefined ? each.level : null;
        const shade = level === null ? (each ? "void" : "none") : `level l${level}`;
        return h("td", { class: shade, role: "cell", "data-name": [block.unit, plain(block.columns[place])].filter(Boolean).join(" "), title: each && each.title },
          ...cell(each));
      }));
    const body = h("tbody", { role: "rowgroup" }, ...rows.map(line));
    const show = (found) => { rows = found; body.replaceChildren(...rows.map(line)); };
    const search = block.filtered ? null : deadheat.tables.searchBox(block, (row) => String(plain(row.head)), show);
    const lines = () => [[block.corner, ...block.columns.map(plain)],
      ...rows.map((row) => [plain(row.head), ...row.cells.map(plain)])];
    return deadheat.tables.frame(block, h("table", { class: "heat cards", role: "table" },
      h("caption", {}, h("span", {}, block.caption)), h("thead", { role: "rowgroup" }, head), body), lines, search);
  }

  const kinds = {
    section,
    text: (block) => h("p", { class: block.tone }, ...block.parts.flatMap(cell)),
    table: (block) => deadheat.tables.table(block),
    grid,
    facts,
    chart: (block) => deadheat.charts.figure(block),
    details: (block, level) => h("details", { id: block.id || null }, h("summary", {}, block.summary),
      ...block.blocks.map((each) => render(each, level))),
    code: (block) => h("pre", { class: "code", tabindex: "0" }, block.text),
  };

  function render(block, level = 2) {
    return kinds[block.kind](block, level);
  }

  // Links to the sections of a long page. Where the address holds a state, it stays there.
  function contents(blocks) {
    const sections = blocks.filter((each) => each.kind === "section");
    if (sections.length < 4) return null;
    const state = deadheat.readState();
    const to = (id) => (Object.keys(state).length ? `#${new URLSearchParams({ ...state, at: id })}` : `#${id}`);
    return h("nav", { class: "contents", "aria-label": "On this page" }, h("ul", {},
      ...sections.map((each) => h("li", {}, h("a", { href: to(each.id) }, each.title)))));
  }

  // The links stand below the sentences that lead the page.
  function page(found) {
    const first = [...found.blocks, { kind: "" }].findIndex((each) => each.kind !== "text");
    const [lead, rest] = [found.blocks.slice(0, first), found.blocks.slice(first)];
    return [h("h1", {}, found.title), found.lead ? h("p", { class: "lead" }, found.lead) : null,
      ...lead.map((each) => render(each)), contents(rest), ...rest.map((each) => render(each))].filter(Boolean);
  }

  return { render, page, contents, cell, plain };
})();
