// One night (or another campaign): verdict, grid of workload x batch, and what lies behind it.
"use strict";

(() => {
  const { h, load, loadIfThere } = deadheat;
  const FILTERS = Object.keys(deadheat.filters.NAMES);
  const FULL_ENOUGH = 0.25; // share of a grid's cells that are filled; below it, a row per model is easier to read
  const MOST_RUNS = 8; // where no night was measured
  const LEVELS = [0.03, 0.12, 0.35, 0.8]; // of |log ratio|: 3 %, 13 %, 1.4x, 2.2x

  function level(log) {
    const size = LEVELS.filter((each) => Math.abs(log) >= each).length;
    return log < 0 ? -size : size;
  }

  const ratioOf = (cell, metric) =>
    metric ? (cell.metrics[metric] ? cell.metrics[metric].log : null) : cell.log;

  function gridCell(cell, metric) {
    if (!cell) return null;
    const log = ratioOf(cell, metric);
    const address = deadheat.address("duel.html", { run: cell.run });
    if (!cell.counts || log === null) return { text: "void", href: address, title: `${cell.words}: ${cell.reason}`, value: "" };
    const shown = metric ? cell.metrics[metric].shown : cell.shown;
    const settled = metric || cell.verdict === "different";
    const unsure = !metric && cell.verdict === "unknown" ? " ?" : "";
    const { size } = metric ? deadheat.speedup(log) : deadheat.speedup(log, cell.low, cell.high);
    return { text: `${size}${unsure}`, level: settled ? level(log) : 0, href: address, value: Math.exp(log),
      title: `${cell.words}: ${shown}. ${metric ? "" : cell.verdict}` };
  }

  // The fixed set: pairs that count in both nights, so that the mean moves only if a pair does.
  function mean(cells, before, metric) {
    const old = new Map((before || []).map((each) => [`${each.key} ${each.pair_id}`, each]));
    const both = cells.filter((cell) => {
      const other = old.get(`${cell.key} ${cell.pair_id}`);
      return cell.fair && cell.counts && ratioOf(cell, metric) !== null &&
        other && other.counts && ratioOf(other, metric) !== null;
    });
    if (both.length === 0) return null;
    const earlier = both.map((cell) => old.get(`${cell.key} ${cell.pair_id}`));
    return { count: both.length, now: average(both, metric), before: average(earlier, metric) };
  }

  // The mean of log ratios in words, with the digits that its pairs' intervals justify together.
  function average(cells, metric) {
    const log = cells.reduce((sum, cell) => sum + ratioOf(cell, metric), 0) / cells.length;
    if (metric || cells.some((cell) => cell.low === null || cell.high === null)) return deadheat.speedup(log).size;
    const half = Math.hypot(...cells.map((cell) => (cell.high - cell.low) / 2)) / cells.length;
    return deadheat.speedup(log, log - half, log + half).size;
  }

  function meanSentence(night, found, before) {
    if (night.kind !== "nightly") return null;
    if (!before) return h("p", { class: "aside" }, "No earlier night of this profile on this device, so there is no mean over a fixed set.");
    if (!found) return h("p", { class: "aside" }, "No fair pair shown here counts in both nights, so there is no mean.");
    return h("p", {}, deadheat.explain("Geometric mean", "geometric mean"),
      ` of the ${found.count} fair pair${found.count === 1 ? "" : "s"} shown here that count in both nights: `,
      h("strong", {}, found.now), `, the night before ${found.before}.`);
  }

  const captionOf = (metric) => (metric ? "PyTorch's amount divided by JAX's. Above 1x, JAX needs less." :
    "Speedup of JAX over PyTorch. Above 1x, JAX is faster. Each number opens its duel.");

  // What most cells share stands above the grid; a cell or a row that differs names it.
  function describeUsual(cells) {
    const count = new Map();
    for (const cell of cells) count.set(cell.pair, (count.get(cell.pair) || 0) + 1);
    const [usual] = [...count.entries()].sort((a, b) => b[1] - a[1])[0];
    const devices = new Set(cells.map((cell) => cell.device)).size;
    return { several: count.size > 1, usual,
      note: (cell) => [cell.pair === usual ? "" : `against ${cell.pair}`, devices > 1 ? cell.device : ""].filter(Boolean).join(", ") };
  }

  function drawGrid(cells, metric, name) {
    // A backfill has many versions of a framework: each has a column, in the order of its cells.
    const several = cells.some((cell) => cell.versions);
    const columnOf = (cell) => (several ? cell.versions : cell.batch);
    const headOf = (cell) => (several ? cell.words : cell.setting);
    const found = [...new Set(cells.map(columnOf))];
    const columns = several ? found : found.sort((a, b) => a - b);
    const shared = describeUsual(cells);
    const rows = new Map();
    for (const cell of cells) {
      const id = [headOf(cell), several ? cell.pair : cell.pair_id, cell.device].join(" ");
      if (!rows.has(id)) rows.set(id, { first: cell, cells: new Map() });
      rows.get(id).cells.set(columnOf(cell), cell);
    }
    const caption = `${captionOf(metric)}${shared.several ? ` Against PyTorch ${shared.usual}, unless a cell names another arm.` : ""}`;
    if (cells.length < rows.size * columns.length * FULL_ENOUGH) return drawFamilies(cells, metric, name, caption, shared);
    const listed = [...rows.values()].sort((a, b) =>
      headOf(a.first).localeCompare(headOf(b.first)) || a.first.pair.localeCompare(b.first.pair));
    return deadheat.blocks.render({
      kind: "grid", name, filtered: true, corner: several ? "Case, by version" : "Workload, by batch", unit: several ? "" : "batch", caption,
      columns: columns.map(String),
      rows: listed.map(({ first, cells: own }) => ({
        head: { text: headOf(first), note: shared.note(first) },
        cells: columns.map((each) => gridCell(own.get(each), metric)),
      })),
    });
  }

  // A grid that would be mostly empty: a row per model, in which each case has a tile.
  function drawFamilies(cells, metric, name, caption, shared) {
    const precise = new Set(cells.map((cell) => cell.precision)).size > 1;
    const order = [...cells].sort((a, b) => a.model.localeCompare(b.model) || a.setting.localeCompare(b.setting) || a.batch - b.batch);
    const families = new Map();
    for (const cell of order) families.set(cell.model, [...(families.get(cell.model) || []), cell]);
    const label = (cell) => [...cell.setting.split(", ").slice(1).filter((each) => precise || each !== cell.precision),
      `batch ${cell.batch}`, cell.versions, shared.note(cell)].filter(Boolean).join(", ");
    const tile = (cell) => {
      const { text, level: shade, href, title } = gridCell(cell, metric);
      return h("li", { class: shade === undefined ? "void" : `level l${shade}`, title },
        h("a", { href }, h("strong", {}, text), h("span", {}, label(cell))));
    };
    const body = [...families.entries()].map(([model, own]) => h("tr", { role: "row" },
      h("th", { scope: "row", role: "rowheader" }, model), h("td", { role: "cell" }, h("ul", { class: "tiles" }, ...own.map(tile)))));
    const lines = [["Model", "Case", "Speedup"], ...order.map((cell) => [cell.model, cell.words, gridCell(cell, metric).value])];
    return deadheat.tables.frame({ name, caption }, h("table", { class: "families cards", role: "table" },
      h("caption", {}, h("span", {}, caption)), h("tbody", { role: "rowgroup" }, ...body)), () => lines);
  }

  // A colour bar: each shade with the size at which it begins.
  function legend() {
    const ends = ["3 %", "13 %", "1.4x", "2.2x"];
    const shade = (each) => h("li", { class: `level l${each}` }, each ? `\u2265 ${ends[Math.abs(each) - 1]}` : "same, or unknown (?)");
    const bar = (levels) => h("ul", {}, ...levels.map(shade));
    return h("div", { class: "key", role: "group", "aria-label": "Key" },
      h("span", {}, "PyTorch faster by"), bar([-4, -3, -2, -1]), bar([0]), bar([1, 2, 3, 4]), h("span", {}, "JAX faster by"));
  }

  function gridSection(night, before) {
    const body = h("div", {});
    const bar = h("div", { class: "filters", role: "group", "aria-label": "Filters" });
    const section = h("section", { id: "grid", "aria-labelledby": "grid-title" },
      h("h2", { id: "grid-title" }, "Who is faster?"), bar, body);
    function changed(key, value) {
      deadheat.writeState({ ...deadheat.readState(), [key]: value });
      draw();
    }
    function draw() {
      const state = deadheat.readState();
      // By default the fair pair of each case; another arm is a choice.
      const own = night.cells.filter((cell) => state.pair || cell.fair || !cell.has_fair);
      const metric = night.metrics.some((each) => each.key === state.metric) ? state.metric : "";
      const fitting = own.filter((cell) => deadheat.filters.fits(cell, state, FILTERS));
      const kept = fitting.filter((cell) => !cell.counts || ratioOf(cell, metric) !== null);
      const left = fitting.length - kept.length;
      const options = deadheat.filters.selects((key) => (key === "pair" ? night.cells : own), state, FILTERS, changed);
      bar.replaceChildren(...[...options, deadheat.filters.metricSelect(night.metrics, state, changed)].filter(Boolean));
      body.replaceChildren(...(kept.length ? [
        meanSentence(night, mean(kept, before && before.cells, metric), before), legend(), drawGrid(kept, metric, `${night.name}-grid`),
        left ? h("p", { class: "aside" }, `${left} pair${left === 1 ? "" : "s"} without this metric ${left === 1 ? "is" : "are"} left out.`) : null,
      ].filter(Boolean) : [h("p", {}, night.cells.length ? "No pair fits these filters." : "No pair of JAX and PyTorch was measured.")]));
    }
    draw();
    addEventListener("hashchange", draw);
    return section;
  }

  function pager(night, catalog) {
    const nights = catalog.campaigns.filter((each) => each.kind === "nightly" &&
      each.fingerprint === night.fingerprint && each.profile === night.profile);
    const place = nights.findIndex((each) => each.name === night.name);
    const old = place > 0 ? nights[place - 1] : null;
    const next = place >= 0 ? nights[place + 1] : null;
    const to = (each, text) => h("a", { href: `${each.name}/index.html` }, text);
    return [old, h("p", { class: "pager" },
      h("strong", {}, night.title),
      old ? to(old, "\u2190 previous night") : null,
      next ? to(next, "next night \u2192") : null,
      old ? h("a", { href: deadheat.address("compare.html", { a: old.name, b: night.name }) }, "compare with the previous night") : null,
      h("a", { href: "runs.html" }, "all nights and runs"))];
  }

  function nothingYet(catalog) {
    const runs = [...catalog.campaigns].reverse().slice(0, MOST_RUNS).map((each) => ({
      run: { text: each.name, href: `${each.name}/index.html` }, at: each.at.slice(0, 10), result: each.verdict }));
    const links = [h("a", { href: "runs.html" }, "All single runs"), ", ", h("a", { href: "releases.html" }, "what each version changed"), "."];
    return [h("h1", {}, "No night has been measured yet"),
      h("p", {}, "deadheat nightly measures one. ", ...(runs.length ? links : [])),
      runs.length ? deadheat.blocks.render({ kind: "table", name: "newest-runs", caption: "The newest single runs.", rows: runs, columns: [
        { key: "run", name: "Run" }, { key: "at", name: "Day" }, { key: "result", name: "Result", lead: true }] }) : null].filter(Boolean);
  }

  deadheat.show(async () => {
    const catalog = await load("catalog");
    const name = deadheat.campaign || catalog.newest_night;
    if (!name) return nothingYet(catalog);
    const [night, open] = await Promise.all([load(`campaigns/${name}`), loadIfThere("open_events")]);
    const [old, pages] = pager(night, catalog);
    const before = old ? await loadIfThere(`campaigns/${old.name}`) : null;
    document.getElementById("stamp").textContent = `Published ${catalog.generated_at}.`;
    const render = (each) => deadheat.blocks.render(each);
    const below = [...(open && night.kind === "nightly" ? open : []), ...night.blocks];
    const grid = { kind: "section", id: "grid", title: "Who is faster?" };
    return [pages, h("h1", {}, night.sentence), ...night.top.map(render), deadheat.blocks.contents([grid, ...below]),
      gridSection(night, before), ...below.map(render)].filter(Boolean);
  });
})();
