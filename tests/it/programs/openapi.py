# %% values
pet = await mcp_shop.get_pet(petId="7")
made = await mcp_shop.create_pet(name="Ada", parent=None)
print(pet.name, made["id"], await mcp_shop.delete_pet(petId="7"), repr(await mcp_shop.get_text()))
image, file = await mcp_shop.get_image(), await mcp_shop.get_file()
sent = await mcp_shop.upload(note="n", file=image)
print(repr(image), repr(file), image.decode("latin-1") in sent.body)
try:
    await mcp_shop.get_pet(petId="missing")
except MCPError as error:
    print(error.result.status, error.result.body.detail, error.result.body.sent, str(error)[:33])
print("shop-key" in repr(await mcp_shop.echo()))

# %% pages
pages = [page async for page in runtime.pages(mcp_shop.list_pets, limit=3)]
print([len(page) for page in pages], pages[-1][-1].name)
