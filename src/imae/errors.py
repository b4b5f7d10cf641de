"""Exceptions a user can cause. The command line prints each as one line and exits with code 2."""


class ImaeError(Exception):
    """Base of every error that the user, not the program, can mend."""


class ArgumentError(ImaeError, ValueError):
    """An argument breaks a rule; the message names the argument, the rule and the value."""


class DataError(ImaeError, ValueError):
    """A data file or data set is not usable; the message names the file and, if known, the row."""


class MissingExtraError(ImaeError, ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""
