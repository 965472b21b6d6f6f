"""Chromium over its debugging pipe, standard library alone: load a page, run script, take pictures."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ANSWER_TIMEOUT_S = 60.0
# Chromium reads commands from descriptor 3 and writes answers to 4.
PLACE_PIPE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One headless Chromium with one page. `errors` collects exceptions and refused loads of the page."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, "tests that need Chromium skip when it is absent"
        from_browser, to_us = _pipe()
        from_us, to_browser = _pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += [f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PLACE_PIPE, str(from_us), str(to_us), CHROMIUM, *flags, "about:blank"],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self.read_fd, self.write_fd = from_browser, to_browser
        self.pending, self.number, self.session = b"", 0, None
        self.errors: list[str] = []
        self.loaded = False

    def __enter__(self) -> Self:
        try:
            targets = self.call("Target.getTargets")["targetInfos"]
            page = next(target["targetId"] for target in targets if target["type"] == "page")
            self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.session = None
                self.call("Browser.close")
                self.process.wait(ANSWER_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.read_fd)
            os.close(self.write_fd)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(f"the answer to {method}")
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file, or an address, in a window of this size and wait until it is there and drawn."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not self.loaded:
            self._next("the page to load")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def press_button(self, key: str) -> None:
        """Press Enter or the space bar on what has the focus, as a person does."""
        code = {"Enter": (13, "\r"), " ": (32, " ")}[key]
        named = {"key": key, "code": key if key == "Enter" else "Space", "windowsVirtualKeyCode": code[0]}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=code[1], **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def picture(self, out: Path, *, top: float = 0, height: float | None = None) -> None:
        """A PNG of the page from `top`, in page coordinates."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        tall = min(height or size["height"], size["height"] - top)
        clip = {"x": 0, "y": top, "width": size["width"], "height": tall, "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        out.write_bytes(base64.b64decode(shot["data"]))

    def _next(self, awaited: str) -> dict[str, Any]:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.read_fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium did not give {awaited} within {ANSWER_TIMEOUT_S:.0f} s"
            read = os.read(self.read_fd, 1 << 20)
            assert read, f"Chromium ended while we waited for {awaited}"
            self.pending += read
        text, _, self.pending = self.pending.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        return message


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are neither 3 nor 4, where Chromium's ends are to be placed."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
