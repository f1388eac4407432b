/**
 * Prints every text of the front end as JSON: [{ id, plural?, context?, file }], in the order of the sources.
 *
 * Texts are the literal arguments of a translation bundle's `__`, `_n`, `_p` and `_np` in src/, and what JupyterLab
 * translates of the settings schema. An argument that is no literal cannot be translated: it ends this with an error.
 */
const fs = require('node:fs');
const path = require('node:path');
const ts = require('typescript');

const ROOT = path.join(__dirname, '..');
/** Where the arguments of a call stand; the same names as in gettext. */
const CALLS = {
  __: ['id'],
  _n: ['id', 'plural'],
  _p: ['context', 'id'],
  _np: ['context', 'id', 'plural']
};

function sources(folder) {
  return fs
    .readdirSync(folder, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .filter(entry => entry.name !== '__tests__')
    .flatMap(entry => {
      const full = path.join(folder, entry.name);
      return entry.isDirectory() ? sources(full) : /\.tsx?$/.test(entry.name) ? [full] : [];
    });
}

function textsOf(file) {
  const name = path.relative(path.join(ROOT, '..'), file);
  const source = ts.createSourceFile(
    file,
    fs.readFileSync(file, 'utf8'),
    ts.ScriptTarget.Latest,
    true
  );
  const found = [];
  const visit = node => {
    const names =
      ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)
        ? CALLS[node.expression.name.text]
        : undefined;
    if (names) {
      const text = { file: name };
      names.forEach((part, index) => {
        const argument = node.arguments[index];
        if (!argument || !ts.isStringLiteralLike(argument)) {
          const { line } = source.getLineAndCharacterOfPosition(node.getStart());
          throw new Error(
            `${name}:${line + 1}: a text to translate must be a literal: ${node.getText()}`
          );
        }
        text[part] = argument.text;
      });
      found.push(text);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** The same selectors and contexts as jupyterlab_server's translation_utils. */
const SELECTORS = [
  [/^(title|description)$/, 'schema'],
  [/^properties\/(.*\/)?(title|description)$/, 'settings'],
  [/^jupyter\.lab\.setting-icon-label$/, 'settings'],
  [/^jupyter\.lab\.menus\/.*\/label$/, 'menu'],
  [/^jupyter\.lab\.toolbars\/.*\/label$/, 'toolbar']
];

function schemaTexts(file) {
  const name = path.relative(path.join(ROOT, '..'), file);
  const found = [];
  const visit = (value, at) => {
    if (typeof value === 'string') {
      const context = SELECTORS.find(([pattern]) => pattern.test(at))?.[1];
      if (context) {
        found.push({ file: name, context, id: value });
      }
    } else if (value !== null && typeof value === 'object') {
      Object.entries(value).forEach(([key, part]) => visit(part, at ? `${at}/${key}` : key));
    }
  };
  visit(JSON.parse(fs.readFileSync(file, 'utf8')), '');
  return found;
}

const schemas = path.join(ROOT, 'schema');
const texts = [
  ...sources(path.join(ROOT, 'src')).flatMap(textsOf),
  ...fs
    .readdirSync(schemas)
    .sort()
    .flatMap(file => schemaTexts(path.join(schemas, file)))
];
process.stdout.write(`${JSON.stringify(texts, null, 1)}\n`);
