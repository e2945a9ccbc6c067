// Writes .cache/events.ndjson: the example payloads of GitHub's webhooks, one event a line, in the form that
// `postrider dev --events` reads. Needs `npm ci --ignore-scripts` first.
import { createRequire } from "node:module";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const target = join(root, ".cache", "events.ndjson");

function examples() {
  try {
    return createRequire(import.meta.url)("@octokit/webhooks-examples");
  } catch (cause) {
    throw new Error("@octokit/webhooks-examples is not installed; run: npm ci --ignore-scripts", { cause });
  }
}

function line(event, payload) {
  const type = ["github", event, payload.action].filter((part) => typeof part === "string").join(".").toLowerCase();
  const subject = `github/${payload.repository?.full_name ?? payload.organization?.login ?? "none"}`;
  return JSON.stringify({ type, subject, data: payload });
}

const lines = examples().flatMap(({ name, examples }) => examples.map((payload) => line(name, payload)));
mkdirSync(dirname(target), { recursive: true });
// Written beside and renamed, so that a reader never sees half of it.
writeFileSync(`${target}.part`, `${lines.join("\n")}\n`);
renameSync(`${target}.part`, target);
console.error(`${lines.length} events in ${target}`);
