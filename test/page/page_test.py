#!/usr/bin/python3
"""test/page/page_test.py SOURCE BUILD [PART...]: tests the page in headless Chromium.

The page is tested against a made-up node and a real one, and so are reports of both. The test
prints the failures, and ends with exit status 1 if there are any. Screenshots and reports, for
people to look at, are in BUILD/test/page.
"""

import collections
import json
import os
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser  # noqa: E402

READY = 'document.documentElement.dataset.interactive'
BOXES = "document.querySelectorAll('.box').length"
SEEN = """[...document.querySelectorAll('.box:not(.open)')].filter((b) => {
  const r = b.getBoundingClientRect(), g = document.querySelector('#graph').getBoundingClientRect();
  return r.right > g.left + 20 && r.left < g.right - 20 && r.bottom > g.top && r.top < g.bottom;
  }).length"""
COLOURS = """(() => { const c = document.querySelector('main.report canvas'),
  d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  return new Set(new Uint32Array(d.buffer)).size; })()"""
CLOSED = """[...document.querySelectorAll('.box:not(.open)')].map((b) => {
  const r = b.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, b]; })
  .filter(([x, y, b]) => document.elementFromPoint(x, y)?.closest('.box') === b).map(([x, y, b]) =>
    [x, y, b.dataset.box])[0]"""
TITLE = "document.querySelector('#panel h2').textContent"
TEXT = "document.querySelector('#panel').innerText"
# Boxes that lie in no other, and how many actors each has: [[label, actors]].
TOP = """(() => { const all = [...document.querySelectorAll('.box')].map((box) => {
  const [x, y] = box.style.transform.match(/-?[\\d.]+/g).map(Number),
    card = box.querySelector('.card');
  return { box, x, y, right: x + Number(card.getAttribute('width')),
    bottom: y + Number(card.getAttribute('height')) }; });
  const holds = (a, b) => a.box !== b.box && a.box.matches('.open') && a.x <= b.x && a.y <= b.y &&
    a.right >= b.right && a.bottom >= b.bottom;
  return all.filter((b) => !all.some((a) => holds(a, b))).map((b) =>
    b.box.getAttribute('aria-label').match(/^(.*), (\\d+) actors, /).slice(1)).sort((a, b) =>
    (a[0] < b[0] ? -1 : 1)); })()"""
# The colours of actors' dots by the word of their state, and the colours of the legend:
# {word: [colours]}.
DOTS = """(() => { const colours = {};
  for (const box of document.querySelectorAll('.box.actor')) {
    const word = box.getAttribute('aria-label').match(/, (\\w+), \\S+ firings a second$/)[1];
    (colours[word] ??= new Set()).add(getComputedStyle(box.querySelector('.dot')).fill);
  }
  return Object.fromEntries(Object.entries(colours).map(([word, seen]) => [word, [...seen]]));
})()"""
LEGEND = (
    "Object.fromEntries([...document.querySelectorAll('#legend li')].map((li) => [li.textContent, "
    "[getComputedStyle(li, '::before').backgroundColor]]))"
)
STATES = ('busy', 'waiting', 'dead', 'failed')
CHARTS = (
    "Object.fromEntries([...document.querySelectorAll('.chart')].map((c) => "
    "[c.querySelector('.tag').textContent, ['mean', 'raw'].map((kind) => "
    "c.querySelectorAll(`path.${kind}`).length)]))"
)
# Kinds of events, by the colours that the timeline was filled with since the page was opened.
FILLS = """{ const plain = CanvasRenderingContext2D.prototype.fillRect; window.filled = new Set();
  CanvasRenderingContext2D.prototype.fillRect = function (...where) {
    window.filled.add(this.fillStyle); return plain.apply(this, where); }; }"""
KINDS = (
    "['kernel', 'turn', 'copy', 'send', 'receive', 'wait'].filter((kind) => "
    "window.filled.has(getComputedStyle(document.documentElement)"
    ".getPropertyValue(`--event-${kind}`).trim()))"
)
FIGURES = (
    "[...document.querySelectorAll('.figure')].map((f) => [...f.children].map((c) => "
    "c.textContent).filter(Boolean).join(' '))"
)
# The places of elements that have one: ['tag x y width height'].
PLACES = """(what) => [...document.querySelectorAll(what)].filter((e) =>
  !e.closest('.track, .spark, svg') && e.offsetParent &&
  getComputedStyle(e).display !== 'inline').map((e) => {
  const r = e.getBoundingClientRect();
  return [e.tagName, ...[r.x, r.y, r.width, r.height].map((n) => Math.round(2 * n) / 2)]
    .join(' '); })"""
# How far boxes are out of the pane, in pixels; 0: all are in it.
OUTSIDE = """(() => { const g = document.querySelector('#graph').getBoundingClientRect(),
  all = [...document.querySelectorAll('.box > .card')].map((b) => b.getBoundingClientRect());
  return Math.round(Math.max(0, ...all.map((r) => Math.max(g.left - r.left, r.right - g.right,
    g.top - r.top, r.bottom - g.bottom)))); })()"""
SMALLEST = """Math.min(...[...document.querySelectorAll('body *')].filter((e) =>
  e.getClientRects().length && e.checkVisibility({visibilityProperty: true}) &&
  [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
  const own = parseFloat(getComputedStyle(e).fontSize), m = e.getScreenCTM?.();
  return e.closest('option, title') ? 99 : m ? own * Math.abs(m.a) : own; }))"""
FACTS = (
    "Object.fromEntries([...document.querySelectorAll('#panel .facts dt')].map((t) => "
    "[t.textContent, t.nextSibling.textContent]))"
)
LAYOUTS = """{ const Plain = Worker; window.asked = []; window.told = [];
  window.Worker = class extends Plain {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', ({ data }) => window.told.push(data.key)); }
    postMessage(job) { window.asked.push(job.key); super.postMessage(job); }
  }; }"""
failures = []
build = ''


def check(holds, sentence):
    if not holds:
        failures.append(sentence)
        print(f'FAILED {sentence}', flush=True)


class Node:
    def __init__(self, source, *flags):
        self.process = subprocess.Popen(
            [os.path.join(source, 'test/page/fake_node.py'), source, *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def becomes(page, expression, wanted, sentence):
    """Waits until it is what is wanted."""
    try:
        page.until(
            f'JSON.stringify({expression}) === '
            f'{json.dumps(json.dumps(wanted, separators=(",", ":")))}'
        )
    except AssertionError:
        check(False, f'{sentence}: {page.ask(expression)}, not {wanted}')


def ticks(page, count=2):
    """Waits until the page has sent so many more requests and read all answers but the last."""
    page.ask('performance.setResourceTimingBufferSize(100000)')
    page.until(
        f"performance.getEntriesByType('resource').filter((r) => r.name.includes('/api/state') && "
        f"r.startTime > {page.ask('performance.now()')} && r.responseEnd > 0).length >= {count}"
    )


def still(page):
    """Waits until boxes have glided to their places."""
    page.ask(
        'Promise.allSettled(document.getAnimations().map((a) => a.finished)).then(() => new '
        'Promise(requestAnimationFrame)).then(() => 0)'
    )


def is_quiet(page, what, url):
    check(not page.complaints, f'{what}: {page.complaints[:3]}')
    check(
        all(r.startswith((url, 'blob:', 'data:')) for r in page.requested),
        f'{what}: it asked somebody else: {page.requested}',
    )


def graph(page, grouping='scope'):
    """The tab of the graph, grouped so."""
    page.click('#tab-graph')
    for _ in range(4):
        if (
            page.ask('document.querySelector(`#grouping [aria-checked=true]`)?.dataset.grouping')
            == grouping
        ):
            break
        page.key('g')
    becomes(
        page,
        'document.querySelector(`#grouping [aria-checked=true]`)?.dataset.grouping',
        grouping,
        'the graph is grouped by',
    )


def tab(page, name):
    page.click(f'#tab-{name}')
    becomes(page, 'document.body.dataset.tab', name, 'the tab is')


def find(page, words):
    page.key('/')
    page.write(words)
    page.until("document.querySelectorAll('#found li').length")
    page.key('Enter')
    page.until("!document.querySelector('#panel').hidden")


def sizes(source, browser, shots):
    for actors, bound in ((400, 2), (10_000, 2), (100_000, 20)):
        with Node(source, '--actors', str(actors)) as node:
            page = browser.open(node.url, 1440, 900)
            took = int(page.until(READY))
            print(f'{actors} actors: interactive after {took} ms', flush=True)
            check(took < bound * 10_000, f'{actors} actors took {took} ms')
            ticks(page)
            tab(page, 'graph')
            check(
                2 < page.ask(BOXES) <= 60,
                f'{actors} actors: it starts with {page.ask(BOXES)} boxes',
            )
            page.shot(f'{shots}/actors_{actors}.png')
            is_quiet(page, f'{actors} actors', node.url)


def top_of(plan, grouping):
    """Returns the outermost groups with their numbers of actors.

    A group of one group is named as both.
    """
    groups = collections.defaultdict(list)
    for row in plan['actors']['rows']:
        actor = dict(zip(plan['actors']['columns'], row))
        scope, name = actor['scope'].split('/'), actor['device'].split('/')[-1]
        first, *rest = {
            'scope': scope,
            'partition': [f"partition {actor['partition']}", *scope],
            'device': [actor['device'], *scope],
            'node': [actor['node'], name, *scope],
        }[grouping]
        groups[first].append(rest)
    return sorted(
        ['/'.join([first, *os.path.commonprefix(paths)]), str(len(paths))]
        for first, paths in groups.items()
    )


def opening(source, browser, shots):
    with Node(source, '--actors', '4000') as node:
        page = browser.open(node.url, 1440, 900, first=LAYOUTS)
        page.until(READY)
        graph(page)
        ticks(page, 2)
        asked = page.ask('[window.asked, window.told]')
        check(
            asked[0]
            and asked[0] == asked[1]
            and page.ask('typeof globalThis.dagre') == 'undefined',
            f'not all that is open was laid out in the worker: {asked}',
        )
        tab(page, 'timeline')
        page.until(
            "(document.querySelector('#timeline canvas').getAttribute('aria-label') ?? "
            "'').includes('nothing was recorded')"
        )
        tab(page, 'graph')
        where = (
            "JSON.stringify([...document.querySelectorAll('.box')].map((b) => [b.dataset.box, "
            "b.style.transform]).sort())"
        )
        before = page.ask(where)
        ticks(page, 3)
        check(page.ask(where) == before, 'boxes moved while nobody opened anything')
        boxes = page.ask(BOXES)
        find(page, 'layer 2')
        asked = page.ask('window.asked.length')
        page.key('Enter')
        page.until(f'{BOXES} > {boxes}')
        fresh = page.ask(f'window.asked.slice({asked})')
        check(
            len(fresh) == 1
            and fresh[0].split('\0')[-1] == 'layer 2'
            and page.ask(f'window.told.slice({asked})') == fresh,
            f'to open one group, the worker was asked for {fresh}',
        )
        page.shot(f'{shots}/expanded.png')
        page.key('Enter')
        page.until(f'{BOXES} == {boxes}')
        check(page.ask(where) == before, 'boxes are elsewhere after opening and closing')
        # Everything is opened, one after the other: the page stays within its limit, and lists the
        # boxes that it closed.
        for _ in range(40):
            page.ask(
                "document.querySelector('.box.group:not(.open)')?.dispatchEvent(new "
                "MouseEvent('dblclick', {bubbles: true}))"
            )
            page.ask('new Promise((done) => setTimeout(done))')
            ticks(page, 1) if _ % 10 == 9 else None
        check(page.ask(BOXES) <= 360, f'{page.ask(BOXES)} boxes at once')
        page.key('f')
        page.shot(f'{shots}/all_open.png')
        plan = node.get('api/plan')
        for grouping in ('partition', 'device', 'node', 'scope'):
            page.key('g')
            wanted = top_of(plan, grouping)
            check(
                len(wanted) > 1
                and page.ask(
                    'document.querySelector(`#grouping [aria-checked=true]`).dataset.grouping'
                )
                == grouping,
                f'g does not group by {grouping}',
            )
            becomes(page, TOP, wanted, f'grouped by {grouping}, there are')
            ticks(page, 1)
            page.shot(f'{shots}/by_{grouping}.png')
        is_quiet(page, 'opening', node.url)


def records_are_drawn(page, what):
    """Each scalar has a raw curve and a smoothed one.

    The last histogram is a curve over nearly all of the width, with earlier ones behind it.
    """
    wanted = {
        'chars/s': [1, 1],
        'train/loss': [1, 1],
        'validation/bits': [1, 1],
        'weights/w': [1, 2],
    }
    page.until("document.querySelectorAll('.chart path.mean').length")
    charts = page.ask(CHARTS)
    check(charts == wanted, f'{what}: means and what is behind them: {charts}')
    paths = page.ask(
        "[...document.querySelectorAll('.chart path')].map((p) => [p.getAttribute('d'), "
        "p.getBBox().width, p.getBBox().height])"
    )
    check(
        all(
            re.fullmatch('[-MLCZ0-9.,e]+', d) and width > 200 and height > 50
            for d, width, height in paths
        ),
        f'{what}: curves are not drawn: {paths}',
    )
    weights = (
        "[...document.querySelectorAll('.chart')].find((c) => c.querySelector('.tag').textContent "
        "=== 'weights/w')"
    )
    last, shapes = page.ask(
        f"[{weights}?.querySelector('b').textContent, [...{weights}?.querySelectorAll('path') ?? "
        f"[]].map((p) => p.getAttribute('d'))]"
    )
    check(
        last == '−1 to 1 at 400' and len(set(shapes)) == 3,
        f'{what}: of the last histogram is said {last!r}, and all are {shapes}',
    )


def selecting(source, browser, shots):
    with Node(source, '--actors', '400') as node:
        page = browser.open(node.url, 1440, 900, first=FILLS)
        page.until(READY)
        tab(page, 'timeline')
        becomes(
            page, KINDS, ['kernel', 'turn', 'copy', 'send', 'receive', 'wait'], 'the timeline shows'
        )
        page.shot(f'{shots}/timeline.png')
        graph(page)
        check(
            page.ask("document.querySelector('.box.selected')") is None,
            'a box is selected before anybody clicked',
        )
        x, y, box = page.until(CLOSED)
        page.click_at(x, y)
        page.until(
            f"document.querySelector('.box.selected')?.dataset.box === '{box}' && "
            "!document.querySelector('#panel').hidden"
        )
        pill = page.ask("document.querySelector('.box .loop text').textContent")
        iterations = re.fullmatch(r'↻ (\d+)–(\d+)', pill)
        check(
            iterations and int(iterations[2]) - int(iterations[1]) == 11,
            f'12 iterations of a loop are open, and its pill says {pill!r}',
        )
        find(page, 'tanh 12')
        ticks(page)
        text = page.ask(TEXT)
        for wanted in (
            'tanh 12',
            'model.cpp:42',
            'Firings',
            'Open iterations',
            '/cpu:0',
            'f32 [32, 256]',
            '12.5 of 32 iterations, over 12.3 s',
        ):
            check(wanted in text, f'an actor: {wanted} is not in {text!r}')
        page.shot(f'{shots}/actor.png')
        find(page, 'next batch')
        ticks(page)
        text = page.ask(TEXT)
        for wanted in ('Bytes in', '5.00 MiB', 'Queue', '3 of 8 elements'):
            check(
                wanted in text, f'an actor that takes out of a queue: {wanted} is not in {text!r}'
            )
        page.until(f"{TITLE} === 'next batch'")
        for _ in range(9):
            page.key('n')
            if page.ask(TITLE).endswith('→ loss'):
                break
        ticks(page)
        facts, flow = page.ask(f"[{FACTS}, document.querySelector('.link.near .flow').textContent]")
        queue = re.fullmatch(r'(\d+) of 32', facts.get('In flight', ''))
        check(
            queue
            and facts.get('Rate') == '171/s'
            and facts.get('Edges') == '1'
            and facts.get('Credit left')
            == f'{32 - int(queue[1])} ({(100 * (32 - int(queue[1])) + 16) // 32} %)',
            f'a cut edge: {facts}',
        )
        check(
            flow == f"{facts.get('Rate')} · {facts.get('In flight')}",
            f'beside the edge stands {flow!r}, in the panel {facts}',
        )
        find(page, 'layer 0')
        ticks(page)
        text = page.ask(TEXT)
        for where in ('a', 'b'):
            check(
                f'on /node:{where}/cpu:0' in text and '12.5 of 32 iterations' in text,
                f'a loop: how far its iterations ran side by side on {where} is not in {text!r}',
            )
        find(page, 'tanh 12')
        ticks(page)
        side = page.ask("document.querySelector('#side').innerText")
        check(
            '→ b' in side and 'µs' in side and 'worst of 2' in side,
            f'what a ping to b takes is not said: {side!r}',
        )
        check(
            'swapped' in side and '24.0 MiB' in side,
            f'what b has swapped out is not said: {side!r}',
        )
        check(
            'cpu:0 compute' in side and '62 %, 14 open' in side,
            f'how busy the queue of a device is, is not said: {side!r}',
        )
        page.key('Escape')
        page.until("document.querySelector('#panel').hidden")
        active = page.ask('document.activeElement.dataset.box')
        page.key('ArrowDown')
        check(
            page.ask('document.activeElement.dataset.box') not in (None, active),
            'the arrow keys lead nowhere',
        )
        page.ask(
            "document.querySelector('.link .hit').dispatchEvent(new MouseEvent('click', {bubbles: "
            "true}))"
        )
        page.until("!document.querySelector('#panel').hidden")
        check(
            '→' in page.ask("document.querySelector('#panel h2').textContent"),
            'an edge has no panel',
        )
        page.shot(f'{shots}/edge.png')
        # Now by keys, and from event to event.
        find(page, 'tanh 12')
        page.until(f"{TITLE} === 'tanh 12'")
        page.key('n')
        page.until("document.querySelector('#panel h2')?.textContent.includes('→')")
        page.key('t')
        page.until(
            "/^[1-9]/.test(document.querySelector('#timeline canvas').getAttribute('aria-label') "
            "?? '')"
        )
        page.ask("document.querySelector('#timeline canvas').focus()")
        page.key('ArrowLeft')
        page.until("!document.querySelector('#tip').hidden")
        page.shot(f'{shots}/by_keys.png')
        page.key('Escape')
        page.until("document.querySelector('#tip').hidden")
        page.key('l')
        records_are_drawn(page, 'training')
        check(
            '<b>Moses</b>' in page.ask("document.querySelector('.texts').innerText"),
            'a text of the records was read as HTML',
        )
        page.shot(f'{shots}/training.png')
        page.ask("document.querySelector('.chart svg').focus()")
        read = "document.querySelector('.chart figcaption b').textContent"
        page.key('ArrowLeft')
        last = page.ask(read)
        page.key('ArrowLeft')
        before = page.ask(read)
        check(
            before != last
            and page.ask("document.querySelector('.chart .cross').getAttribute('visibility')")
            == 'visible',
            f'a key reads {last!r} of a curve, the next {before!r}',
        )
        ticks(page)
        check(
            page.ask(read) == before and page.ask("document.activeElement.matches('.chart svg')"),
            f'what is read of a curve changes as others come: {before!r}, {page.ask(read)!r}',
        )
        page.shot(f'{shots}/point.png')
        page.key('Escape')
        check(
            page.ask("document.querySelector('.chart .cross').getAttribute('visibility')")
            == 'hidden',
            'Escape does not end the reading of a curve',
        )
        page.key('?')
        page.until("document.querySelector('#help').open")
        page.shot(f'{shots}/keys.png')
        is_quiet(page, 'selecting', node.url)


# The owner of the plan starts again, and another program of its is the third: the page shows the
# present plan.
def causes(source, browser, shots):
    """Found dependences beside the true ones; why those of a training are no causes."""
    with Node(source) as node:
        page = browser.open(node.url, 1280, 900)
        page.until('document.documentElement.dataset.interactive')
        page.key('c')
        becomes(page, 'document.body.dataset.tab', 'causes', 'the tab is')
        page.until("document.querySelectorAll('#causes section').length === 2")
        section = 'document.querySelectorAll("#causes section")'
        for at, title, is_warned in (
            (0, 'a: precision 30 %, recall 100 %', True),
            (1, 'b: precision 67 %, recall 67 %', False),
        ):
            text = page.ask(f'{section}[{at}].querySelector("h2").textContent')
            check(text.startswith(title), f'causes: {text!r}, not {title!r}')
            why = page.ask(f'{section}[{at}].querySelector(".verdict").hidden')
            check(why != is_warned, f'causes of node {at}: the reason is hidden: {why}')
        why = f'{section}[0].querySelector(".verdict").textContent'
        page.until(f'{why}.startsWith("A training runs here, and its steps lock")')
        count = 'document.querySelectorAll("#causes section:last-child .edges path.%s").length'
        for kind, wanted in (('right', 4), ('wrong', 1), ('missed', 1)):
            becomes(page, count % kind, wanted, f'causes: edges that are {kind}')
        outside = page.ask(
            """[...document.querySelectorAll('#causes figure svg')].filter((drawn) => {
              const box = drawn.getBoundingClientRect();
              return [...drawn.querySelectorAll('.channels text')].some((text) => {
                const own = text.getBoundingClientRect();
                return own.left < box.left - 1 || own.right > box.right + 1;
              });
            }).length"""
        )
        check(outside == 0, f'causes: names of {outside} drawings are cut off')
        page.shot(f'{shots}/causes.png')
        page.click('#theme')
        page.shot(f'{shots}/causes_other.png')
        is_quiet(page, 'causes', node.url)
    with Node(source, '--hostile') as node:
        page = browser.open(node.url, 1280, 900)
        page.until('document.documentElement.dataset.interactive')
        page.key('c')
        becomes(page, 'document.body.dataset.tab', 'causes', 'the tab is')
        page.until("document.querySelectorAll('#causes section').length === 2")
        ticks(page)
        check(page.ask('document.title') != 'owned', 'causes: a name was parsed as HTML')
        is_quiet(page, 'causes of hostile names', node.url)


def reborn(source, browser, shots):
    with Node(source, '--actors', '60', '--reborn-after', '20') as node:
        page = browser.open(node.url, 1280, 800)
        page.until(READY)
        find(page, 'next batch')
        page.key('Escape')
        page.until(
            "performance.getEntriesByType('resource').filter((r) => "
            "r.name.includes('/api/plan')).length >= 2"
        )
        ticks(page)
        page.key('/')
        page.write('second life')
        page.until("document.querySelectorAll('#found li').length")
        is_quiet(page, 'an owner that starts again', node.url)


def colours(page):
    """The dot colours of actors by the word of their state are those of the legend."""
    dots = page.until(f"(dots => {json.dumps(STATES)}.every((word) => dots[word]) && dots)({DOTS})")
    legend = page.ask(LEGEND)
    check(
        all(legend.get(word) == of for word, of in dots.items()),
        f'the legend has {legend}, boxes have {dots}',
    )
    check(
        len({of[0] for of in legend.values()}) == len(legend) == 6,
        f'two states look alike: {legend}',
    )
    return legend


def overview(source, browser, shots):
    """The first tab, and the others, light and dark and in windows of two sizes."""
    for failing in ('', 'error', 'hang'):
        with Node(source, '--actors', '400', '--failing', failing) as node:
            for width, height in ((1280, 720), (1440, 900)):
                for is_dark in (False, True):
                    page = browser.open(node.url, width, height, is_dark)
                    page.until(READY)
                    page.until(
                        "document.querySelector('.plot path.mean') && "
                        "document.querySelectorAll('.tile.nodes tbody tr').length === 3"
                    )
                    ticks(page, 3)
                    what = f'the overview of {failing or "a training"} at {width} × {height}'
                    check(
                        page.ask('document.body.dataset.tab') == 'overview',
                        f'{what} is not what it opens on',
                    )
                    figures = page.ask(FIGURES)
                    check(
                        len(figures) == 5
                        and re.fullmatch(r'Step [\d,]+ of 12,000 · [\d.]+ %', figures[0])
                        and re.fullmatch(r'Loss \d\.\d+', figures[1])
                        and re.fullmatch(r'Validation \d\.\d+', figures[2])
                        and figures[3] == 'Rate 181k characters a second'
                        and re.fullmatch(r'Time left [\dminsh ]+ until \d\d:\d\d', figures[4]),
                        f'{what}: progress is {figures}',
                    )
                    line = page.ask(
                        "[...document.querySelectorAll('.figure')].map((f) => "
                        "f.getBoundingClientRect().top)"
                    )
                    check(len(set(line)) == 1, f'{what}: progress is not one line: {line}')
                    plot = page.ask(
                        "(({width, height}) => [width, "
                        "height])(document.querySelector('.plot').getBoundingClientRect())"
                    )
                    check(
                        plot[0] > width / 2 and plot[1] > height / 3,
                        f'{what}: the loss is {plot} large',
                    )
                    runs = page.ask(
                        "[...document.querySelectorAll('.tile.runs tr.run')].map((row) => "
                        "[...row.querySelectorAll('td.number')].slice(0, 3).map((c) => "
                        "c.textContent).concat(row.querySelector('.spark path').getAttribute('d')"
                        ".length > 0))"
                    )
                    check(
                        runs
                        and all(
                            re.fullmatch(r'[\d.]+[kM]?', count)
                            and re.fullmatch(r'[\d.]+ (ns|µs|ms|s)|–', middle)
                            and re.fullmatch(r'[\d.]+ (ns|µs|ms|s)|–', slowest)
                            for count, middle, slowest, _ in runs
                        )
                        and any(has_bars and middle != '–' for _, middle, _, has_bars in runs),
                        f'{what}: rows of runs are {runs}',
                    )
                    rows = page.ask(
                        "[...document.querySelectorAll('.tile.busiest tbody tr')].filter((r) => "
                        "r.innerText.trim()).length"
                    )
                    check(rows == 5, f'{what}: {rows} busiest actors')
                    cut = page.ask(
                        "[...document.querySelectorAll('.tile.nodes td, .tile .cell .value, "
                        ".tile.busiest td, .tile.runs td, .figure')].filter((c) => "
                        "!c.matches('.why, .name') && c.scrollWidth > c.clientWidth + 1).map((c) "
                        "=> c.innerText)"
                    )
                    check(not cut, f'{what}: words are cut off: {cut}')
                    seen = page.ask(
                        "['.tile.progress', '.tile.loss', '.tile.nodes', '.tile.amiss', "
                        "'.tile.failed', '.tile.busiest', '.tile.runs'].filter((t) => { const r = "
                        "document.querySelector(t).getBoundingClientRect(); return r.bottom > "
                        "innerHeight || r.right > innerWidth || r.height < 60; })"
                    )
                    check(not seen, f'{what}: not in sight: {seen}')
                    amiss, failed = page.ask(
                        "[document.querySelector('.tile.amiss').innerText, "
                        "document.querySelector('.tile.failed').innerText]"
                    )
                    if failing == 'error':
                        check(
                            'worker3' in amiss
                            and '10 in the last hour' in failed
                            and 'a/15' in failed,
                            f'{what}: amiss are {amiss!r}, {failed!r}',
                        )
                        page.ask(
                            "document.querySelectorAll('.tile.failed details').forEach((d) => { "
                            "d.open = true; })"
                        )
                        opened = page.ask("document.querySelector('.tile.failed').innerText")
                        check(
                            'To go on: start the program again with --resume FILE' in opened
                            and '/var/lib/troupe/flight/gone-38.json on node b' in opened
                            and '2 failures of this kind' in opened,
                            f'{what}: an opened failure says {opened!r}',
                        )
                        page.ask(
                            "document.querySelectorAll('.tile.failed details').forEach((d) => { "
                            "d.open = false; })"
                        )
                    elif failing == 'hang':
                        page.until(
                            "document.querySelector('.tile.amiss').innerText.includes('a/17')"
                        )
                    else:
                        check(
                            'Nothing is amiss' in amiss and 'No run has failed' in failed,
                            f'{what}: {amiss!r}, {failed!r}',
                        )
                    check(page.ask(SMALLEST) >= 11, f'{what}: a text of {page.ask(SMALLEST)} px')
                    theme = 'dark' if is_dark else 'light'
                    name = f"{shots}/{failing or 'well'}_{width}x{height}_{theme}"
                    page.shot(f'{name}_overview.png')
                    for key, other in (('g', 'graph'), ('t', 'timeline'), ('l', 'curves')):
                        page.key(key)
                        ticks(page)
                        check(
                            page.ask(SMALLEST) >= 10.99,
                            f'{what}: {other} has a text of {page.ask(SMALLEST)} px',
                        )
                        page.shot(f'{name}_{other}.png')
                    is_quiet(page, what, node.url)
                    page.call('Page.close')
    # Without a word of progress, the curves' names say it; an actor and a plan lead to the graph.
    with Node(source, '--actors', '400', '--plain') as node:
        page = browser.open(node.url, 1280, 720)
        page.until(READY)
        figures = page.until(f"(f => /^Step \\d/.test(f[0]) && f)({FIGURES})")
        check(
            'unknown' in figures[0]
            and figures[4] == 'Time left –'
            and figures[3].endswith('chars a second'),
            f'a training that reports no progress: {figures}',
        )
        page.ask("document.querySelector('.plot svg').focus()")
        page.key('ArrowLeft')
        read = page.ask("document.querySelector('.tile.loss .read').textContent")
        check(re.search(r' at \d+', read), f'of the loss a key reads {read!r}')
        page.key('Escape')
        name = page.until("document.querySelector('.tile.busiest .link')?.textContent")
        page.click('.tile.busiest .link')
        page.until(f"document.body.dataset.tab === 'graph' && {TITLE} === {json.dumps(name)}")


def calm(source, browser, shots):
    """While numbers change, nothing moves in the side panel, nor in the overview's tables."""
    with Node(source, '--actors', '400', '--failing', 'error') as node:
        page = browser.open(node.url, 1280, 720)
        page.until(READY)
        for name, root, what in (
            ('overview', '#overview', '#overview :is(.tile, .title, .figure, th, td, li)'),
            ('graph', '#side', '#side *'),
        ):
            tab(page, name)
            ticks(page, 2)
            before, words = page.ask(
                f"[({PLACES})('{what}'), document.querySelector('{root}').innerText]"
            )
            check(len(before) > 60, f'{root} has {len(before)} places')
            for _ in range(6):
                ticks(page, 2)
                after = page.ask(f"({PLACES})('{what}')")
                check(
                    before == after,
                    f'in {root} moved: {sorted(set(after) - set(before))[:4]}, from '
                    f'{sorted(set(before) - set(after))[:4]}',
                )
            check(
                words != page.ask(f"document.querySelector('{root}').innerText"),
                f'no number changed in {root}',
            )


def fits(source, browser, shots):
    """All of the graph is in its pane, whenever pane or window change."""
    with Node(source, '--actors', '4000') as node:
        page = browser.open(node.url, 1440, 900)
        page.until(READY)
        check(
            page.ask('document.querySelector(`#grouping [aria-checked=true]`).dataset.grouping')
            == 'node',
            'nodes are not first, where there are several',
        )
        for grouping in ('node', 'scope', 'partition'):
            graph(page, grouping)
            page.until(
                "[...document.querySelectorAll('.box .name')].filter((n) => "
                "n.getClientRects().length && n.textContent).length > 3",
                20,
            )  # it starts with names
            for width, height in ((1440, 900), (1280, 720), (1000, 800), (1920, 1080)):
                page.size(width, height)
                becomes(
                    page,
                    OUTSIDE,
                    0,
                    f'by {grouping} at {width} × {height}, boxes out of the pane by',
                )
        still(page)
        x, y, _ = page.until(CLOSED)
        page.click_at(x, y)
        page.until("!document.querySelector('#panel').hidden")
        becomes(page, OUTSIDE, 0, 'beside the panel, boxes are out of the pane by')
        page.key('Escape')
        becomes(page, OUTSIDE, 0, 'without the panel, boxes are out of the pane by')
        page.key('+')
        page.key('+')
        page.size(1280, 720)
        becomes(page, OUTSIDE, 0, 'after a zoom, in another window, boxes are out of the pane by')


def lasting(source, browser, shots):
    """The timeline shows the waits of a run that hangs, and of the silent node, up to now."""
    with Node(source, '--actors', '400', '--failing', 'hang') as node:
        page = browser.open(node.url, 1280, 720)
        page.until(READY)
        page.key('t')
        label = page.until(
            "((l) => / that last/.test(l) && l)(document.querySelector('#timeline "
            "canvas').getAttribute('aria-label') ?? '')"
        )
        ticks(page, 2)
        check(
            re.search(r', [3-9] that last', label),
            f'the timeline of a run that hangs says {label!r}',
        )
        both = """(() => { const c = document.querySelector('#timeline canvas'),
          g = c.getContext('2d'), column = g.getImageData(c.width - 16, 0, 1, c.height).data;
          const style = getComputedStyle(document.documentElement),
            wanted = ['--event-wait', '--failed'].map((name) =>
              style.getPropertyValue(name).trim().slice(1).match(/../g).map((h) =>
                parseInt(h, 16)).join());
          const seen = new Set();
          for (let i = 0; i < column.length; i += 4)
            seen.add([column[i], column[i + 1], column[i + 2]].join());
          return wanted.map((w) => seen.has(w)); })()"""
        becomes(page, both, [True, True], 'beside now, waits and silence are drawn')
        page.shot(f'{shots}/lasting.png')


def searching(source, browser, shots):
    """A hit shows scope, node and state; the busiest are first."""
    with Node(source, '--actors', '400') as node:
        page = browser.open(node.url, 1440, 900)
        page.until(READY)
        ticks(page)
        page.key('/')
        page.write('tanh')
        rows = page.until(
            "((rows) => rows.length > 5 && rows)([...document.querySelectorAll('#found "
            "li')].map((li) => [...li.children].slice(1).map((c) => c.innerText)))"
        )
        check(
            all(
                'lstm/layer' in where
                and 'Tanh' in where
                and on in 'ab'
                and word in ('busy', 'ready', 'waiting', 'dead', 'idle', 'failed')
                for _, where, on, word in rows
            ),
            f'search shows {rows[:3]}',
        )
        counters = {
            row[0]: row[3] for row in node.get('api/counters?plan=a/3&since=0')['actors']['rows']
        }
        plan = {row[2]: [] for row in node.get('api/plan?id=a/3')['actors']['rows']}
        for row in node.get('api/plan?id=a/3')['actors']['rows']:
            plan[row[2]].append(counters[row[0]])
        busy = [max(plan[name]) for name, *_ in rows if name in plan]
        check(
            len(busy) > 5 and busy[0] >= busy[-1],
            f'the busiest are not first: {list(zip(rows, busy))}',
        )
        page.shot(f'{shots}/search.png')


def leaving(source, browser, shots):
    """The owner of the plan leaves: its graph leaves with it, and its last failure stays."""
    with Node(source, '--actors', '60', '--failing', 'error', '--left-after', '12') as node:
        page = browser.open(node.url, 1280, 720)
        page.until(READY)
        graph(page)
        find(page, 'next batch')
        page.until("!document.querySelector('#nothing').hidden")
        ticks(page)
        words = page.ask("document.querySelector('#nothing').innerText")
        check(
            page.ask(BOXES) == 0
            and page.ask("document.querySelectorAll('.link .line').length") == 0,
            'the graph of an owner that has left stays',
        )
        check(
            'a/3 has ended' in words and 'a/15' in words and 'do not match' in words,
            f'where the graph was stands {words!r}',
        )
        check(
            page.ask("document.querySelector('#panel').hidden")
            and page.ask("document.querySelector('#plan').options.length") == 0,
            'its panel or its name stays',
        )
        page.shot(f'{shots}/left_graph.png')
        tab(page, 'overview')
        check(
            'do not match' in page.ask("document.querySelector('.tile.failed').innerText"),
            'the failure of an owner that has left is forgotten',
        )
        check(
            'left' in page.ask("document.querySelector('.tile.nodes').innerText"),
            'it is not said that a node has left',
        )
        page.shot(f'{shots}/left.png')
        page.key('/')
        page.write('next')
        page.until("document.querySelector('#found').innerText.includes('Nothing has that name')")
        is_quiet(page, 'an owner that has left', node.url)


def looks(source, browser, shots):
    with Node(source, '--actors', '400', '--failing', 'error') as node:
        ground, grounds = 'getComputedStyle(document.body).backgroundColor', []
        pages, legends = [], []
        for name, is_dark in (('failed_light', False), ('failed_dark', True)):
            page = browser.open(node.url, 1440, 900, is_dark)
            page.until(READY)
            ticks(page)
            why = page.ask(
                "(() => { const why = document.querySelector('.tile.failed .text'); return "
                "why.offsetHeight > 0 ? why.innerText : ''; })()"
            )
            check(
                'do not match' in why, f'why a run failed that has ended is not in sight: {why!r}'
            )
            graph(page)
            page.key('e')
            page.until("document.querySelector('#panel .verdict')")
            check('do not match' in page.ask(TEXT), 'the last error is not shown')
            check(
                '12 s' in page.ask("document.querySelector('#side').innerText"),
                'it is not said since when a node is away',
            )
            page.shot(f'{shots}/{name}.png')
            grounds.append(page.ask(ground))
            find(page, 'not taken')
            pages.append(page)
            legends.append(colours(page))
        check(grounds[0] != grounds[1], 'dark is as light')
        check(
            all(legends[0][word] != legends[1][word] for word in STATES),
            f'states in the light are as in the dark: {legends[0]}',
        )
        for page, turned in zip(pages, (1, 0)):
            page.key('d')
            check(page.ask(ground) == grounds[turned], 'the theme cannot be turned')
            check(
                colours(page) == legends[turned],
                f'states in a theme that was turned to: {page.ask(LEGEND)}, not {legends[turned]}',
            )
    with Node(source, '--actors', '400', '--failing', 'hang') as node:
        page = browser.open(node.url, 1440, 900)
        page.until(READY)
        page.until(
            "document.querySelector('.tile.amiss').innerText.includes('nothing in this run or "
            "elsewhere enqueues')"
        )
        graph(page, 'node')
        check(
            page.ask("document.querySelectorAll('.link.full').length") > 0,
            'edges without credit look as others',
        )
        page.shot(f'{shots}/hang.png')
        tab(page, 'overview')
        page.ask("document.activeElement.blur()")
        for _ in range(40):
            page.key('Tab')
            if page.ask("document.activeElement.matches('.tile.amiss button.entry')"):
                break
        page.shot(f'{shots}/verdict.png')
        page.key('Enter', '\r')
        page.until(f"{TITLE} === 'next batch'")
        page.until("document.querySelectorAll('#panel .verdict').length === 2")
        waits, awaited = page.ask(
            "[...document.querySelectorAll('#panel .verdict')].map((v) => v.innerText)"
        )
        check(
            waits.startswith('Waits for')
            and "queue 'batches' for 2 s, in run a/17" in waits
            and '/node:' not in waits,
            f'what an actor waits for: {waits!r}',
        )
        check(
            awaited.startswith('Awaited by') and '/node:b/cpu:0, in run a/17' in awaited,
            f'who awaits an actor: {awaited!r}',
        )
        page.shot(f'{shots}/awaited.png')
        find(page, 'state')
        page.until(
            f"{TEXT}.includes(`/node:a/cpu:0, in iteration 12 of loop 'time', in run a/17, and 2 "
            f"more iterations like it`)"
        )
    with Node(source, '--actors', '400') as node:
        page = browser.open(node.url, 420, 860)
        page.until(READY)
        ticks(page)
        check(
            page.ask('document.documentElement.scrollWidth <= innerWidth'),
            'a narrow window scrolls sideways',
        )
        page.shot(f'{shots}/narrow.png')
        graph(page)
        page.click('#side-button')
        page.until("getComputedStyle(document.querySelector('#side')).visibility == 'visible'")
        page.shot(f'{shots}/narrow_side.png')
        page = browser.open(node.url, 1400, 900)
        page.until(READY)
        graph(page)
        page.size(420, 860)
        ticks(page)
        check(page.ask(SEEN) > 0, 'the graph is out of sight in a window that has become narrow')
        page.shot(f'{shots}/narrowed.png')


def hostile(source, browser, shots):
    with Node(source, '--actors', '60', '--hostile') as node:
        page = browser.open(node.url, 1440, 900)
        page.until(READY)
        ticks(page)
        for words in ('script', 'onmouse', 'img src', 'aaaa', '{{7'):
            find(page, words)
            ticks(page, 1)
        page.shot(f'{shots}/hostile.png')
        check(
            page.ask('document.title').endswith('Troupe'),
            f"a name ran: {page.ask('document.title')}",
        )
        check(
            page.ask(
                "document.querySelectorAll('img, svg script, [onerror], [onmouseover]').length"
            )
            == 0,
            'a name became an element',
        )
        is_quiet(page, 'hostile names', node.url)
        # The policy binds: inline and foreign scripts are refused, and this test sees the
        # complaint.
        page.ask(
            "{ const s = document.createElement('script'); s.textContent = 'document.title = "
            "`owned`'; document.body.append(s); }"
        )
        page.ask("fetch('http://127.0.0.1:1/').catch(() => 0)")
        check(page.ask('document.title').endswith('Troupe'), 'an inline script ran')
        for _ in range(200):  # complaints come on their own
            if len(page.complaints) >= 2:
                break
            page.ask('new Promise((done) => setTimeout(done, 30))')
        check(len(page.complaints) >= 2, 'the policy refused nothing')


def trouble(source, browser, shots):
    with Node(source, '--actors', '60', '--silent-after', '4') as node:
        page = browser.open(node.url, 1280, 800)
        page.until(READY)
        page.until("!document.querySelector('#alarm').hidden")
        check(
            'does not answer' in page.ask("document.querySelector('#alarm').innerText"),
            'a silent node is not said to be',
        )
        check(page.ask(BOXES) > 1, 'what was heard last is gone')
        page.shot(f'{shots}/silent.png')
    with Node(source, '--actors', '60', '--token', 'let-me-in') as node:
        page = browser.open(node.url, 1280, 800)
        page.until("document.querySelector('#ask')?.open")
        page.shot(f'{shots}/token.png')
        page.write('let-me-in')
        page.key('Enter', '\r')
        page.until(READY)
        page = browser.open(f'{node.url}#token=let-me-in', 1280, 800)
        page.until(READY)
        check('token' not in page.ask('location.href'), 'the token stays in the address')


def begun(what, since):
    """When the page asked for it, by its own clock."""
    return (
        f"performance.getEntriesByType('resource').filter((r) => r.name.includes('/api/{what}') && "
        f"r.startTime > {since}).map((r) => r.startTime)"
    )


# Rests of 100 ms, as many as make `ms`, and the ms in which a request was open meanwhile. If the
# machine or browser stalls, rests take longer, and ticks may, too: the result is less than the time
# that went by.
SPAN = """(async (ms) => { const begin = performance.now();
  for (let rested = 0; rested < ms; rested += 100)
    await new Promise((done) => { setTimeout(done, 100); });
  let asking = 0, until = begin;
  for (const r of performance.getEntriesByType('resource').filter((r) =>
    /api.(state|counters|events|actor|scalars)/.test(r.name)).sort((a, b) =>
    a.startTime - b.startTime)) {
    asking += Math.max(0, r.responseEnd - Math.max(until, r.startTime));
    until = Math.max(until, r.responseEnd);
  }
  return ms - asking; })"""


def polling(source, browser, shots):
    """A visible page requests deltas at least once a second, a hidden one every 2 s.

    The requests that its node receives decide.
    """
    with Node(source, '--actors', '60') as node:
        page = browser.open(
            node.url,
            1280,
            800,
            first=(
                "Object.defineProperty(Document.prototype, 'hidden', { get: () => "
                "Boolean(window.isAway) });"
            ),
        )
        page.until(READY)
        ticks(page)
        before = node.get('deltas')['deltas']
        at_rest = page.ask(f'{SPAN}(8000)')
        polls = node.get('deltas')['deltas'] - before
        print(
            f'{polls} polls in {at_rest / 1000:.1f} s without those that it waited for answers',
            flush=True,
        )
        check(
            polls >= 2 and polls + 1 >= at_rest / 1000, f'{polls} polls in {at_rest / 1000:.1f} s'
        )
        page.ask('window.isAway = true')
        since = page.ask('performance.now()')
        page.until(f"{begun('counters', since)}.length >= 3")
        times = page.ask(begun('counters', since))
        check(
            len(times) >= 3
            and all(after - before > 1990 for before, after in zip(times, times[1:])),
            f'a page that is hidden asks at {times} ms',
        )
        is_quiet(page, 'polling', node.url)


def late(source, browser, shots):
    """Each of the four answers of a tick takes 1.5 s: deltas come as often as with one."""
    with Node(source, '--actors', '60', '--late', '1.5') as node:
        page = browser.open(node.url, 1280, 800)
        page.until(READY)
        find(page, 'next batch')
        page.key('t')
        ticks(page)
        since = page.ask('performance.now()')
        page.until(
            f"{begun('counters', since)}.length >= 5 && {begun('events', since)}.length >= 4 && "
            f"{begun('actor', since)}.length >= 4",
            120,
        )
        times = page.ask(begun('counters', since))
        gaps = sorted(after - before for before, after in zip(times, times[1:]))
        gap = gaps[len(gaps) // 2]  # one may be the machine's
        check(
            gap < 4500,
            f'counters are asked for every {gap / 1000:.1f} s of a node that takes 1.5 s for each '
            'answer',
        )
        is_quiet(page, 'a node that is late', node.url)


def live(browser, shots, url):
    """The page of a node that computes."""
    page = browser.open(url, 1440, 900, first=FILLS)
    page.until(READY)
    figures = page.until(
        f"((f) => f[0].startsWith('Step') && /no report/.test(f[4]) && f)({FIGURES})"
    )  # it has ended long ago, unfinished
    check(
        figures[0] == 'Step 11 of 16 · 69 %'
        and re.fullmatch(r'Loss \d\.\d+', figures[1])
        and figures[2:4] == ['Validation –', 'Rate 64 points a second']
        and re.fullmatch('Time left – no report for [\\w. ]+', figures[4]),
        f'the progress of a real training: {figures}',
    )
    page.shot(f'{shots}/live_overview.png')
    find(page, 'product')
    page.until(f"{TEXT}.includes('Open iterations')")
    facts, text = page.ask(f'[{FACTS}, {TEXT}]')
    check(
        'MatMul' in text
        and re.fullmatch(r'busy_nodes\.cpp:\d+', facts.get('Line', ''))
        and facts.get('Frame') == 'both/1',
        f'an op of a real node: {text!r}',
    )
    check(
        re.match(r'\S+( at \S+)? of run a/2, 32 at most', facts.get('Open iterations', '')),
        f'an op of a loop: {facts}',
    )
    waits = "[...document.querySelectorAll('#panel .verdict')].map((v) => v.innerText)"
    awaited = page.until(f"{waits}.find((text) => text.startsWith('Awaited by'))")
    check(
        "/node:b/cpu:0, in iteration " in awaited and "of loop 'both/1', in run a/2" in awaited,
        f'who awaits an op of a real node: {awaited!r}',
    )
    page.shot(f'{shots}/live_node.png')
    tab(page, 'timeline')
    page.until(
        "/^[1-9]/.test(document.querySelector('#timeline canvas').getAttribute('aria-label') ?? '')"
    )
    becomes(
        page,
        KINDS,
        ['kernel', 'turn', 'send', 'receive', 'wait'],
        'the timeline of a real node shows',
    )
    page.shot(f'{shots}/live_timeline.png')
    tab(page, 'graph')
    for _ in range(9):
        page.key('n')
        if page.ask(TITLE).startswith('product → Add'):
            break
    facts, flow = page.until(
        f"((facts) => /[1-9]/.test(facts.Rate) && [facts, document.querySelector('.link.near "
        f".flow').textContent])({FACTS})"
    )
    queue = re.fullmatch(r'(\d+) of (\d+)', facts.get('In flight', ''))
    credit = re.fullmatch(r'(\d+) \(\d+ %\)', facts.get('Credit left', ''))
    check(
        re.fullmatch(r'[\d.]+k?/s', facts['Rate'])
        and queue
        and credit
        and int(queue[2]) == 32 == int(queue[1]) + int(credit[1]),
        f'an edge of a real node that leads to another: {facts}',
    )
    check(
        facts.get('Between partitions') == '1'
        and 'iB/s' in facts.get('Payload', '')
        and re.match('[1-9]', facts.get('Tokens so far', '')),
        f'what went over an edge of a real node: {facts}',
    )
    check(
        flow == f"{facts.get('Rate')} · {facts.get('In flight')}",
        f'beside the edge stands {flow!r}, in the panel {facts}',
    )
    page.shot(f'{shots}/live_edge.png')
    trained(page)
    page.shot(f'{shots}/live_training.png')
    is_quiet(page, 'a real node', url)
    page.call('Page.close')


def trained(page):
    """The page shows the training records of another node: a falling loss, weights, words.

    The records are those of test/tools/busy_nodes.cpp.
    """
    page.key('l')
    charts = page.until(f"(charts => charts['fit/loss'] && charts['fit/w'] && charts)({CHARTS})")
    check(
        charts == {'fit/loss': [1, 1], 'fit/w': [1, 5]},
        f'records of a real training: means and what is behind them: {charts}',
    )
    chart = (
        lambda name: (
            f"[...document.querySelectorAll('.chart')].find((c) => "
            f"c.querySelector('.tag').textContent === '{name}')"
        )
    )
    curve = page.ask(f"{chart('fit/loss')}.querySelector('path.mean').getAttribute('d')")
    heights = [float(y) for y in re.findall(r'[ML]?[-\d.]+,([-\d.]+)', curve)]
    check(
        len(heights) == 12 and all(before < after for before, after in zip(heights, heights[1:])),
        f'a loss that falls with each of 12 steps is drawn as {curve!r}',
    )  # y grows downwards
    said = page.ask(f"{chart('fit/loss')}.querySelector('b').textContent")
    loss = re.fullmatch(r'([\d.]+(?:e-\d+)?) at 11', said)
    check(loss and float(loss[1]) < 10, f'of the last loss is said {said!r}')
    spread = page.ask(f"{chart('fit/w')}.querySelector('b').textContent")
    least = re.fullmatch(r'−([\d.]+) to ([\d.]+) at 11', spread)
    check(
        least and all(3 < float(end) < 5 for end in least.groups()),
        f'weights that tend to −4 to 4 are shown as {spread!r}',
    )
    words = page.ask("document.querySelector('.texts').innerText")
    check(
        'fit/end at step 11' in words and '<b>now</b>' in words,
        f'the text of a real training is shown as {words!r}',
    )


def report(browser, shots, url, run, dark=False):
    """Opens the file of `troupe report` on a run."""
    path = os.path.abspath(f"{shots}/report_{run.replace('/', '_')}{'_dark' if dark else ''}")
    subprocess.run(
        [f'{build}/troupe', 'report', run, '--node', url, '--patience', '60', '-o', f'{path}.html'],
        check=True,
    )
    page = browser.open(f'file://{path}.html', 1200, 2600, dark)
    page.until("document.documentElement.dataset.ready === '1'")
    heads = page.ask("[...document.querySelectorAll('main.report h2')].map((h) => h.textContent)")
    check(
        all(
            h in heads
            for h in ('Plan', 'Timeline', 'Slowest', 'Loops', 'Communication', 'Memory', 'Nodes')
        ),
        f'{run}: its report has {heads}',
    )
    check(page.ask(BOXES) > 1, f'{run}: its plan is not drawn')
    drawn = page.ask(
        "document.querySelector('main.report canvas')?.getAttribute('aria-label') ?? ''"
    )
    check(
        re.match(r'\d+ events .*on \d+ tracks', drawn) and page.ask(COLOURS) > 3,
        f'{run}: its timeline shows {drawn!r}',
    )
    check(run in page.ask('document.title'), f"{run}: its title is {page.ask('document.title')!r}")
    page.shot(f'{path}.png')
    is_quiet(page, f'the report of {run}', 'file://')
    return page


def section(page, title):
    return page.ask(
        f"[...document.querySelectorAll('main.report section')].find((s) => "
        f"s.querySelector('h2').textContent === '{title}').textContent"
    )


def rows(page, title, column):
    """Returns the rows of the section's table with that column, by the names of its columns."""
    return page.ask(
        f"""(() => {{ const sections = [...document.querySelectorAll('main.report section')];
      const section = sections.find((s) => s.querySelector('h2').textContent === '{title}');
      const words = (row) => [...row.cells].map((cell) => cell.textContent);
      const table = [...section.querySelectorAll('table')].find((t) =>
        words(t.rows[0]).includes('{column}'));
      return [...table?.rows ?? []].slice(1).map((row) =>
        Object.fromEntries(words(table.rows[0]).map((name, i) => [name, words(row)[i]]))); }})()"""
    )


def ran_in_parallel(page, loop, devices):
    """Some of the 32 iterations that may be open on each device were open."""
    told = {
        row['Device']: row['Parallelism']
        for row in rows(page, 'Loops', 'Parallelism')
        if row['Loop'] == loop
    }
    achieved = {
        device: re.fullmatch(r'(\d+(?:\.\d+)?) of 32', text) for device, text in told.items()
    }
    check(
        set(achieved) == set(devices)
        and all(a and 0 < float(a[1]) <= 32 for a in achieved.values()),
        f'how far iterations of {loop} ran in parallel: {told}',
    )


def firings(page):
    """How many a report says that its run had."""
    return page.ask(
        "JSON.parse(document.getElementById('data').textContent).state.recent.find((r) => "
        "document.title.startsWith(`Run ${r.id} `)).fired"
    )


def reports(source, browser, shots):
    with subprocess.Popen(
        [f'{build}/test/tools/busy_nodes'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nodes:
        url = nodes.stdout.readline().strip()
        page = report(browser, shots, url, 'a/1')
        check(
            'ended well' in page.ask("document.querySelector('.report-head').innerText"),
            'how a run has ended is not said',
        )
        check(
            'MatMul' in section(page, 'Slowest'),
            f"the slowest ops are {section(page, 'Slowest')!r}",
        )
        ran_in_parallel(page, 'alone/1', ['/node:a/cpu:0'])
        check(
            'firings of this run are recorded' in section(page, 'Slowest'),
            f"what is recorded of a/1 is not said: {section(page, 'Slowest')!r}",
        )
        for title in ('Slowest', 'Loops', 'Communication'):
            check(
                'all 2 runs of this plan' in section(page, title),
                f"what '{title}' covers is not said: {section(page, title)!r}",
            )
        long_one, long_slowest = firings(page), section(page, 'Slowest')
        page = report(browser, shots, url, 'a/3')
        check(
            5 * firings(page) < long_one,
            f'of runs of 200 and 20 iterations the reports have {long_one} and {firings(page)} '
            'firings',
        )
        check(
            section(page, 'Slowest') != long_slowest,
            f'runs of 200 and 20 iterations have the same slowest operations: {long_slowest!r}',
        )
        nodes_of_events = (
            "new Set(JSON.parse(document.getElementById('data').textContent).events.events"
            ".filter((e) => e.run === 'a/2').map((e) => e.node)).size"
        )
        for _ in range(5):  # b's recorder tells whose run its own is by tokens, if it has some yet
            page = report(browser, shots, url, 'a/2')
            if page.ask(nodes_of_events) == 2:
                break
        else:
            check(False, 'the timeline has nothing of one of the two nodes')
        check(
            'is running' in page.ask("document.querySelector('.report-head').innerText"),
            'that a run goes on is not said',
        )
        check(
            'MatMul' in section(page, 'Slowest'),
            f"the slowest ops over two nodes are {section(page, 'Slowest')!r}",
        )
        ran_in_parallel(page, 'both/1', ['/node:a/cpu:0', '/node:b/cpu:0'])
        went = {row['From and to']: row for row in rows(page, 'Communication', 'From and to')}
        for pair, edges in (
            ('/node:a/cpu:0 → /node:b/cpu:0', '3'),
            ('/node:b/cpu:0 → /node:a/cpu:0', '1'),
        ):
            row = went.get(pair, {})
            columns = {
                'Edges': edges,
                'Tokens': '[1-9].*',
                'Bytes': '[1-9].*iB',
                'Per second': '[1-9].*iB/s',
            }
            check(
                all(
                    re.fullmatch(wanted, row.get(column, '')) for column, wanted in columns.items()
                ),
                f'what went {pair}: {row}',
            )
        check(
            '/node:b/cpu:0' in section(page, 'Memory'),
            f"the memory of b is not in {section(page, 'Memory')!r}",
        )
        live(browser, shots, url)
    with Node(source, '--actors', '400') as node:
        page = report(browser, shots, node.url, 'a/17', True)
        boxes = page.ask(BOXES)
        page.ask(
            "document.querySelector('.box.group:not(.open)').dispatchEvent(new "
            "MouseEvent('dblclick', {bubbles: true}))"
        )
        page.until(f'{BOXES} > {boxes}')
        records_are_drawn(page, 'a report')
        is_quiet(page, 'a group of a report', 'file://')


def main():
    global build
    source, build, *wanted = sys.argv[1:]
    shots = f'{build}/test/page'
    os.makedirs(shots, exist_ok=True)
    with Browser() as browser:
        for part in (
            overview,
            calm,
            fits,
            lasting,
            searching,
            leaving,
            sizes,
            opening,
            selecting,
            causes,
            reborn,
            looks,
            hostile,
            trouble,
            polling,
            late,
            reports,
        ):
            if wanted and part.__name__ not in wanted:
                continue
            try:
                part(source, browser, shots)
            except (AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as error:
                check(False, f'{part.__name__}: {error}')
    print(f'{len(failures)} failed; screenshots are in {shots}')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
