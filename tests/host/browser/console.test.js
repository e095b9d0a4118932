// The console in a real browser: a user over HTTP, and a user of `codebridge console`, with the real bridge.
// Run by tests/browser, which sets the variables.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { chromium } from "playwright-core";

const { CODEBRIDGE, CODEBRIDGE_TEST_IMAGE, CODEBRIDGE_TEST_STATE, CODEBRIDGE_TEST_SERVER_EVERYTHING, PATH, HOME } = process.env;
const SCREENSHOTS = process.env.CODEBRIDGE_TEST_SCREENSHOTS;
const state = join(CODEBRIDGE_TEST_STATE, "console");
const env = { MCP_BRIDGE_IMAGE: CODEBRIDGE_TEST_IMAGE, MCP_BRIDGE_STATE_DIR: state, PATH, HOME };
let listener, client, browser, context, page, address, token;
const problems = [];

// Starts a command that prints addresses and goes on; returns it with what it printed until `wanted` was there.
async function start(args, wanted) {
  const child = spawn(CODEBRIDGE, args, { env, stdio: ["ignore", "ignore", "pipe"] });
  let printed = "";
  child.stderr.setEncoding("utf8");
  await new Promise((resolve, reject) => {
    child.stderr.on("data", (text) => wanted.test((printed += text)) && resolve());
    child.once("exit", () => reject(new Error(`it ended: ${printed}`)));
  });
  return [child, printed.match(wanted)];
}

async function stop(child) {
  if (!child || child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
}

// A browser that nobody has used, whose pages must break no policy and no script.
async function open() {
  const opened = await browser.newContext({ colorScheme: "light", viewport: { width: 1100, height: 720 } });
  await opened.exposeFunction("report_violation", (what) => problems.push(what));
  await opened.addInitScript(() =>
    document.addEventListener("securitypolicyviolation", (event) =>
      window.report_violation(`${event.violatedDirective}: ${event.blockedURI}`)));
  opened.on("weberror", (error) => problems.push(String(error.error())));
  return [opened, await opened.newPage()];
}

before(async () => {
  mkdirSync(state, { recursive: true });
  const [command, ...args] = CODEBRIDGE_TEST_SERVER_EVERYTHING.split(" ");
  writeFileSync(join(state, "everything.json"), JSON.stringify({ mcpServers: { everything: { command, args } } }));
  writeFileSync(join(state, "policy.toml"), '[[rule]]\nserver = "everything"\ntool = "echo"\neffect = "ask"\n\n[[rule]]\neffect = "allow"\n');
  // A token for calls cannot approve them.
  const make = (scope) => execFileSync(CODEBRIDGE, ["token", "add", "ada", "--scope", scope], { env, encoding: "utf8" }).trim();
  const for_calls = make("mcp");
  token = make("console,approve");
  let found;
  [listener, found] = await start(["serve", "--http", "127.0.0.1:0"], /http:\/\/([0-9.:]+)\/mcp/);
  address = `http://${found[1]}`;
  client = new Client({ name: "test", version: "1" }, { capabilities: {} });
  const requestInit = { headers: { Authorization: `Bearer ${for_calls}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${address}/mcp`), { requestInit }));
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  [context, page] = await open();
});

after(async () => {
  await browser?.close();
  await client?.close();
  await stop(listener);
});

function run(code, more = {}) {
  return client.callTool({ name: "run_python", arguments: { code, ...more } });
}

// Returns the name of the newest run, which the page of runs shows first.
async function newest() {
  await page.goto(`${address}/console/runs`);
  const link = page.locator('main a[href^="/console/runs/"]').first();
  return decodeURIComponent((await link.getAttribute("href")).split("/").at(-1));
}

async function show_run() {
  await page.goto(`${address}/console/runs/${await newest()}`);
}

async function screenshot(name, shown = page) {
  if (SCREENSHOTS) await shown.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}

// Shows the page in both colour schemes, on a phone and on a desk.
async function show_in_all_sizes(name) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 390, height: 800 });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${name} is ${overflow} pixels too wide for a phone`);
    await screenshot(`${name}-${colorScheme}-phone`);
    await page.setViewportSize({ width: 1100, height: 720 });
    await screenshot(`${name}-${colorScheme}`);
  }
}

test("a person signs in with the keyboard alone", async () => {
  await page.goto(`${address}/console`);
  assert.equal(await page.locator("body").getAttribute("data-page"), "login");
  await show_in_all_sizes("login");
  for (let tabs = 0; tabs < 20; tabs += 1) {
    const label = await page.evaluate(() => document.activeElement?.labels?.[0]?.textContent ?? "");
    if (label.includes("Token")) break;
    await page.keyboard.press("Tab");
  }
  await page.keyboard.type("cbr_wrong");
  await page.keyboard.press("Enter");
  await page.getByText("This token is unknown").waitFor();
  await page.getByLabel("Token").focus();
  await page.keyboard.type(token);
  await page.keyboard.press("Enter");
  await page.locator('body[data-page="now"]').waitFor();
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  assert.ok(!page.url().includes(token) && !(await page.content()).includes(token));
});

test("a run is watched as it goes on, and stopped", async () => {
  await page.goto(`${address}/console`);
  const running = run("import time\nfor n in range(10_000):\n    print('line', n, flush=True)\n    time.sleep(0.05)");
  const shown = page.locator("article[data-run]");
  await shown.locator('pre[data-stream="stdout"]', { hasText: "line 3" }).waitFor();
  await shown.locator('pre[data-stream="stdout"]', { hasText: "line 12" }).waitFor();
  await show_in_all_sizes("running");
  await shown.getByRole("button", { name: "Stop" }).click();
  const result = await running;
  assert.equal(result.structuredContent.status, "cancelled");
});

test("a question of a rule waits for an answer here, though the client cannot be asked", async () => {
  await page.goto(`${address}/console/approvals`);
  await page.locator('#live[data-state="open"]').waitFor({ state: "attached" });
  const asking = run("print(await mcp_everything.echo(message='approved'))", { servers: ["everything"], timeout: 60 });
  const form = page.locator("form[data-question]");
  await form.waitFor();
  assert.match(await page.locator("main").textContent(), /everything\.echo/);
  await show_in_all_sizes("approvals-waiting");
  const choice = form.getByText("yes, this call", { exact: true });
  if (await form.locator("select").count()) await form.locator("select").first().selectOption("yes, this call");
  else await choice.click();
  await form.getByRole("button", { name: "Send answer" }).click();
  const result = await asking;
  assert.ok(!result.isError, JSON.stringify(result.content));
  assert.match(result.content[0].text, /approved/);
  await show_run();
  assert.match(await page.locator("#calls").textContent(), /echo/);
});

test("a displayed picture is opened", async () => {
  const picture = `
import struct, zlib
from IPython.display import Image, display
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
width, height = 560, 240
bars = [40, 90, 140, 110, 190, 160, 220]
def shade(x, y): return 90 if height - y < bars[min(x // 80, 6)] and x % 80 > 14 else 250
rows = b"".join(b"\\0" + bytes(shade(x, y) for x in range(width)) for y in range(height))
display(Image(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")))
print("7 bars")`;
  assert.ok(!(await run(picture)).isError);
  await show_run();
  const shown = page.locator("#displays img").first();
  assert.equal(await shown.evaluate(async (image) => (await image.decode(), image.naturalWidth)), 560);
  await show_in_all_sizes("run");
});

test("hostile output is text", async () => {
  const hostile = `
import sys
print("<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\\x1b[31mred\\x1b[0m\\x1b]0;title\\x07")
print("x" * 10_000_000)
print("</pre><h1>the end</h1>", file=sys.stderr)`;
  assert.ok(!(await run(hostile)).isError);
  await show_run();
  const [stdout, stderr] = [page.locator("#stdout"), page.locator("#stderr")];
  const text = await stdout.textContent();
  assert.ok(text.includes("<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"));
  assert.ok(!/[\u001b\u0007]/.test(text), "what would steer a terminal is shown as a sign");
  assert.ok(text.length < 1_000_000, `${text.length} characters`);
  assert.equal(await stdout.locator("script, img").count(), 0);
  assert.ok((await stderr.textContent()).includes("</pre><h1>the end</h1>"));
  assert.equal(await page.locator("h1", { hasText: "the end" }).count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await show_in_all_sizes("hostile");
});

test("every page is found by its link, in both colour schemes and on a phone", async () => {
  await page.goto(`${address}/console`);
  for (const name of ["Runs", "Approvals", "Sessions", "Servers", "Artifacts", "Numbers", "Now"]) {
    await page.getByRole("navigation", { name: "Console" }).getByRole("link", { name }).click();
    await page.locator(`body[data-page="${name.toLowerCase()}"]`).waitFor();
    await show_in_all_sizes(name.toLowerCase());
  }
  await page.goto(`${address}/console/servers`);
  await page.getByRole("link", { name: "everything" }).click();
  await page.locator('body[data-page="server"]').waitFor();
  await show_in_all_sizes("server");
});

test("a session is ended", async () => {
  assert.ok(!(await run("x = 1", { session: "to-end" })).isError);
  await page.goto(`${address}/console/sessions`);
  await page.locator('tr[data-session="to-end"]').getByRole("button", { name: "End" }).click();
  await page.locator('tr[data-session="to-end"]').waitFor({ state: "detached" });
  const result = await run("print('x' in globals())", { session: "to-end" });
  assert.match(result.content[0].text, /False/);
});

test("a user of standard input and output sees the runs of all bridges", async () => {
  const [console_, found] = await start(["console"], /(http:\/\/\S+)/);
  const clients = [new Client({ name: "one", version: "1" }), new Client({ name: "two", version: "1" })];
  const [opened, shown] = await open();
  try {
    await shown.goto(found[1]);
    await shown.locator('body[data-page="now"]').waitFor();
    assert.ok(!shown.url().includes("token"));
    const runs = [];
    for (const [index, stdio] of clients.entries()) {
      await stdio.connect(new StdioClientTransport({ command: CODEBRIDGE, args: ["serve"], env, stderr: "ignore" }));
      const code = `import time\nprint('from ${index}', flush=True)\ntime.sleep(100)`;
      runs.push(stdio.callTool({ name: "run_python", arguments: { code } }));
    }
    const articles = shown.locator("article[data-run]");
    for (const index of [0, 1]) {
      const article = articles.filter({ hasText: `from ${index}` });
      await article.waitFor();
      await article.getByRole("button", { name: "Stop" }).click();
      assert.equal((await runs[index]).structuredContent.status, "cancelled");
    }
    // The address works once.
    const [other, late] = await open();
    await late.goto(found[1]);
    assert.equal(await late.locator("body").getAttribute("data-page"), "login");
    await other.close();
  } finally {
    await Promise.all(clients.map((stdio) => stdio.close()));
    await opened.close();
    await stop(console_);
  }
});

test("no page broke the content security policy, and no script failed", () => {
  assert.deepEqual(problems, []);
});
