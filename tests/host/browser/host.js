// The host side of MCP Apps, as clients in a browser have it: a frame with the viewer, and a bridge to the server.
// `readResource` is a function of the test.

import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";

window.open_viewer = async (page, result, capabilities) => {
  document.querySelector("iframe")?.remove();
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.width = "800px";
  const bridge = new AppBridge(null, { name: "test", version: "1" }, capabilities);
  bridge.onreadresource = ({ uri }) => window.readResource(uri);
  window.heights = [];
  bridge.onsizechange = ({ height }) => {
    window.heights.push(height);
    frame.style.height = `${height}px`;
  };
  const ready = new Promise((resolve) => (bridge.oninitialized = resolve));
  document.body.append(frame);
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = page;
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
};
