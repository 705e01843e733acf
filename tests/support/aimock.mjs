// A council's models in aimock, a mock server that others wrote: node aimock.mjs MODULE [CHAOS]
// It prints its address. CHAOS is JSON: rates of failures; "first": so many requests fail with 503 before one is answered.
import { pathToFileURL } from "node:url";

const { LLMock } = await import(pathToFileURL(process.argv[2]).href);
const { first = 0, ...chaos } = JSON.parse(process.argv[3] ?? "{}");
const usage = { prompt_tokens: 20, completion_tokens: 5, input_tokens: 20, output_tokens: 5 };
let left = first;
let answers = 0;

function respond(request) {
  if (left-- > 0) return { error: { message: "come back later", type: "server_error" }, status: 503 };
  const text = JSON.stringify(request.messages.at(-1).content);
  const candidates = [...text.matchAll(/label=\\"([A-Z])\\">\\n(.*?)\\n<\/answer>/g)];
  if (text.includes("Compare the answers") && candidates.length) {
    const own = text.match(/Answer ([A-Z]) is yours: vote/)?.[1];
    const others = candidates.filter((candidate) => candidate[1] !== own);
    const choice = others.toSorted((a, b) => (a[2] < b[2] ? -1 : 1))[0][1];
    return { toolCalls: [{ name: "vote", arguments: JSON.stringify({ reason: "it is right", choice }) }], usage };
  }
  return { content: `answer ${(answers += 1)}`, usage };
}

const mock = new LLMock({ port: 0, logLevel: "silent", chaos });
mock.on({ predicate: () => true }, respond);
await mock.start();
console.log(mock.url);
