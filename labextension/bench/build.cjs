/** Bundles the panel for a page of its own: `node bench/build.cjs OUT`. */
const path = require('node:path');
const bundle = require('../scripts/bundle.cjs');

bundle({
  entry: path.join(__dirname, 'panel.tsx'),
  out: path.resolve(process.argv[2]),
  filename: 'panel.js',
  rules: [
    { test: /\.js$/, resolve: { fullySpecified: false } },
    { test: /\.svg$/, type: 'asset/source' },
    { test: /\.css$/, type: 'asset/source' }
  ]
});
