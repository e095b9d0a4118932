# %% ask
async def ask(what):
    schema = {'type': 'object', 'properties': {'a': {'type': 'integer'}}}
    return await mcp_fake.ask(method='elicitation/create', params={'message': what, 'requestedSchema': schema})

# %% one_by_one_then_two
import asyncio
answers = [await ask('first'), await ask('second')]
answers += await asyncio.gather(ask('left'), ask('right'))
for it in answers: print(it.result.content.a)
