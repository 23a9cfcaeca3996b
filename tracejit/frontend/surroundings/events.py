"""The source of the events that `watch` explains: `sys.monitoring`, or `sys.setprofile` on Python 3.11.

events.report_to(watcher)    from now on the watcher receives what this thread does
events.stop(watcher)         it does not any more; this may be done twice
"""

import sys

if sys.version_info >= (3, 12):
    from tracejit.frontend.surroundings.monitoring import report_to, stop
else:
    from tracejit.frontend.surroundings.profiling import report_to, stop

__all__ = ["report_to", "stop"]
