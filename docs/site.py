"""What the site has beside the documents: README.md as its first page, and a page of docstrings for each room."""

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*((?:data|models|duplexmt|tests)/[^)\s]+|CITATION\.cff|CHANGELOG\.md)\)")


def on_config(config: Any) -> Any:
    """`--quiet` hides warnings from the strict build, too, and a link that leads nowhere is a warning."""
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, and leave the programs out."""
    for name, page in (("README.md", "index.md"), ("CONTRIBUTING.md", "contributing.md")):
        text = (ROOT / name).read_text(encoding="utf-8")
        text = text.replace("](docs/", "](").replace("](CONTRIBUTING.md)", "](contributing.md)")
        files.append(File.generated(config, page, content=text))
    for room in sorted(path.parent.name for path in (ROOT / "duplexmt").glob("*/__init__.py")):
        page = f"# duplexmt.{room}\n\n::: duplexmt.{room}\n"
        files.append(File.generated(config, f"api/{room}.md", content=page))
    for file in [file for file in files if file.src_uri.endswith(".py")]:
        files.remove(file)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """A link to a file of the repository that is no page of the site becomes the file's path."""
    return OUTSIDE.sub(r"\1 (`\2`)", markdown)
