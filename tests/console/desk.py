"""The console as a process, and a browser in front of it: Debian's Chromium, driven by Playwright.

Screenshots of every page go to `build/screenshots` of the clone, or where `OTTLA_SCREENSHOTS` says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from playwright.sync_api import Error, TimeoutError
from waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).resolve().parent.parent.parent
SHOTS = Path(os.environ.get("OTTLA_SCREENSHOTS") or ROOT / "build" / "screenshots")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EVERY_S = "0.5"  # the shortest: most of what a test waits for comes with the next look at the cluster
LIMIT_MS = 60_000
OPEN_MS = 5_000


class Desk:
    """One console. `url` is where it is."""

    def __init__(self, bootstrap: str, folder: Path, *options: str) -> None:
        self._command = [sys.executable, "-m", "ottla", "console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0"]
        self._command += ["--history", str(folder / "history.sqlite"), "--every", EVERY_S, *options]
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        log = open(self._folder / "console.log", "a")
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.startswith("Ottla console: http"), line + self.log
        self.url = line.split()[2]
        wait_until(self._answers, lambda: self.log)
        return self

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/login", timeout=10).close()
        except OSError:
            return False
        return True

    @property
    def log(self) -> str:
        return (self._folder / "console.log").read_text()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def __exit__(self, *error: object) -> None:
        assert self._process
        assert self._process.stdout
        self._process.terminate()
        self._process.wait(60)
        self._process.stdout.close()


def open_browser(driver: Any) -> Browser:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "the tests of the console need Chromium: apt-get install chromium"
    browser: Browser = driver.chromium.launch(executable_path=path, args=FLAGS)
    return browser


class Visitor:
    """Somebody in front of a page."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.set_default_timeout(LIMIT_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def go(self, path: str, *, until: str = "") -> None:
        self.page.goto(self.url + path)
        if until:
            self.page.get_by_text(until).first.wait_for()

    def find(self, mark: str) -> Locator:
        return self.page.locator(f"[data-mark={mark}]").first

    def press(self, mark: str) -> None:
        self.find(mark).click()

    def write(self, mark: str, text: str) -> None:
        self.find(mark).fill(text)

    def choose(self, mark: str, label: str) -> None:
        """From a menu, which opens at the first click unless the page is still moving."""
        wanted = self.page.locator(".q-menu .q-item", has_text=label).first

        def opened() -> bool:
            try:
                self.find(mark).dispatch_event("click")
                wanted.wait_for(timeout=OPEN_MS)
            except TimeoutError:
                return False
            return True

        wait_until(opened, f"the menu of {mark} does not open")
        wanted.click()

    def sees(self, text: str, mark: str = "") -> None:
        """Wait until it stands there."""
        place = self.find(mark) if mark else self.page
        place.get_by_text(text).first.wait_for()

    def reads(self, mark: str) -> str:
        return self.find(mark).inner_text()

    def background(self) -> str:
        """The colour of the page: what light and dark are told by."""
        while True:
            try:
                return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            except Error as error:  # a page that was cut off for long loads itself again
                if "navigation" not in str(error):
                    raise
                self.page.wait_for_load_state()

    def shoot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
