// Elements. Text is always set as text: nothing that a user named is ever parsed as HTML.

const kSvg = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'text') element.textContent = value;
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

// el('button', {class: 'quiet', onclick: f, text: 'Fit'}), or el('p', {}, [child, 'text']).
export const el = (tag, attributes = {}, children = []) =>
  fill(document.createElement(tag), attributes, [children]);
export const svg = (tag, attributes = {}, children = []) =>
  fill(document.createElementNS(kSvg, tag), attributes, [children]);

// Sets what differs: writing the same text again would cost a layout and lose a selection.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// A row of keyed children: `make(item)` once for a key, `update(element, item)` each time, in the
// order of the items.
export function keyed(parent, items, key, make, update) {
  const old = new Map(Array.from(parent.children, (c) => [c.dataset.key, c]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let child = old.get(k);
    if (child) old.delete(k);
    else { child = make(item); child.dataset.key = k; }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}
