"""Chromium for the scripts that take pictures, driven through chromedriver by the WebDriver protocol (W3C, "WebDriver", 2018)."""

import base64
import json
import subprocess
import sys
import time
import urllib.request

PORT = 7792
DRIVER = f"http://127.0.0.1:{PORT}"
OPTIONS = {"args": ["--headless=new", "--no-sandbox", "--hide-scrollbars"]}
# Centimetres, of A4.
SHEET = {"page": {"width": 21.0, "height": 29.7}, "background": True}


def until_it_answers(url):
    for _ in range(100):
        try:
            return urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{sys.argv[0]}: {url} does not answer")


def ask(method, path, body=None):
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(DRIVER + path, content, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["value"]


class Chromium:
    """A browser with one page, which ends with the block: `with Chromium() as browser`."""

    def __enter__(self):
        self.driver = subprocess.Popen(["chromedriver", f"--port={PORT}"], stdout=subprocess.DEVNULL)
        try:
            until_it_answers(DRIVER + "/status")
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": OPTIONS}}}
            self.session = "/session/" + ask("POST", "/session", wanted)["sessionId"]
        except BaseException:
            self.end_driver()
            raise
        return self

    def __exit__(self, *_):
        try:
            ask("DELETE", self.session)
        finally:
            self.end_driver()

    def end_driver(self):
        self.driver.terminate()
        self.driver.wait()

    def open(self, url):
        ask("POST", self.session + "/url", {"url": url})

    def run(self, script):
        """The result of a script."""
        return ask("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def look(self, width, height, theme="light"):
        """Sets the size of the page in CSS pixels, and the theme that it is asked for."""
        device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        themes = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        for command, parameters in [("Emulation.setDeviceMetricsOverride", device), ("Emulation.setEmulatedMedia", themes)]:
            ask("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path):
        """Writes what the page shows as PNG."""
        write(path, ask("GET", self.session + "/screenshot"))

    def print(self, path):
        """Writes the page as PDF, on sheets of A4."""
        write(path, ask("POST", self.session + "/print", SHEET))


def write(path, text):
    with open(path, "wb") as file:
        file.write(base64.b64decode(text))
