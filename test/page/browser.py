"""Headless Chromium, driven over the DevTools protocol: pages, clicks, keys, screenshots.

Needs Debian's chromium and python3-websocket.

with Browser() as browser:
    page = browser.open('http://127.0.0.1:7118/', 1280, 800)
    page.until('document.documentElement.dataset.interactive')
    page.shot('first.png')
"""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request

import websocket


class Browser:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix='troupe-browser-')
        self.process = subprocess.Popen(
            [
                'chromium',
                '--headless=new',
                '--no-sandbox',
                '--disable-gpu',
                '--disable-dev-shm-usage',
                '--hide-scrollbars',
                '--no-first-run',
                '--disable-extensions',
                '--disable-background-networking',
                '--remote-debugging-port=0',
                '--remote-allow-origins=*',
                f'--user-data-dir={self.folder}',
                'about:blank',
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stderr:
            if 'DevTools listening on ' in line:
                self.port = int(line.split('ws://')[1].split('/')[0].split(':')[1])
                break
        else:
            raise RuntimeError('chromium did not start')
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def open(self, url, width=1280, height=800, dark=False, first=''):
        """`first`: a script that runs before the page's own."""
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.port}/json/new?about:blank', method='PUT'
        )
        with urllib.request.urlopen(request) as answer:
            target = json.load(answer)
        return Page(target['webSocketDebuggerUrl'], url, width, height, dark, first)


class Page:
    def __init__(self, socket, url, width, height, dark, first):
        self.socket = websocket.create_connection(socket, timeout=60)
        self.sent, self.complaints, self.requested = 0, [], []
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')
        self.size(width, height)
        self.call(
            'Emulation.setEmulatedMedia',
            features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}],
        )
        if first:
            self.call('Page.addScriptToEvaluateOnNewDocument', source=first)
        self.call('Page.navigate', url=url)

    def size(self, width, height):
        self.call(
            'Emulation.setDeviceMetricsOverride',
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def call(self, method, **given):
        self.sent += 1
        number = self.sent
        self.socket.send(json.dumps({'id': number, 'method': method, 'params': given}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get('id') == number:
                if 'error' in message:
                    raise RuntimeError(f'{method}: {message["error"]["message"]}')
                return message['result']
            self._note(message)

    def _note(self, message):
        kind, given = message.get('method'), message.get('params', {})
        if kind == 'Runtime.exceptionThrown':
            self.complaints.append(
                given['exceptionDetails'].get('exception', {}).get('description')
                or given['exceptionDetails']['text']
            )
        elif kind == 'Log.entryAdded' and given['entry']['level'] == 'error':
            self.complaints.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif kind == 'Runtime.consoleAPICalled' and given['type'] == 'error':
            self.complaints.append(
                ' '.join(str(a.get('description', a.get('value'))) for a in given['args'])
            )
        elif kind == 'Network.requestWillBeSent':
            self.requested.append(given['request']['url'])

    def ask(self, expression):
        answer = self.call(
            'Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True
        )
        if 'exceptionDetails' in answer:
            raise RuntimeError(
                answer['exceptionDetails']
                .get('exception', {})
                .get('description', 'the expression failed')
            )
        return answer['result'].get('value')

    def until(self, expression, seconds=60):
        """Its value, once it is true. The bound only ends a test that would never end."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = self.ask(
                    f'(() => {{ const v = {expression}; return v instanceof Node ? true : v; }})()'
                )  # an element has no value
            except RuntimeError:  # the page is not there yet
                value = None
            if value:
                return value
            self.ask('new Promise((done) => setTimeout(done, 30))')
        raise AssertionError(f'never true: {expression}; complaints: {self.complaints}')

    def click(self, selector):
        x, y = self.ask(
            f'(() => {{ const r = document.querySelector({json.dumps(selector)})'
            f'.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()'
        )
        self.click_at(x, y)

    def click_at(self, x, y, count=1):
        for i in range(1, count + 1):
            for kind in ('mousePressed', 'mouseReleased'):
                self.call(
                    'Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', clickCount=i
                )

    def key(self, key, text=''):
        code = {'windowsVirtualKeyCode': 9} if key == 'Tab' else {}  # without it, no focus moves
        self.call(
            'Input.dispatchKeyEvent',
            type='keyDown',
            key=key,
            text=text or (key if len(key) == 1 else ''),
            **code,
        )
        self.call('Input.dispatchKeyEvent', type='keyUp', key=key, **code)

    def write(self, text):
        self.call('Input.insertText', text=text)

    def shot(self, path):
        """Once what moves has arrived: boxes glide to their places."""
        self.ask(
            'Promise.race([new Promise((late) => setTimeout(late, 3000)), '
            'Promise.allSettled(document.getAnimations().map((a) => a.finished))]).then(() => 0)'
        )
        image = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(image))
