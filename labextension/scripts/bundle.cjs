/** How an entry of its own is bundled beside JupyterLab's: for the hub's page and for the benchmark. */
const { rspack } = require('@rspack/core');

/** Bundles `entry` into the folder `out`; `names` are words that the sources leave open. */
module.exports = function bundle({ entry, out, filename, names = {}, rules = [] }) {
  const done = (error, stats) => {
    if (error || stats.hasErrors()) {
      process.stderr.write(`${error ?? stats.toString('errors-only')}\n`);
      process.exitCode = 1;
    }
  };
  rspack(
    {
      mode: 'production',
      optimization: { minimize: !process.env.READABLE },
      entry,
      output: { path: out, filename, publicPath: 'auto' },
      resolve: { extensions: ['.tsx', '.ts', '.js'] },
      performance: { hints: false },
      plugins: [new rspack.DefinePlugin(names)],
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
          ...rules
        ]
      }
    },
    done
  );
};
