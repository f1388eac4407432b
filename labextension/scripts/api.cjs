/**
 * Writes src/openapi.ts: the types of the REST interface, from the OpenAPI document that the server makes of its routes.
 *
 * `--check` writes nothing and fails where the file would differ. What is internal to jupyter-gpushare is left out.
 */
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const prettier = require('prettier');

const ROOT = path.join(__dirname, '..');
const OUT = path.join(ROOT, 'src', 'openapi.ts');
const PYTHON = `
import msgspec
from jupyter_gpushare.broker.api import ROUTES
from jupyter_gpushare.broker.openapi import build
print(msgspec.json.encode(build(ROUTES)).decode())
`;
const REFERENCE = /"#\/components\/schemas\/(\w+)"/g;

/** The document without internal operations, refusals (all alike), and what only those name. */
function published(document) {
  const paths = {};
  for (const [name, item] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      if (!operation.tags.includes('internal')) {
        const good = Object.entries(operation.responses).filter(([status]) => status < '300');
        paths[name] = {
          ...paths[name],
          [method]: { ...operation, responses: Object.fromEntries(good) }
        };
      }
    }
  }
  const { schemas } = document.components;
  const named = new Set();
  const collect = value => {
    for (const [, name] of JSON.stringify(value).matchAll(REFERENCE)) {
      if (!named.has(name)) {
        named.add(name);
        collect(schemas[name]);
      }
    }
  };
  collect(paths);
  const kept = Object.entries(schemas).filter(([name]) => named.has(name));
  return { ...document, paths, components: { schemas: Object.fromEntries(kept) } };
}

async function generated() {
  const document = JSON.parse(
    execFileSync('python', ['-c', PYTHON], { cwd: path.join(ROOT, '..'), encoding: 'utf8' })
  );
  const { default: openapi, astToString } = await import('openapi-typescript');
  const nodes = await openapi(published(document), {
    exportType: true,
    emptyObjectsUnknown: true
  });
  const text = `/* Made by \`jlpm api\` from the server's OpenAPI document; not edited by hand. */\n${astToString(nodes)}`;
  return prettier.format(text, { ...(await prettier.resolveConfig(OUT)), filepath: OUT });
}

/** Comments may differ: a sentence that was bettered in the server breaks no client. */
function code(text) {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/\s+/g, ' ');
}

generated().then(text => {
  if (!process.argv.includes('--check')) {
    fs.writeFileSync(OUT, text);
  } else if (!fs.existsSync(OUT) || code(fs.readFileSync(OUT, 'utf8')) !== code(text)) {
    process.stderr.write('src/openapi.ts differs from what the server offers. Run `jlpm api`.\n');
    process.exitCode = 1;
  }
});
