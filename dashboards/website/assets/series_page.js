// One series: series.html#case=KEY&pair=ID&metric=KEY. Without a state, the list of all.
"use strict";

(() => {
  const { h, load, loadIfThere } = deadheat;
  const SCALES = { ns: [1e6, " ms"], s: [1, " s"], bytes: [2 ** 20, " MiB"], mj: [1e3, " J"], count: [1, ""] };

  function choose(name, value, options, changed) {
    const box = h("select", { onchange: () => changed(box.value) },
      ...options.map(([key, text]) => h("option", { value: key }, text)));
    box.value = value;
    return h("label", {}, name, box);
  }

  async function readRows(found) {
    const months = await Promise.all(found.months.map((month) => loadIfThere(`history/${found.key}/${month}`)));
    return months.filter(Boolean).flatMap((month) => month.rows.map((row) => {
      const named = Object.fromEntries(month.columns.map((column, place) => [column, row[place]]));
      return { ...named, ...month.runs[named.run] };
    }));
  }

  const times = (log) => (log === null || log === undefined ? null : Math.exp(log));
  const digits = (value) => (value === null ? "" : value >= 100 ? value.toFixed(0) : value.toPrecision(3));

  const showRatio = (row) => deadheat.speedup(row.log, row.low, row.high).text;

  // Whether a label right of this time would leave the chart: it is in the last seventh.
  function isLate(rows, at) {
    const [first, last] = [rows[0], rows[rows.length - 1]].map((row) => Date.parse(row.at));
    return Date.parse(at) > last - (last - first) / 7;
  }

  // Where a version or a condition is another one than the night before.
  function findChanges(rows) {
    const changes = [];
    rows.forEach((row, place) => {
      if (place === 0) return;
      const old = rows[place - 1];
      const words = [];
      if (row.a_version !== old.a_version) words.push(`${row.a_name} ${row.a_version}`);
      if (row.b_version !== old.b_version) words.push(`${row.b_name} ${row.b_version}`);
      for (const [name, value] of Object.entries(row.conditions)) {
        const before = old.conditions[name];
        if (before !== undefined && before !== value) words.push(`${name} ${value}`);
      }
      if (words.length) changes.push({ time: row.at, label: words.join(", "), row: 0, late: isLate(rows, row.at) });
    });
    return placeLabels(changes, rows);
  }

  // The newest label first, each in the first of three rows above the values where it covers no other. One without a
  // place keeps its line; the table has its versions.
  function placeLabels(changes, rows) {
    const width = document.getElementById("page").clientWidth - 110, letter = 5.6; // pixels
    const [begin, end] = [rows[0], rows[rows.length - 1]].map((row) => Date.parse(row.at));
    const free = [width * 2, width * 2, width * 2]; // where each row is taken from
    for (const change of [...changes].reverse()) {
      const at = width * (Date.parse(change.time) - begin) / Math.max(1, end - begin);
      const size = letter * change.label.length + 8;
      const [left, right] = change.late ? [at - size, at] : [at, at + size];
      const place = left < 0 ? -1 : free.findIndex((taken) => right <= taken);
      if (place < 0) change.label = "";
      else { free[place] = left; change.row = 12 * place; }
    }
    return changes;
  }

  function ratioPoints(rows) {
    return rows.map((row) => ({ time: row.at, value: times(row.log), low: times(row.low), high: times(row.high),
      line: String(row.method), framework: row.kind === "cross_framework" ? (row.log > 0 ? "JAX" : "PyTorch") : row.a_name,
      shown: showRatio(row), verdict: row.verdict, versions: `${row.a_name} ${row.a_version}, ${row.b_name} ${row.b_version}`,
      conditions: Object.entries(row.conditions).map(([name, value]) => `${name} ${value}`).join(", "), run: row.run }));
  }

  function amountPoints(rows, scale, unit) {
    return rows.flatMap((row) => ["a", "b"].filter((side) => row[`${side}_value`] !== null).map((side) => {
      const value = row[`${side}_value`] / scale;
      const name = row[`${side}_name`];
      return { time: row.at, value, low: null, high: null, line: `${side} ${row.method}`, framework: name,
        shown: `${digits(value)}${unit}`, verdict: row.verdict, versions: `${name} ${row[`${side}_version`]}`, conditions: "", run: row.run };
    }));
  }

  function drawChart(rows, marks, state, metric, words) {
    const amounts = state.show === "amounts";
    const [scale, unit] = SCALES[metric.unit] || [1, ""];
    const points = amounts ? amountPoints(rows, scale, unit) : ratioPoints(rows);
    const values = points.flatMap((point) => [point.value, point.low, point.high]).filter((each) => each !== null);
    const holdsOne = !amounts && Math.min(...values) <= 1 && Math.max(...values) >= 1;
    return deadheat.blocks.render({ kind: "chart", spec: "history", name: "series",
      unit: amounts ? unit : "x",
      description: `${words}, ${metric.title}, over ${rows.length} nights. The table below holds the same numbers.`,
      datasets: { points, intervals: points.filter((point) => point.low !== null), changes: findChanges(rows), marks: marks.map((mark) => ({ ...mark, late: isLate(rows, mark.time) })), one: holdsOne ? [{ value: 1 }] : [] } });
  }

  // Which night's pass the newest night holds, and how many nights hold an earlier one.
  function passNote(rows, metric) {
    if (!metric.of_pass || !rows.length) return null;
    const earlier = rows.filter((row) => row.passes).length, newest = rows[rows.length - 1];
    return h("p", { class: "note" }, "A process of its own measures this, once a week and when something that it depends on has changed. " +
      `The newest night ${newest.passes ? `holds the pass of ${newest.passes}` : "has its own pass"}; ${earlier} of ${rows.length} nights hold an earlier one.`);
  }

  function nightTable(rows, metric) {
    const [scale, unit] = SCALES[metric.unit] || [1, ""];
    const amount = (value) => (value === null ? null : { text: `${digits(value / scale)}${unit}`, value });
    const names = rows.length ? [rows[0].a_name, rows[0].b_name] : ["", ""];
    const same = names[0] === names[1];
    const judged = rows.some((row) => row.verdict !== "not judged" || !row.counts);
    return deadheat.blocks.render({ kind: "table", name: "series", caption: "Every night, newest first. Each duel has its raw times.",
      columns: [
        { key: "night", name: "Night" }, { key: "duel", name: "Raw times" },
        { key: "ratio", name: "Ratio and interval", align: "number" },
        { key: "a", name: same ? `${names[0]}, newer` : names[0], align: "number" }, { key: "b", name: same ? `${names[1]}, older` : names[1], align: "number" },
        { key: "versions", name: "Versions" }, ...(judged ? [{ key: "verdict", name: "Verdict" }] : []),
      ],
      rows: [...rows].reverse().map((row) => ({
        night: { text: row.at.slice(0, 10), href: `${row.campaign}/index.html` },
        duel: { text: "duel", href: deadheat.address("duel.html", { run: row.run }) },
        ratio: row.log === null ? "not measured" : { text: showRatio(row), value: times(row.log) },
        a: amount(row.a_value), b: amount(row.b_value), versions: `${row.a_version} / ${row.b_version}`,
        verdict: row.counts ? row.verdict : { text: "void", badge: "bad", note: row.reason },
      })) });
  }

  const nameMetric = (catalog, key) => (catalog.metrics.find((each) => each.key === key) || { title: key }).title;

  async function one(catalog, state) {
    const found = catalog.cases.find((each) => each.key === state.case);
    if (!found) throw new Error("This address names a case that is not on this dashboard");
    const pair = found.pairs.find((each) => each.id === state.pair) || found.pairs[0];
    const all = (await readRows(found)).filter((row) => row.pair === pair.id).map((row) => ({ ...row, ...pair.sides }));
    const measured = catalog.metrics.filter((metric) => all.some((row) => row.metric === metric.key));
    const metric = measured.find((each) => each.key === state.metric) || measured[0];
    const asked = state.metric || metric.key;
    const rows = all.filter((row) => row.metric === metric.key).sort((a, b) => a.at.localeCompare(b.at));
    const counting = rows.filter((row) => row.counts && row.log !== null);
    const marks = ((await loadIfThere("marks")) || []).filter((mark) =>
      mark.case === found.key && mark.pair === pair.id && mark.metric === metric.key);
    const go = (change) => { location.hash = new URLSearchParams({ ...state, case: found.key, pair: pair.id, metric: metric.key, ...change }); };
    const filters = h("div", { class: "filters", role: "group", "aria-label": "Which series" },
      choose("Case", found.key, catalog.cases.map((each) => [each.key, `${each.words} \u00b7 ${each.device}`]), (value) => go({ case: value })),
      choose("Pair", pair.id, found.pairs.map((each) => [each.id, each.words]), (value) => go({ pair: value })),
      choose("Metric", metric.key, measured.map((each) => [each.key, each.title]), (value) => go({ metric: value })),
      choose("Show", state.show === "amounts" ? "amounts" : "ratio", [["ratio", "ratio"], ["amounts", "amounts of both sides"]], (value) => go({ show: value })));
    const last = counting[counting.length - 1];
    return [h("h1", {}, `${found.words}: ${pair.words}`),
      h("p", { class: "lead" }, last ? `${metric.title}: ${showRatio(last)} on ${last.at.slice(0, 10)}. ${pair.above}` : "No night of this series counts; the table names the reasons."),
      metric.key === asked ? null : h("p", { class: "note" }, `No night of this pair has the requested metric (${nameMetric(catalog, asked)}). This is ${metric.title}.`),
      passNote(rows, metric),
      filters,
      counting.length ? drawChart(counting, marks, state, metric, `${found.words}, ${pair.words}`) : null,
      counting.length ? h("p", { class: "aside" }, "Drag over the strip below the chart to zoom; drag its box to move; double-click it to see all. A dot opens its duel. Dashed lines: a new version or condition. Red lines: suspicions and events.") : null,
      ...(marks.length ? [h("h2", {}, "Suspicions and events"), h("ul", {}, ...marks.map((mark) =>
        h("li", {}, `${mark.time.slice(0, 10)}: `, h("a", { href: mark.href }, mark.label), ` ${mark.text}`)))] : []),
      h("h2", {}, "Nights"), nightTable(rows, metric)].filter(Boolean);
  }

  function list(catalog) {
    const devices = new Set(catalog.cases.map((each) => each.device));
    const where = devices.size === 1 ? ` All on ${[...devices][0]}.` : "";
    return deadheat.blocks.page({ title: "Series", lead: `One history for each case, pair and metric. Choose one.${where}`,
      blocks: catalog.cases.length === 0 ? [{ kind: "text", tone: "plain", parts: ["No night has been measured yet."] }] : [{ kind: "table", name: "series", caption: "Every case that was measured in a night.",
        columns: [{ key: "case", name: "Case" }, ...(where ? [] : [{ key: "device", name: "Device" }]), { key: "pairs", name: "Pairs" }, { key: "last", name: "Last night" }],
        rows: catalog.cases.flatMap((each) => each.pairs.map((pair) => ({
          case: { text: each.words, href: deadheat.address("series.html", { case: each.key, pair: pair.id }) },
          device: each.device, pairs: pair.words, last: each.last.slice(0, 10) }))) }] });
  }

  async function build() {
    const state = deadheat.readState();
    const catalog = await load("catalog");
    return state.case ? one(catalog, state) : list(catalog);
  }
  addEventListener("hashchange", () => deadheat.show(build));
  deadheat.show(build);
})();
