// The box for a request body: asks /explain, and shows where it would go and why.

import { $, count, figures, table } from "./dashboard.js";

function headers() {
  const lines = $("headers").value.split("\n").filter((line) => line.includes(":"));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()]),
  );
}

const cost = (x) => (x === null ? "–" : x.toLocaleString("en", { maximumFractionDigits: 1 }));

function show(told) {
  $("verdict").textContent = told.ranked.length
    ? `${told.reason}: ${told.ranked.join(", then ")}`
    : `${told.reason}: Envoy would choose`;
  figures($("read"), [
    ["read as", told.problem ? `${told.api ?? "nothing"}, ${told.problem}` : told.api, "text"],
    ["prompt bytes", count(told.prompt_bytes)],
    ["tokens, estimated", count(told.total_tokens)],
    ["in the first one's cache", count(told.matched_tokens)],
    ["checkpoints", count(told.checkpoints.length)],
    ["strategy", `${told.strategy}, ${told.mode}${told.shared ? "" : ", deciding alone"}`, "text"],
  ]);
  table(
    $("candidates"),
    [["candidate", "name"], ["matched", "number"], ["pending", "number"], ["in flight", "number"], ["cost", "number"]],
    told.candidates.map((each) => [each.replica, count(each.matched_tokens), count(each.pending_tokens),
      count(each.in_flight), cost(each.cost)]),
    "Nobody can be chosen.",
    (at) => told.candidates[at].replica === told.ranked[0],
  );
  table(
    $("checkpoints"),
    [["bytes", "number"], ["tokens", "number"], ["hash", "name"]],
    told.checkpoints.map((each) => [count(each.position), count(each.tokens), each.hash]),
    "None: the prompt is too short, or was not read.",
  );
  $("explained").hidden = false;
}

async function ask() {
  const question = {
    pool: $("pools").value,
    route: $("routes").value,
    path: $("path").value,
    headers: headers(),
    body: $("body").value,
  };
  try {
    const response = await fetch("explain", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(question),
      signal: AbortSignal.timeout(10000),
    });
    const told = await response.json();
    if (!response.ok) throw new Error(told.error);
    show(told);
  } catch (error) {
    $("explained").hidden = true;
    $("verdict").textContent = error.message;
  }
}

$("explain").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
