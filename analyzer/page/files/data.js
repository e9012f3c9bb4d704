"use strict";
// What the page was made of, and words for it. Everything below reads `data`; nothing changes it.
const data = JSON.parse(document.getElementById("data").textContent);
const count = data.until - data.from;

const us = (value) => value < 1e4 ? value.toFixed(1) + " us" : value < 1e7 ? (value / 1e3).toFixed(2) + " ms"
  : (value / 1e6).toFixed(2) + " s";
const bytes = (value) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return value.toFixed(unit ? 1 : 0) + " " + units[unit];
};

// Of an op of the step, by its number: a value of one of its columns.
const of = (columns, name, op) => columns[name][op - data.from];
const isShown = (op) => Number.isInteger(op) && op >= data.from && op < data.until;
const opName = (op) => data.texts[of(data.ops, "name", op)];
// What an op is for the order: "accesses" for those that touch memory that is known, "barrier" for those that may touch any.
const roleOf = (op) => data.roles[of(data.ops, "role", op)];
const opLabel = (op) => isShown(op) ? `op ${op} ${opName(op)}` : `op ${op}`;

// What an op touches: [{object, reads, writes, evidence, begin, bytes}].
const accessesOf = (op) => {
  const first = of(data, "first_access", op);
  const last = op + 1 < data.until ? of(data, "first_access", op + 1) : data.accesses.length;
  return data.accesses.slice(first, last).map(([object, how, evidence, begin, size]) =>
    ({object, reads: (how & 1) !== 0, writes: (how & 2) !== 0, evidence, begin, bytes: size}));
};
const accessText = (access) =>
  `${access.reads && access.writes ? "reads and writes" : access.writes ? "writes" : "reads"} ` +
  `${data.objects[access.object]}, bytes ${access.begin} to ${access.begin + access.bytes} (${data.evidences[access.evidence]})`;

// Dependencies into and out of each op.
const dependenciesInto = new Map(), neededOut = new Map(), neededInto = new Map();
const listed = (map, key, value) => map.has(key) ? map.get(key).push(value) : map.set(key, [value]);
for (const [from, to, kind, evidence, object] of data.dependencies)
  listed(dependenciesInto, to, {from, to, kind, evidence, object});
for (const [from, to] of data.needed) {
  listed(neededOut, from, to);
  listed(neededInto, to, from);
}

// Elements, by tag, text and attributes; text is never read as HTML.
const element = (tag, text, attributes = {}) => {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};
// A color of the scheme that is shown. Kept, since a picture asks thousands of times; forgotten when the scheme may be another.
const colors = new Map();
const color = (name) => {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colors.get(name);
};
