"""The page in a real browser, from disk: silent, self-contained, readable for everyone.

Needs Chromium (Debian: apt-get install chromium). Without one the tests are skipped, unless
DPBENCH_NEEDS_BROWSER is set, as the project's CI does.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import PROGRAM, Browser, Tab
from conftest import Pages

pytestmark = pytest.mark.skipif(
    PROGRAM is None and not os.environ.get("DPBENCH_NEEDS_BROWSER"),
    reason="no Chromium is installed (Debian: apt-get install chromium)",
)
EVERY = [
    "pass", "fail_speed", "inconclusive", "fail_loss", "gpus_1_2_4_8", "gpu_record", "repeats",
    "weak", "cpu", "one_run", "failed", "explained", "failed_at_once", "one_failed", "odd_names",
]  # fmt: skip
PHONE, DESKTOP, PAPER = 390, 1280, 688
"""Widths in CSS pixels; the paper is A4 without the margins of page.css."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, page_of: Pages) -> Path:
    """A folder with the page of every story."""
    folder = tmp_path_factory.mktemp("pages")
    for name in EVERY:
        (folder / f"{name}.html").write_text(page_of(name), encoding="utf-8")
    return folder


NOTHING_WRONG: dict[str, Any] = {
    "too_wide": [],
    "cut": [],
    "overlapping": [],
    "pale": [],
    "tiny": [],
}
LOOK = """(() => {
  const box = (one) => one.getBoundingClientRect();
  const scrolls = (one) => one.closest(".scroll, pre");
  const short = (one) => (one.tagName + " " + one.textContent).trim().slice(0, 60);
  const wide = [...document.querySelectorAll("body *:not(svg *)")]
    .filter((one) => !scrolls(one.parentElement) && box(one).right > innerWidth + 1);
  const cut = [], overlapping = [], pale = [], tiny = [];
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")];
    texts.forEach((one, place) => {
      const mine = box(one), frame = box(svg);
      if (mine.left < frame.left - 1 || mine.right > frame.right + 1 ||
          mine.top < frame.top - 1 || mine.bottom > frame.bottom + 1) cut.push(short(one));
      const scale = one.getScreenCTM();
      if (Math.hypot(scale.a, scale.b) * parseFloat(getComputedStyle(one).fontSize) < 8)
        tiny.push(short(one));
      for (const other of texts.slice(place + 1)) {
        const its = box(other);
        if (Math.min(mine.right, its.right) - Math.max(mine.left, its.left) > 1 &&
            Math.min(mine.bottom, its.bottom) - Math.max(mine.top, its.top) > 3)
          overlapping.push(short(one) + " / " + short(other));
      }
    });
  }
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (numbers(colour).length === 3) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let read = 0;
  while (words.nextNode()) {
    const one = words.currentNode.parentElement;
    if (!words.currentNode.data.trim() || !one.getClientRects().length) continue;
    if (["title", "desc", "STYLE"].includes(one.tagName)) continue;
    const style = getComputedStyle(one);
    const colour = one.closest("svg") ? style.fill : style.color;
    const [low, high] = [light(colour), light(ground(one))].sort((a, b) => a - b);
    read += 1;
    if ((high + 0.05) / (low + 0.05) < 4.5) pale.push(short(one) + " " + colour);
    if (!one.closest("svg") && parseFloat(style.fontSize) < 9) tiny.push(short(one));
  }
  return {too_wide: wide.map(short), cut, overlapping, pale, tiny, read,
          across: document.documentElement.scrollWidth - innerWidth};
})()"""


def look(tab: Tab) -> dict[str, Any]:
    """Return what is wrong with a page to look at, as far as that can be measured."""
    found: dict[str, Any] = tab.run(LOOK)
    assert found.pop("read") > 20
    assert found.pop("across") <= 0
    return found


@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_silent_alone_and_readable_on_every_screen(
    name: str, browser: Browser, pages: Path
) -> None:
    for width, dark in ((PHONE, False), (PHONE, True), (DESKTOP, False), (DESKTOP, True)):
        tab = Tab(browser, pages / f"{name}.html", width=width, dark=dark)
        assert look(tab) == NOTHING_WRONG, (width, dark)
        assert (tab.complaints(), tab.requests()) == ([], [])
        paper = tab.run("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(15, 19, 24)" if dark else "rgb(255, 255, 255)")
        tab.close()


@pytest.mark.parametrize("name", ["gpu_record", "gpus_1_2_4_8", "failed", "weak"])
def test_a_screen_reader_is_told_every_plot_in_words_and_numbers(
    name: str, browser: Browser, pages: Path
) -> None:
    tab = Tab(browser, pages / f"{name}.html", width=DESKTOP)
    images = tab.images()
    assert len(images) == (pages / f"{name}.html").read_text().count("<svg")
    for title, description in images:
        assert title
        assert re.search(r"\d+ GPUs?", description), title
        assert len(re.findall(r"\d[\d.,]*", description)) > 2, title
    tab.close()


@pytest.mark.parametrize("name", ["pass", "gpus_1_2_4_8", "failed", "odd_names"])
def test_paper_is_white_and_shows_configuration_and_command(
    name: str, browser: Browser, pages: Path
) -> None:
    tab = Tab(browser, pages / f"{name}.html", width=PAPER, media="print", dark=True)
    assert look(tab) == NOTHING_WRONG
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    heights = "[...document.querySelectorAll('.short pre')].map((one) => one.offsetHeight)"
    assert all(height > 10 for height in tab.run(heights))
    printed = base64.b64decode(tab.ask("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    sheets = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 1 <= sheets <= 8
    tab.close()


BAD = (
    "<p style='color: #999'>pale</p><p style='font-size: 5px'>tiny</p>"
    "<figure style='width: 999px'><img src='http://127.0.0.1:9/x.png'></figure>"
    "<svg width='60' height='40'><text x='1' y='20'>longer than that</text>"
    "<text x='1' y='21'>twice</text></svg><script>nothing()</script></main>"
)


def test_the_browser_would_tell_of_each_of_these_faults(
    browser: Browser, pages: Path, tmp_path: Path
) -> None:
    page = (pages / "failed.html").read_text()
    file = tmp_path / "bad.html"
    unguarded = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    file.write_text(unguarded.replace("</main>", BAD))
    tab = Tab(browser, file, width=PHONE)
    found = tab.run(LOOK)
    assert found["across"] > 0
    assert "FIGURE" in found["too_wide"]
    assert found["cut"] == ["text longer than that"]
    assert found["overlapping"] == ["text longer than that / text twice"]
    assert [text[:6] for text in found["pale"]] == ["P pale"]
    assert "P tiny" in found["tiny"]
    assert any("nothing is not defined" in one for one in tab.complaints())
    assert tab.requests() == ["http://127.0.0.1:9/x.png"]
    tab.close()


def test_what_should_never_be_in_a_page_could_neither_run_nor_load(
    browser: Browser, pages: Path, tmp_path: Path
) -> None:
    file = tmp_path / "injected.html"
    file.write_text((pages / "failed.html").read_text().replace("</main>", BAD))
    tab = Tab(browser, file, width=DESKTOP)
    told = tab.complaints()
    assert len(told) == 2
    assert all("Content Security Policy" in one for one in told)
    assert not any("nothing is not defined" in one for one in told)
    tab.close()
