"""The live page's files, without a browser."""

import re

from .scripted_server import PACKAGE


def test_no_file_writes_markup_or_holds_a_script_or_style_inline():
    web = PACKAGE / "serving" / "web"
    for file in [*web.glob("*.js"), *(PACKAGE / "report" / "web").glob("*.js")]:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)",
                             file.read_text(encoding="utf-8")), file.name  # fmt: skip
    html = (web / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)|https?://", html)
