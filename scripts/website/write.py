"""Writes the pages that are made from Markdown: the home page from parts of README, and a page for each document. Imported by
scripts/docs."""

import html
import pathlib
import re
import shutil
import string
import struct

from website import charts
from website.markdown import Document, Problem
from website.pages import HOME, ROOT, navigation, sources

HERE = pathlib.Path(__file__).resolve().parent
FILES = ('site.css', 'favicon.svg')
SCREENSHOT, TRANSCRIPT = 'Docs/images/gtk-heart-rate.png', 'Docs/demo.txt'
ABOUT = "CoreBluetooth for Linux: Apple's Bluetooth Low Energy API for Swift, over BlueZ"
CHARTS = '<!-- charts -->\n'


def links(page):
    """The navigation, in which this page is marked."""
    for group, pages in navigation():
        yield f'<section><h2>{group}</h2><ul>'
        for title, address in pages:
            current = ' aria-current="page"' if address == page else ''
            yield f'<li><a href="{address}"{current}>{html.escape(title)}</a></li>'
        yield '</ul></section>'


def contents(document):
    if len(document.contents) < 3:
        return ''
    items = ''.join(f'<li><a href="#{anchor}">{html.escape(title)}</a></li>' for title, anchor in document.contents)
    return f'<details class="toc"><summary>On this page</summary><ul>{items}</ul></details>'


def filled(template, **parts):
    return string.Template((HERE / template).read_text(encoding='utf-8')).substitute(parts)


class Writer:
    def __init__(self, site, source_url=None):
        self.site, self.source_url = pathlib.Path(site), source_url

    def all(self):
        """Writes every page and what they share. Returns the names of the pages."""
        for name in FILES:
            shutil.copyfile(HERE / name, self.site / name)
        for source, page in sources().items():
            document = Document(source, self.site, self.source_url)
            if source == HOME:
                self.write(page, f'BluezKit: {ABOUT.partition(":")[0]}', self.home(document), kind='home')
                continue
            body = document.html().replace(CHARTS, charts.html_of())
            self.write(page, f'{document.title} – BluezKit', body.replace('</h1>\n', f'</h1>\n{contents(document)}', 1))
        return list(sources().values())

    def write(self, page, title, body, kind='document'):
        source = f'<a href="{self.source_url.partition("/blob/")[0]}">Source</a>' if self.source_url else 'made by <code>make docs</code>'
        text = filled('page.html', title=html.escape(title), description=html.escape(ABOUT), kind=kind, body=body,
                      navigation='\n'.join(links(page)), source=source)
        (self.site / page).write_text(text, encoding='utf-8')

    def home(self, readme):
        """README says it once: the parts of the home page are its sections, whose code scripts/check-snippets compiles."""
        first, *rest = re.split(r'^## ', readme.text, flags=re.M)
        sections = {title: text for title, _, text in (part.partition('\n') for part in rest)}

        def section(title):
            if title not in sections:
                raise Problem(f'{HOME} has no section "{title}", of which the home page is made')
            return sections[title]
        comparison = next((title for title in sections if title.startswith('Why this')), 'Why this')
        intro, _, features = re.sub(r'^# .*\n', '', first).partition('\n- ')
        usage, _, products = section('Usage').partition('\n| Product')
        console = re.search(r'^```console.*?^```$', section('Try it'), re.M | re.S)
        width, height = struct.unpack('>II', (ROOT / SCREENSHOT).read_bytes()[16:24])
        return filled(
            'home.html', intro=readme.html(intro), features=readme.html('- ' + features), usage=readme.html(usage),
            screenshot=readme.image(SCREENSHOT), width=width, height=height,
            transcript=html.escape((ROOT / TRANSCRIPT).read_text(encoding='utf-8')), console=readme.html(console.group()),
            installation=readme.html(section('Status and installation')), products=readme.html('| Product' + products),
            comparison_title=html.escape(comparison), comparison=readme.html(section(comparison)),
            charts=charts.html_of(charts.ON_HOME), limits=readme.html(section('Limits')))
