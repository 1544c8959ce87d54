"""The console of a simulated board: MicroPython's REPL with its raw and raw-paste modes (docs.micropython.org,
"The MicroPython Interactive Interpreter Mode").

The unix port has a console of its own without these modes. Its line editing is less than a board's: no history, no
completion, no cursor keys.
"""

import io
import sys
import termios

CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
BACKSPACES = (b"\x08", b"\x7f")
WINDOW = 128  # bytes that the host may send ahead in raw-paste mode, twice
OUTPUT_FLAGS, LOCAL_FLAGS = 1, 3
CR_BEFORE_LF = 1 | 4  # OPOST, ONLCR
ISIG, NOFLSH = 1, 0x80
WHEN_SENT = 1  # TCSADRAIN
OWN_FRAMES = ("_console.py", "power_up.py")


class Output:
    """`sys.stdout`: text with CR before LF. Its `buffer` sends bytes as they are."""

    def __init__(self) -> None:
        self._file = sys.stdout
        self.buffer = RawOutput(sys.stdout.buffer)

    def write(self, text):
        return self._file.write(text)

    def flush(self) -> None:
        pass


class RawOutput:
    """Bytes to the terminal as they are."""

    def __init__(self, file) -> None:
        self._file = file

    def write(self, content, *span):
        settings = termios.tcgetattr(0)
        settings[OUTPUT_FLAGS] &= ~1
        termios.tcsetattr(0, WHEN_SENT, settings)
        try:
            return self._file.write(content, *span)
        finally:
            settings[OUTPUT_FLAGS] |= CR_BEFORE_LF
            termios.tcsetattr(0, WHEN_SENT, settings)


class Console:
    """The console on the terminal at standard input and output; it begins with its interrupt off."""

    def __init__(self, banner: str) -> None:
        self._banner = banner
        self._input = sys.stdin.buffer
        self._globals = {"__name__": "__main__"}
        self.output = Output()
        settings = termios.tcgetattr(0)
        settings[OUTPUT_FLAGS] |= CR_BEFORE_LF
        termios.tcsetattr(0, WHEN_SENT, settings)

    def say(self, text: str) -> None:
        self.output.write(text)

    def set_interrupt(self, byte: int) -> None:
        """`micropython.kbd_intr`: whether Ctrl-C interrupts, or is read like any other byte (-1)."""
        settings = termios.tcgetattr(0)
        if byte == 3:
            settings[LOCAL_FLAGS] |= ISIG | NOFLSH
        else:
            settings[LOCAL_FLAGS] &= ~ISIG
        termios.tcsetattr(0, 0, settings)

    def run_file(self, name: str) -> bool:
        """Runs a file if it is there; returns whether it asked for a soft reset (SystemExit)."""
        try:
            with open(name) as file:
                source = file.read()
        except OSError:
            return False
        return self._run(source, name, "exec", self.say)

    def serve(self, is_raw: bool) -> bool:
        """Serves the console until a soft reset is asked for; returns whether it was in raw mode then."""
        while True:
            is_left = self._serve_raw() if is_raw else self._serve_friendly()
            if is_left:
                return is_raw
            is_raw = not is_raw

    def _serve_raw(self) -> bool:
        """Returns True for a soft reset, False to change to the friendly mode."""
        self.say("raw REPL; CTRL-B to exit\n>")
        line = bytearray()
        while True:
            byte = self._input.read(1)
            if byte == CTRL_A:
                if line == b"\x05A":
                    if self._paste():
                        return True
                    self.say(">")
                else:
                    self.say("raw REPL; CTRL-B to exit\n>")
                line = bytearray()
            elif byte == CTRL_B:
                self.say("\n")
                return False
            elif byte == CTRL_C:
                line = bytearray()
            elif byte == CTRL_D:
                self.say("OK")
                if not line:
                    self.say("\n")
                    return True
                if self._run_raw(line):
                    return True
                line = bytearray()
                self.say(">")
            else:
                line.extend(byte)

    def _paste(self) -> bool:
        """Takes a program in raw-paste mode and runs it; returns whether it asked for a soft reset."""
        self.output.buffer.write(b"R\x01" + bytes([WINDOW & 0xFF, WINDOW >> 8, 1]))
        source = bytearray()
        left = WINDOW
        while True:
            byte = self._input.read(1)
            if byte in (CTRL_C, CTRL_D):
                self.say("\x04")
                break
            source.extend(byte)
            left -= 1
            if not left:
                self.say("\x01")
                left = WINDOW
        if byte == CTRL_C:
            self.say("\x04KeyboardInterrupt: \n\x04")
            return False
        return self._run_raw(source)

    def _run_raw(self, source) -> bool:
        """Runs a program, whose output ends with a byte 4, as does its error."""
        return self._run(source, "<stdin>", "exec", lambda text: self.say("\x04" + text + "\x04"))

    def _serve_friendly(self) -> bool:
        """Returns True for a soft reset, False to change to the raw mode."""
        self.say(self._banner)
        while True:
            text, entered = self._line(">>> ")
            if entered == CTRL_A:
                self.say("\n")
                return False
            if entered == CTRL_B:
                self.say("\n" + self._banner)
            elif entered == CTRL_C:
                self.say("\n")
            elif entered == CTRL_D:
                self.say("\n")
                return True
            elif entered == CTRL_E:
                source = self._pasted()
                if source is not None and self._run(source, "<stdin>", "exec", self.say):
                    return True
            elif text.strip():
                source = self._whole(text)
                if source is not None and self._run(source, "<stdin>", "single", self.say):
                    return True

    def _line(self, prompt: str) -> tuple:
        """A line, and the control byte that came instead: at its begin, Ctrl-C at any place."""
        self.say(prompt)
        line = bytearray()
        while True:
            byte = self._input.read(1)
            if byte == CTRL_C or (not line and byte in (CTRL_A, CTRL_B, CTRL_D, CTRL_E)):
                return "", byte
            if byte == b"\r" or byte == b"\n":
                self.say("\n")
                return bytes(line).decode(), b""
            if byte in BACKSPACES:
                if line:
                    line[-1:] = b""
                    self.say("\x08 \x08")
            elif byte >= b" " or byte == b"\t":
                line.extend(byte)
                self.output.buffer.write(byte)

    def _whole(self, first: str):
        """The statement that begins with this line, with the further lines that belong to it; None after Ctrl-C."""
        source = first
        while _goes_on(source):
            more, control = self._line("... ")
            if control == CTRL_C:
                self.say("\n")
                return None
            if control == CTRL_D:
                break
            source += "\n" + more
        return source + "\n"

    def _pasted(self):
        """What is typed in paste mode; None after Ctrl-C."""
        self.say("\npaste mode; Ctrl-C to cancel, Ctrl-D to finish\n=== ")
        source = bytearray()
        while True:
            byte = self._input.read(1)
            if byte in (CTRL_C, CTRL_D):
                self.say("\n")
                return None if byte == CTRL_C else bytes(source).decode()
            if byte == b"\r":
                source.extend(b"\n")
                self.say("\n=== ")
            else:
                source.extend(byte)
                self.output.buffer.write(byte)

    def _run(self, source, name: str, mode: str, end) -> bool:
        """Runs a program, and then calls `end` with the text of its error; returns whether it was SystemExit."""
        error = ""
        is_left = False
        try:
            code = compile(source if isinstance(source, str) else bytes(source).decode(), name, mode)
            self.set_interrupt(3)
            exec(code, self._globals)
            self.set_interrupt(-1)
        except SystemExit:
            is_left = True
        except BaseException as raised:
            self.set_interrupt(-1)
            error = _text_of(raised)
        self.set_interrupt(-1)
        end(error)
        return is_left


def _goes_on(source: str) -> bool:
    """Whether more lines belong to a statement: a bracket or a block is open."""
    depth = sum([source.count(one) for one in "([{"]) - sum([source.count(one) for one in ")]}"])
    first = source.lstrip().split("\n")[0].rstrip()
    is_block = first.endswith(":") or first.startswith("@")
    return depth > 0 or source.endswith("\\") or (is_block and not source.endswith("\n"))


def _text_of(raised) -> str:
    """An error as the console shows it, without the lines of this simulation."""
    text = io.StringIO()
    sys.print_exception(raised, text)  # type: ignore[attr-defined]
    return "\n".join([line for line in text.getvalue().split("\n") if not any(own in line for own in OWN_FRAMES)])
