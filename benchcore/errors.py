"""The errors that are told apart: what a user can mend, and what an environment could not do."""


class UserError(Exception):
    """Bad input or a machine that lacks something: one paragraph naming what was wanted, what
    came, and what to do. The command line prints it and exits with code 2."""


class CampaignIncompleteError(Exception):
    """Some duels left no result, or some documents were refused; what was measured is kept."""


class EnvironmentBuildError(Exception):
    """An environment could not be locked, built or verified: an infrastructure failure, never a
    benchmark result."""
