"""Chromium without a window, on a loopback server with the site: screenshots, what a page measures, and which addresses it asks
for. Imported by scripts/site-test."""

import contextlib
import functools
import http.server
import io
import json
import os
import pathlib
import tempfile
import threading
import time

from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import WebDriverException  # noqa: F401, for scripts/site-test
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

LIMIT = 120  # seconds for a page: the machine may be busy
# What is measured in the page: its width and what is too wide for it, what is visible, colours of text and background.
MEASURE = """
const style = getComputedStyle(document.body), wide = document.documentElement.scrollWidth;
const outside = [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest('.scroll, pre, .skip')).slice(0, 3).map(e => e.tagName + '.' + e.className);
return {width: wide, window: innerWidth, outside: outside, title: document.title, language: document.documentElement.lang,
        headings: document.querySelectorAll('h1').length, text: document.body.innerText.length,
        images: [...document.images].filter(i => i.loading != 'lazy' && !(i.complete && i.naturalWidth)).map(i => i.src)};
"""
# Texts whose contrast with what is behind them is less than WCAG's 4.5 (3 where it is large), by the colours of their elements.
CONTRAST = """
const seen = new Map();
const parts = c => (c.match(/[\\d.]+/g) || []).map(Number);
const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
function behind(e) {
    for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length == 3 || c[3] == 1) return c; }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, style = getComputedStyle(e);
    if (!walker.currentNode.textContent.trim() || !e.getClientRects().length || style.visibility == 'hidden') continue;
    const colour = e.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const a = light(parts(colour).slice(0, 3)), b = light(behind(e).slice(0, 3));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05), size = parseFloat(style.fontSize);
    const limit = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < limit) seen.set(e.tagName + '.' + e.className + ' ' + colour, ratio.toFixed(2));
}
return [...seen].slice(0, 5).map(([what, ratio]) => what + ': ' + ratio);
"""


@contextlib.contextmanager
def served(folder, base):
    """The site under a path of a server on this machine, as GitHub Pages has it. Yields its address."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return super().translate_path(path[len(base) - 1:] if path.startswith(base) else '/no/such/page')

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}{base}'
        server.shutdown()


# The only fonts that it sees, so that pages look the same on every machine.
FONTS = '''<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts/truetype/dejavu</dir><cachedir>{folder}</cachedir>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<match><edit name="family" mode="append_last"><string>DejaVu Sans</string></edit></match></fontconfig>'''


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix='bluezkit-fonts-')
        fonts = pathlib.Path(self.folder.name, 'fonts.conf')
        fonts.write_text(FONTS.format(folder=self.folder.name), encoding='utf-8')
        options = Options()
        options.binary_location = '/usr/bin/chromium'
        # Nothing but this machine can be reached, and what tries shows in the log. Pages are our own: no sandbox, as in
        # containers there is none.
        for flag in ('--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--disable-dev-shm-usage',
                     '--disable-background-networking', '--force-device-scale-factor=1', '--lang=en-US',
                     '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'):
            options.add_argument(flag)
        options.set_capability('goog:loggingPrefs', {'performance': 'ALL'})
        self.driver = webdriver.Chrome(service=Service('/usr/bin/chromedriver', env={**os.environ, 'FONTCONFIG_FILE': str(fonts)}), options=options)
        self.driver.set_page_load_timeout(LIMIT)

    def close(self):
        self.driver.quit()
        self.folder.cleanup()

    def emulate(self, width, height, scheme):
        self.driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', {
            'width': width, 'height': height, 'deviceScaleFactor': 1, 'mobile': width < 600})
        self.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', {
            'features': [{'name': 'prefers-color-scheme', 'value': scheme}]})

    def open(self, address, ready):
        """Loads a page, and waits until the expression `ready` holds in it."""
        self.driver.get(address)
        deadline = time.monotonic() + LIMIT
        while not self.driver.execute_script(f'return Boolean({ready}) && document.fonts.status == "loaded"'):
            if time.monotonic() > deadline:
                raise TimeoutError(f'{address}: not {ready} after {LIMIT} s')
            time.sleep(0.05)

    def requested(self):
        """The addresses that have been asked for since the last call, with the status of their answers."""
        asked, answers = {}, {}
        for entry in self.driver.get_log('performance'):
            message = json.loads(entry['message'])['message']
            if message['method'] == 'Network.requestWillBeSent':
                asked[message['params']['requestId']] = message['params']['request']['url']
            elif message['method'] == 'Network.responseReceived':
                answers[message['params']['requestId']] = message['params']['response']['status']
        return [(url, answers.get(request)) for request, url in asked.items()]

    def measure(self):
        return self.driver.execute_script(MEASURE) | {'contrast': self.driver.execute_script(CONTRAST)}

    def screenshot(self):
        return Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert('RGB')
