// Puts the page together, and passes what is selected from one part to the others.
(() => {
  const byId = (id) => document.getElementById(id);
  document.title = `Nimble report: ${data.program || data.trace}`;
  byId("what").textContent = [data.program, data.device, data.trace,
    `${data.ops_of_step} ops, ${data.repeats} times`,
    count < data.ops_of_step ? `shown: ops ${data.from} to ${data.until - 1} (--from N shows others)` : "",
    data.simulated ? "times of the GPU are simulated" : "",
    data.one_clock ? "" : "* the host has a clock of its own",
    data.host.all ? "" : "of the host's calls only those that put work on a stream are shown", "replayed times, and what graphs would take, are predicted"]
    .filter(Boolean).join(" · ");
  const figure = (name, text) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", text));
    byId("figures").append(box);
  };
  if (data.ledger) {
    figure("Step, recorded", us(data.ledger.step_us));
    figure("GPU idle", us(data.ledger.idle_us));
    figure("GPU narrow", us(data.ledger.narrow_us));
    const gains = data.ledger.predicted || {};
    if (gains.graph_us !== undefined) figure("As one graph (predicted)", us(gains.graph_us));
    if (gains.streams_us !== undefined) figure("With several streams (predicted)", us(gains.streams_us));
  }
  if (data.after) figure("By mode replay (predicted)", us(data.after.step_us));
  else figure("Schedule", "none: " + data.why_no_schedule);
  figure("Evidence trusted", data.trust);

  function choose(op) {
    const before = timeline.selected();
    timeline.select(op);
    showDetails(byId("details"), op, choose);
    graph.show(op, choose);
    byId("why-first").value = before === null ? op : before;
    byId("why-second").value = op;
  }
  timeline.onClick((bar) => {
    if (isShown(bar.op)) choose(bar.op);
    else byId("details").replaceChildren(element("p", `${bar.text}, from ${us(bar.begin)} for ${us(bar.end - bar.begin)}`));
  });

  let found = [], at = -1;
  byId("search").addEventListener("input", () => {
    const text = byId("search").value.trim().toLowerCase();
    const all = d3.range(data.from, data.until);
    found = text ? all.filter((op) => String(op) === text || opName(op).toLowerCase().includes(text)) : [];
    at = -1;
    timeline.mark(new Set(found));
    byId("found").textContent = text ? `${found.length} ops` : "";
  });
  const next = () => {
    if (!found.length) return;
    at = (at + 1) % found.length;
    choose(found[at]);
    byId("found").textContent = `${at + 1} of ${found.length} ops`;
  };
  byId("next").addEventListener("click", next);
  byId("search").addEventListener("keydown", (event) => { if (event.key === "Enter") next(); });

  byId("zoom-in").addEventListener("click", () => timeline.by(2));
  byId("zoom-out").addEventListener("click", () => timeline.by(0.5));
  byId("zoom-all").addEventListener("click", timeline.whole);
  const step = (by) => {
    const now = timeline.selected();
    const op = now === null ? data.from : now + by;
    if (isShown(op)) choose(op);
  };
  const keys = {"+": () => timeline.by(2), "=": () => timeline.by(2), "-": () => timeline.by(0.5), "0": timeline.whole,
    ArrowLeft: () => timeline.pan(-0.2), ArrowRight: () => timeline.pan(0.2), n: () => step(1), p: () => step(-1)};
  byId("timeline").addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  byId("why-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const ops = ["why-first", "why-second"].map((id) => Number(byId(id).value));
    if (ops.every(isShown)) explainOrder(byId("why"), ...ops);
    else byId("why").replaceChildren(element("p", `The page has ops ${data.from} to ${data.until - 1}.`));
  });

  graph.show(null, choose);
  showLedger(choose);
  showKernels(choose);
  showMemory(choose);
  timeline.draw();
})();
