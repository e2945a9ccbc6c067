// Reads requests, one JSON object a line: {secret, headers, body} with the body in base64. Writes one line for each: what the official
// verifier for JavaScript says.
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";

for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line);
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers);
    console.log("verified");
  } catch (error) {
    console.log(`refused: ${error.message.split("\n")[0]}`);
  }
}
