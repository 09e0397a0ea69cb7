"""A report read as a browser reads it, without one."""

import base64
import gzip
import html.parser
import json

from rlagents.report.__main__ import main


class Document(html.parser.HTMLParser):
    """Elements as a browser finds them: tags with attributes, and the texts of script elements by id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._open = dict(attrs).get("id", "program")
            self.scripts[self._open] = ""

    def handle_endtag(self, tag):
        self._open = None if tag == "script" else self._open

    def handle_data(self, data):
        if self._open is not None:
            self.scripts[self._open] += data

    def page(self, name):
        return json.loads(gzip.decompress(base64.b64decode(self.scripts[name])))

    @property
    def index(self):
        return json.loads(self.scripts["index"])


def report(*folders, output=None, **options):
    output = output or folders[0] / "report.html"
    arguments = [*map(str, folders), f"--output={output}", *(f"--{name}={value}" for name, value in options.items())]
    assert main(arguments) == 0
    return Document(output.read_text())
