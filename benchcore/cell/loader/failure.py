"""The error of a duel whose loader failed."""


class LoaderFailedError(Exception):
    """The loader died, hangs or can't decode an image: no contender's fault."""
