// Draws every chart in the colors of the page, and again when the reader changes light for dark.
const specs = JSON.parse(document.getElementById("chart-specs").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

function readTheme() {
  const css = getComputedStyle(root);
  const color = (name) => css.getPropertyValue(name).trim();
  const ink = color("--ink"), soft = color("--soft"), line = color("--line");
  return {
    background: "transparent",
    padding: { left: 0, right: 1, top: 4, bottom: 4 },
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: {
      labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
      labelFontSize: 11,
    },
    text: { color: ink, fontSize: 12 },
    rule: { color: soft },
  };
}

async function draw(place, spec) {
  const element = document.getElementById(place);
  const options = {
    actions: false, renderer: "svg", config: readTheme(),
    tooltip: { theme: dark.matches ? "dark" : "light" },
  };
  try {
    await window.vegaEmbed(element, spec, options);
  } catch (error) {
    element.textContent = "This chart could not be drawn; the tables hold its numbers.";
    console.error(place, error);
  }
}

async function drawAll() {
  for (const [place, spec] of Object.entries(specs)) await draw(place, spec);
  root.dataset.charts = dark.matches ? "dark" : "light";
}

dark.addEventListener("change", drawAll);
drawAll();
