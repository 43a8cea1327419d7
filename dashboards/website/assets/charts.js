// Draws the charts of dashboards/website/charts.py with Vega, in the colours of the page.
"use strict";

deadheat.charts = (() => {
  const { h } = deadheat;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();
  let vega = null;

  function theme() {
    const css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(name).trim();
    const ink = color("--ink"), soft = color("--soft"), line = color("--line");
    return {
      background: "transparent", padding: { left: 0, right: 4, top: 4, bottom: 4 },
      font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
      axis: { labelColor: soft, titleColor: soft, gridColor: line, domainColor: line,
        tickColor: line, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" },
      legend: { labelColor: soft, titleColor: soft, labelFontSize: 12, titleFontSize: 11 },
      text: { color: ink, fontSize: 11 }, rule: { color: soft }, header: { labelColor: ink },
    };
  }

  // As many legend entries beside each other as the longest one leaves room for.
  function fitLegends(part, rows, width) {
    for (const each of Object.values(part.encoding || {})) {
      if (!each.legend || !each.legend.columns) continue;
      const letters = Math.max(...rows.map((row) => String(row[each.field]).length));
      each.legend.columns = Math.max(1, Math.floor((width - 110) / (7 * letters + 28)));
    }
    (part.layer || []).forEach((layer) => fitLegends(layer, rows, width));
  }

  // The specification with its data. A concatenation has no width of its own that fits.
  function specify(block, width) {
    const spec = structuredClone(deadheat.specs[block.spec]);
    // A layer without data would warn, and has nothing to show.
    const isFull = (layer) => !layer.data || !layer.data.name || block.datasets[layer.data.name].length > 0;
    const dropEmpty = (part) => {
      if (part.layer) part.layer = part.layer.filter(isFull).map(dropEmpty).filter((each) => !each.layer || each.layer.length);
      return part;
    };
    [spec, ...(spec.vconcat || [])].forEach(dropEmpty);
    for (const part of spec.vconcat || []) part.width = width - 70;
    for (const param of spec.params || []) if (param.name === "suffix" && block.unit !== undefined) param.value = block.unit;
    const rows = Object.values(block.datasets)[0];
    fitLegends(spec, rows, width);
    if (spec.usermeta) spec.height = spec.usermeta.step * new Set(rows.map((row) => row[spec.usermeta.rows])).size;
    return { ...spec, datasets: block.datasets, description: block.description };
  }

  async function draw(place, block) {
    vega = vega || deadheat.addScript(`${deadheat.root}assets/vega.js`);
    try {
      await vega;
      const spec = specify(block, place.clientWidth);
      const options = { actions: false, renderer: "svg", ast: true, defaultStyle: false, config: theme(),
        tooltip: { theme: dark.matches ? "dark" : "light", disableDefaultStyle: true } };
      if (place.view) place.view.finalize();
      place.view = (await window.vegaEmbed(place, spec, options)).view;
      place.view.addEventListener("click", (event, item) => {
        const run = item && item.datum && item.datum.run;
        if (run) location.href = `${deadheat.root}${deadheat.address("duel.html", { run })}`;
      });
      place.dataset.drawn = dark.matches ? "dark" : "light";
    } catch (error) {
      place.textContent = "This chart could not be drawn. Its numbers are in the CSV file.";
      console.error(block.spec, error);
    }
  }

  function lines(block) {
    const rows = Object.values(block.datasets)[0];
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    return [names, ...rows.map((row) => names.map((name) => row[name]))];
  }

  function figure(block) {
    const place = h("div", { class: "chart", role: "group", "aria-label": block.description });
    const name = block.name || block.spec;
    const image = (kind) => async () => {
      if (place.view) deadheat.download(`${name}.${kind}`, await place.view.toImageURL(kind, kind === "png" ? 2 : 1));
    };
    const button = (kind, save) => h("button", { type: "button", class: "quiet", onclick: save,
      "aria-label": `Download as ${kind}: ${block.description}` }, kind);
    const csv = () => deadheat.download(`${name}.csv`, deadheat.toCsv(lines(block)), "text/csv");
    const element = h("figure", {}, block.caption ? h("figcaption", {}, block.caption) : null, place,
      h("div", { class: "tools" }, button("CSV", csv), button("PNG", image("png")), button("SVG", image("svg"))));
    // Vega fits the width of its place, so it waits until the place has one.
    const watch = new ResizeObserver(() => {
      if (place.clientWidth === 0) return;
      watch.disconnect();
      drawn.add([place, block]);
      draw(place, block);
    });
    watch.observe(place);
    return element;
  }

  dark.addEventListener("change", () => {
    for (const each of drawn) if (each[0].isConnected) draw(...each); else drawn.delete(each);
  });

  return { figure };
})();
