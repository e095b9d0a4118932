# %% everything
resources = runtime.list_resources("everything")
print(len(resources), resources[0].name, (await runtime.list_resources("everything"))[0]["mimeType"])
document = await runtime.read_resource("everything", resources[0].uri)
print(isinstance(document, str), document.mime_type, document.startswith("# Everything Server"), document.raw["contents"][0]["uri"])
templates = runtime.list_resource_templates("everything")
text = runtime.read_resource("everything", templates[0].uriTemplate, resourceId=7)
blob = runtime.read_resource("everything", "demo://resource/dynamic/blob/8")
print(text.startswith("Resource 7: "), blob.startswith(b"Resource 8: "), isinstance(blob, bytes), blob.mimeType)
path = await runtime.read_resource("everything", "demo://resource/dynamic/blob/8", path="/tmp/blob")
print(path, open(path, "rb").read(12))
prompts = await runtime.list_prompts("everything")
print([prompt.name for prompt in prompts], [argument.name for argument in prompts[1].arguments])
prompt = await runtime.get_prompt("everything", "args-prompt", {"city": "Bern"}, state="BE")
print(prompt.text, prompt.messages[0].role, runtime.get_prompt("everything", "simple-prompt").messages[0].content.type)
resource = runtime.get_prompt("everything", "resource-prompt", resourceType="Text", resourceId=3)
print("Resource 3: " in resource.text, len(resource.messages))
print(runtime.complete("everything", "completable-prompt", "department", "S"))
print(await runtime.complete("everything", "completable-prompt", "name", department="Sales"))
print(await runtime.complete("everything", templates[0].uriTemplate, "resourceId", "5"))

# %% fake
print([one.uri for one in runtime.list_resources(mcp_garden)])
print(runtime.read_resource("garden", "note://7"), runtime.read_resource("garden", "bytes://89504e47"))
print(await runtime.read_resource("garden", "parts://x"), [part.uri for part in runtime.read_resource("garden", "parts://x")])
print(runtime.read_resource("garden", "note://{number}{?form,color}", number="a b", form="long"))
print(runtime.get_prompt("garden", "advice", plant="fern", season=4).text)
print(runtime.describe_server("garden")["instructions"])

# %% search
for query in "any note by its number", "how to treat a plant", "touch":
    hit = (await runtime.search_tool_docs(query))[0]
    print(hit["kind"], hit["tool"], hit["signature"], hit["description"])
print(runtime.search_tool_docs_sync("treat plant", limit=1))
print(runtime.search_tool_docs_sync("treat plant", limit=1, detail="full")[0]["inputSchema"]["required"])

# %% grow
await mcp_garden.grow(tool="spade")
print(await mcp_garden.spade(), "spade" in dir(mcp_garden))

# %% watch
import asyncio

subscribed = lambda: mcp_garden.touch(uri="note://none")
watch = runtime.watch_resource("garden", "note://5")
print(watch, await subscribed())

async def follow():
    async for uri in watch:
        print(uri, uri.read())
        if watch.seen == 2:
            break
        watch.seen += 1
        await mcp_garden.touch(uri="note://5")

watch.seen = 1
following = asyncio.ensure_future(follow())
await mcp_garden.touch(uri="note://6")
await mcp_garden.touch(uri="note://5")
await following
other = await runtime.watch_resource("garden", "note://5")
await mcp_garden.touch(uri="note://5")
print(next(other))
try:
    await asyncio.wait_for(other.__anext__(), 0.1)
except asyncio.TimeoutError:
    print("nothing more")
other.close()
print(await subscribed(), list(other))

# %% unwatch
with watch:
    pass
while await subscribed():
    pass
print("unsubscribed")
mcp_other.echo
runtime.watch_resource("other", "note://1")

# %% tasks
print(await mcp_garden.dig(deep=True), await mcp_garden.sow())
try:
    await mcp_garden.spoil()
except runtime.MCPError as error:
    print(error, error.result)
try:
    await asyncio.wait_for(mcp_garden.doze(), 0.3)
except asyncio.TimeoutError:
    pass
while not await mcp_garden.cancelled():
    pass
print(await mcp_garden.cancelled())

# %% errors
def failed(function, *arguments, **named):
    try:
        print(function(*arguments, **named))
    except Exception as error:
        print(type(error).__name__, getattr(error, "kind", None), str(error)[:150])

read = runtime.read_resource
failed(read, "garden", "gone://1")
failed(read, "garden", 'raw://{"contents":7}')
failed(read, "garden", 'raw://{"contents":[{"uri":"a:1","blob":"?"}]}')
failed(read, "garden", 'raw://{"contents":[]}')
failed(read, "garden", "note://{number}", nummer=1)
failed(read, "garden", 7)
failed(read, "other", "note://1")
failed(runtime.get_prompt, "garden", "odd")
failed(runtime.get_prompt, "garden", "gone")
failed(runtime.get_prompt, "garden", "advice", "fern")
failed(runtime.complete, "garden", "advice", "plant")
failed(runtime.list_prompts, "gone")
print(read("garden", "note://still"), mcp_garden.touch is not None)

# %% large
import os

size = os.path.getsize(runtime.read_resource("garden", "large://60", path="/workspace/large"))
print(size, open("/workspace/large", "rb").read(3) == b"xxx")
os.unlink("/workspace/large")
blob = runtime.read_resource("garden", "large://40")
print(len(blob), blob.count(b"x"))

# %% modern
print(await mcp_modern.plant(kind="fern"))
print(runtime.read_resource("modern", "note://1"), runtime.get_prompt("modern", "advice").text)
print(await mcp_modern.graft())
try:
    await mcp_modern.nag()
except runtime.MCPError as error:
    print(error)

# %% modern_watch
import asyncio

watch = runtime.watch_resource("modern", "note://5")
print(await mcp_modern.watched())

async def follow():
    async for uri in watch:
        print(uri)
        break

following = asyncio.ensure_future(follow())
while not following.done():
    await mcp_modern.touch(uri="note://5")
await mcp_modern.grow(tool="spade")
while "spade" not in [one["name"] for one in await runtime.query_tool_docs("modern")]:
    await asyncio.sleep(0.01)
print(await mcp_modern.spade())
watch.close()
while await mcp_modern.watched():
    pass
runtime.watch_resource("modern", "note://gone")
