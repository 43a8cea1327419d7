// Tables that sort by their headings, filter by a word, and download as CSV.
"use strict";

deadheat.tables = (() => {
  const { h } = deadheat;
  const SEARCHED_FROM = 12; // rows
  const MOST_DRAWN = 50; // rows, until a button shows all

  function frame(block, table, lines, search, more) {
    const save = h("button", { type: "button", class: "quiet",
      onclick: () => deadheat.download(`${block.name}.csv`, deadheat.toCsv(lines()), "text/csv") }, "CSV");
    save.setAttribute("aria-label", `Download as CSV: ${block.caption}`);
    return h("div", { class: "framed" }, search ? h("div", { class: "tools" }, search) : null,
      h("div", { class: "table", role: "region", tabindex: "0", "aria-label": block.caption }, table),
      h("div", { class: "tools" }, more, save));
  }

  // Leaves the rows that have every word; null where all rows are in sight at once.
  function searchBox(block, text, changed) {
    return block.rows.length < SEARCHED_FROM ? null : h("input", {
      type: "search", placeholder: "Filter rows", "aria-label": `Filter rows: ${block.caption}`,
      oninput: (event) => {
        const words = event.target.value.toLowerCase().split(/\s+/);
        changed(block.rows.filter((row) => words.every((word) => text(row).toLowerCase().includes(word))));
      } });
  }

  // The units of dashboards/formatting.py: those of one column are of one kind.
  const UNITS = { "": 1, x: 1, "%": 1, k: 1e3, ns: 1e-9, "\u00b5s": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
    MiB: 1, GiB: 1024, mJ: 1, J: 1e3, kJ: 1e6, Wh: 1, kWh: 1e3, d: 1, steps: 1 };
  const AMOUNT = /^([+\u2212-]?)(\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)\s?([a-z\u00b5%]*)(?=$|[\s/(,])/i;
  const MISSING = ["", "not measured", "not known", "not recorded"];

  // The amount that a text begins with; null where it is another text, such as a version or a date.
  function amountOf(value) {
    if (typeof value === "number") return value;
    if (value === "none" || value === "at once") return 0;
    const [, sign, digits, unit] = AMOUNT.exec(value) || [];
    if (!digits || !Object.hasOwn(UNITS, unit)) return null;
    return (/[\u2212-]/.test(sign) ? -1 : 1) * Number(digits.replaceAll(",", "")) * UNITS[unit];
  }

  const isMissing = (value) => value === null || value === undefined || MISSING.includes(value);

  // Amounts by size, versions and batches by their digits, the rest as words. What is missing comes last either way.
  function compare(a, b, falling = false) {
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
    const [one, other] = [a, b].map(amountOf);
    const size = one === null || other === null ? 0 : one - other;
    return (falling ? -1 : 1) * (size || String(a).localeCompare(String(b), "en", { numeric: true }));
  }

  // Words need room on a phone, where a column would otherwise be one word wide; a few stay on one line.
  function classOf(column, value) {
    const text = value && typeof value === "object" ? String(value.text) : String(value || "");
    return column.align || (text.length > 20 ? "wide" : text.length <= 16 ? "short" : null);
  }

  function table(block) {
    const { cell, plain } = deadheat.blocks;
    let rows = block.rows;
    let sort = (found) => found;
    const body = h("tbody", { role: "rowgroup" });
    // On a phone a row is a card (style.css): roles keep it a row, and each cell names its column.
    const one = (row, column, place) => h(place ? "td" : "th", {
      scope: place ? null : "row", role: place ? "cell" : "rowheader", "data-name": column.name.replace(/\?$/, ""),
      class: [classOf(column, row[column.key]), column.lead ? "lead-cell" : ""].filter(Boolean).join(" "),
    }, ...cell(row[column.key]));
    let most = block.rows.length > 1.2 * MOST_DRAWN ? MOST_DRAWN : Infinity;
    const all = h("button", { type: "button", class: "quiet", onclick: () => { most = Infinity; draw(); } });
    const draw = () => {
      body.replaceChildren(...rows.slice(0, most).map((row) =>
        h("tr", { id: row.id, role: "row" }, ...block.columns.map((column, place) => one(row, column, place)))));
      all.textContent = `Show all ${rows.length} rows`;
      all.hidden = rows.length <= most;
    };
    const heads = block.columns.map((column) => {
      const name = column.help ? { title: column.help } : {};
      const button = h("button", { type: "button", ...name }, column.name);
      const head = h("th", { scope: "col", role: "columnheader", class: column.align || null }, button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        for (const each of heads) each.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        sort = (found) => [...found].sort((a, b) => compare(plain(a[column.key]), plain(b[column.key]), falling));
        rows = sort(rows);
        draw();
      });
      return head;
    });
    const text = (row) => block.columns.map((column) => {
      const value = row[column.key];
      return value && typeof value === "object" ? `${value.text} ${value.note || ""}` : value;
    }).join(" ");
    const search = searchBox(block, text, (found) => { rows = sort(found); draw(); });
    draw();
    const lines = () => [block.columns.map((column) => column.name),
      ...rows.map((row) => block.columns.map((column) => plain(row[column.key])))];
    return frame(block, h("table", { class: "cards", role: "table" }, h("caption", {}, h("span", {}, block.caption)),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads)), body), lines, search, all);
  }

  return { table, frame, searchBox, compare };
})();
