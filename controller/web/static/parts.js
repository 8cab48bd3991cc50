// Pieces that pages are made of.

// el makes an element; children that are no nodes become text.
export function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) if (v !== "") e.setAttribute(k, v);
  e.append(...children.map((c) => (c instanceof Node ? c : String(c))));
  return e;
}

// table shows rows by columns [label, cell, class]; where there are none, it says why.
export function table(empty, rows, columns, { href, key }) {
  if (!rows.length) return el("p", { class: "dim" }, empty);
  const head = el("tr", {}, ...columns.map(([label, , cls]) => el("th", { class: cls === "n" ? "n" : "", scope: "col" }, label)));
  const body = rows.map((r) => {
    const attributes = { "data-key": key(r), tabindex: "0" };
    if (href) attributes["data-href"] = href(r);
    return el("tr", attributes, ...columns.map(([label, cell, cls]) => el("td", { class: cls || "", "data-label": label }, cell(r))));
  });
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
}

// level is a text in the colour of its meaning.
export function level(text, cls) {
  return el("span", { class: cls }, String(text));
}

// ago is how long a time lies back, in words.
export function ago(time) {
  if (!time) return "-";
  return seconds(Math.max(0, (Date.now() - Date.parse(time)) / 1000)) + " ago";
}

// seconds is a duration in words; null is not known.
export function seconds(s) {
  if (s === null || s === undefined) return "-";
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
}

// chart draws two series over the same time, each value a point.
export function chart(first, second) {
  const ns = "http://www.w3.org/2000/svg";
  const top = Math.max(1, ...first, ...second);
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("class", "chart");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `in flight ${first.at(-1)}, instances ${second.at(-1)}, at most ${top}`);
  for (const [series, cls] of [[first, "first"], [second, "second"]]) {
    const line = document.createElementNS(ns, "polyline");
    line.setAttribute("class", cls);
    const step = 100 / Math.max(1, series.length - 1);
    line.setAttribute("points", series.map((v, i) => `${(i * step).toFixed(2)},${(96 - (v / top) * 92).toFixed(2)}`).join(" "));
    svg.append(line);
  }
  return svg;
}
