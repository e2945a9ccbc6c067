"""Due times by cronsim, which has the semantics of Debian's cron. In: cases as JSON lines. Out: a line for each, its number and the due times, or ! if it goes
round without an end."""
import json
import signal
import sys
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim

# of its own CPU time; the longest case that ends takes a few
SECONDS_MOST = 60


class GivenUp(Exception):
    pass


def give_up(*_):
    raise GivenUp


def due(case):
    start = datetime.fromtimestamp(case["from"], timezone.utc).astimezone(ZoneInfo(case["zone"]))
    times = []
    for moment in CronSim(case["cron"], start):
        at = int(moment.timestamp())
        if at > case["to"]:
            return times
        if times and at <= times[-1]:
            raise GivenUp
        if at > case["from"]:
            times.append(at)


signal.signal(signal.SIGVTALRM, give_up)
for line in sys.stdin:
    case = json.loads(line)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MOST)
    try:
        print(case["id"], *due(case))
    except GivenUp:
        print(case["id"], "!")
