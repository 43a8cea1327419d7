"""Whether a row counts: Great Expectations suites over a campaign's rows."""

import os

# Great Expectations reads this while it is imported.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
