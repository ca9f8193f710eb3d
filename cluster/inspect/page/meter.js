// A number beside a bar of its share of a limit. A share of more than nine tenths is marked.
import {el, setAttribute, setText} from './dom.js';
import {busyText, bytes, memoryLine, percent, queueLines} from './format.js';

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

// The meters that the sidebar and the overview have of a node. A cell of a table has less room, and
// no name of a device.
export function setNodeMeters({cpu, memory, device, queue}, n, {isCell}) {
  const isWorst = isCell && n.devices > 1;
  setMeter(
      cpu, n.cpu / n.cores,
      n.cores ? `${(n.cpu ?? 0).toFixed(isCell ? 1 : 2)} of ${n.cores}` : '–');
  setAttribute(
      cpu.root, 'title', n.cores ? `${percent(n.cpu / n.cores)} of ${n.cores} cores` : '');
  setMeter(memory, n.memory / n.total, n.memory ? bytes(n.memory) : '–');
  setMeter(
      device, n.device?.limit > 0 ? n.device.in_use / n.device.limit : 0,
      n.device ? `${bytes(n.device.in_use)}${isWorst ? `, worst of ${n.devices}` : ''}` : '–');
  setAttribute(device.root, 'title', n.device ? memoryLine(n.device) : '');
  const shown = n.queue && (isCell ? {...n.queue, depth: 0} : n.queue);
  setMeter(queue, n.queue?.share, shown ? busyText(shown) : '–');
  queue.fill.classList.remove('high');  // a busy queue is what is wanted
  setAttribute(queue.root, 'title', queueLines(n.queues));
}
