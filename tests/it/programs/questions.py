# %% ask
async def ask(what):
    schema = {'type': 'object', 'properties': {'a': {'type': 'integer'}}}
    return await mcp_fake.ask(method='elicitation/create', params={'message': what, 'requestedSchema': schema})

# %% one_by_one_then_two
import asyncio
answers = [await ask('first'), await ask('second')]
answers += await asyncio.gather(ask('left'), ask('right'))
for it in answers: print(it.result.content.a)

# %% show_page
page = {'mode': 'url', 'url': 'https://pay.example', 'message': 'Pay', 'elicitationId': 'page-1'}
print((await mcp_fake.ask(method='elicitation/create', params=page)).result.action)

# %% complete
import json
def complete(page):
    done = {'jsonrpc': '2.0', 'method': 'notifications/elicitation/complete', 'params': {'elicitationId': page}}
    return json.dumps(done) + '\n{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}\n'
