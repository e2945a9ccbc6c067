"""Due times by cronsim, which has the semantics of Debian's cron. In: cases as JSON lines. Out: a line for each, its number and the due times."""
import json
import sys
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim

for line in sys.stdin:
    case = json.loads(line)
    start = datetime.fromtimestamp(case["from"], timezone.utc).astimezone(ZoneInfo(case["zone"]))
    due = []
    for moment in CronSim(case["cron"], start):
        at = int(moment.timestamp())
        if at > case["to"]:
            break
        if at > case["from"]:
            due.append(at)
    print(case["id"], *due)
