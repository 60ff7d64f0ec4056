# SPDX-License-Identifier: Apache-2.0
"""browser.py - a headless Chromium, driven over a pipe with its DevTools protocol: open a page, ask it questions, take pictures. Nothing is fetched."""
import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def installed():
    """The path of a browser that can be driven, None if there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp()
        down, up = os.pipe(), os.pipe()
        # The browser reads file descriptor 3 and writes 4.
        script = 'exec 3<&%d 4>&%d; exec "$@"' % (down[0], up[1])
        self.process = subprocess.Popen(
            ["bash", "-c", script, "browser", installed(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile, "--no-first-run", "--disable-background-networking", "--disable-component-update", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(down[0], up[1]))
        os.close(down[0])
        os.close(up[1])
        self.to, self.back = down[1], os.fdopen(up[0], "rb")
        self.number, self.events, self.session = 0, [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        self.back.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self):
        text = bytearray()
        while (byte := self.back.read(1)) not in (b"\0", b""):
            text += byte
        if not text:
            raise RuntimeError("the browser ended")
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, height=1000, dark=False, media="screen"):
        """Show a file, and return what went wrong: messages of the console, requests that are none of its own."""
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())
        return [e for e in self.events if e["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
                or (e["method"] == "Network.requestWillBeSent" and not e["params"]["request"]["url"].startswith(("file://" + os.path.abspath(path), "data:")))]

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])
