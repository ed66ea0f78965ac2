"""The pictures of axccl-plan show --format svg: plan_drawing_test.py AXCCL_PLAN"""
import re
import subprocess
import sys
import unittest
import xml.etree.ElementTree

TOOL = sys.argv.pop(1)
SVG = "{http://www.w3.org/2000/svg}"
RING = ("--op", "all_reduce", "--algo", "ring", "--ranks", "4", "--lanes", "2")
STUCK = """axccl-plan 1
algorithm stuck
kind send_recv
ranks 2
root 0
parts 1
lanes 1
slots 1
endpoints 1
direct no
inline -
rank 0 lane 0
#0 wait 1 e0 v1
#1 copy out[0].0.0 <- in[0].0.0
rank 1 lane 0
#2 nop
"""


def run(*arguments, text=None):
    return subprocess.run([TOOL, *arguments], input=text, capture_output=True, text=True, timeout=60)


def draw(*arguments, text=None):
    """The picture, and its boxes as (class, title, x, y)."""
    done = run("show", *arguments, "--format", "svg", text=text)
    assert done.returncode == 0, done.stderr
    picture = xml.etree.ElementTree.fromstring(done.stdout)
    boxes = []
    for box in picture.iter(SVG + "rect"):
        for title in box.iter(SVG + "title"):
            boxes.append((box.get("class"), title.text, float(box.get("x")), float(box.get("y"))))
    return picture, boxes


class Drawing(unittest.TestCase):
    def test_has_a_box_for_each_operation(self):
        lines = [line for line in run("show", *RING).stdout.splitlines() if line.startswith("#")]
        _, boxes = draw(*RING)
        # Titles are the lines of the text, with "<-" in them.
        self.assertEqual([title for _, title, _, _ in boxes], lines)
        self.assertTrue(any("<-" in line for line in lines))
        for (style, title, _, _) in boxes:
            self.assertEqual(style, title.split()[1])
        # Each lane is a row, and operations of a lane never share a column.
        self.assertEqual(len({y for _, _, _, y in boxes}), 8)
        self.assertEqual(len({(x, y) for _, _, x, y in boxes}), len(boxes))

    def arrows_of(self, plan):
        """By the text, between the places of the boxes: right edge of the v-th signal, left edge of the wait."""
        place = {title: (x, y) for _, title, x, y in draw(*plan)[1]}
        signals, waits, lane = {}, [], None
        for line in run("show", *plan).stdout.splitlines():
            words = line.split()
            if words[0] == "rank":
                lane = (words[1], words[3])
            elif words[0].startswith("#") and words[1] == "signal":
                signals.setdefault((*lane, words[-1]), []).append(line)
            elif words[0].startswith("#") and words[1] == "wait":
                source = words[3][1:] if words[3].startswith("l") else lane[1]
                waits.append(((words[2], source, words[-2]), int(words[-1][1:]), line))
        for endpoint, value, line in waits:
            (x1, y1), (x2, y2) = place[signals[endpoint][value - 1]], place[line]
            yield x1 + 54, y1 + 9, x2, y2 + 9

    def test_an_arrow_leads_from_each_signal_to_its_wait(self):
        for plan in (RING, ("--op", "broadcast", "--algo", "ring", "--ranks", "5", "--root", "3")):
            picture, _ = draw(*plan)
            arrows = sorted(tuple(float(line.get(key)) for key in ("x1", "y1", "x2", "y2"))
                            for line in picture.iter(SVG + "line") if line.get("class") == "arrow")
            expected = sorted(self.arrows_of(plan))
            self.assertEqual(arrows, expected)
            self.assertTrue(all(begin < end for begin, _, end, _ in arrows))  # a wait is behind its signal
        picture, boxes = draw(*RING)
        # What is put into the scratch of another rank.
        put = [title for style, title, _, _ in boxes if style == "copy" and "slot" in title.split("<-")[0]]
        data = [line for line in picture.iter(SVG + "line") if line.get("class") == "data"]
        self.assertGreaterEqual(len(data), len(put))

    def test_large_plans_are_cut(self):
        done = run("show", "--op", "all_to_all", "--algo", "direct", "--ranks", "256", "--format", "svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(len(done.stdout), 16_000_000)
        picture, boxes = draw("--op", "all_reduce", "--algo", "ring", "--ranks", "200")
        self.assertEqual(len({y for _, _, _, y in boxes}), 64)
        said = [text.text for text in picture.iter(SVG + "text") if text.text.startswith("and ")]
        operations = len(re.findall("^#", run("show", "--op", "all_reduce", "--algo", "ring", "--ranks", "200").stdout, re.M))
        self.assertEqual(said, [f"and 136 lanes and {operations - len(boxes)} operations more"])

    # A file need not be a plan that works.
    def test_what_cannot_run_is_marked(self):
        _, boxes = draw("-", text=STUCK)
        self.assertEqual([style for style, _, _, _ in boxes], ["wait never", "copy never", "nop"])
        self.assertEqual(boxes[0][1], "#0 wait 1 e0 v1; it cannot run")

    def test_options(self):
        self.assertEqual(run("show", *RING, "--format", "text").stdout, run("show", *RING).stdout)
        for arguments, words in ((("show", *RING, "--format", "png"), "--format 'png' is unknown; there is text and svg"),
                                 (("hash", *RING, "--format", "svg"), "--format is for show")):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
