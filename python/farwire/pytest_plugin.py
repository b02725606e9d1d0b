"""The pytest plugin: the fixture `wan`, and what it keeps of a test that fails."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Generator, List, cast

import pytest

from ._errors import FarwireError, MachineLacks
from .held import HeldLink
from .wan import Wan

#: With 1, a machine that lacks something fails a test; otherwise the test is skipped.
_REQUIRED = "FARWIRE_REQUIRED"
_ARTIFACTS = "farwire_artifacts"
_MARKER = "wan(*arguments): options of `farwire exec` for the fixture wan of this test, such as '--seed', '7'"

_failed = pytest.StashKey[bool]()
#: The link of a test, which the test may know only by a fixture that uses it.
_link = pytest.StashKey[Wan]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("farwire")
    group.addoption(
        "--farwire-artifacts",
        metavar="DIR",
        help="Folder for the counters, the changes and the log of each test that fails behind a link "
        "[default: farwire-artifacts in pytest's root folder]",
    )
    parser.addini(_ARTIFACTS, "Folder of --farwire-artifacts", default="farwire-artifacts")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def wan(request: pytest.FixtureRequest) -> Generator[Wan, None, None]:
    """A far end behind a link whose conditions the test changes; see `farwire.Wan`. The link starts at its first use."""
    item = cast(pytest.Item, request.node)
    arguments = [str(word) for marker in item.iter_markers("wan") for word in marker.args]
    link = Wan(*arguments)
    item.stash[_link] = link
    try:
        with link:
            yield link
    finally:
        if item.stash.get(_failed, False):
            try:
                _keep_log(link, _folder_of(item))
            except OSError as error:
                item.add_report_section("teardown", "farwire", f"the log of the link cannot be kept: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    # A fixture of the test may use the link first.
    yield from _skips_what_the_machine_lacks()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield from _skips_what_the_machine_lacks()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    link = item.stash.get(_link, None)
    if report.when != "teardown" and report.failed and link is not None and link.links:
        item.stash[_failed] = True
        folder = _folder_of(item)
        said = [part for number, held in enumerate(link.links, 1) for part in _keep(held, folder, number)]
        if folder.is_dir():
            said.append(f"more is in {folder}")
        report.sections.append(("farwire", "\n".join(said)))
    return report


def _skips_what_the_machine_lacks() -> Generator[None, None, None]:
    try:
        yield
    except MachineLacks as why:
        if os.environ.get(_REQUIRED) == "1":
            raise
        pytest.skip(str(why))


def _folder_of(item: pytest.Item) -> Path:
    """Returns the folder of a test's artifacts."""
    config = item.config
    given = config.getoption("--farwire-artifacts") or config.getini(_ARTIFACTS)
    name = re.sub(r"[^\w.=-]+", "-", item.nodeid).strip("-")
    # A name may have 255 bytes, and tests with parameters can have longer ones.
    return Path(config.rootpath, str(given), name[-150:])


def _keep(held: HeldLink, folder: Path, number: int) -> List[str]:
    """Writes the state of a link, and returns its description."""
    suffix = "" if number == 1 else f"-{number}"
    try:
        # A link that does not answer any more has a log, which is written later.
        folder.mkdir(parents=True, exist_ok=True)
        link = held.link
        counters = link.client.request("GET", f"{link.path}/counters")
        history = link.client.request("GET", f"{link.path}/history")
        since_fault = link.client.request("GET", f"{link.path}/counters?since={held.fault.revision}")
        described = held.describe()
        for name, content in (
            ("counters", counters),
            ("counters-since-last-change", since_fault),
            ("history", history),
        ):
            (folder / f"{name}{suffix}.json").write_text(json.dumps(content, indent=2) + "\n")
        return [described]
    except (FarwireError, OSError) as error:
        return [f"the counters of link {held.link.name} cannot be kept: {error}"]


def _keep_log(link: Wan, folder: Path) -> None:
    """Writes what farwire said of the link at its end."""
    if link.summary is None and not link.log:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "farwire.log").write_text(link.log + "\n")
    (folder / "summary.json").write_text(json.dumps(link.summary, indent=2) + "\n")
