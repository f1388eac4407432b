/** Bundles the panel for a page of its own: `node bench/build.cjs OUT`. */
const path = require('node:path');
const { rspack } = require('@rspack/core');

const out = path.resolve(process.argv[2]);
rspack(
  {
    mode: 'production',
    optimization: { minimize: !process.env.READABLE },
    entry: path.join(__dirname, 'panel.tsx'),
    output: { path: out, filename: 'panel.js' },
    resolve: { extensions: ['.tsx', '.ts', '.js'] },
    performance: { hints: false },
    module: {
      rules: [
        {
          test: /\.tsx?$/,
          loader: 'builtin:swc-loader',
          options: {
            jsc: {
              target: 'es2022',
              parser: { syntax: 'typescript', tsx: true },
              transform: { react: { runtime: 'automatic' } }
            }
          }
        },
        { test: /\.js$/, resolve: { fullySpecified: false } },
        { test: /\.svg$/, type: 'asset/source' },
        { test: /\.css$/, type: 'asset/source' }
      ]
    }
  },
  (error, stats) => {
    if (error || stats.hasErrors()) {
      process.stderr.write(`${error ?? stats.toString('errors-only')}\n`);
      process.exitCode = 1;
    }
  }
);
