// A number beside a bar of its share of a limit. A share of more than nine tenths is marked.
import {el, setText} from './dom.js';

const kHigh = 0.9;

// Without a label, the meter is for a cell of a table, whose column names it.
export function meter(label) {
  const fill = el('span', {class: 'fill'}), text = el('span', {class: 'value'});
  const bar = [el('span', {class: 'track'}, [fill]), text];
  if (label === undefined) return {root: el('div', {class: 'cell'}, bar), fill, text};
  const name = el('span', {class: 'label', text: label});
  return {root: el('div', {class: 'meter'}, [name, ...bar]), name, fill, text};
}

export function setMeter(m, fraction, text) {
  m.fill.style.width = `${Math.round(100 * Math.min(1, Math.max(0, fraction || 0)))}%`;
  m.fill.classList.toggle('high', fraction > kHigh);
  setText(m.text, text);
}
