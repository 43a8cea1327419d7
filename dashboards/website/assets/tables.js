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

  // Numbers by size, versions and batches by their digits, the rest as words.
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (a === null || a === undefined || a === "") return b === null || b === undefined || b === "" ? 0 : 1;
    if (b === null || b === undefined || b === "") return -1;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  // Words need room on a phone, where a column would otherwise be one word wide; a few stay on one line.
  function classOf(column, value) {
    const text = value && typeof value === "object" ? String(value.text) : String(value || "");
    return column.align || (text.length > 20 ? "wide" : text.length <= 16 ? "short" : null);
  }

  function table(block) {
    const { cell, plain } = deadheat.blocks;
    let rows = block.rows;
    const body = h("tbody", { role: "rowgroup" });
    // On a phone a row is a card (style.css): roles keep it a row, and each cell names its column.
    const one = (row, column, place) => h(place ? "td" : "th", {
      scope: place ? null : "row", role: place ? "cell" : "rowheader", "data-name": column.name,
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
        rows = [...rows].sort((a, b) => (falling ? -1 : 1) * compare(plain(a[column.key]), plain(b[column.key])));
        draw();
      });
      return head;
    });
    const search = block.rows.length < SEARCHED_FROM ? null : h("input", {
      type: "search", placeholder: "Filter rows", "aria-label": `Filter rows: ${block.caption}`,
      oninput: (event) => {
        const words = event.target.value.toLowerCase().split(/\s+/);
        const text = (row) => block.columns.map((column) => {
          const value = row[column.key];
          return value && typeof value === "object" ? `${value.text} ${value.note || ""}` : value;
        }).join(" ").toLowerCase();
        rows = block.rows.filter((row) => words.every((word) => text(row).includes(word)));
        draw();
      } });
    draw();
    const lines = () => [block.columns.map((column) => column.name),
      ...rows.map((row) => block.columns.map((column) => plain(row[column.key])))];
    return frame(block, h("table", { class: "cards", role: "table" }, h("caption", {}, h("span", {}, block.caption)),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads)), body), lines, search, all);
  }

  return { table, frame, compare };
})();
