// The step's own objects: from the op that allocates each to the one that frees it, at its place in the plan.
function showMemory(choose) {
  const {plan_bytes: plan, peak_bytes: peak, objects} = data.memory;
  const sums = document.getElementById("memory-sums"), svg = d3.select("#memory");
  if (!objects.length || !plan) {
    sums.textContent = "The step allocates nothing of its own.";
    svg.attr("width", 0).attr("height", 0);
    return;
  }
  const most = 4000;
  sums.textContent = `${objects.length} objects${objects.length > most ? `, of which the first ${most} are drawn` : ""}. Planned: ${bytes(plan)}, at the program's peak: ${bytes(peak)}. ` +
    "Left to right: ops; bottom to top: places in the plan.";
  const width = Math.max(500, document.querySelector("main").clientWidth - 10), height = 260, left = 70, below = 24;
  const x = d3.scaleLinear().domain([data.from, data.until]).range([left, width - 10]);
  const y = d3.scaleLinear().domain([0, plan]).range([height - below, 8]);
  svg.attr("width", width).attr("height", height).attr("aria-label", `Memory of ${objects.length} objects over ${count} ops`);
  svg.append("g").attr("transform", `translate(0,${height - below})`).call(d3.axisBottom(x).ticks(10));
  svg.append("g").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(5).tickFormat(bytes));
  const box = svg.selectAll(".object").data(objects.slice(0, most)).enter().append("rect").attr("class", "object")
    .attr("x", ([first]) => x(Math.max(first, data.from)))
    .attr("width", ([first, last]) => Math.max(1, x(Math.min(last, data.until)) - x(Math.max(first, data.from))))
    .attr("y", ([, , size, at]) => y(at + size)).attr("height", ([, , size, at]) => Math.max(1, y(at) - y(at + size)))
    .on("click", ([first]) => isShown(first) && choose(first));
  box.append("title").text(([first, last, size, at]) => `${bytes(size)} at ${at}, ops ${first} to ${last}`);
}
