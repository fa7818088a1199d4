"""Hooks of MkDocs: pages of the reference that are generated, and the repository's files that pages link to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import warren
from workers.command import PROGRAMS
from workers.config.described import meanings

if TYPE_CHECKING:
    from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")  # links to files beside docs/
SOURCE = "source"  # the site's folder of those


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and each file of the repository that a page links to."""
    from mkdocs.structure.files import File

    for name, lines in (("api", api()), ("settings", settings()), ("commands", commands())):
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(lines)))
    linked = {place for page in files.documentation_pages() for place in linked_by(page)}
    for place in sorted(linked):
        path = ROOT / place
        if path.is_dir():
            listing = "\n".join(sorted(each.name for each in path.iterdir() if not each.name.startswith(".")))
            files.append(File.generated(config, f"{SOURCE}/{place}.txt", content=listing))
        elif path.is_file():  # else MkDocs tells of a dead link
            files.append(File.generated(config, f"{SOURCE}/{place}.txt", content=path.read_text(encoding="utf-8")))
    return files


def linked_by(page: File) -> Iterator[str]:
    """Yield the places in the repository, outside docs/, that a page links to."""
    if "reference/" not in page.src_uri:
        for match in OUTSIDE.finditer(page.content_string):
            yield match[1]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return the page with its links to the repository's files led to the site's copies."""
    if page.file.src_uri.startswith("reference/"):
        return markdown
    return OUTSIDE.sub(lambda match: f"]({SOURCE}/{match[1].rstrip('/')}.txt)", markdown)


def api() -> Iterator[str]:
    """Yield the page of what `import warren` gives, by the docstrings."""
    yield "# API"
    yield ""
    yield "What `import warren` gives, with the modules that it comes from; [names](../names.md) has a line for each."
    yield ""
    said = dict(re.findall(r"^- `(\w+)`: (.+)$", (ROOT / "docs/names.md").read_text(encoding="utf-8"), re.MULTILINE))
    for name, module in warren._places().items():
        if name.isupper():  # a constant has no docstring
            yield f"### `{module}.{name}`\n\n{said[name]}\n"
        else:
            yield f"::: {module}.{name}\n"


def settings() -> Iterator[str]:
    """Yield the page of settings, as `--help` tells them."""
    yield "# Settings"
    yield ""
    yield "As `python -m workers.train --help` tells them, with types and values; those of PPO and its network."
    yield ""
    yield "| setting | meaning |"
    yield "|---|---|"
    for name, meaning in meanings("ppo", "mlp").items():
        if meaning:  # else a table, whose settings follow
            yield f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |"


def commands() -> Iterator[str]:
    """Yield the page of commands, as `warren --help` tells them."""
    yield "# Commands"
    for title, programs in PROGRAMS.items():
        yield f"\n## {title}\n"
        yield "| command | module | purpose |"
        yield "|---|---|---|"
        for name, program in programs.items():
            yield f"| `warren {name}` | `python -m {program.module}` | {program.purpose} |"
