// The viewer of displayed objects in a real browser, with the real host side of MCP Apps and the real bridge.
// Run by tests/browser, which sets the variables.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const URI = "ui://codebridge/viewer";
let client, browser, page, viewer, listener, address, source;
const requests = [];
let connections = 0;

before(async () => {
  listener = createServer((request, response) => {
    requests.push(request.url);
    response.end();
  }).on("connection", () => (connections += 1)).listen(0, "127.0.0.1");
  await new Promise((resolve) => listener.once("listening", resolve));
  address = `http://127.0.0.1:${listener.address().port}`;

  const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };
  client = new Client({ name: "test", version: "1" }, { capabilities: { extensions } });
  const { CODEBRIDGE, CODEBRIDGE_TEST_IMAGE, CODEBRIDGE_TEST_STATE, PATH, HOME } = process.env;
  const env = { MCP_BRIDGE_IMAGE: CODEBRIDGE_TEST_IMAGE, MCP_BRIDGE_STATE_DIR: CODEBRIDGE_TEST_STATE, PATH, HOME };
  await client.connect(new StdioClientTransport({ command: CODEBRIDGE, args: ["serve"], env, stderr: "ignore" }));
  const { tools } = await client.listTools();
  assert.equal(tools[0]._meta.ui.resourceUri, URI);
  source = (await client.readResource({ uri: URI })).contents[0].text;

  const { outputFiles } = await build({
    entryPoints: [new URL("host.js", import.meta.url).pathname], bundle: true, write: false, format: "iife",
  });
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  page = await browser.newPage();
  await page.exposeFunction("readResource", (uri) => client.readResource({ uri }));
  await page.setContent("<!DOCTYPE html><body></body>");
  await page.addScriptTag({ content: outputFiles[0].text });
  viewer = page.frameLocator("iframe");
});

after(async () => {
  await browser?.close();
  await client?.close();
  listener?.close();
});

async function run(code) {
  const result = await client.callTool({ name: "run_python", arguments: { code } });
  assert.ok(!result.isError, JSON.stringify(result.content));
  return result;
}

async function show(code, capabilities = { serverResources: {} }) {
  const result = await run(code);
  await page.evaluate(([html, result, can]) => window.open_viewer(html, result, can), [source, result, capabilities]);
  return viewer.locator("main > *");
}

const NAMES = "from IPython.display import *\nimport base64, struct, zlib\n";
const PICTURE = `
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(width): return b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\\0" * (width + 1))) + chunk(b"IEND", b"")
`;

test("objects are shown in their order, each in its best form", async () => {
  const shown = await show(`${NAMES}${PICTURE}
display(Image(png(7)), SVG("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='3'/>"), JSON({"a": [1]}), Latex("$x^2$"))`);
  await shown.nth(3).waitFor();
  const width = (index) => shown.nth(index).evaluate(async (image) => (await image.decode(), image.naturalWidth));
  assert.deepEqual([await width(0), await width(1)], [7, 9]);
  assert.deepEqual(await viewer.locator("pre").allTextContents(), ['{\n  "a": [\n    1\n  ]\n}', "$x^2$"]);
  await page.waitForFunction(() => window.heights.at(-1) > 20);
});

test("a table is sorted by its headings and paged", async () => {
  const rows = "''.join(f'<tr><td>{n * 7 % 60}</td><td>name {n}</td></tr>' for n in range(60))";
  await show(`${NAMES}HTML("<table><tr><th>number</th><th>name</th></tr>" + ${rows} + "</table>")`);
  const first = viewer.locator("tbody tr").first();
  await first.waitFor();
  assert.equal(await first.textContent(), "0name 0");
  const heading = viewer.getByRole("button", { name: "number" });
  await heading.click();
  await heading.click();
  assert.equal(await first.locator("td").first().textContent(), "59");
  await viewer.getByRole("button", { name: "›" }).click();
  assert.equal(await viewer.locator("nav span").textContent(), "rows 26 to 50 of 60");
  assert.equal(await first.locator("td").first().textContent(), "34");
});

test("CSV with quotes and line breaks is a table", async () => {
  await show(`display({"text/csv": ',a\\n0,"x, ""y""\\nz"\\n1,\\n', "text/html": "<p>short</p>"}, raw=True)`);
  const cells = viewer.locator("td");
  await cells.first().waitFor();
  assert.deepEqual(await cells.allTextContents(), ["0", 'x, "y"\nz', "1", ""]);
});

test("displayed HTML runs nothing and reaches no address", async () => {
  const hostile = `
<script>fetch("${address}/script"); parent.postMessage({jsonrpc: "2.0", id: 2, result: {contents: []}}, "*")</script>
<meta http-equiv="refresh" content="0;url=${address}/refresh"><base href="${address}/">
<link rel="stylesheet" href="${address}/link"><link rel="dns-prefetch" href="${address}"><link rel="preconnect" href="${address}">
<div><template shadowrootmode="open"><link rel="preconnect" href="${address}"><img src="${address}/template"></template></div>
<style>@import "${address}/import"; p { background: url(${address}/style) }</style>
<img src="${address}/img" onerror="fetch('${address}/onerror')"><p style="background: url(${address}/inline)">text</p>
<iframe src="${address}/iframe"></iframe><object data="${address}/object"></object><embed src="${address}/embed">
<form action="${address}/form"><button id="send">send</button></form><a id="leave" href="${address}/a">leave</a>
<video src="${address}/video" autoplay></video><svg><script>fetch("${address}/svg")</script><image href="${address}/image"/></svg>`;
  await show(`${NAMES}HTML(${JSON.stringify(hostile)})`);
  const inner = viewer.frameLocator("iframe");
  await inner.locator("p").waitFor();
  await inner.locator("#send").click();
  await inner.locator("#leave").click({ noWaitAfter: true });
  // A later request of the same browser, to another port, comes after those.
  const other = createServer((_, response) => response.end()).listen(0, "127.0.0.1");
  await new Promise((resolve) => other.once("listening", resolve));
  await page.evaluate((url) => fetch(url, { mode: "no-cors" }), `http://127.0.0.1:${other.address().port}/`);
  other.close();
  assert.deepEqual([requests, connections], [[], 0]);
});

test("what only a script can draw is shown as text", async () => {
  const shown = await show(`display({"application/vnd.vegalite.v6+json": {"mark": "bar"}, "text/html": "<script></script>"}, raw=True)
display({"text/html": "<div></div><script></script>"}, raw=True)`);
  await shown.nth(1).waitFor();
  assert.deepEqual(await shown.allTextContents(), [
    '{\n  "mark": "bar"\n}',
    "This HTML shows nothing without scripts, which do not run here.",
  ]);
});

test("a picture in SVG runs no script", async () => {
  const shown = await show(`${NAMES}SVG("<svg xmlns='http://www.w3.org/2000/svg' width='5' height='5'><script>fetch('${address}/svg')</script></svg>")`);
  await shown.first().evaluate((image) => image.decode());
  assert.deepEqual(requests, []);
});

test("a host that reads no resources shows the pictures of the result", async () => {
  const shown = await show(`${NAMES}${PICTURE}\ndisplay(HTML("<b>x</b>"), Image(png(5)))`, {});
  await shown.first().waitFor();
  assert.equal(await shown.count(), 1);
  assert.equal(await shown.first().evaluate((image) => image.localName), "img");
});

test("a result without displayed objects takes no space", async () => {
  await show("print(1)");
  await page.waitForFunction(() => window.heights.at(-1) === 0);
});
