// What is known of an op, and why two ops are ordered or not.
const list = (title, items, more) => {
  const box = element("div");
  box.append(element("strong", title));
  const ul = element("ul");
  for (const item of items) {
    const li = element("li");
    li.append(item);
    ul.append(li);
  }
  if (more) ul.append(element("li", more));
  box.append(ul);
  return box;
};

const opButton = (op, handler) => {
  const button = element("button", opLabel(op), {type: "button"});
  button.addEventListener("click", () => handler(op));
  return button;
};

function showDetails(target, op, choose) {
  target.replaceChildren(element("h3", opLabel(op)));
  const facts = element("dl");
  const fact = (name, text) => facts.append(element("dt", name), element("dd", text));
  fact("submitted", `at ${us(of(data.ops, "call_begin", op))}, a call of ${us(of(data.ops, "call_us", op))}`);
  if (data.timed && of(data.ops, "begin", op) >= 0)
    fact("recorded", `on the GPU from ${us(of(data.ops, "begin", op))} for ` +
      us(of(data.ops, "end", op) - of(data.ops, "begin", op)));
  if (data.after && of(data.after, "begin", op) >= 0)
    fact("replayed", `from ${us(of(data.after, "begin", op))}, lane ${of(data.after, "lane", op)} (predicted)`);
  const blocks = of(data.ops, "blocks", op);
  if (blocks) fact("size", `${blocks} blocks, which fill ${of(data.ops, "multiprocessors", op)} of ${data.multiprocessors} multiprocessors`);
  fact("evidence", data.evidences[of(data.ops, "evidence", op)]);
  const why = of(data.ops, "why", op);
  if (why !== null) fact("because", data.texts[why]);
  if (of(data.ops, "critical", op)) fact("critical path", "yes");
  target.append(facts);
  const accesses = accessesOf(op);
  if (accesses.length) target.append(list("Touches", accesses.slice(0, 20).map(accessText),
    accesses.length > 20 && `and ${accesses.length - 20} more`));
  for (const [title, others] of [["Comes after", neededInto.get(op)], ["Comes before", neededOut.get(op)]])
    if (others) target.append(list(title, others.slice(0, 12).map((other) => opButton(other, choose)),
      others.length > 12 && `and ${others.length - 12} more`));
}

// What would let two ops run side by side that this dependency orders.
function remedy(dependency) {
  const kind = data.dependency_kinds[dependency.kind], evidence = data.evidences[dependency.evidence];
  if (evidence === "assumed") return "A rule that says what the kernel touches, or code that can be read, would show whether they need an order.";
  if (kind === "order") return "Nothing frees them: it is an event, or both may be communicating.";
  if (kind === "read after write") return "Nothing frees them: the one reads what the other has written.";
  return "Memory of its own for what the later one writes would free them.";
}

function explainDependency(dependency) {
  const box = element("div");
  const object = dependency.object === null ? "" : " of " + data.objects[dependency.object];
  box.append(element("p", `${opLabel(dependency.to)} comes after ${opLabel(dependency.from)}: ` +
    `${data.dependency_kinds[dependency.kind]}${object} (${data.evidences[dependency.evidence]}).`));
  const touched = [];
  for (const op of [dependency.from, dependency.to]) {
    for (const access of accessesOf(op))
      if (access.object === dependency.object) touched.push(`op ${op} ${accessText(access)}`);
    if (dependency.object === null && of(data.ops, "why", op) !== null)
      touched.push(`op ${op}: ${data.texts[of(data.ops, "why", op)]}`);
  }
  if (touched.length) box.append(list("Evidence", touched));
  box.append(element("p", remedy(dependency)));
  return box;
}

// A shortest path of needed dependencies, as ops; null if there is none.
function pathBetween(first, second) {
  const next = new Map([[second, null]]), queue = [second];
  for (let head = 0; head < queue.length && !next.has(first); ++head)
    for (const from of neededInto.get(queue[head]) || [])
      if (from >= first && !next.has(from)) {
        next.set(from, queue[head]);
        queue.push(from);
      }
  if (!next.has(first)) return null;
  const path = [];
  for (let op = first; op !== null; op = next.get(op)) path.push(op);
  return path;
}

function explainOrder(target, one, other) {
  const [first, second] = one < other ? [one, other] : [other, one];
  target.replaceChildren();
  if (first === second) return target.append(element("p", "That is one op."));
  const direct = (dependenciesInto.get(second) || []).filter((each) => each.from === first);
  if (direct.length) {
    target.append(element("h3", "Ordered: they depend on each other."), ...direct.map(explainDependency),
      scheduled(first, second));
    return;
  }
  const path = pathBetween(first, second);
  if (path) {
    target.append(element("h3", `Ordered: through ${path.length - 1} dependencies.`));
    for (let i = 1; i < path.length; ++i) {
      const links = (dependenciesInto.get(path[i]) || []).filter((each) => each.from === path[i - 1]);
      if (links.length) target.append(explainDependency(links[0]));
    }
    target.append(scheduled(first, second));
    return;
  }
  target.append(element("h3", "Not ordered."), ...whyNotOrdered(first, second), scheduled(first, second));
}

function whyNotOrdered(first, second) {
  const race = data.races.find(([one, other]) => one === first && other === second);
  if (race) return [element("p", race[2] ? "The program leaves them unordered, though both may be communicating."
    : "The program leaves them unordered, though they touch the same memory: a possible race.")];
  for (const op of [first, second]) {
    if (roleOf(op) === "none")
      return [element("p", `op ${op} is answered from the memory plan, where each object has its own place: it orders nothing.`)];
    if (roleOf(op) === "record" || roleOf(op) === "wait")
      return [element("p", `op ${op} touches no memory: only a wait for its event comes after it.`)];
  }
  const mine = new Map(accessesOf(first).map((access) => [access.object, access]));
  const shared = accessesOf(second).filter((access) => mine.has(access.object));
  if (!shared.length) return [element("p", "They have no memory in common: they may run side by side.")];
  return [element("p", "They touch the same objects, but no byte that one of them writes: they may run side by side."),
    list("In both", shared.flatMap((access) => [`op ${first} ${accessText(mine.get(access.object))}`,
      `op ${second} ${accessText(access)}`]))];
}

// What the schedule makes of two ops.
function scheduled(first, second) {
  const [one, other] = [first, second].map((op) => of(data.ops, "segment", op));
  if (!data.after || [first, second].some((op) => ["none", "record", "wait"].includes(roleOf(op)))) return element("p", "");
  if (one === null || one !== other)
    return element("p", "In the schedule they are not in one graph, so they are submitted one after the other.");
  return element("p", `In the schedule they are in one graph, on lanes ${of(data.after, "lane", first)} and ${of(data.after, "lane", second)}.`);
}
