/**
 * Builds the hub's page from the panel's components: jupyter_gpushare/hub/page/built/{page.js,page.css,<language>.json}.
 *
 * The styles are the panel's own, after the few of JupyterLab's variables that they stand on.
 */
const fs = require('node:fs');
const path = require('node:path');
const bundle = require('./bundle.cjs');

const ROOT = path.join(__dirname, '..');
const PACKAGE = path.join(ROOT, '..', 'jupyter_gpushare');
const OUT = path.join(PACKAGE, 'hub', 'page', 'built');
const STYLES = ['hub-theme', 'common', 'bars', 'servers', 'panel', 'why', 'hub'];

fs.rmSync(OUT, { recursive: true, force: true });
fs.mkdirSync(OUT, { recursive: true });

const css = STYLES.map(name => path.join(ROOT, 'style', `${name}.css`));
css.push(require.resolve('uplot/dist/uPlot.min.css'));
fs.writeFileSync(
  path.join(OUT, 'page.css'),
  css.map(file => fs.readFileSync(file, 'utf8')).join('\n')
);

const catalogues = {};
for (const language of fs.readdirSync(path.join(PACKAGE, 'locale'))) {
  const file = path.join(PACKAGE, 'locale', language, 'LC_MESSAGES', 'jupyter_gpushare.json');
  if (fs.existsSync(file)) {
    catalogues[language.split('_')[0]] = `${language}.json`;
    fs.copyFileSync(file, path.join(OUT, `${language}.json`));
  }
}

bundle({
  entry: path.join(ROOT, 'src', 'hub', 'main.tsx'),
  out: OUT,
  filename: 'page.js',
  names: { CATALOGUES: JSON.stringify(catalogues) }
});
