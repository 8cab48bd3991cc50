// The pages. What the controllers say is only ever put in as text, never as HTML.
import { el, table, chart, ago, seconds, level } from "/ui/parts.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const filter = document.getElementById("filter");
let source = null; // the stream of the page that is shown
let history = []; // in flight and instances of the function that is shown
let shown = ""; // the route that is shown

function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (parts[0] === "function" && parts.length >= 4) {
    return { page: "function", namespace: parts[1], deployment: parts[2], tenant: parts[3], oneshot: parts[4] === "oneshot" };
  }
  return { page: parts[0] === "events" ? "events" : "overview" };
}

function href(f) {
  const path = ["function", f.namespace, f.deployment, f.tenant].map(encodeURIComponent).join("/");
  return "#/" + path + (f.oneshot ? "/oneshot" : "");
}

function address(r) {
  if (r.page === "function") {
    return "/ui/api/function?" + new URLSearchParams({ namespace: r.namespace, deployment: r.deployment, tenant: r.tenant });
  }
  return "/ui/api/cluster?" + new URLSearchParams({ filter: filter.value.trim() });
}

function say(text, bad) {
  live.textContent = text;
  live.classList.toggle("bad", Boolean(bad));
}

function connect() {
  const r = route();
  const key = JSON.stringify(r);
  if (key !== shown) {
    history = [];
    main.replaceChildren(el("p", {}, "Asking the controllers …"));
  }
  shown = key;
  source?.close();
  say("connecting");
  source = new EventSource(address(r));
  source.addEventListener("state", (e) => show(r, JSON.parse(e.data)));
  source.addEventListener("trouble", (e) => say(JSON.parse(e.data), true));
  source.onerror = () => say("not connected; trying again", true);
}

function show(r, state) {
  const focused = document.activeElement?.dataset?.key;
  const page = { overview, events: eventsPage, function: functionPage }[r.page];
  main.replaceChildren(...notices(state), ...page(state, r));
  if (focused) main.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  say("live, " + new Date(state.observed_at).toLocaleTimeString() + ", by " + state.observed_by);
}

// notices are what an operator should read before anything else.
function notices(state) {
  const out = [];
  const add = (text, bad) => out.push(el("p", { class: bad ? "notice bad" : "notice", role: "note" }, text));
  for (const c of state.controllers) {
    if (c.unreachable) add(`Controller ${c.ip} does not answer, so this view may be incomplete: ${c.unreachable}`, true);
    if (c.held) add(`Controller ${c.ip} scales nothing and serves no xDS: ${c.held}`, true);
  }
  const views = new Set(state.controllers.filter((c) => !c.unreachable).map((c) => c.ring.join(" ")));
  if (views.size > 1) add("The controllers do not agree on who is on the ring.", false);
  for (const p of state.pools) {
    if (p.problem) add(`Pool ${p.namespace}/${p.deployment}: ${p.problem}`, true);
    if (p.waiting > 0 && p.ready === 0) add(`Pool ${p.namespace}/${p.deployment} is empty, and ${p.waiting} callers wait.`, true);
  }
  for (const e of state.envoys) if (e.problem) add(`Envoy ${e.node}: ${e.problem}`, true);
  return out;
}

function fact(value, label, cls) {
  return el("div", { class: "fact" }, el("b", { class: cls || "" }, String(value)), el("span", {}, label));
}

const sum = (list, of) => list.reduce((n, x) => n + of(x), 0);

function overview(s) {
  return [
    el("h1", {}, "Overview"),
    el("div", { class: "facts" },
      fact(s.functions_total, "functions"),
      fact(sum(s.functions, (f) => f.in_flight), "requests in flight"),
      fact(sum(s.pools, (p) => p.ready), "warm pods"),
      fact(sum(s.pools, (p) => p.waiting), "callers waiting"),
      fact(s.controllers.length, "controllers"),
      fact(s.envoys.length, "Envoys")),
    el("h2", {}, "Functions" + (s.functions_total > s.functions.length ? `, the busiest ${s.functions.length} of ${s.functions_total}` : "")),
    functionsTable(s.functions),
    el("h2", {}, "Pools"), poolsTable(s.pools),
    el("h2", {}, "Ring"), ringTable(s.controllers),
    el("h2", {}, "Envoys"), envoysTable(s.envoys),
    el("h2", {}, "extprocs"), extprocsTable(s.extprocs),
    el("h2", {}, "Newest events"), eventsTable(s.events.slice(0, 12)),
  ];
}

function functionsTable(list) {
  return table("No function is in use. The first request of a tenant makes one.", list, [
    ["function", (f) => el("a", { href: href(f) }, `${f.namespace}/${f.deployment}/${f.tenant}`, f.oneshot ? " (oneshot)" : "")],
    ["ready", (f) => f.ready, "n"],
    ["starting", (f) => f.assigned, "n"],
    ["draining", (f) => f.draining, "n"],
    ["desired", (f) => f.decision?.desired ?? "-", "n"],
    ["in flight", (f) => f.in_flight, "n"],
    ["last decision", (f) => f.decision?.message || "-", "wide"],
  ], { href, key: (f) => "f " + href(f) });
}

function poolsTable(list) {
  return table("No pool: label a Deployment's pods with skipper/deployment.", list, [
    ["pool", (p) => `${p.namespace}/${p.deployment}`],
    ["warm", (p) => level(p.ready, p.ready === 0 ? "bad" : "good"), "n"],
    ["not ready", (p) => p.unready, "n"],
    ["assigned", (p) => p.assigned, "n"],
    ["waiting", (p) => level(p.waiting, p.waiting ? "warn" : ""), "n"],
    ["why not ready", (p) => p.unready_reason || "-", "wide"],
  ], { key: (p) => "p " + p.namespace + "/" + p.deployment });
}

function ringTable(list) {
  return table("No controller.", list, [
    ["controller", (c) => c.ip],
    ["state", (c) => (c.unreachable ? level("silent", "bad") : c.held ? level("held", "bad") : c.synced ? level("serving", "good") : level("starting", "warn"))],
    ["started", (c) => ago(c.started_at)],
    ["version", (c) => c.version || "-"],
    ["sees on the ring", (c) => c.ring.join(" ") || "-", "wide"],
    ["view is old", (c) => seconds(c.view_age), "n"],
  ], { key: (c) => "c " + c.ip });
}

function acks(list) {
  if (!list.length) return level("not connected", "bad");
  return el("span", {}, ...list.flatMap((s, i) => [i ? ", " : "", subscription(s)]));
}

function subscription(s) {
  if (s.nacks) return level(`${s.type} rejected ${s.nacks}×: ${s.nack}`, "bad");
  if (s.overdue > 5) return level(`${s.type} unanswered for ${seconds(s.overdue)}`, "warn");
  return level(`${s.type} ${s.pending ? s.pending + " under way" : "in step"}`, s.pending ? "" : "good");
}

function envoysTable(list) {
  return table("No Envoy is connected: see skipper envoy bootstrap.", list, [
    ["node", (e) => e.node, "wide"],
    ["acknowledged", (e) => acks(e.subscriptions), "wide"],
    ["load report", (e) => seconds(e.report_age), "n"],
    ["in flight", (e) => e.in_flight, "n"],
  ], { key: (e) => "e " + e.node });
}

function extprocsTable(list) {
  return table("No extproc has been heard.", list, [
    ["at", (x) => x.ip],
    ["of Envoy", (x) => x.envoy || "-", "wide"],
    ["acknowledged", (x) => acks(x.subscriptions), "wide"],
    ["functions", (x) => x.functions, "n"],
    ["heartbeat", (x) => seconds(x.heartbeat_age), "n"],
  ], { key: (x) => "x " + x.ip + x.envoy });
}

function eventsTable(list) {
  return table("Nothing has happened yet.", list, [
    ["when", (e) => el("time", { datetime: e.at, title: e.at }, ago(e.at))],
    ["what", (e) => level(e.type, e.severity === "warn" ? "warn" : "")],
    ["function", (e) => e.function || "-", "wide"],
    ["why", (e) => (e.instance ? e.instance + ": " : "") + e.message, "wide"],
  ], { key: (e) => "v " + e.id });
}

function eventsPage(s) {
  return [el("h1", {}, "Events"), eventsTable(s.events)];
}

function functionPage(s, r) {
  const f = s.functions.find((f) => f.tenant === r.tenant && f.deployment === r.deployment && f.namespace === r.namespace && f.oneshot === r.oneshot);
  const title = el("h1", {}, `${r.namespace}/${r.deployment}/${r.tenant}${r.oneshot ? " (oneshot)" : ""}`);
  if (!f) return [title, el("p", {}, "This function is not in use: it has neither instances nor heartbeats."), el("h2", {}, "Events"), eventsTable(s.events)];
  history.push({ at: Date.parse(s.observed_at), in_flight: f.in_flight, instances: f.ready });
  history = history.slice(-450); // a quarter of an hour
  const targets = [["in flight", f.scale.in_flight, ""], ["CPU", f.scale.cpu_milli, "m"], ["memory", f.scale.memory_mib, " MiB"]];
  return [
    title,
    el("div", { class: "facts" },
      fact(f.in_flight, "requests in flight"), fact(f.ready, "ready"), fact(f.assigned, "starting"), fact(f.draining, "draining"),
      fact(f.decision?.desired ?? "-", "desired"), fact(`${f.scale.min} to ${f.scale.max}`, "bounds"),
      ...targets.filter(([, n]) => n).map(([name, n, unit]) => fact(n + unit, "target, " + name))),
    el("h2", {}, "Decision"),
    el("p", { class: "notice" }, f.decision ? `${f.decision.message} (${f.decision.reason}, ${ago(f.decision.at)})` : "None was made yet.", " Decided by " + (f.owner || "nobody") + "."),
    el("h2", {}, "In flight (line) and ready instances (dashes), since this page was opened"),
    chart(history.map((h) => h.in_flight), history.map((h) => h.instances)),
    el("h2", {}, "Instances"),
    instancesTable(f.instances || []),
    el("h2", {}, "Events"), eventsTable(s.events),
  ];
}

function instancesTable(list) {
  return table("No instance.", list, [
    ["instance", (i) => i.name, "wide"],
    ["state", (i) => level(i.state, { ready: "good", draining: "warn", terminating: "warn" }[i.state] || "")],
    ["in flight", (i) => i.in_flight, "n"],
    ["CPU", (i) => (i.cpu_milli ? i.cpu_milli + "m" : "-"), "n"],
    ["memory", (i) => (i.memory_mib ? i.memory_mib + " MiB" : "-"), "n"],
    ["address", (i) => i.addr],
    ["zone", (i) => i.zone || "-"],
    ["assigned", (i) => ago(i.assigned_at)],
    ["problem", (i) => i.problem || "-", "wide"],
  ], { key: (i) => "i " + i.name });
}

// rows move the focus by keyboard.
function move(by) {
  const rows = [...main.querySelectorAll("tbody tr[tabindex]")];
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

const keys = {
  "/": () => filter.focus(),
  j: () => move(1), ArrowDown: () => move(1),
  k: () => move(-1), ArrowUp: () => move(-1),
  Enter: () => { const to = document.activeElement?.dataset?.href; if (to) location.hash = to; },
  Escape: () => { location.hash = "#/"; main.focus(); },
  e: () => { location.hash = "#/events"; },
};

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (document.activeElement === filter) {
    if (e.key === "Escape" || e.key === "Enter") main.focus();
    return;
  }
  if (document.activeElement?.tagName === "A" && e.key === "Enter") return;
  if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
});

let waiting = 0;
filter.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (route().page === "function") location.hash = "#/"; else connect(); }, 250);
});
main.addEventListener("click", (e) => {
  const to = e.target.closest("tr[data-href]")?.dataset.href;
  if (to && e.target.tagName !== "A") location.hash = to;
});
addEventListener("hashchange", connect);
connect();
