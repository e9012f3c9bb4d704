// The graph of dependencies: all of it if it is small, else what is near an op. A column is a level: all that a node needs is
// to its left.
const graph = (() => {
  const svg = d3.select("#graph"), hint = document.getElementById("graph-hint");
  const most = 150, near = 3, size = {width: 170, height: 34, across: 215, down: 46};

  function around(center) {
    const shown = new Set([center]);
    let edge = [center];
    for (let hop = 0; hop < near && shown.size < most; ++hop) {
      const beyond = [];
      for (const op of edge)
        for (const other of [...(neededInto.get(op) || []), ...(neededOut.get(op) || [])])
          if (shown.size < most && !shown.has(other)) {
            shown.add(other);
            beyond.push(other);
          }
      edge = beyond;
    }
    return shown;
  }

  function places(shown) {
    const level = new Map(), filled = [], place = new Map();
    for (const op of [...shown].sort((a, b) => a - b)) {
      const before = (neededInto.get(op) || []).filter((from) => shown.has(from));
      level.set(op, before.length ? Math.max(...before.map((from) => level.get(from))) + 1 : 0);
      const column = level.get(op);
      filled[column] = (filled[column] || 0) + 1;
      place.set(op, [column * size.across + 6, (filled[column] - 1) * size.down + 6]);
    }
    return [place, filled];
  }

  return {
    // `center`: an op, or null.
    show(center, choose) {
      const connected = [...new Set(data.needed.flat())];
      const small = connected.length <= most;
      if (!small && center === null) center = data.needed.length ? data.needed[0][0] : data.from;
      const shown = small ? new Set(connected.length ? connected : d3.range(data.from, Math.min(data.until, data.from + most)))
        : around(center);
      if (center !== null) shown.add(center);
      hint.textContent = (small ? `All ${connected.length} ops that are ordered with others.`
        : `What is within ${near} dependencies of ${opLabel(center)}; select another op to see what is near it.`) +
        " Thick: the critical path. Dashed: ordered because nothing is known of an op.";
      const [place, filled] = places(shown);
      const edges = data.needed.filter(([from, to]) => shown.has(from) && shown.has(to));
      const isCritical = (op) => of(data.ops, "critical", op);
      const isAssumed = ([from, to]) => (dependenciesInto.get(to) || []).some((each) =>
        each.from === from && data.evidences[each.evidence] === "assumed");
      svg.attr("width", filled.length * size.across + 12).attr("height", Math.max(1, ...filled) * size.down + 12)
        .attr("aria-label", `Graph of ${shown.size} ops and ${edges.length} dependencies`);
      svg.selectAll("*").remove();
      svg.selectAll("path").data(edges).enter().append("path")
        .attr("class", (edge) => "edge" + (edge.every(isCritical) ? " critical" : "") + (isAssumed(edge) ? " assumed" : ""))
        .attr("d", ([from, to]) => {
          const [x0, y0] = place.get(from), [x1, y1] = place.get(to), middle = size.height / 2;
          return `M${x0 + size.width},${y0 + middle}C${x0 + size.across},${y0 + middle} ` +
            `${x1 - (size.across - size.width)},${y1 + middle} ${x1},${y1 + middle}`;
        });
      const node = svg.selectAll("g").data([...shown]).enter().append("g")
        .attr("class", (op) => "node" + (isCritical(op) ? " critical" : "") + (op === center ? " selected" : "") +
          (data.evidences[of(data.ops, "evidence", op)] === "assumed" ? " assumed" : ""))
        .attr("transform", (op) => `translate(${place.get(op)})`).on("click", (op) => choose(op));
      node.append("rect").attr("width", size.width).attr("height", size.height).attr("rx", 4);
      node.append("title").text(opLabel);
      node.append("text").attr("x", 6).attr("y", 14).text((op) => `op ${op}`);
      node.append("text").attr("x", 6).attr("y", 27).text((op) => {
        const name = opName(op);
        return name.length > 27 ? name.slice(0, 26) + "…" : name;
      });
    },
  };
})();
