// graphile-worker as a worker process of the bench; what it says on its standard output is told in src/system/child.rs.
import process from "node:process";
import pg from "pg";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const mode = process.argv[2];
const [host, database] = process.env.BENCH_SOCKET.split(" ");
const pgPool = new pg.Pool({ host, database, user: "postgres", max: 8 });
pgPool.on("error", (error) => process.stderr.write(`${error.message}\n`));
pgPool.on("connect", (client) => client.on("error", () => {}));
const logger = new Logger(() => (level, message) => {
  if (level === "error") process.stderr.write(`${message}\n`);
});

if (mode === "install") {
  const utils = await makeWorkerUtils({ pgPool, logger });
  await utils.migrate();
  await utils.release();
  await pgPool.end();
  process.exit(0);
}

const nowUs = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
let count = 0;
let told = 0;
let first = 0;
const taskList = {
  bench_job:
    mode === "drain"
      ? () => {
          if (count++ === 0) first = nowUs();
        }
      : ({ n }) => {
          process.stdout.write(`start ${n} ${nowUs()}\n`);
        },
};
setInterval(() => {
  if (count === told) return;
  if (told === 0) process.stdout.write(`first ${first}\n`);
  process.stdout.write(`count ${nowUs()} ${count}\n`);
  told = count;
}, 20).unref();

const worker =
  mode === "drain"
    ? { concurrentJobs: 24, pollInterval: 100, localQueue: { size: 5000 }, completeJobBatchDelay: 5, failJobBatchDelay: 5 }
    : { concurrentJobs: 24, pollInterval: 1000 };
const runner = await run({ pgPool, logger, taskList, noHandleSignals: true, preset: { worker } });
process.stdin.resume();
process.stdin.on("end", async () => {
  await runner.stop().catch(() => {});
  process.exit(0);
});
