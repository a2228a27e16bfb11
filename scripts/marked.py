"""Parts of a page that a program writes: they stand between `<!-- name -->` and `<!-- /name -->`, and the rest is by hand."""

from __future__ import annotations


def part_of(text: str, name: str) -> str:
    """What stands between the marks. Raises ValueError unless there is exactly one such part."""
    before, body, _ = _split(text, name)
    return text[len(before) : len(before) + len(body)]


def fill(text: str, name: str, body: str) -> str:
    """`text` with the part `name` replaced by `body`, a blank line on each side of it."""
    before, _, after = _split(text, name)
    return f"{before}\n\n{body.strip()}\n\n{after}"


def _split(text: str, name: str) -> tuple[str, str, str]:
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(first) != 1 or text.count(last) != 1 or text.index(first) > text.index(last):
        raise ValueError(f"expected one part between {first} and {last}")
    before, rest = text.split(first)
    body, after = rest.split(last)
    return before + first, body, last + after
