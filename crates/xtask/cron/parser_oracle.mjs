// Due times by cron-parser. In: cases as JSON lines. Out: a line for each, its number and the due times, or ! if it gives up or goes round without an end.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const { CronExpressionParser } = createRequire(process.argv[2] + "/")("cron-parser");
const out = [];
for await (const line of createInterface({ input: process.stdin })) {
  const { id, zone, cron, from, to } = JSON.parse(line);
  const times = CronExpressionParser.parse(cron, { tz: zone, currentDate: new Date(from * 1000) });
  const due = [];
  try {
    for (;;) {
      const at = Math.round(times.next().getTime() / 1000);
      if (at > to) break;
      if (at <= due.at(-1)) throw new Error("it does not go on");
      due.push(at);
    }
    out.push([id, ...due].join(" "));
  } catch {
    out.push(`${id} !`);
  }
}
process.stdout.write(out.join("\n") + "\n");
