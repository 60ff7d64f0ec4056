#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""page_test.py UNISONO DATA [Pages | Rendered] - `unisono doctor --html`: what the text says is in the page, whatever a log carries stays text, its size has a bound; and in a
real browser, where there is one: light, dark, narrow and on paper, nothing overflows, nothing overlaps, everything can be read, nothing is fetched."""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import browser

UNISONO, DATA = sys.argv.pop(1), sys.argv.pop(1)
VOID = {"meta", "link", "br", "rect", "line", "path", "i"}


def make(folder, name, *paths, text=None):
    page = os.path.join(folder, name + ".html")
    if text is not None:
        paths = (os.path.join(folder, name + ".log"),)
        with open(paths[0], "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write(text)
    p = subprocess.run([UNISONO, "doctor", "--json", "--html", page, *paths], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert p.returncode in (0, 1), p.stderr
    return page, json.loads(p.stdout)


def dumps(folder, ranks, absent):
    """A job of `ranks` in which one never came to the last of eight calls."""
    os.makedirs(folder)
    for rank in range(ranks):
        entries = [{"record_id": n, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": n, "profiling_name": "nccl:all_reduce", "input_sizes": [[1024]],
                    "time_created_ns": 1800000000 * 10**9 + n * 3 * 10**9 + rank, "state": "completed" if n < 8 else "scheduled",
                    "time_discovered_completed_ns": 1800000002 * 10**9 + n * 3 * 10**9 if n < 8 else None,
                    "frames": [{"name": "step", "filename": "/w/train.py", "line": 7}]} for n in range(1, 9) if rank != absent or n < 8]
        with open(os.path.join(folder, "rank_%d.json" % rank), "w", encoding="utf-8") as f:
            json.dump({"version": "2.9", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}, "entries": entries}, f)
    return folder


def case(name):
    folder = os.path.join(DATA, "cases")
    return [os.path.join(folder, leaf) for leaf in sorted(os.listdir(folder)) if leaf.startswith(name + ".") and not leaf.endswith(".expect")]


HOSTILE = """[rank1]:[E514 03:12:09.114402871 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=<script>document.title='run'</script>, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.
[rank2]:[E514 03:12:09.114402871 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=<script>document.title='run'</script>, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
n1:1:1 [0] NCCL WARN Call to <img src=x onerror=alert(1)>"'&amp;\udcff\udcfe failed : </pre></style><svg onload=alert(1)>
"""


class Tags(html.parser.HTMLParser):
    """Every element that is opened is closed, in order."""
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.wrong = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))


def parsed(page):
    with open(page, encoding="utf-8") as f: # strict: a page is UTF-8, whatever the log was
        text = f.read()
    tags = Tags()
    tags.feed(text)
    return text, tags


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def test_says_what_the_text_says(self):
        for name in ("B01", "B04", "B18", "B86", "B93", "S02"):
            page, answer = make(self.folder, name, *case(name))
            text, tags = parsed(page)
            plain = html.unescape(re.sub("<[^>]*>", "", text))
            self.assertEqual((tags.open, tags.wrong), ([], []), name)
            first = answer["findings"][0]
            for words in [first["headline"], first["explanation"]] + first["consequences"] + [r.replace("`", "") for r in first["remedies"]]:
                self.assertIn(words, plain, name)
            for e in first["evidence"]:
                self.assertIn("%s:%d" % (e["file"], e["line"]) if e["line"] else e["file"], plain, name)
            for f in answer["findings"][:100]:
                self.assertIn(f["headline"], plain, name)

    def test_whatever_a_log_carries_stays_text(self):
        page, _ = make(self.folder, "hostile", text=HOSTILE)
        text, tags = parsed(page)
        names = {tag for tag, _ in tags.seen}
        self.assertFalse(names & {"script", "img", "iframe", "object", "embed", "form", "base"}, names)
        self.assertFalse([a for _, attrs in tags.seen for a in attrs if a.startswith("on")])
        self.assertIn("&#60;script&#62;document.title", text)
        self.assertIn("default-src &#39;none&#39;", text)

    def test_needs_nothing_but_itself(self):
        page, _ = make(self.folder, "page", *case("B99"), *case("B01"))
        _, tags = parsed(page)
        for tag, attrs in tags.seen:
            for key in ("src", "href", "action", "data", "xlink:href"):
                self.assertTrue(attrs.get(key, "data:,").startswith("data:"), (tag, attrs))

    def test_is_bounded(self):
        many = "".join("export NCCL_NAME_%d=1\n" % i for i in range(3000)) + "".join("h%d:%d:%d [0] NCCL WARN Some trouble %d that is new\n" % (i, i, i, i) for i in range(3000))
        sizes = [os.path.getsize(make(self.folder, "n%d" % ranks, dumps(os.path.join(self.folder, "d%d" % ranks), ranks, ranks // 2))[0]) for ranks in (64, 512)]
        self.assertLess(sizes[1], 200000)
        self.assertLess(os.path.getsize(make(self.folder, "many", text=many)[0]), 2000000)

    def test_where_it_cannot_be_written(self):
        p = subprocess.run([UNISONO, "doctor", "--html", os.path.join(self.folder, "no", "page.html"), *case("B01")], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(p.returncode, 2)
        self.assertRegex(p.stderr, "page .* cannot be written: No such file")
        p = subprocess.run([UNISONO, "doctor", "--rules", "--html", os.path.join(self.folder, "page.html")], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((p.returncode, p.stdout, os.path.exists(os.path.join(self.folder, "page.html"))), (2, "", False))
        p = subprocess.run([UNISONO, "doctor", "--html", "-", *case("B01")], capture_output=True, text=True, timeout=60, check=False)
        self.assertTrue(p.stdout.startswith("<!DOCTYPE html>") and p.stdout.endswith("</html>\n"))


# Horizontal overflow; labels of one drawing that cover each other or leave it; text with too little contrast against what is behind it.
OVERFLOWS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
OVERLAPS = """(() => { const bad = [];
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll(':scope text')].map(t => [t.textContent, t.getBoundingClientRect()]).filter(b => b[1].width);
  boxes.forEach(([words, a], i) => {
    if (svg.hasAttribute('viewBox') && (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1)) bad.push(words + ' leaves its drawing');
    for (const [other, b] of boxes.slice(i + 1))
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) bad.push(words + ' covers ' + other);
  });
} return bad; })()"""
CONTRAST = """(() => { const bad = new Set(), canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
const rgba = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const light = c => { const v = c.slice(0, 3).map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 200) return c; } return [255, 255, 255, 255]; };
for (const e of document.querySelectorAll('h1,h2,h3,p,small,summary,pre,code,li,th,td,.chip,.place,.kind,footer')) {
  if (!e.textContent.trim() || !e.getClientRects().length) continue;
  const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) bad.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
} return [...bad]; })()"""


NO_BROWSER = None if browser.installed() else "no browser is installed (%s): the page is not rendered" % ", ".join(browser.NAMES)


@unittest.skipIf(NO_BROWSER, NO_BROWSER)
class Rendered(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        shutil.rmtree(cls.folder)

    def looks(self, page, keep=None):
        b = self.browser
        for width, dark, media in ((1200, False, "screen"), (1200, True, "screen"), (360, False, "screen"), (700, False, "print")):
            how = "%s at %d, %s, %s" % (page, width, "dark" if dark else "light", media)
            self.assertEqual(b.open(page, width, dark=dark, media=media), [], how)
            self.assertFalse(b.ask(OVERFLOWS), how)
            self.assertEqual(b.ask(CONTRAST), [], how)
            self.assertEqual(b.ask(OVERLAPS), [], how)
            picture = b.picture()
            self.assertEqual(picture[:4], b"\x89PNG", how)
            self.assertGreaterEqual(int.from_bytes(picture[16:20], "big"), width, how)
            if keep:
                with open("%s-%d-%s-%s.png" % (keep, width, "dark" if dark else "light", media), "wb") as f:
                    f.write(picture)

    def count(self, selector):
        return self.browser.ask("document.querySelectorAll(%s).length" % json.dumps(selector))

    def page(self, name, *paths, **more):
        page, answer = make(self.folder, name, *paths, **more)
        keep = os.environ.get("DOCTOR_PAGES")
        self.looks(page, os.path.join(keep, name) if keep else None)
        self.browser.open(page, 1200)
        return answer

    def test_a_hang(self):
        self.page("gil", os.path.join(DATA, "flight-recorder", "lock_gil_1st"))
        self.assertEqual(self.count("#ranks tbody tr"), 16)
        self.assertEqual(self.count("#ranks tr.r-absent"), 2)
        self.assertGreaterEqual(self.count("#ranks rect.b-called"), 14)
        self.assertEqual(self.count("#cause h1"), 1)

    def test_time_outs(self):
        self.page("watchdog", *case("B01"))
        self.assertEqual(self.count("#ranks path"), 3)
        self.assertEqual(self.browser.ask("[...document.querySelectorAll('#ranks thead text')].map(t => t.textContent).join(' ')"), "0 2 min 4 min 6 min 8 min 10 min")

    def test_many_ranks_and_one(self):
        self.page("many", dumps(os.path.join(self.folder, "many"), 512, 137))
        self.assertEqual(self.count(".map i"), 512)
        self.assertEqual(self.count("#ranks tbody tr"), 2)
        self.assertEqual(self.browser.ask("document.querySelector('#ranks tbody b').textContent"), "rank 137")
        self.page("one", dumps(os.path.join(self.folder, "one"), 1, 1))
        self.assertEqual(self.count("#ranks tbody tr"), 1)

    def test_machines(self):
        rccl = os.path.join(DATA, "topologies", "rccl")
        self.page("machines", *(os.path.join(rccl, leaf) for leaf in ("topo_8p_rome_4nics.xml", "topo_8p6l_3nic.xml", "topo_16p1h.xml", "topo_4p3l_ia.xml")), *case("B93"))
        self.assertEqual(self.count("#machines h3"), 5)
        self.assertEqual(self.browser.ask("[...document.querySelectorAll('#machines .card')].map(c => c.querySelectorAll('.machine .gpu').length).join()"), "8,8,16,8,8")
        self.assertGreater(self.count("#machines .ring line"), 20)

    def test_hwloc(self):
        self.page("hwloc", os.path.join(DATA, "topologies", "hwloc_2gpus.xml"))
        self.assertEqual(self.browser.ask("[...document.querySelectorAll('.machine text')].map(t => t.textContent).join(', ')"),
                         "32 GB/s, 32 GB/s, PCIe switch 0000:03:00.0, GPU 0, 0000:05:00.0, 32 GB/s, mlx5_0, 0000:06:00.0, NUMA node 0, 16 GB/s, GPU 1, 0000:81:00.0, NUMA node 1")

    def test_tables(self):
        self.page("tables", *case("B86"), *case("B98"), *case("B100"))
        self.assertGreaterEqual(self.count("#links table"), 4)
        self.assertGreater(self.count("#links td.near"), 4)

    def test_settings_and_scripts(self):
        answer = self.page("script", *case("S02"))
        self.assertEqual(self.count("details.finding"), len(answer["findings"]) - 1)

    def test_hostile(self):
        self.page("hostile", text=HOSTILE)
        self.assertEqual(self.count("script, img"), 0)
        self.assertIn("<script>document.title='run'</script>", self.browser.ask("document.querySelector('#cause').innerText"))
        self.assertNotEqual(self.browser.ask("document.title"), "run")

    def test_that_the_questions_can_fail(self):
        page, _ = make(self.folder, "spoiled", *case("B86"))
        self.browser.open(page, 1200)
        self.browser.ask("document.querySelector('main').insertAdjacentHTML('beforeend', '<p style=\"width:3000px;max-width:none;color:#eee\">x</p>')")
        self.browser.ask("document.querySelectorAll('svg.ring text').forEach(t => { t.setAttribute('x', 900); t.setAttribute('y', 50); })")
        self.assertTrue(self.browser.ask(OVERFLOWS))
        self.assertTrue(self.browser.ask(CONTRAST))
        self.assertTrue(any("covers" in b for b in self.browser.ask(OVERLAPS)))
        self.assertTrue(any("leaves" in b for b in self.browser.ask(OVERLAPS)))


if __name__ == "__main__":
    if sys.argv[1:] == ["Rendered"] and NO_BROWSER:
        print(NO_BROWSER)
        sys.exit(77)
    unittest.main()
