// Any two nights: compare.html#a=CAMPAIGN&b=CAMPAIGN. Two versions: #framework=torch&old=V&new=V. Filters of both: &model=MLP
"use strict";

(() => {
  const { h, load } = deadheat;

  const FRAMEWORKS = { jax: "JAX", torch: "PyTorch" };

  function choose(name, value, options, changed) {
    const box = h("select", { onchange: () => changed(box.value) },
      h("option", { value: "" }, "choose"), ...options.map((each) => h("option", { value: each }, FRAMEWORKS[each] || each)));
    box.value = options.includes(value) ? value : "";
    return h("label", {}, name, box);
  }

  const FILTERS = ["model", "use", "precision", "batch", "device"];

  function go(change) {
    const state = Object.entries({ ...deadheat.readState(), ...change }).filter(([, value]) => value);
    location.hash = new URLSearchParams(state);
  }

  // The change of a ratio between two duels, with an interval as wide as both together.
  function change(one, other) {
    const log = other.log - one.log;
    if ([one, other].some((each) => each.low === null || each.high === null)) return { log, beyond: false, shown: percent(log, 0) };
    const width = Math.hypot(one.high - one.low, other.high - other.low) / 2;
    const ends = [log - width, log + width];
    let places = Math.max(0, deadheat.decimals(log, ...ends) - 2); // percent: two decimals less than the ratio
    while (places < 2 && ends.some((end) => end && Number((100 * Math.expm1(end)).toFixed(places)) === 0)) places += 1;
    return { log, beyond: Math.abs(log) > width, shown: `${percent(log, places)} (${ends.map((end) => percent(end, places)).join(" to ")})` };
  }

  function percent(log, places) {
    const number = Math.abs(100 * Math.expm1(log)).toFixed(places);
    return `${Number(number) === 0 ? "" : log > 0 ? "+" : "\u2212"}${number} %`;
  }

  function rowOf(one, other, metric) {
    const either = other || one;
    const state = { case: either.key, pair: either.pair_id, ...(metric ? { metric } : {}) };
    const row = { case: { text: either.words, href: deadheat.address("series.html", state) }, pair: either.pair,
      a: show(one), b: show(other), size: -1, change: "", verdict: "only in one of them" };
    if (!one || !other) return row;
    if (!one.counts || !other.counts || one.log === null || other.log === null) return { ...row, verdict: "void in one of them" };
    const found = change(one, other);
    const numbers = { size: Math.abs(found.log), change: { text: found.shown, value: Math.expm1(found.log) } };
    if (metric) return { ...row, ...numbers, verdict: "no interval" };
    return { ...row, ...numbers,
      verdict: found.beyond ? { text: found.log > 0 ? "JAX gained" : "PyTorch gained", badge: "bad" } : "within both intervals" };
  }

  function show(cell) {
    if (!cell) return null;
    const href = deadheat.address("duel.html", { run: cell.run });
    return cell.counts && cell.log !== null ? { text: cell.shown, value: Math.exp(cell.log), href } :
      { text: "void", href, title: cell.reason };
  }

  // A cell with the ratio of another metric, which has no interval; null where it was not measured.
  function ofMetric(cell, metric) {
    if (!metric || !cell.counts) return cell;
    const found = cell.metrics[metric];
    return found ? { ...cell, log: found.log, low: null, high: null, shown: deadheat.speedup(found.log).size } : null;
  }

  function nights(a, b, state, metrics) {
    const metric = metrics.find((each) => each.key === state.metric);
    const by = (night) => new Map(night.cells.filter((cell) => deadheat.filters.fits(cell, state, FILTERS))
      .map((cell) => [`${cell.key} ${cell.pair_id}`, ofMetric(cell, metric && metric.key)]).filter(([, cell]) => cell));
    const [first, second] = [by(a), by(b)];
    const keys = [...new Set([...first.keys(), ...second.keys()])];
    if (!keys.length) return [h("p", {}, "No pair fits these filters.")];
    const rows = keys.map((key) => rowOf(first.get(key), second.get(key), metric && metric.key))
      .sort((x, y) => Boolean(y.verdict.badge) - Boolean(x.verdict.badge) || y.size - x.size);
    const moved = rows.filter((row) => row.verdict.badge).length;
    const other = Object.entries(b.facts).filter(([name, value]) => a.facts[name] !== value);
    const lead = metric ? `${metric.title} has no interval in a night, so only Series and Releases show whether it changed.` :
      `${moved} of ${rows.length} ratios moved beyond both intervals. One night each, so this is not a verdict: confirmed changes are events.`;
    return [h("p", { class: "lead" }, lead),
      deadheat.blocks.render({ kind: "facts", pairs: other.length ? other.map(([name, value]) => [name, `${a.facts[name] || "not recorded"} \u2192 ${value}`]) : [["Conditions and versions", "the same in both"]] }),
      deadheat.blocks.render({ kind: "table", name: `${a.name}-${b.name}`, caption: metric ? `${metric.title}: PyTorch's amount divided by JAX's in both, largest change first.` : "Speedup of JAX over PyTorch in both: what moved first, then the largest change.",
        columns: [{ key: "case", name: "Case" }, { key: "pair", name: "Against" }, { key: "a", name: a.title, align: "number" },
          { key: "b", name: b.title, align: "number" }, { key: "change", name: "Change", align: "number" }, { key: "verdict", name: "Moved?" }], rows })];
  }

  const inOrder = (versions) => versions.sort((x, y) => x.localeCompare(y, "en", { numeric: true }));

  async function versions(given, cases) {
    const found = await load("versions");
    const names = Object.keys(found).sort();
    const framework = given.framework || names[names.length - 1];
    const own = found[framework] || {};
    const known = inOrder(Object.keys(own));
    const state = { framework, old: known[known.length - 2], new: known[known.length - 1], ...given };
    const bar = h("div", { class: "filters", role: "group", "aria-label": "Two versions" },
      choose("Framework", state.framework, names, (value) => { const { old, new: later, ...rest } = deadheat.readState(); location.hash = new URLSearchParams({ ...rest, framework: value }); }),
      choose("Old version", state.old, known, (value) => go({ ...state, old: value })),
      choose("New version", state.new, known, (value) => go({ ...state, new: value })));
    if (!own[state.old] || !own[state.new]) return [bar];
    const fitting = ([key, cell]) => own[state.old][key] && deadheat.filters.fits(cases.get(cell.case) || {}, given, FILTERS);
    const rows = Object.entries(own[state.new]).filter(fitting).map(([key, cell]) => {
      const before = own[state.old][key];
      const log = Math.log(cell.step_ns / before.step_ns);
      return { case: { text: cell.words, href: cases.has(cell.case) ? deadheat.address("series.html", { case: cell.case }) : null }, arm: cell.arm,
        old: { text: before.shown, value: before.step_ns, href: deadheat.address("duel.html", { run: before.run }) },
        new: { text: cell.shown, value: cell.step_ns, href: deadheat.address("duel.html", { run: cell.run }) },
        change: { text: percent(log, 1), value: Math.expm1(log) }, size: Math.abs(log) };
    }).sort((x, y) => y.size - x.size);
    return [bar, h("p", { class: "aside" }, "Newest step time of each version, from different nights, so it includes changes of the machine. Releases compares versions within one duel."),
      deadheat.blocks.render({ kind: "table", name: `${state.framework}-${state.old}-${state.new}`, caption: "Step time of both versions.",
        columns: [{ key: "case", name: "Case" }, { key: "arm", name: "Arm" }, { key: "old", name: state.old, align: "number" },
          { key: "new", name: state.new, align: "number" }, { key: "change", name: "Change", align: "number" }], rows })];
  }

  // Unless the address names two: the newest night, and the night before it on the same device.
  function chooseNights(catalog) {
    const nights = catalog.campaigns.filter((each) => each.kind === "nightly");
    const last = nights[nights.length - 1];
    const old = last && nights.filter((each) => each.fingerprint === last.fingerprint).at(-2);
    return old ? { a: old.name, b: last.name } : {};
  }

  async function build() {
    const given = deadheat.readState();
    const catalog = await load("catalog");
    const state = { ...chooseNights(catalog), ...given };
    const names = catalog.campaigns.map((each) => each.name).reverse();
    const bar = h("div", { class: "filters", role: "group", "aria-label": "Two nights" },
      choose("First", state.a, names, (value) => go({ a: value, b: state.b || "" })),
      choose("Second", state.b, names, (value) => go({ a: state.a || "", b: value })));
    const both = names.includes(state.a) && names.includes(state.b);
    const pair = both ? await Promise.all([state.a, state.b].map((each) => load(`campaigns/${each}`))) : [];
    const metrics = [...new Map(pair.flatMap((each) => each.metrics).map((each) => [each.key, each])).values()];
    const changed = (key, value) => go({ [key]: value });
    const cells = [...catalog.cases.filter((each) => each.model), ...pair.flatMap((each) => each.cells)];
    const filters = [...deadheat.filters.selects(() => cells, given, FILTERS, changed), deadheat.filters.metricSelect(metrics, given, changed)];
    return [h("h1", {}, both && given.a ? `${pair[0].title} against ${pair[1].title}` : "Compare two nights or two versions"),
      h("div", { class: "filters", role: "group", "aria-label": "Filters" }, ...filters),
      h("h2", {}, "Two nights"), bar, ...(both ? nights(...pair, given, metrics) : []),
      h("h2", {}, "Two versions"), ...(await versions(given, new Map(catalog.cases.map((each) => [each.key, each]))))];
  }
  addEventListener("hashchange", () => deadheat.show(build));
  deadheat.show(build);
})();
