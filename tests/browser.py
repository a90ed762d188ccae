"""A headless Chromium, driven through its DevTools protocol by pipe: no port, no other package."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FIRST_FREE = 20
"""Descriptors from here on; the browser reads its commands from 3 and answers on 4."""
PATIENCE_SECONDS = 240.0
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-extensions "
    "--hide-scrollbars --remote-debugging-pipe"
).split()
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"


class Browser:
    """One browser process; every name resolves to nothing, so that it cannot leave the machine."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, FIRST_FREE) for end in (commands, answers)]
        inherited = [(os.POSIX_SPAWN_DUP2, end, 3 + place) for place, end in enumerate(high)]
        nothing = [(os.POSIX_SPAWN_OPEN, end, os.devnull, os.O_RDWR, 0) for end in (0, 1, 2)]
        self._process = os.posix_spawn(
            PROGRAM,
            [PROGRAM, *OPTIONS, OFFLINE, f"--user-data-dir={folder}"],
            {**os.environ, "HOME": str(folder)},
            file_actions=[*nothing, *inherited],
        )
        for end in (commands, answers, *high):
            os.close(end)
        self._left, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError, TimeoutError):
            self.ask("Browser.close")
        os.close(self._write)
        deadline = time.monotonic() + 10
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._process, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self._read)

    def ask(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; what else arrives goes to `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str) -> None:
        """Read events until one of this name has arrived."""
        while not any(event["method"] == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], PATIENCE_SECONDS)[0]:
                raise TimeoutError(f"{PROGRAM} says nothing")
            chunk = os.read(self._read, 1 << 20)
            assert chunk, f"{PROGRAM} ended"
            self._left += chunk
        message, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(message))


class Tab:
    """A page, opened from disk."""

    def __init__(
        self, browser: Browser, page: Path, *, width: int, media: str = "screen", dark: bool = False
    ) -> None:
        self._browser = browser
        browser.events.clear()
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._target, self._session = target, attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride",
                 width=width, height=844, deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.ask("Page.navigate", url=page.as_uri())
        browser.wait_for("Page.loadEventFired")
        self.uri = page.as_uri()

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def run(self, script: str) -> Any:
        """Return what a script, which is no part of the page, finds in it."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    def close(self) -> None:
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def complaints(self) -> list[str]:
        """What the browser wrote to its console."""
        events = self._events(
            "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"
        )
        return [json.dumps(event) for event in events]

    def requests(self) -> list[str]:
        """The addresses that the page asked for, itself left out."""
        asked = [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]
        return [url for url in asked if url != self.uri]

    def images(self) -> list[tuple[str, str]]:
        """Name and description of each image, as a screen reader is told."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        told = lambda node, key: str(node.get(key, {}).get("value", ""))  # noqa: E731
        return [
            (told(node, "name"), told(node, "description"))
            for node in nodes
            if not node["ignored"] and told(node, "role") in {"image", "img"}
        ]

    def _events(self, *methods: str) -> list[Mapping[str, Any]]:
        return [event["params"] for event in self._browser.events if event["method"] in methods]
