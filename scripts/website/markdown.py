"""Markdown to HTML, as GitHub shows it: its anchors of headings, tables that scroll, code with colours, and links that lead to
where a file is in the site. Imported by scripts/docs."""

import html
import pathlib
import posixpath
import re
import shutil

import pygments
from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from website.pages import ROOT, docc_anchor, place, slug

SNIPPET = re.compile(r'<!-- snippet.*?-->\n?', re.S)  # what scripts/check-snippets adds to the next block
ADDRESS = re.compile(r'[a-z]+:', re.I)


class Problem(Exception):
    """A link or a page that cannot be had: the message names both."""


def highlighted(code, language, _attributes):
    """Classes of Pygments, coloured in site.css; nothing runs in the browser."""
    try:
        lexer = get_lexer_by_name({'text': 'output'}.get(language, language), stripnl=False)
    except ClassNotFound:
        return html.escape(code)
    return pygments.highlight(code, lexer, HtmlFormatter(nowrap=True))


def parser():
    made = MarkdownIt('commonmark', {'html': True, 'highlight': highlighted}).enable(['table', 'strikethrough'])
    made.use(anchors_plugin, max_level=6, slug_func=slug)
    # What is wide scrolls in a box of its own, which the keyboard can reach.
    made.add_render_rule('table_open', lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    made.add_render_rule('table_close', lambda *_: '</table></div>\n')
    fence = made.renderer.rules['fence']
    made.add_render_rule('fence', lambda self, tokens, index, options, env: fence(tokens, index, options, env)
                         .replace('<pre>', '<pre tabindex="0">', 1))
    return made


PARSER = parser()


def title_of(tokens):
    return ''.join(child.content for child in tokens if child.type in ('text', 'code_inline'))


def headings(path):
    """The headings of a Markdown file."""
    tokens = PARSER.parse((ROOT / path).read_text(encoding='utf-8'))
    return [title_of(tokens[index + 1].children) for index, token in enumerate(tokens) if token.type == 'heading_open']


class Document:
    """A Markdown file that becomes a page."""

    def __init__(self, source, site, source_url=None):
        """source_url: where the repository's files can be read on the web, without a slash at the end. Without it, what is not
        part of the site is named and not linked."""
        self.source, self.site, self.source_url = source, site, source_url
        self.text = (ROOT / source).read_text(encoding='utf-8')
        self.contents = []  # headings of the second level: title and anchor
        self.title = ''

    def html(self, text=None):
        """The page, or a part of it, as HTML."""
        tokens = PARSER.parse(SNIPPET.sub('', self.text if text is None else text))
        for index, token in enumerate(tokens):
            if token.type == 'heading_open':
                title = title_of(tokens[index + 1].children)
                if token.tag == 'h1':
                    self.title = title
                elif token.tag == 'h2':
                    self.contents.append((title, token.attrs['id']))
            for child in token.children or []:
                if child.type == 'image':
                    child.attrs['src'] = self.image(child.attrs['src'])
                    child.attrs['loading'] = 'lazy'
            self.lead_links(token.children or [])
        return PARSER.renderer.render(tokens, PARSER.options, {})

    def lead_links(self, tokens):
        """Links lead to pages of the site, or to the repository, or become text that says where the file is."""
        ends = []
        for token in tokens:
            if token.type == 'link_open':
                address = self.address(token.attrs['href'])
                if address is None:
                    token.tag, token.attrs = 'span', {'class': 'file', 'title': f'In the repository: {self.path(token.attrs["href"])}'}
                else:
                    token.attrs['href'] = address
                ends.append(token.tag)
            elif token.type == 'link_close':
                token.tag = ends.pop()

    def path(self, link):
        """The file of the repository to which a relative link leads."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.source), link.partition('#')[0]))
        if path.startswith('..') or not (ROOT / path).exists():
            raise Problem(f'{self.source}: "{link}" leads to {path}, which does not exist')
        return path

    def address(self, link):
        if ADDRESS.match(link) or link.startswith('#'):
            return link
        path, anchor = self.path(link), link.partition('#')[2]
        where = place(path)
        if where is None and path.endswith('.md'):
            raise Problem(f'{self.source}: "{link}" leads to {path}, which is not a page: add it to scripts/website/pages.py')
        if where is None:
            kind = 'tree' if (ROOT / path).is_dir() else 'blob'
            return f'{self.source_url}/{path}'.replace('/blob/', f'/{kind}/') if self.source_url else None
        if where.startswith('images/'):
            return self.image(link)
        if anchor and where.startswith('documentation/'):
            found = [docc_anchor(title) for title in headings(path) if slug(title) == anchor]
            if not found:
                raise Problem(f'{self.source}: "{link}": {path} has no such heading')
            anchor = found[0]
        return where + (f'#{anchor}' if anchor else '')

    def image(self, link):
        if ADDRESS.match(link):
            raise Problem(f'{self.source}: the image {link} is on another server')
        path = self.path(link)
        target = pathlib.Path(self.site, place(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
        return place(path)
