"""An MCP server that wants a login: the official SDK, with tokens of a provider.

Arguments: its port and the provider's URL. The tool `write` wants a permission that no login has at first.
"""

import json
import sys

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

PORT, ISSUER = int(sys.argv[1]), sys.argv[2]
RESOURCE = f"http://127.0.0.1:{PORT}/mcp"


class Verifier(TokenVerifier):
    keys = jwt.PyJWKClient(f"{ISSUER}/jwks")

    async def verify_token(self, token):
        try:
            key = self.keys.get_signing_key_from_jwt(token).key
            claims = jwt.decode(token, key, algorithms=["RS256"], audience=RESOURCE, issuer=ISSUER)
        except jwt.PyJWTError as error:
            print(f"refused a token: {error}", file=sys.stderr)
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            subject=claims["sub"],
        )


server = MCPServer(
    "protected",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=ISSUER,
        resource_server_url=RESOURCE,
        required_scopes=["read"],
        validate_token_resource=False,
    ),
)


@server.tool()
def whoami() -> str:
    """Says who calls."""
    return get_access_token().subject


written = 0


@server.tool()
def write() -> str:
    """Writes something."""
    global written
    written += 1
    return "written"


@server.tool()
def writes() -> int:
    """Says how often something was written."""
    return written


class StepUp:
    """Wants the permission `write` for the tool `write`, as the protocol says it: in the answer to the request."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if is_write(body) and token and "write" not in scopes_of(token):
            challenge = 'Bearer error="insufficient_scope", scope="read write"'
            headers = [(b"www-authenticate", challenge.encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            return await send({"type": "http.response.body"})

        async def again():
            nonlocal body
            if body is None:
                return await receive()
            message, body = {"type": "http.request", "body": body}, None
            return message

        return await self.app(scope, again, send)


def is_write(body):
    message = json.loads(body)
    return message.get("method") == "tools/call" and message["params"]["name"] == "write"


def scopes_of(token):
    return jwt.decode(token, options={"verify_signature": False}).get("scope", "").split()


uvicorn.run(StepUp(server.streamable_http_app()), host="127.0.0.1", port=PORT, log_level="warning")
