// Lays out one group at a time, beside the page, so that the page never waits for dagre.
import './dagre.js';
import { layout } from './layout.js';

self.onmessage = ({ data: { key, boxes, edges } }) => {
  try {
    self.postMessage({ key, boxes, ...layout(globalThis.dagre, boxes, edges) });
  } catch (error) {
    // A row instead of nothing: the page must show a graph that dagre cannot rank.
    self.postMessage({ key, boxes, ...layout(globalThis.dagre, boxes, []), error: String(error) });
  }
};
