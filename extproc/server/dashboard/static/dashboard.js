// What routers, clients and replicas named is only ever set as text, never as markup.

const EVERY_MS = 2000;
export const $ = (id) => document.getElementById(id);

export function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

export const count = (n) => (n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en"));
const percent = (x) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(1)} %`);
const duration = (ms) => {
  if (ms === null || ms === undefined) return "–";
  return ms < 1000 ? `≈ ${ms} ms` : `≈ ${(ms / 1000).toFixed(1)} s`;
};

export function figures(list, rows) {
  list.replaceChildren(
    ...rows.map(([name, value, kind]) => {
      const group = element("div");
      group.append(element("dt", name), element("dd", value, kind));
      return group;
    }),
  );
}

// A table: columns are [title, class], rows are lists of text or nodes.
export function table(target, columns, rows, none, chosen = () => false) {
  if (!rows.length) {
    const row = element("tr");
    row.append(element("td", none));
    return target.replaceChildren(row);
  }
  const head = element("tr");
  for (const [title, kind] of columns) {
    const cell = element("th", title, kind === "number" ? "number" : "");
    cell.scope = "col";
    head.append(cell);
  }
  const top = element("thead");
  top.append(head);
  const body = element("tbody");
  rows.forEach((cells, at) => {
    const row = element("tr", null, chosen(at) ? "chosen" : "");
    cells.forEach((cell, column) => {
      const made = element("td", null, columns[column][1]);
      made.append(cell);
      row.append(made);
    });
    body.append(row);
  });
  target.replaceChildren(top, body);
}

function bar(share) {
  const made = element("span", null, "bar");
  made.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  made.hidden = !share;
  return made;
}

function withBar(text, share) {
  const both = element("span", text);
  both.append(bar(share));
  return both;
}

// A line over the window, the newest at the right; gaps where there is no value.
function chart(svg, points, highest, label, window_s) {
  const width = 300;
  const height = 60;
  let path = "";
  let open = false;
  for (const [age, value] of points) {
    if (value === null) {
      open = false;
      continue;
    }
    const x = width * (1 - age / window_s);
    const y = height - 2 - (height - 4) * (highest ? value / highest : 0);
    path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = true;
  }
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-label", label);
  svg.replaceChildren(line);
}

// Keep a choice, and the focus, while the list is the same.
function choices(select, names, words = (name) => name) {
  const now = [...select.options].map((option) => option.value);
  if (now.length === names.length && now.every((name, at) => name === names[at])) return;
  const before = select.value;
  select.replaceChildren(
    ...names.map((name) => {
      const option = element("option", words(name));
      option.value = name;
      return option;
    }),
  );
  if (names.includes(before)) select.value = before;
}

const HEALTH = { healthy: "good", warming: "warn", needed: "warn", ejected: "bad" };

function health(replica) {
  const words = [replica.health];
  if (replica.weight !== undefined && replica.weight < 1) words.push(percent(replica.weight));
  if (replica.fault) words.push(`${replica.fault} × ${replica.strikes}`);
  return element("span", words.join(", "), HEALTH[replica.health]);
}

// Of the same time: the hit rate that the router predicted, and the one that the engine counted.
function truth(both) {
  return both ? `${percent(both.predicted_rate)}, ${percent(both.engine_rate)}` : "–";
}

function epoch(seconds) {
  return seconds ? new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") : "–";
}

function showReplicas(replicas) {
  const rows = replicas ?? [];
  const busiest = Math.max(1, ...rows.map((each) => each.in_flight));
  const longest = Math.max(1, ...rows.map((each) => each.pending_tokens));
  table(
    $("replicas"),
    [["replica", "name"], ["in flight", "number"], ["pending tokens", "number"],
      ["share", "number"], ["not followed", "number"], ["KV in use", "number"],
      ["predicted, counted", "number"], ["health", "value"], ["epoch (UTC)", "name"]],
    rows.map((each) => [
      each.address,
      withBar(count(each.in_flight), each.in_flight / busiest),
      withBar(count(each.pending_tokens), each.pending_tokens / longest),
      withBar(percent(each.share), each.share),
      count(each.passed_over),
      percent(each.engine?.queried_tokens ? each.engine.kv_permille / 1000 : null),
      truth(each.truth),
      health(each),
      epoch(each.epoch),
    ]),
    replicas === null ? "The store does not answer." : "No replica is known.",
  );
}

function showPool(pool) {
  const recent = pool.recent;
  const window_s = Math.max(60, recent.seconds);
  $("span").textContent = `${Math.round(recent.seconds / 60)} min, this router`;
  figures($("figures"), [
    ["requests", count(recent.decisions)],
    ["hit rate", percent(recent.hit_rate)],
    ["… had load not counted", percent(recent.best_rate)],
    ["response starts, half within", duration(recent.start.p50_ms)],
    ["… 90 % within", duration(recent.start.p90_ms)],
    ["whole response, half within", duration(recent.whole.p50_ms)],
    ["… 90 % within", duration(recent.whole.p90_ms)],
    ["prefill per replica", pool.prefill_rate ? `${count(pool.prefill_rate)} tokens/s` : "–"],
    ["strategy", `${pool.strategy}, ${pool.mode}`, "text"],
    ["replicas from", pool.source || "–", "text"],
  ]);
  const series = recent.series;
  const last = series.at(-1);
  const highest = Math.max(1, ...series.map((each) => each.per_s));
  $("rate-now").textContent = last ? last.per_s.toFixed(1) : "";
  $("hits-now").textContent = last ? percent(last.hit_rate) : "";
  chart($("rate"), series.map((each) => [each.age_s, each.per_s]), highest,
    `Requests per second in the last ${Math.round(window_s)} seconds, at most ${highest}`, window_s);
  chart($("hits"), series.map((each) => [each.age_s, each.hit_rate]), 1,
    `Hit rate in the last ${Math.round(window_s)} seconds, now ${last ? percent(last.hit_rate) : "unknown"}`, window_s);
  showReplicas(pool.replicas);
  const reasons = Object.entries(recent.reasons).sort((a, b) => b[1] - a[1]);
  table($("reasons"), [["reason", "name"], ["requests", "number"], ["", "bars"]],
    reasons.map(([reason, n]) => [reason, count(n), bar(n / recent.decisions)]), "None yet.");
  table($("prefixes"),
    [["hash", "name"], ["tokens", "number"], ["found", "number"], ["at", "name"]],
    pool.prefixes.map((each) => [each.hash.slice(0, 12), count(each.tokens), count(each.requests),
      each.replicas.join(" ")]),
    "Nothing was found in a cache yet.");
  choices($("routes"), Object.keys(pool.routes), (name) => name || "(without a name)");
  const settings = pool.routes[$("routes").value] ?? [];
  table($("settings"), [["key", "name"], ["value", "value"]],
    settings.filter((each) => $("defaults").checked || !each.default)
      .map((each) => [each.key, each.value]),
    "All settings have their defaults.");
}

function badge(text, kind) {
  return element("span", text, `badge ${kind}`);
}

function showState(all) {
  const store = all.store;
  const badges = [
    badge(store.shared ? `${store.kind} store` : `${store.kind} store lost: deciding alone`,
      store.shared ? "good" : "bad"),
    badge(`breaker ${store.breaker}`, store.breaker === "closed" ? "good" : "bad"),
    badge(`${count(all.open_streams)} open`, ""),
  ];
  if (all.draining) badges.push(badge("draining", "warn"));
  $("state").replaceChildren(...badges);
  $("version").textContent = all.version;
  const listed = (counts) =>
    Object.entries(counts).map(([name, n]) => `${name} ${count(n)}`).join(", ") || "none";
  figures($("store"), [
    ["store", store.detail || store.kind, "text"],
    ["failed calls", listed(store.failures), "text"],
    ["decided alone", count(store.fallbacks)],
    ["told again after outages", count(store.replayed)],
    ["taken back from dead routers", count(store.reclaimed)],
    ["checkpoints in memory", count(store.entries)],
    ["requests since start", count(all.streams)],
    ["refused by --max-streams", count(all.refused)],
    ["faults of ours", listed(all.faults.errors), "text"],
    ["bad settings", listed(all.faults.setting_errors), "text"],
    ["protocol violations", listed(all.faults.violations), "text"],
  ]);
}

let last = null;
let paused = false;

function render() {
  if (!last) return;
  showState(last);
  const names = Object.keys(last.pools);
  choices($("pools"), names);
  $("empty").hidden = names.length > 0;
  $("shown").hidden = names.length === 0;
  const pool = last.pools[$("pools").value];
  if (pool) showPool(pool);
}

async function refresh() {
  try {
    const response = await fetch("overview", { signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    last = await response.json();
    $("problem").hidden = true;
  } catch (error) {
    $("problem").textContent = `The router does not answer (${error.message}): what is shown is old.`;
    $("problem").hidden = false;
    return;
  }
  render();
  document.body.dataset.ready = "yes";
}

async function watch() {
  for (;;) {
    if (!paused && !document.hidden) await refresh();
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Go on" : "Pause";
  $("pause").setAttribute("aria-pressed", String(paused));
});
for (const id of ["pools", "routes", "defaults"]) $(id).addEventListener("change", render);
document.addEventListener("visibilitychange", () => !paused && !document.hidden && refresh());
watch();
