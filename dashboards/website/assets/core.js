// What every page uses: elements from data, data files on demand, and state in the address.
"use strict";

const deadheat = (() => {
  const html = document.documentElement;
  const root = html.dataset.root;
  const waiting = new Map(); // name -> {resolve}, of data files that were asked for
  const loads = new Map();

  // Only links into the dashboard and to the web: an address from a result never runs a script.
  function safeAddress(address) {
    const text = String(address);
    if (/^https?:\/\//i.test(text)) return text;
    return /^[\w.#%&=+,:@~/-]*$/.test(text) && !/^[\w+.-]*:/.test(text) ? root + text : "#";
  }

  // h("a", {href: ..., class: ...}, "text", element): strings become text, never HTML.
  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (value === "" && name !== "value") continue; // an option's empty value means all
      if (name === "href") element.setAttribute("href", value.startsWith("#") ? value : safeAddress(value));
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat().filter((each) => each !== null && each !== undefined));
    return element;
  }

  function addScript(address) {
    return new Promise((resolve, reject) => {
      const script = h("script", {});
      script.src = address;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${address} is not there`));
      document.head.append(script);
    });
  }

  // The data of data/NAME.js. A file:// page can't fetch, so a script tag brings it.
  function load(name) {
    if (!/^[\w.@+-]+(\/[\w.@+-]+)*$/.test(name) || name.includes("..")) {
      return Promise.reject(new Error(`${name} is not the name of a data file`));
    }
    if (!loads.has(name)) {
      loads.set(name, new Promise((resolve, reject) => {
        waiting.set(name, resolve);
        addScript(`${root}data/${name}.js`).catch(reject);
      }));
    }
    return loads.get(name);
  }

  function receive(name, value) {
    const resolve = waiting.get(name);
    if (resolve) resolve(value);
  }

  // Like load, but null where the dashboard has no such file.
  const loadIfThere = (name) => load(name).catch(() => null);

  // The state of a page is in its address after #: key=value&key=value. An anchor has no "=".
  function readState() {
    const text = location.hash.slice(1);
    return text.includes("=") ? Object.fromEntries(new URLSearchParams(text)) : {};
  }

  function writeState(state) {
    const kept = Object.entries(state).filter(([, value]) => value !== "" && value !== undefined);
    const text = new URLSearchParams(kept).toString();
    if (text === location.hash.slice(1)) return;
    history.replaceState(null, "", text ? `#${text}` : "#");
  }

  const address = (page, state) => `${page}#${new URLSearchParams(state)}`;

  // Shows a page's content: `build` returns elements, or a promise of them.
  async function show(build) {
    const main = document.getElementById("page");
    try {
      const built = await build();
      main.replaceChildren(...built);
    } catch (error) {
      main.replaceChildren(
        h("h1", {}, "Nothing to show here"),
        h("p", { class: "alarm" }, `${error.message}. Choose a page above, or write this one again with deadheat report CAMPAIGN.`),
      );
    }
    main.removeAttribute("aria-busy");
    html.dataset.ready = "yes";
    reveal();
  }

  // Opens and shows the part that the address names: page.html#id, or page.html#key=value&at=id.
  function reveal() {
    const anchor = readState().at || location.hash.slice(1);
    const target = anchor && !anchor.includes("=") && document.getElementById(anchor);
    if (!target) return;
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);

  function download(name, content, type) {
    const address = type ? URL.createObjectURL(new Blob([content], { type })) : content;
    const anchor = h("a", { download: name });
    anchor.href = address;
    anchor.click();
    if (type) setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // A value that a spreadsheet would run as a formula is quoted with an apostrophe.
  function toCsv(rows) {
    const field = (value) => {
      let text = value === null || value === undefined ? "" : String(value);
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
  }

  // A word of the glossary explains itself on hover and on focus.
  function explain(word, key) {
    const meaning = deadheat.glossary[(key || word).toLowerCase()];
    return meaning ? h("abbr", { title: meaning, tabindex: "0" }, word) : word;
  }

  // A speedup in words, as format_size and format_speedup in dashboards/formatting.py; a test compares them.
  const widest = Math.log(1e6);
  const ratioOf = (log) => Math.exp(Math.max(-widest, Math.min(log, widest)));

  // Decimals that an interval of log ratios justifies: its half-width shows one or two digits. No speedup is 0.
  function decimals(log, low, high) {
    const half = (ratioOf(high) - ratioOf(low)) / 2;
    let found = half > 0 ? Math.max(0, Math.min(3, Math.ceil(-Math.log10(half)))) : 3;
    while (found < 3 && Number(ratioOf(log).toFixed(found)) === 0) found += 1;
    return found;
  }

  // {size: "1.42x", text: "1.42x (1.38 to 1.47)"}; without an interval, three digits.
  function speedup(log, low = null, high = null) {
    const value = ratioOf(log);
    if (low === null || high === null) {
      let digits = value < 10 ? 2 : value < 100 ? 1 : 0;
      while (digits < 6 && Number(value.toFixed(digits)) === 0) digits += 1;
      const size = `${value.toFixed(digits)}x`;
      return { size, text: size };
    }
    const places = decimals(log, low, high);
    const ends = [ratioOf(low), ratioOf(high)];
    let more = places; // a bound that is not 1 must not read as 1: it decides the verdict
    while (more < 3 && ends.some((end) => end !== 1 && Number(end.toFixed(more)) === 1)) more += 1;
    return { size: `${value.toFixed(places)}x`, text: `${value.toFixed(more)}x (${ends.map((end) => end.toFixed(more)).join(" to ")})` };
  }

  return {
    h, load, loadIfThere, receive, readState, writeState, address, show, download, toCsv,
    explain, addScript, decimals, speedup, root, campaign: html.dataset.campaign, page: html.dataset.page,
  };
})();
