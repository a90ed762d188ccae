"""The page: strict HTML, nothing from outside, text for those who cannot see, every kind of run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import pytest

from conftest import RECORDED, Dpbench, Pages
from dpbench.errors import SetupError
from dpbench.report.html import mark_commands, render_page
from dpbench.report.output import MARK, check_target, write_page
from dpbench.results import WOULD_FAIL
from dpbench.subject import collect, of_comparisons
from golden import check_golden
from pages import FAILED
from stories import CONFIG, ERROR, STORIES, Story, tell

HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"
WITHOUT_VERDICT = [
    "one_run",
    "failed",
    "explained",
    "failed_at_once",
    "stopped",
    "one_failed",
    "odd_names",
]
EVERY = ["pass", "gpus_1_2_4_8", "gpu_record", "guest", "nan", "weak", *WITHOUT_VERDICT]


def parse(page: str) -> Element:
    """Return the page as a browser understands it; whatever HTML does not allow is an error."""
    return html5lib.HTMLParser(strict=True).parse(page)


def text_of(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.mark.parametrize("name", EVERY)
def test_every_page_is_strict_self_contained_and_accessible(name: str, page_of: Pages) -> None:
    page = page_of(name)
    root = parse(page)
    elements = list(root.iter())
    assert not re.search(r"https?:|@import", page)
    assert not [one.tag for one in elements if one.tag.split("}")[1] in
                {"script", "iframe", "object", "embed", "img", "form", "base"}]  # fmt: skip
    for one in elements:
        for key, value in one.attrib.items():
            assert not key.startswith("on"), key
            if key.split("}")[-1] in {"href", "src"}:
                assert value.startswith("#") or value == "data:,", value
            assert "url(" not in value or "url(#" in value
    names = [one.attrib["id"] for one in elements if "id" in one.attrib]
    assert len(names) == len(set(names))
    check_accessible(root, set(names))


def check_accessible(root: Element, names: set[str]) -> None:
    assert root.attrib["lang"] == "en"
    assert len(root.findall(f".//{HTML}h1")) == 1
    assert len(root.findall(f".//{HTML}main")) == 1
    for table in root.iter(f"{HTML}table"):
        assert text_of(table.find(f"{HTML}caption"))  # type: ignore[arg-type]
        heads = table.findall(f"{HTML}thead/{HTML}tr/{HTML}th")
        assert all(head.attrib["scope"] == "col" and text_of(head) for head in heads)
        for row in table.findall(f"{HTML}tbody/{HTML}tr"):
            assert len(row) == len(heads)
            assert row[0].attrib["scope"] == "row"
    for svg in root.iter(f"{SVG}svg"):
        assert svg.attrib["role"] == "img"
        title, description = svg[0], svg[1]
        assert svg.attrib["aria-labelledby"] == title.attrib["id"]
        assert svg.attrib["aria-describedby"] == description.attrib["id"]
        assert text_of(title)
        assert re.search(r"\d", text_of(description))
        for one in svg.iter():
            for value in one.attrib.values():
                if value.startswith(("#", "url(#")):
                    assert value.split("#")[1].rstrip(")") in names


def outline(page: str) -> str:
    """The page as text: what is said, in which order, in which table or plot."""
    lines: list[str] = []
    describe(parse(page.replace("<wbr>", "")).find(f"{HTML}body"), lines)  # type: ignore[arg-type]
    return "\n".join(lines) + "\n"


def describe(element: Element, lines: list[str]) -> None:
    kind = element.tag.split("}")[1]
    if kind in MARKS:
        lines.append(f"{MARKS[kind]}{text_of(element)}")
    elif kind == "tr":
        lines.append(f"  {' | '.join(map(text_of, element))}")
    elif kind == "tbody" and len(element) > MOST_GOLDEN_ROWS:
        describe(element[0], lines)
        lines.append(f"  ... {len(element) - 2} rows")
        describe(element[-1], lines)
    elif kind == "svg":
        lines.append(f"plot: {text_of(element[0])}: {text_of(element[1])}")
    elif kind == "pre":
        shown = (element.text or "").splitlines()
        lines.append(f"output: {len(shown)} lines, the last: {shown[-1].strip()}")
    else:
        for child in element:
            describe(child, lines)


MOST_GOLDEN_ROWS = 15
MARKS = {
    "h1": "# ", "h2": "\n## ", "h3": "\n### ", "caption": "table: ", "dt": "", "dd": "  ", "p": "",
    "figcaption": "  ", "summary": "more: ", "footer": "\n",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["pass", "fail_speed", "inconclusive", "weak", "gpus_1_2_4_8", "gpu_record", "one_run",
     "failed", "explained", "failed_at_once", "stopped", "one_failed"],
)  # fmt: skip
def test_what_the_page_says(name: str, page_of: Pages) -> None:
    check_golden(f"{name}.page.txt", outline(page_of(name)))


def plot_titles(page: str) -> list[str]:
    return [text_of(svg[0]).split(",")[0] for svg in parse(page).iter(f"{SVG}svg")]


RATES, LOSSES = "Samples a second over the steps", "Training loss over the steps"
TIMES, SCALING = (
    "Distribution of the step time around its median",
    "Speedup over the number of GPUs",
)
GPUS = ["GPU utilisation over time", "GPU power over time"]


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("pass", [RATES, LOSSES, TIMES, SCALING]),
        ("gpu_record", [RATES, LOSSES, TIMES, SCALING, *GPUS]),
        ("one_run", [RATES, LOSSES, TIMES, *GPUS]),
        ("failed", [RATES, LOSSES]),
        ("failed_at_once", []),
    ],
)
def test_what_there_are_figures_for_is_drawn(name: str, titles: list[str], page_of: Pages) -> None:
    assert plot_titles(page_of(name)) == titles


def test_the_numbers_of_the_verdict_are_in_tables_and_in_the_texts_of_the_plots(
    tmp_path: Path,
) -> None:
    comparisons = tell(tmp_path / "runs", *STORIES["gpus_1_2_4_8"])
    root = parse(render_page(of_comparisons(comparisons)))
    cells = {text_of(cell) for cell in root.iter() if cell.tag in (f"{HTML}td", f"{HTML}th")}
    descriptions = " ".join(text_of(one) for one in root.iter(f"{SVG}desc"))
    for one in comparisons:
        assert f"{one.estimate.speedup:.2f}x" in cells
        assert f"{one.efficiency:.2f}" in cells
        assert f"{one.scaled.gpus} GPUs: {one.estimate.speedup:.2f}x" in descriptions
        [run] = one.scaled.runs
        assert str(run.path) in cells
        assert f"median {run.throughput.step_time_ms:.1f} ms" in descriptions
        for step in run.log.steps:
            assert f"{step.step_time_ms:,.1f}" in cells


def test_start_up_is_shaded_and_what_does_not_count_is_crossed_and_greyed(page_of: Pages) -> None:
    root = parse(page_of("pass"))
    rates = next(svg for svg in root.iter(f"{SVG}svg") if text_of(svg[0]) == RATES)
    crosses = [
        one
        for one in rates.iter(f"{SVG}use")
        if "stroke: var(--ink)" in one.attrib.get("style", "")
    ]
    assert len(crosses) == 4  # step 1 and steps 1-10 of two runs
    [shade] = [
        one for one in rates.iter(f"{SVG}path") if "var(--shade)" in one.attrib.get("style", "")
    ]
    edges = [float(place) for place in re.findall(r"[ML] ([\d.]+) ", shade.attrib["d"])]
    assert 10 < max(edges) - min(edges) < 40  # 10 of 200 steps
    grey = [row for row in root.iter(f"{HTML}tr") if row.attrib.get("class") == "left-out"]
    assert [text_of(row[0]) for row in grey] == ["1", "2-10", "1", "2-10"]


def test_a_failed_run_says_why_and_shows_the_end_of_its_output(page_of: Pages) -> None:
    page = page_of("failed")
    root = parse(page)
    verdict = text_of(root.find(f".//{HTML}section"))  # type: ignore[arg-type]
    assert verdict.startswith("FAILED The training process ended with status 1")
    assert "step 60 of 200" in verdict
    shown = [one.text or "" for one in root.iter(f"{HTML}pre")]
    assert shown[0].endswith(ERROR)
    assert CONFIG in "\n".join(shown) + "\n"


def test_a_run_whose_failure_is_known_says_cause_and_fix_first(page_of: Pages) -> None:
    root = parse(page_of("explained"))
    verdict = root.find(f".//{HTML}section")
    assert verdict is not None
    facts = [text_of(one) for one in verdict.iter() if one.tag in (f"{HTML}dt", f"{HTML}dd")]
    assert facts[:6] == [
        "Cause", "the model and its batch do not fit", "First error", ERROR,
        "Fix", "halve the micro batch",
    ]  # fmt: skip
    assert "2 GPUs: GPU 0: 900 MiB in use, 600 before" in text_of(root)


def test_runs_that_cannot_be_compared_say_why_and_show_the_good_one(page_of: Pages) -> None:
    root = parse(page_of("one_failed"))
    text = text_of(root)
    assert "NO VERDICT" in text
    assert "OutOfMemoryError" in text
    figures = root.find(f".//{HTML}table/{HTML}caption")
    assert figures is not None
    assert text_of(figures).startswith("The figures")


def test_what_a_guest_on_the_gpus_did_is_told_on_the_page(page_of: Pages) -> None:
    tables = {
        text_of(caption): [[text_of(cell) for cell in row] for row in table.iter(f"{HTML}tr")]
        for table in parse(page_of("guest")).iter(f"{HTML}table")
        if (caption := table.find(f"{HTML}caption")) is not None
    }
    left_out = tables["Steps that do not count, and why"]
    assert ["2 GPUs", "steps 121-140", "another process on GPU 1"] in left_out
    [gpus] = [rows for caption, rows in tables.items() if caption.startswith("What each GPU did")]
    assert [row[:4] for row in gpus[1:]] == [
        ["1 GPU", "0", "46", "274"],
        ["2 GPUs", "0", "46", "274"],
        ["2 GPUs", "1", "46", "275"],
    ]


def test_a_run_has_one_name_and_one_colour_in_every_table_and_plot(tmp_path: Path) -> None:
    runs = [
        Story(gpus=1, step_ms=220),
        Story(gpus=2, step_ms=118, status="failed", ends_at=0),
        Story(gpus=2, step_ms=118, gpu_record=True),
    ]
    folders = [run.write(tmp_path / str(number)) for number, run in enumerate(runs)]
    root = parse(render_page(collect(folders, runs=tmp_path, scaling="strong", checks={})))
    for svg in root.iter(f"{SVG}svg"):
        described = text_of(svg[1])
        assert "2 GPUs, run 2" in described
        assert "2 GPUs, run 1" not in described
        colours = " ".join(one.attrib.get("style", "") for one in svg.iter())
        assert "var(--arm2)" in colours
        assert ("1 GPU:" in described) == ("var(--arm1)" in colours)


def test_a_long_run_is_thinned_not_dropped(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    short = Story(gpus=1, step_ms=100)
    head = short.log().split(" [2026")[0]
    lines = [
        short.line(number).replace("     200 |", "  100000 |") for number in range(10, 100001, 10)
    ]
    log.write_text(head + "\n".join(lines) + "\n")
    page = render_page(collect([log], runs=tmp_path, scaling="strong", checks={}))
    parse(page)
    assert len(page) < 600_000
    assert "medians of 300 stretches" in page
    assert "10,000 intervals, each 20th shown" in page


def test_commands_in_sentences_are_marked_to_their_end() -> None:
    command = "dpbench bench --gpus 1,2 --repeat 3 --set training.lr=6e-4"
    marked = mark_commands(f"do this <now>: {command}, then stop")
    assert marked == f"do this &lt;now&gt;: <code>{command}</code>, then stop"
    quoted = "dpbench bench --config 'a folder/config.yaml' --gpus 1,2"
    assert str(mark_commands(f"{quoted} is it")) == (
        f"<code>{quoted.replace(chr(39), '&#39;')}</code> is it"
    )
    assert "<code>dpbench bench --gpus 1,2 --repeat 3</code> says" in mark_commands(
        "dpbench bench --gpus 1,2 --repeat 3 says how stable it is"
    )


def test_contrast_of_text_is_enough_in_light_and_dark() -> None:
    css = (Path(__file__).parents[1] / "src/dpbench/report/page.css").read_text()
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for block in css.split("@media screen")[:2]
    )
    assert light.keys() == dark.keys()
    for theme in (light, dark):
        for name in ("ink", "soft", "pass", "fail", "inconclusive", "none"):
            for ground in ("paper", "panel"):
                assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
        for name in ("limit", *(f"arm{k}" for k in range(1, 7))):
            assert contrast(theme[name], theme["paper"]) >= 4.5, name


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_only_an_older_page_is_replaced(tmp_path: Path) -> None:
    page, precious = tmp_path / "page.html", tmp_path / "run.log"
    write_page(page, f"<!doctype html>{MARK}\n1")
    write_page(page, f"<!doctype html>{MARK}\n2")
    assert page.read_text().endswith("2")
    precious.write_text("results")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in (precious, tmp_path, tmp_path / "link", tmp_path / "no folder" / "page.html"):
        with pytest.raises(SetupError):
            write_page(target, "page")
    assert precious.read_text() == "results"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "page.html", "run.log"]


def test_the_report_of_an_experiment_shows_failed_runs_too(tmp_path: Path) -> None:
    experiment = tmp_path / "runs" / "2026-12-01_bench"
    plan = {"schema_version": 1, "name": "x", "gpus": [1, 2], "rounds": 1}
    for number, story in enumerate(
        [Story(gpus=1, step_ms=220), FAILED, Story(gpus=2, step_ms=118)]
    ):
        story.write(experiment / f"{number}_round01_gpus{story.gpus}")
    (experiment / "bench.json").write_text(json.dumps(plan))
    (experiment / "config.yaml").write_text(CONFIG)
    subject = collect([], runs=tmp_path / "runs", scaling="strong", checks={})
    assert [one.outcome for one in subject.comparisons] == ["pass"]
    assert [one.status for one in subject.histories] == ["finished", "failed", "finished"]
    page = render_page(subject)
    assert "PASS" in page
    assert ERROR in page


def test_the_command_line_writes_pages(dpbench: Dpbench, tmp_path: Path) -> None:
    one, two = RECORDED / "h200_core0.19_gpus1", RECORDED / "h200_core0.19_gpus2"
    ended = dpbench("compare", one, two, "--html", "verdict.html")
    assert ended.returncode == 1
    assert ended.stdout.startswith("FAIL")
    ended = dpbench("report", one, "-o", "one.html")
    assert (ended.returncode, ended.stdout) == (0, "one.html\n")
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsvg.fonttype: path\nfont.size: 30\n")
    ended = dpbench("report", one, "-o", "same.html", MPLBACKEND="nonsense", HOME="/proc/none")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "same.html").read_text() == (tmp_path / "one.html").read_text()
    for name in ("verdict.html", "one.html"):
        check_target(tmp_path / name)
        parse((tmp_path / name).read_text())
    refused = dpbench("compare", one, two, "--html", ".")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert dpbench("report", one, "-o", ".").returncode == 2
    assert dpbench("report", "nowhere").returncode == 2
    assert dpbench("report").returncode == 2


def test_what_a_verdict_would_fail_is_told_of_a_run_and_left_to_the_gates_of_a_verdict(
    tmp_path: Path,
) -> None:
    note = f"{WOULD_FAIL}: the loss went 10.70 -> 4.80, over the limit 4.50"
    runs = [replace(story, notes=(note, "memory is left")) for story in STORIES["pass"]]
    paths = [story.write(tmp_path / str(story.gpus)) for story in runs]
    alone, both = (
        render_page(collect(given, runs=tmp_path, scaling="strong", checks={}))
        for given in (paths[:1], paths)
    )
    assert note.replace(">", "&gt;") in alone
    assert WOULD_FAIL not in both
    assert "memory is left" in both
