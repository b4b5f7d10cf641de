"""How names and numbers are shown: in percent, unknown as a dash, nothing unprintable."""

UNKNOWN = "-"
_JOINERS = "\u200c\u200d"  # not printable by themselves, and part of how names and emoji are spelt


def printable(value: object) -> str:
    r"""The value as one line of characters that a terminal, a page or a file can hold.

    Control characters, line breaks, characters that turn the direction of writing and halves of
    surrogate pairs each become the replacement character: a name from a file must not steer a
    terminal or hide a part of itself.

    Examples:
        >>> printable("cat\x1b[2J")
        'cat�[2J'
    """
    return "".join(
        letter if letter.isprintable() or letter in _JOINERS else "\ufffd" for letter in str(value)
    )


def shorten(text: str, *, limit: int) -> str:
    """The text, or its beginning and an ellipsis if it has more than ``limit`` characters.

    Examples:
        >>> shorten("symmetric", limit=4)
        'sym…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def percent(fraction: float | None) -> str:
    """A fraction in percent with one decimal, or a dash if it is unknown.

    Examples:
        >>> percent(0.616), percent(None)
        ('61.6', '-')
    """
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f}"


def duration(seconds: float | None) -> str:
    """A time in the unit that suits its size, or a dash if it is unknown.

    Examples:
        >>> duration(0.0123), duration(75.0), duration(7260.0)
        ('12.3 ms', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
