import io

from fleet.management.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_elsewhere_lines_are_few_and_plain():
    stream = io.StringIO()
    line = ProgressLine("Work", "pieces", stream)
    for done in range(1, 1001):
        line(done, 1000)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Work: 1 of 1,000 pieces (0 %)"
    assert lines[-1] == "Work: 1,000 of 1,000 pieces (100 %)"
    assert len(lines) < 100


def test_a_terminals_line_updates_and_ends():
    stream = Terminal()
    line = ProgressLine("Work", "pieces", stream)
    line(1, 2)
    line(2, 2)
    assert stream.getvalue() == "\r\x1b[KWork: 1 of 2 pieces (50 %)\r\x1b[KWork: 2 of 2 pieces (100 %)\n"
