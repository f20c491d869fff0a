"""The documentation of the modules, made by DocC: guides and API. Imported by scripts/docs."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

from modules import bin_path, extract_symbols
from website.pages import MODULES

# Above each page of DocC. Its own style sheet applies to it as well, so it brings what it needs.
BAR = """<style>
#site-bar{{display:flex;gap:1.25rem;overflow-x:auto;white-space:nowrap;padding:.6rem 1.25rem;font:15px/1.6 system-ui,sans-serif;
background:#fff;border-bottom:1px solid #d9dee6}}
#site-bar a{{color:#0a58ca;text-decoration:none}}#site-bar a:first-child{{color:#1d2430;font-weight:700}}
@media(prefers-color-scheme:dark){{#site-bar{{background:#12161d;border-color:#333c4a}}
#site-bar a{{color:#7db4ff}}#site-bar a:first-child{{color:#e3e8f0}}}}
</style><nav id="site-bar" aria-label="Site"><a href="{top}index.html">Home</a> {links}</nav>"""
BAR_LINKS = {'All pages': 'index.html#pages', **{module: f'documentation/{module.lower()}/' for module in MODULES},
             'Contract': 'contract.html', 'Performance': 'performance.html'}
# DocC's own colours of these have too little contrast with the background of code.
THEME = {'theme': {'color': {'syntax-comments': {'light': '#5c6a77', 'dark': '#93a0ac'},
                             'syntax-attributes': {'light': '#785c00', 'dark': '#cc9768'}}}}


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def docc():
    """It is part of the toolchain: next to swift, whose path may contain symbolic links."""
    beside = pathlib.Path(shutil.which('swift') or '').resolve().with_name('docc')
    found = beside if beside.exists() else shutil.which('docc')
    return found or sys.exit('scripts/docs: the Swift toolchain does not include docc')


def build():
    """Builds the modules. Returns where they are."""
    for module in MODULES:  # not the tests: they have no documentation, and take long
        run('swift', 'build', '--target', module)
    return bin_path()


def symbols(built, folder):
    extract_symbols(built, MODULES, folder, '-emit-extension-block-symbols')  # what is added to types of others is shown


def convert(module, symbols, archive, options):
    catalog = pathlib.Path('Sources', module, f'{module}.docc')
    run(docc(), 'convert', str(catalog), '--additional-symbol-graph-dir', str(symbols / module), '--output-path', str(archive),
        '--fallback-display-name', module, '--fallback-bundle-identifier', module, '--warnings-as-errors', *options)


def merge(archives, site):
    """One site with all modules, which works under any address: pages of DocC expect to be at the top of a server."""
    run(docc(), 'merge', *map(str, archives), '--output-path', str(site), '--synthesized-landing-page-name', 'BluezKit')
    (site / 'theme-settings.json').write_text(json.dumps(THEME), encoding='utf-8')
    for page in [site / 'index.html', *site.glob('documentation/**/index.html')]:
        text = page.read_text(encoding='utf-8').replace('/favicon.ico', '/favicon.svg')
        top = '../' * (len(page.relative_to(site).parts) - 1) or './'
        moved = re.sub(r'(href|src)="/(?!/)', rf'\1="{top}', text)
        moved, count = re.subn(r'var baseUrl = "/"', f'var baseUrl = new URL("{top}", document.baseURI).pathname', moved)
        if count != 1:
            sys.exit(f'scripts/docs: {page} is not what DocC has made so far: it does not say where it is')
        links = ' '.join(f'<a href="{top}{address}">{name}</a>' for name, address in BAR_LINKS.items())
        page.write_text(moved.replace('<div id="app">', BAR.format(top=top, links=links) + '<div id="app">'), encoding='utf-8')


def pages(site):
    """How many pages DocC has made."""
    return len(list(site.glob('data/documentation/**/*.json')))
