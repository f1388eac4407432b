const js = require('@eslint/js');
const prettier = require('eslint-config-prettier');
const hooks = require('eslint-plugin-react-hooks');
const globals = require('globals');
const ts = require('typescript-eslint');

module.exports = ts.config(
  { ignores: ['lib', 'node_modules', 'coverage', 'style/index.js', 'src/openapi.ts'] },
  js.configs.recommended,
  {
    files: ['*.js', 'bench/*.cjs', 'scripts/*.cjs'],
    languageOptions: { globals: globals.node, sourceType: 'commonjs' }
  },
  {
    files: ['src/**/*.{ts,tsx}'],
    extends: [...ts.configs.strict, ...ts.configs.stylistic],
    plugins: { 'react-hooks': hooks },
    languageOptions: { parserOptions: { project: './tsconfig.test.json' } },
    rules: {
      ...hooks.configs.recommended.rules,
      curly: ['error', 'all'],
      eqeqeq: 'error',
      'no-console': ['error', { allow: ['warn'] }],
      '@typescript-eslint/consistent-type-imports': 'off',
      '@typescript-eslint/naming-convention': [
        'error',
        { selector: 'interface', format: ['PascalCase'], custom: { regex: '^I[A-Z]', match: true } }
      ],
      '@typescript-eslint/no-floating-promises': ['error', { ignoreVoid: true }],
      '@typescript-eslint/no-namespace': 'off', // option types live in a namespace of their class, as in JupyterLab
      '@typescript-eslint/prefer-for-of': 'error'
    }
  },
  prettier
);
