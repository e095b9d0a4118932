// Calls the tool as a task with the TypeScript SDK, and says in JSON what came of it.
//
// Arguments: the folder of the modules, then the bridge's URL and a token, or its command line.

const { createRequire } = require("node:module");

const [modules, command, ...rest] = process.argv.slice(2);
const load = createRequire(modules + "/");
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema } = load("@modelcontextprotocol/sdk/types.js");

function transport() {
    if (!command.startsWith("http:")) {
        return new StdioClientTransport({ command, args: rest, env: process.env });
    }
    const requestInit = { headers: { Authorization: `Bearer ${rest[0]}` } };
    return new StreamableHTTPClientTransport(new URL(command), { requestInit });
}

async function main() {
    const client = new Client({ name: "tests", version: "1" }, { capabilities: { elicitation: {} } });
    const asked = [];
    client.setRequestHandler(ElicitRequestSchema, async (request) => {
        asked.push(request.params);
        return { action: "accept", content: { a: 1 } };
    });
    await client.connect(transport());
    await client.listTools();
    const tasks = client.experimental.tasks;
    const run = async (args) => {
        const seen = [];
        for await (const message of tasks.callToolStream({ name: "run_python", arguments: args })) {
            seen.push({
                type: message.type,
                status: message.task?.status,
                message: message.task?.statusMessage,
                text: message.result?.content?.[0]?.text,
                error: message.error?.message,
            });
        }
        return seen;
    };
    const short = await run({ code: "print(6 * 7)" });
    const raised = await run({ code: "1 / 0" });
    const question = "{'message': 'Which?', 'requestedSchema': {'type': 'object', 'properties': {}}}";
    const long = await run({
        code: `import time\nprint(await mcp_fake.ask(method='elicitation/create', params=${question}))\ntime.sleep(2.5)\n'end'`,
        servers: ["fake"],
        background: true,
    });
    let cancelled;
    const endless = tasks.callToolStream({ name: "run_python", arguments: { code: "while True: pass", background: true } });
    for await (const message of endless) {
        if (message.type === "taskCreated") {
            cancelled = await tasks.cancelTask(message.task.taskId);
            break;
        }
    }
    const listed = (await tasks.listTasks()).tasks.map((task) => task.status);
    await client.close();
    console.log(JSON.stringify({ short, raised, long, asked, cancelled: cancelled?.status, listed }));
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
