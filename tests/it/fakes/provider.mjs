// A provider of logins: `oidc-provider`, a certified one, with its own pages for the person.
// Arguments: its module, the port, how long its access tokens hold in seconds, and a file for what it was asked. While there is a
// file of the same name with `.hold`, nobody gets a token.
import { appendFileSync, existsSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [module, port, lifetime, seen] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(module));
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'registered',
      client_secret: 'hunter2-of-the-client',
      redirect_uris: ['http://127.0.0.1/callback'],
      application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'client_secret_basic',
    },
  ],
  cookies: { keys: ['not a secret'] },
  claims: { openid: ['sub', 'email'] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@people.example` }) }),
  scopes: ['openid', 'offline_access'],
  features: {
    devInteractions: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: 'read write',
        audience: resource,
        accessTokenFormat: 'jwt',
        accessTokenTTL: Number(lifetime),
      }),
    },
  },
  pkce: { required: () => true },
  // The one document of a client that there is.
  fetch: async (url) =>
    Response.json({
      client_id: String(url),
      client_name: 'codebridge',
      application_type: 'native',
      redirect_uris: ['http://127.0.0.1/callback'],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    }),
});
const hold = `${seen}.hold`;
provider.use(async (ctx, next) => {
  if (ctx.path === '/token' && existsSync(hold)) {
    appendFileSync(seen, 'held\n');
    while (existsSync(hold)) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await next();
  const body = ctx.oidc?.params ?? {};
  const about = ['grant_type', 'client_id', 'resource', 'scope'].map((name) => `${name}=${body[name] ?? ''}`);
  appendFileSync(seen, `${ctx.method} ${ctx.path} ${ctx.status} ${about.join('&')}\n`);
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
