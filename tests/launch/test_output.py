"""Output of ranks: whole lines, each with its rank, and bars that move in place."""

import io

from hocket.start.output import Channel, Output, Screen


def test_lines_come_whole_and_long_ones_in_pieces():
    """Two ranks' half lines would mix, or a line without end would fill the memory."""
    target = io.BytesIO()
    channel = Channel(Screen(target), b"[1] ")
    channel.feed(b"a")
    channel.feed(b"b\nc\n\nd")
    assert target.getvalue() == b"[1] ab\n[1] c\n[1] \n"
    channel.end()
    assert target.getvalue().endswith(b"[1] d\n")
    assert list(channel.last) == [b"ab", b"c", b"d"]
    channel.feed(b"x" * (1 << 16))
    assert target.getvalue().endswith(b"x\n")


class Terminal(io.BytesIO):
    """Terminal of wide lines, and the lines that it shows."""

    def isatty(self):
        return True

    @property
    def lines(self):
        shown, row, column = [""], 0, 0
        for byte in self.getvalue().decode().replace("\033[K", "\0").replace("\033[1A", "\1"):
            if byte == "\n":
                row, column = row + 1, 0
                shown += [""] * (row == len(shown))
            elif byte == "\r":
                column = 0
            elif byte == "\0":
                shown[row] = shown[row][:column]
            elif byte == "\1":
                row -= 1
            else:
                shown[row] = shown[row][:column] + byte + shown[row][column + 1 :]
                column += 1
        return shown


def test_a_bar_moves_below_the_lines_of_a_terminal():
    """A bar that is held until its line ends looks like a job that hangs; lines of others would be drawn into it."""
    terminal = Terminal()
    screen = Screen(terminal)
    first, second = Channel(screen, b"[0] "), Channel(screen, b"[1] ")
    first.feed(b"begins\n\r  0 %|")
    first.feed(b"\r 10 %|#")
    assert terminal.lines == ["[0] begins", "[0]  10 %|#"]
    second.feed(b"\r 99 %|")
    second.feed(b"\ra line\n")
    assert terminal.lines == ["[0] begins", "[1] a line", "[0]  10 %|#"]
    first.feed(b"\r100")
    first.feed(b" %|####\n")
    second.feed(b"ends\n")
    assert terminal.lines == ["[0] begins", "[1] a line", "[0] 100 %|####", "[1] ends", ""]
    assert list(first.last) == [b"begins", b"100 %|####"]


def test_a_bar_of_several_lines_is_drawn_over_itself():
    """Rich's bars, which are Lightning's, would fill the terminal, or draw over lines of other ranks."""
    terminal = Terminal()
    screen = Screen(terminal)
    first, second = Channel(screen, b"[0] ", size=(24, 80)), Channel(screen, b"[1] ")
    again = b"\r\033[2K\033[1A\033[2K"
    first.feed(b"begins\n\033[?25lepoch 1\nbatch 1")
    first.feed(again + b"epoch 1\nbatch 2")
    assert [line for line in terminal.lines if line] == ["[0] begins", "[0] epoch 1"]
    first.feed(again + b"epoch 2\nbatch 3\r")
    assert terminal.lines == ["[0] begins", "[0] epoch 2", "[0] batch 3"]
    second.feed(b"a line\n")
    first.feed(again + b"epoch 2\nbatch 4\n\033[?25h")
    second.feed(b"ends\n")
    assert terminal.lines == [
        "[0] begins", "[0] epoch 2", "[1] a line", "[0] epoch 2", "[0] batch 4", "[1] ends", ""
    ]  # fmt: skip
    first.end()
    assert b"\033[?25" not in terminal.getvalue()


def test_a_bar_in_a_file_is_its_last_state():
    """A log file would have every state of a bar."""
    target = io.BytesIO()
    channel = Channel(Screen(target), b"[0] ")
    for percent in range(101):
        channel.feed(b"\r%d %%" % percent)
    channel.feed(b"\nends\r\n")
    assert target.getvalue() == b"[0] 100 %\n[0] ends\n"


def test_a_single_rank_is_shown_at_once_on_a_terminal():
    """A bar, an escape sequence or a prompt would wait for a line end that does not come."""
    target = Terminal()
    channel, _ = Output(target, target, quiet_others=False).channels(0, 1)
    channel.feed(b"\r10 %")
    channel.feed(b"\r20 %")
    channel.feed(b" name? ")
    channel.end()
    assert target.getvalue() == b"\r10 %\r20 % name? "


def test_lines_of_a_single_rank_come_whole_and_unchanged_to_a_program():
    """A program that reads results of rank 0 would take half a line for a whole one."""
    target = io.BytesIO()
    channel, other = Output(target, target, quiet_others=True).channels(0, 2)
    channel.feed(b'{"a"')
    assert target.getvalue() == b""
    channel.feed(b": 1}\r\n")
    other.feed(b"x\ry\n")
    assert target.getvalue() == b'{"a": 1}\r\nx\ry\n'
