// Tables that can be sorted by each column: the ledger, and the kernels.
function fillTable(table, caption, columns, rows, choose) {
  let by = 0, descending = true;
  const head = element("thead"), body = element("tbody"), heads = element("tr");
  head.append(heads);
  const most = 500;
  table.replaceChildren(element("caption", caption + (rows.length > most ? ` (${most} of ${rows.length} rows)` : ""),
    {class: "hint"}), head, body);
  columns.forEach((column, i) => {
    const cell = element("th", null, {scope: "col", class: column.number ? "number" : ""});
    const button = element("button", column.title, {type: "button"});
    button.addEventListener("click", () => {
      descending = by === i ? !descending : Boolean(column.number);
      by = i;
      fill();
    });
    cell.append(button);
    heads.append(cell);
  });
  function fill() {
    const key = columns[by].key;
    const order = [...rows].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (descending ? -1 : 1));
    [...heads.children].forEach((cell, i) =>
      cell.setAttribute("aria-sort", i !== by ? "none" : descending ? "descending" : "ascending"));
    body.replaceChildren(...order.slice(0, most).map((row) => {
      const line = element("tr");
      for (const column of columns) {
        const cell = element("td", null, {class: column.number ? "number" : column.long ? "text" : ""});
        const text = (column.text || column.key)(row);
        const op = column.op && column.op(row);
        if (choose && isShown(op)) {
          const button = element("button", text, {type: "button"});
          button.addEventListener("click", () => choose(op));
          cell.append(button);
        } else {
          cell.textContent = text;
        }
        line.append(cell);
      }
      return line;
    }));
  }
  fill();
}

function showLedger(choose) {
  const ledger = data.ledger, sums = document.getElementById("ledger-sums");
  if (!ledger) {
    sums.textContent = "The trace has no times of the GPU: record with NIMBLE_TIMING=cupti, or events.";
    return;
  }
  const lost = ledger.idle_us + ledger.narrow_us;
  sums.textContent = `In a step of ${us(ledger.step_us)} the GPU is idle for ${us(ledger.idle_us)} and narrow for ` +
    `${us(ledger.narrow_us)}; ${lost ? (100 * ledger.accounted_for_us / lost).toFixed(1) : 100} % of that has a cause.`;
  fillTable(document.getElementById("ledger"), "Idle and narrow time by cause", [
    {title: "Time", number: true, key: (row) => row.idle_us + row.narrow_us, text: (row) => us(row.idle_us + row.narrow_us)},
    {title: "Share", number: true, key: (row) => row.idle_us + row.narrow_us,
      text: (row) => (100 * (row.idle_us + row.narrow_us) / lost).toFixed(1) + " %"},
    {title: "Places", number: true, key: (row) => row.places},
    {title: "Cause", key: (row) => row.cause},
    {title: "What", long: true, key: (row) => row.what, op: (row) => row.largest.op},
    {title: "What helps", long: true, key: (row) => row.helps},
  ], ledger.entries, choose);
}

function showKernels(choose) {
  const kernels = new Map();
  for (let op = data.from; op < data.until; ++op) {
    const name = opName(op);
    if (!kernels.has(name)) kernels.set(name, {name, ops: 0, gpu: 0, predicted: 0, anything: false, evidence: new Map(), why: new Set(), reads: 0, writes: 0, op});
    const kernel = kernels.get(name);
    ++kernel.ops;
    const isTimed = of(data.ops, "timed", op);
    kernel.gpu += isTimed ? of(data.ops, "end", op) - of(data.ops, "begin", op) : of(data.ops, "predicted_us", op);
    if (!isTimed) ++kernel.predicted;
    if (roleOf(op) === "barrier") kernel.anything = true;
    const evidence = data.evidences[of(data.ops, "evidence", op)];
    kernel.evidence.set(evidence, (kernel.evidence.get(evidence) || 0) + 1);
    const why = of(data.ops, "why", op);
    if (why !== null) kernel.why.add(data.texts[why]);
    for (const access of accessesOf(op)) {
      kernel.reads += access.reads ? access.bytes : 0;
      kernel.writes += access.writes ? access.bytes : 0;
    }
  }
  const evidence = (row) => [...row.evidence].map(([name, times]) => `${name} ${times}`).join(", ");
  const touched = (row, size) => row.anything ? "anything" : bytes(size);
  fillTable(document.getElementById("kernels"), "What the ops touch, at most, and how that is known; ~: in part predicted", [
    {title: "GPU time", number: true, key: (row) => row.gpu, text: (row) => (row.predicted ? "~" : "") + us(row.gpu)},
    {title: "Ops", number: true, key: (row) => row.ops},
    {title: "Name", long: true, key: (row) => row.name, op: (row) => row.op},
    {title: "Reads", number: true, key: (row) => row.reads, text: (row) => touched(row, row.reads)},
    {title: "Writes", number: true, key: (row) => row.writes, text: (row) => touched(row, row.writes)},
    {title: "Evidence (ops)", key: evidence},
    {title: "Why not known", long: true, key: (row) => [...row.why].join("; ")},
  ], [...kernels.values()], choose);
}
