/** JupyterLab's packages are ES modules, which jest cannot read: they are transformed as our own sources are. */
const modules = [
  '@codemirror',
  '@jupyter',
  '@jupyterlab',
  '@lumino',
  '@microsoft',
  '@rjsf',
  'exenv-es6',
  'lib0',
  'nanoid',
  'vscode-',
  'y-',
  'yjs'
];

module.exports = {
  testEnvironment: 'jsdom',
  testMatch: ['<rootDir>/src/__tests__/**/*.spec.ts?(x)'],
  setupFiles: ['<rootDir>/jest.setup.js'],
  moduleNameMapper: { '\\.(css|svg)$': 'identity-obj-proxy' },
  transform: {
    '\\.[jt]sx?$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', tsx: true },
          target: 'es2022',
          transform: { react: { runtime: 'automatic' } }
        },
        module: { type: 'commonjs' }
      }
    ]
  },
  transformIgnorePatterns: [`/node_modules/(?!(${modules.join('|')}))`]
};
