"""The source of the events described in `watch`: `sys.monitoring`, or `sys.setprofile` on Python 3.11.

events.report_to(watcher)    start reporting the events of this thread to the watcher
events.stop(watcher)         stop reporting to the watcher; idempotent
"""

import sys

if sys.version_info >= (3, 12):
    from tracejit.frontend.surroundings.monitoring import report_to, stop
else:
    from tracejit.frontend.surroundings.profiling import report_to, stop

__all__ = ["report_to", "stop"]
