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
