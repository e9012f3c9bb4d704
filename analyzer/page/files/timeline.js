// The timeline: rows of bars on one scale of time, drawn on a canvas, panned and zoomed.
const timeline = (() => {
  const canvas = document.getElementById("timeline");
  const left = 190, rowHeight = 22, headHeight = 24;
  const rows = makeRows();
  const start = d3.min(rows, (row) => d3.min(row.bars, (bar) => bar.begin)) || 0;
  const end = Math.max(start + 1, d3.max(rows, (row) => d3.max(row.bars, (bar) => bar.end)) || 0);
  const scale = d3.scaleLinear().domain([start, end]);
  let view = scale, width = 0, selected = null, hits = new Set(), clicked = () => {};

  // [{name, bars: [{begin, end, op, text, kind}]}]; bars by when they begin.
  function makeRows() {
    const rows = [];
    const add = (name, bars) => {
      if (bars.length) rows.push({name, bars: bars.sort((a, b) => a.begin - b.begin)});
    };
    const calls = data.host.name.map((name, i) => ({begin: data.host.begin[i], end: data.host.begin[i] + data.host.us[i],
      thread: data.host.thread[i], op: data.host.op[i] === null ? undefined : data.host.op[i], text: data.texts[name],
      kind: data.host.waits[i] ? "wait" : "call"}));
    for (const [thread, bars] of d3.group(calls, (call) => call.thread)) add(`Recorded: host thread ${thread}${data.one_clock ? "" : " *"}`, bars);
    const ops = d3.range(data.from, data.until);
    if (data.timed) {
      const ran = ops.filter((op) => of(data.ops, "begin", op) >= 0);
      for (const [stream, group] of d3.group(ran, (op) => of(data.ops, "stream", op)))
        add(`Recorded: stream ${stream}`, group.map((op) => ({begin: of(data.ops, "begin", op),
          end: of(data.ops, "end", op), op, text: opName(op), kind: "op"})));
      add("Recorded: idle, narrow", data.losses.map(([begin, end, idle, cause, op]) => ({begin, end,
        op: isShown(op) ? op : undefined, text: data.causes[cause], kind: idle ? "idle" : "narrow"})));
    }
    if (data.after) {
      add("Replayed: host", data.after.launches.map(([begin, end, nodes]) => ({begin, end,
        text: `graph of ${nodes} nodes`, kind: "call"})));
      const ran = ops.filter((op) => of(data.after, "begin", op) >= 0);
      for (const [lane, group] of [...d3.group(ran, (op) => of(data.after, "lane", op))].sort((a, b) => a[0] - b[0]))
        add(`Replayed: lane ${lane}`, group.map((op) => ({begin: of(data.after, "begin", op),
          end: of(data.after, "end", op), op, text: opName(op), kind: "op"})));
    }
    return rows;
  }

  function fillOf(bar, context) {
    if (bar.kind === "idle" || bar.kind === "narrow") return pattern(bar.kind, context);
    if (bar.kind === "wait") return color("--line");
    if (bar.kind === "call") return color("--panel");
    const palette = d3.schemeTableau10;
    return palette[of(data.ops, "name", bar.op) % palette.length];
  }

  // Stripes or dots, so that no color is needed to tell them apart.
  function pattern(kind, context) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const brush = tile.getContext("2d");
    brush.strokeStyle = brush.fillStyle = color("--idle");
    if (kind === "idle") {
      brush.lineWidth = 2;
      brush.beginPath();
      for (const at of [-8, 0, 8]) {
        brush.moveTo(at, 8);
        brush.lineTo(at + 8, 0);
      }
      brush.stroke();
    } else {
      brush.fillRect(1, 1, 2, 2);
      brush.fillRect(5, 5, 2, 2);
    }
    return context.createPattern(tile, "repeat");
  }

  function draw() {
    colors.clear();
    const ratio = window.devicePixelRatio || 1, height = headHeight + rows.length * rowHeight + 6;
    width = canvas.clientWidth || 900;
    scale.range([left, width - 10]);
    canvas.style.height = height + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    view = d3.zoomTransform(canvas).rescaleX(scale);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, 'Liberation Sans', sans-serif";
    context.textBaseline = "middle";
    drawAxis(context, height);
    rows.forEach((row, i) => drawRow(context, row, headHeight + i * rowHeight));
    const [from, until] = view.domain();
    canvas.dataset.from = from;
    canvas.dataset.until = until;
    canvas.setAttribute("aria-label", `Timeline of ${count} ops in ${rows.length} rows, from ${us(Math.max(0, from))} to ${us(until)}` +
      (selected === null ? "" : `; selected: ${opLabel(selected)}`));
  }

  function drawAxis(context, height) {
    for (const tick of view.ticks(8)) {
      const x = view(tick);
      if (x < left) continue;
      context.fillStyle = color("--line");
      context.fillRect(x, headHeight - 4, 1, height);
      context.fillStyle = color("--soft");
      context.fillText(us(tick), x + 3, headHeight / 2);
    }
  }

  function drawRow(context, row, top) {
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, rowHeight);
    context.clip();
    const [from, until] = view.domain();
    const fills = new Map();
    let drawn = -1;
    for (const bar of row.bars) {
      if (bar.end < from || bar.begin > until) continue;
      const x = view(bar.begin), w = Math.max(1, view(bar.end) - x);
      const stands = bar.op === selected || hits.has(bar.op);
      if (w < 2 && x + w <= drawn && !stands) continue;  // within a pixel that is painted already
      drawn = Math.max(drawn, Math.floor(x + w));
      const key = bar.kind === "op" ? of(data.ops, "name", bar.op) : bar.kind;
      if (!fills.has(key)) fills.set(key, fillOf(bar, context));
      context.fillStyle = bar.kind === "call" && w <= 3 ? color("--soft") : fills.get(key);
      context.fillRect(x, top + 2, w, rowHeight - 5);
      if (w > 3 && bar.kind !== "op") {
        context.strokeStyle = color("--soft");
        context.strokeRect(x + .5, top + 2.5, w - 1, rowHeight - 6);
      }
      if (bar.kind === "op" && of(data.ops, "critical", bar.op)) {
        context.fillStyle = color("--fore");
        context.fillRect(x, top + rowHeight - 4, w, 2);
      }
      if (stands) {
        context.strokeStyle = bar.op === selected ? color("--accent") : color("--hit");
        context.lineWidth = 3;
        context.setLineDash(bar.op === selected ? [] : [4, 2]);
        context.strokeRect(x, top + 2, Math.max(w, 3), rowHeight - 5);
        context.setLineDash([]);
        context.lineWidth = 1;
      }
      if (w > 40) label(context, bar, x, w, top);
    }
    context.restore();
    context.fillStyle = color("--fore");
    context.fillText(row.name, 4, top + rowHeight / 2, left - 8);
  }

  function label(context, bar, x, w, top) {
    context.save();
    context.beginPath();
    context.rect(x, top, w - 3, rowHeight);
    context.clip();
    const isOp = bar.kind === "op";
    context.fillStyle = isOp ? "#000000" : color("--fore");
    if (!isOp && (bar.kind === "idle" || bar.kind === "narrow")) {
      const text = context.measureText(bar.text).width;
      context.fillStyle = color("--back");
      context.fillRect(Math.max(x, left) + 3, top + 4, Math.min(text + 4, w - 6), rowHeight - 9);
      context.fillStyle = color("--fore");
    }
    context.fillText(bar.text, Math.max(x, left) + 4, top + rowHeight / 2);
    context.restore();
  }

  const zoom = d3.zoom().scaleExtent([1, 1e5]).on("zoom", draw);
  d3.select(canvas).call(zoom).on("dblclick.zoom", null);
  function limit() {
    const size = [[left, 0], [canvas.clientWidth - 10, canvas.clientHeight]];
    zoom.extent(size).translateExtent([[left, -Infinity], [canvas.clientWidth - 10, Infinity]]);
  }
  new ResizeObserver(() => { limit(); draw(); }).observe(canvas);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  function barAt(x, y) {
    const row = rows[Math.floor((y - headHeight) / rowHeight)];
    if (!row || x < left) return null;
    const time = view.invert(x), slack = view.invert(x + 2) - time;
    return row.bars.find((bar) => bar.begin - slack <= time && time <= bar.end + slack) || null;
  }
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const bar = barAt(event.clientX - box.left, event.clientY - box.top);
    if (bar) clicked(bar);
  });

  const by = (factor) => d3.select(canvas).call(zoom.scaleBy, factor);
  const pan = (share) => d3.select(canvas).call(zoom.translateBy,
    -share * (width - left) / d3.zoomTransform(canvas).k, 0);
  const whole = () => d3.select(canvas).call(zoom.transform, d3.zoomIdentity);

  // Shows an op that would be out of sight, or too small to see.
  function reveal(op) {
    const timed = data.timed && of(data.ops, "begin", op) >= 0;
    const begin = timed ? of(data.ops, "begin", op) : of(data.ops, "call_begin", op);
    const length = timed ? of(data.ops, "end", op) - begin : of(data.ops, "call_us", op);
    const [from, until] = view.domain();
    const small = length / (until - from) < 0.004;
    if (begin >= from && begin + length <= until && !small) return draw();
    const span = small ? Math.min(end - start, Math.max(length * 20, (end - start) / 1e5)) : until - from;
    const k = (end - start) / span, middle = scale(begin + length / 2);
    d3.select(canvas).call(zoom.transform,
      d3.zoomIdentity.translate((left + width - 10) / 2 - middle * k, 0).scale(k));
    draw();
  }

  return {
    onClick: (handler) => { clicked = handler; },
    select: (op) => { selected = op; reveal(op); },
    mark: (ops) => { hits = ops; draw(); },
    selected: () => selected,
    by, pan, whole, draw,
  };
})();
