// Elements from text only: nothing that the proxy says is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that are false, null or undefined are left out. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An element of a drawing. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === false || child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Makes these the children of the element with this id, and changes only what differs: focus and selection stay. */
export function show(id, ...children) {
  const parent = byId(id);
  patchChildren(parent, h(parent.nodeName, {}, ...children));
}

/**
 * Folds what is well. The element is opened or folded when `isWell` changes; between changes, it stays as a person has left
 * it.
 */
export function fold(id, isWell, summary) {
  const element = byId(id);
  if (element.dataset.well !== String(isWell)) {
    element.dataset.well = isWell;
    element.open = !isWell;
  }
  show(`${id}-sum`, summary);
}

function patchChildren(parent, wanted) {
  const now = [...parent.childNodes];
  const next = [...wanted.childNodes];
  next.forEach((fresh, index) => {
    const old = now[index];
    if (old === undefined) {
      parent.append(fresh);
    } else if (old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
    } else if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else {
      patch(old, fresh);
    }
  });
  now.slice(next.length).forEach((old) => old.remove());
}

function patch(old, fresh) {
  const stays = old.nodeName === "DETAILS" && old.dataset.well === fresh.dataset.well;
  for (const { name } of [...old.attributes]) {
    // A person opened it.
    if (!fresh.hasAttribute(name) && !(name === "open" && stays)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    // A person folded it.
    if (old.getAttribute(name) !== value && !(name === "open" && stays)) old.setAttribute(name, value);
  }
  patchChildren(old, fresh);
}

/**
 * A table. On a narrow screen each row becomes a block, in which `data-label` shows the column's name; the roles keep it a
 * table for assistive technology.
 */
export function table(caption, columns, rows, attributes = {}) {
  const head = columns.map((column) => h("th", { scope: "col", role: "columnheader", class: column.class }, column.name));
  const body = rows.map((row) => h("tr", { role: "row", ...(row.attributes ?? {}) }, row.cells.map((cell, index) =>
    h("td", { role: "cell", "data-label": columns[index].name, class: columns[index].class }, h("span", {}, cell)))));
  return h("table", { role: "table", ...attributes },
    caption === null ? null : h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, body));
}

/** A state as a word with a coloured mark; the colour alone says nothing. */
export function state(kind, word) {
  return h("span", { class: `state ${kind}` }, word);
}

export function none(text) {
  return h("p", { class: "none" }, text);
}

/** Text with commands between backquotes. */
export function prose(text) {
  return text.split("`").map((part, index) => (index % 2 === 1 ? h("code", {}, part) : part));
}
