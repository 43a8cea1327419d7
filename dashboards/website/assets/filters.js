// Selects that choose what a page shows. Their state is in the address.
"use strict";

deadheat.filters = (() => {
  const { h } = deadheat;
  const NAMES = {
    model: "Model", use: "Use case", precision: "Precision", batch: "Batch", device: "Device",
    pair: "PyTorch arm", framework: "Faster",
  };

  function fasterOf(cell) {
    if (!cell.counts || cell.verdict !== "different") return "neither";
    return cell.log > 0 ? "JAX" : "PyTorch";
  }

  // Of a cell of a night's grid, or of a case of the catalogue.
  const valueOf = (cell, key) => ({
    model: cell.model, use: cell.use_case, precision: cell.precision, batch: String(cell.batch),
    device: cell.device, pair: cell.pair, framework: fasterOf(cell),
  })[key];

  const fits = (cell, state, keys, besides) => keys.every((key) =>
    key === besides || !state[key] || valueOf(cell, key) === state[key]);

  function select(key, name, values, state, changed, all = "all") {
    const box = h("select", { onchange: () => changed(key, box.value) },
      h("option", { value: "" }, all), ...values.map(([value, text]) => h("option", { value }, text)));
    box.value = values.some(([value]) => value === state[key]) ? state[key] : "";
    return h("label", {}, name, box);
  }

  // A select per key, of the values that the other filters leave; none where there is no choice.
  function selects(cellsOf, state, keys, changed) {
    return keys.map((key) => {
      const cells = cellsOf(key);
      const values = [...new Set(cells.filter((cell) => fits(cell, state, keys, key)).map((cell) => valueOf(cell, key)))];
      const chosen = state[key];
      if (chosen && !values.includes(chosen) && cells.some((cell) => valueOf(cell, key) === chosen)) values.push(chosen);
      values.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      return values.length > 1 || chosen ? select(key, NAMES[key], values.map((each) => [each, each]), state, changed) : null;
    }).filter(Boolean);
  }

  // The metrics that several cells have; without a choice, the step time.
  function metricSelect(metrics, state, changed) {
    return metrics.length ? select("metric", "Metric", metrics.map((each) => [each.key, each.title]), state, changed, "step time") : null;
  }

  return { NAMES, fits, selects, metricSelect };
})();
