// Contrasts and sizes, computed from the style sheets of the page and of reports, in the light and
// in the dark. Run by test/page/page_test.sh.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {test} from 'node:test';

const kFolder = new URL('../../cluster/inspect/page/', import.meta.url);
const read = (name) => readFileSync(new URL(name, kFolder), 'utf8');
const kWords = 4.5, kLines = 3, kSmallest = 11;

// [{selector, declarations: Map(name, value)}], of what stands in @media, too.
function rulesOf(css) {
  const rules = [], plain = css.replace(/\/\*[^]*?\*\//g, '');
  for (const [, selector, body] of plain.matchAll(/([^{}]+)\{([^{}]*)\}/g)) {
    const declarations = new Map(
        body.split(';')
            .map((d) => d.trim())
            .filter(Boolean)
            .map((d) => [d.slice(0, d.indexOf(':')).trim(), d.slice(d.indexOf(':') + 1).trim()]));
    rules.push({selector: selector.trim(), declarations});
  }
  return rules;
}

const kRules = ['page.css', 'causes.css', 'report.css'].flatMap((name) => rulesOf(read(name)));
const variablesOf = (selector) =>
    new Map([...kRules.find((r) => r.selector === selector).declarations].filter(
        ([name]) => name.startsWith('--')));
const kLight = variablesOf(':root'),
      kDark = new Map([...kLight, ...variablesOf(':root[data-theme="dark"]')]);
const kThemes = {
  light: kLight,
  dark: kDark
};
const kGrounds = ['--ground', '--surface', '--raised', '--sunken'];
const kStates = ['idle', 'ready', 'running', 'waiting', 'dead', 'failed'];

// [red, green, blue, opaque] of 0 to 1.
function colour(text, theme, own) {
  text = text.trim();
  const name = text.match(/^var\((--[\w-]+)(?:,\s*(.+))?\)$/);
  if (name)
    return colour(
        name[1] === '--c' ? own ?? name[2] ?? 'var(--idle)' : theme.get(name[1]), theme, own);
  const hex = text.match(/^#([0-9a-f]{6})$/i);
  if (hex) return [0, 2, 4].map((i) => parseInt(hex[1].slice(i, i + 2), 16) / 255).concat(1);
  const rgb = text.match(/^rgb\((\d+) (\d+) (\d+) \/ ([\d.]+)%\)$/);
  if (rgb) return [...rgb.slice(1, 4).map((c) => c / 255), rgb[4] / 100];
  if (text === 'transparent') return [0, 0, 0, 0];
  const mix = text.match(/^color-mix\(in srgb, (.+) (\d+)%, (.+)\)$/);
  assert.ok(mix, `a colour that this test cannot compute: ${text}`);
  const a = colour(mix[1], theme, own), b = colour(mix[3], theme, own), part = mix[2] / 100;
  return a.map((c, i) => c * part + b[i] * (1 - part));
}
const over = ([r, g, b, a], ground) => [r, g, b].map((c, i) => c * a + ground[i] * (1 - a));
function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(front, back) {
  const [high, low] = [luminance(front), luminance(back)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

const isColour = (value) =>
    /^(#|var\(--(?!name-size)|rgb|color-mix)/.test(value) && !/repeating|gradient/.test(value);
// The colours of each rule: words or lines, and the ground of the rule, if it has one.
function* coloured() {
  for (const {selector, declarations} of kRules) {
    if (selector.includes(':root')) continue;
    const ground = declarations.get('background') ??
        (/tip/.test(selector) ? declarations.get('background') : undefined);
    const isText = /text|\.name|\.kind|\.speed|\.flow|\.tick/.test(selector);
    const own = kStates.map((s) => `var(--${s})`);
    for (const [name, value] of declarations) {
      const words = name === 'color' || (name === 'fill' && isText);
      const border = name.startsWith('border') && !/radius|collapse|spacing/.test(name) ?
          value.match(/(var\(.+\)|#\w+|color-mix\(.+\))$/)?.[1] :
          undefined;
      const shadow = name === 'box-shadow' ?
          value.match(/0 0 0? ?1px? (var\(--\w+\))|^-?1px 0 0 (var\(--\w+\))/) :
          undefined;
      const line = name === 'stroke' && !isText ? value :
                                                  border ?? shadow?.[1] ?? shadow?.[2] ??
              (name === 'border-color' || name === 'border-bottom-color' ? value : undefined);
      const front = words ? value : line;
      if (!front || front === 'transparent' || front === 'none' || front === 'inherit' ||
          !isColour(front))
        continue;
      for (const state of / --c\b /.test(`${front} ${ground}`) ? own : [undefined])
        yield {
          selector,
          name,
          front,
          ground: ground && isColour(ground) ? ground : undefined,
          least: words ? kWords : kLines,
          state
        };
    }
  }
}

test(
    'words are seen at 4.5:1 and lines at 3:1, on every ground, in the light and in the dark',
    () => {
      let words = 0, lines = 0;
      for (const [name, theme] of Object.entries(kThemes)) {
        for (const c of coloured()) {
          const grounds =
              (c.ground ? [c.ground] : kGrounds.map((g) => `var(${g})`))
                  .flatMap(
                      (g) => kGrounds.map(
                          (under) =>
                              over(colour(g, theme, c.state), colour(`var(${under})`, theme))));
          for (const ground of grounds) {
            const found = contrast(over(colour(c.front, theme, c.state), ground), ground);
            assert.ok(
                found >= c.least,
                `${name}: ${c.selector} { ${c.name}: ${c.front} }${
                    c.state ? ` of ${c.state}` : ''} on ${c.ground ?? 'a ground'} has ${
                    found.toFixed(2)}:1, not ${c.least}:1`);
          }
          if (c.least === kWords) words += 1;
          else lines += 1;
        }
      }
      assert.ok(
          words > 100 && lines > 60,
          `${words} words and ${lines} lines were found`);  // the rules are read
    });

test('states and events are seen at 3:1, and no two states look alike', () => {
  for (const [name, theme] of Object.entries(kThemes)) {
    const events = [...theme.keys()].filter((v) => v.startsWith('--event-'));
    assert.equal(events.length, 8);
    for (const variable of [...kStates.map((s) => `--${s}`), '--good', ...events])
      for (const ground of kGrounds) {
        const found =
            contrast(colour(theme.get(variable), theme), colour(theme.get(ground), theme));
        assert.ok(found >= kLines, `${name}: ${variable} on ${ground} has ${found.toFixed(2)}:1`);
      }
    for (const a of kStates)
      for (const b of kStates)
        if (a < b) assert.notDeepEqual(theme.get(`--${a}`), theme.get(`--${b}`));
  }
});

test('the two dark themes are one', () => {
  assert.deepEqual(
      [...variablesOf(':root:not([data-theme="light"])')],
      [...variablesOf(':root[data-theme="dark"]')]);
});

test('nothing is made paler than its colour', () => {
  for (const {selector, declarations} of kRules)
    if (declarations.has('opacity')) assert.equal(declarations.get('opacity'), '1', selector);
});

test('no text is below 11 px', () => {
  let seen = 0;
  for (const {selector, declarations} of kRules) {
    for (const name of ['font-size', 'font']) {
      const size = declarations.get(name)?.match(/([\d.]+)px/);
      if (!size || Number(size[1]) === 0) continue;
      seen += 1;
      assert.ok(Number(size[1]) >= kSmallest, `${selector} has text of ${size[1]} px`);
    }
  }
  assert.ok(seen > 20);
  for (const name of ['timeline.js', 'graph.js', 'loss.js', 'curves.js'])
    for (const [, size] of read(name).matchAll(/font = '([\d.]+)px/g))
      assert.ok(Number(size) >= kSmallest, `${name} draws text of ${size} px`);
});
