"""Reads rendered reports back, for tests: a small HTML reader and a Markdown table reader. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


@dataclass
class Element:
    """One element with its attributes, children and text."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, without the numbers that lead to notes."""
        parts = (each if isinstance(each, str) else each.text for each in self.children)
        return "" if self.attributes.get("class") == "ref" else "".join(parts)

    def find_all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of that tag below this one whose attributes have these values; ``class_`` names one class."""
        wanted_class = attributes.pop("class_", None)
        found = []
        for each in self.children:
            if isinstance(each, str):
                continue
            classes = (each.attributes.get("class") or "").split()
            fits = all(each.attributes.get(name) == value for name, value in attributes.items())
            if each.tag == tag and fits and (wanted_class is None or wanted_class in classes):
                found.append(each)
            found += each.find_all(tag, **attributes, **({"class_": wanted_class} if wanted_class else {}))
        return found

    def everything(self) -> list[Element]:
        """All elements below this one."""
        inner = [each for each in self.children if isinstance(each, Element)]
        return inner + [each for child in inner for each in child.everything()]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("root", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_html(text: str) -> Element:
    """Parse a page; every element must be closed where it should be."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], f"not closed: {[each.tag for each in reader.open[1:]]}"
    return reader.root


def html_tables(text: str) -> dict[str, list[list[str]]]:
    """Rows of every table by its caption, headings and sub-headings left out."""
    tables = {}
    for table in read_html(text).find_all("table"):
        rows = [row for body in table.find_all("tbody") for row in body.find_all("tr")]
        cells = [[cell.text for cell in row.children if isinstance(cell, Element)] for row in rows]
        tables[table.find_all("caption")[0].text] = [row for row in cells if len(row) > 1]
    return tables


def markdown_tables(text: str) -> list[list[list[str]]]:
    """Rows of every table in order, headings and rules left out, references to notes taken away."""
    blocks = re.findall(r"(?:^\|.*\|\n?)+", text, flags=re.MULTILINE)
    return [[_cells(line) for line in block.strip().split("\n")[2:]] for block in blocks]


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line)[1:-1]
    return [re.sub(r"\\(.)", r"\1", re.sub(r"\[\^\d+\]", "", cell)).strip() for cell in cells]
