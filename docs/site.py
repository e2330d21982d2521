"""What the site has beside the documents: README.md as its first page, and a page of docstrings for each room."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, and leave this file out."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    home = re.sub(r"\]\(docs/", "](", readme).replace("](CONTRIBUTING.md)", "](contributing.md)")
    files.append(File.generated(config, "index.md", content=home))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "contributing.md", content=contributing))
    for room in sorted(path.parent.name for path in (ROOT / "duplexmt").glob("*/__init__.py")):
        page = f"# duplexmt.{room}\n\n::: duplexmt.{room}\n"
        files.append(File.generated(config, f"api/{room}.md", content=page))
    files.remove(files.get_file_from_path("site.py"))
    return files
