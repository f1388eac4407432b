import { ISessionContext } from '@jupyterlab/apputils';
import { SessionContextDialogs } from '@jupyterlab/apputils/lib/sessioncontext';
import { KernelSpec } from '@jupyterlab/services';

import { offerForms, withForms } from '../kernelforms';
import { trans } from './builders';

const spec = (name: string, display_name: string, language: string): KernelSpec.ISpecModel => ({
  name,
  display_name,
  language,
  argv: [],
  resources: {}
});

/** A notebook's session context, and what became of it. */
function context(kernel: string | null, preferred?: string) {
  const changed: unknown[] = [];
  const made = {
    session: kernel ? { kernel: { id: 'k1', name: kernel } } : null,
    kernelPreference: { name: preferred } as ISessionContext.IKernelPreference,
    kernelDisplayName: 'Python 3',
    hasNoKernel: !kernel,
    isDisposed: false,
    name: 'train.ipynb',
    sessionManager: { running: () => [].values() },
    kernelManager: { running: () => [].values() },
    specsManager: {
      specs: {
        default: 'python3',
        kernelspecs: {
          python3: spec('python3', 'Python 3', 'python'),
          ir: spec('ir', 'R', 'R')
        }
      }
    },
    changeKernel(model?: unknown) {
      changed.push(model);
      return Promise.resolve(this.session?.kernel ?? null);
    }
  };
  return { context: made as unknown as ISessionContext, changed };
}

const offered = (asked: ISessionContext): string[] =>
  SessionContextDialogs.kernelOptions(asked).groups.flatMap(group =>
    group.options.map(option => option.text)
  );

/** A dialog as another extension may have it, in which somebody chooses the kernel of that name. */
function dialogs(chosen: string) {
  return {
    async selectKernel(asked: ISessionContext): Promise<void> {
      const specs = Object.values(asked.specsManager.specs?.kernelspecs ?? {});
      const found = specs.find(one => one?.display_name === chosen);
      await asked.changeKernel({ name: found?.name });
    },
    restart: () => Promise.resolve(true)
  };
}

test("JupyterLab's own dialog has the notebook's kernel once for each form, the others as ever", () => {
  const { context: notebook } = context('python3');
  expect(offered(withForms(notebook, () => Promise.resolve(true), trans))).toEqual([
    'Python 3',
    'Python 3 · GPU share',
    'Python 3 · no GPU',
    'Python 3 · several GPUs…',
    'Python 3 · whole GPU',
    'R',
    'No Kernel'
  ]);
  expect(offered(notebook)).toEqual(['Python 3', 'R', 'No Kernel']);
});

test.each([
  [null, 'ir', 'R · whole GPU'],
  [null, undefined, 'Python 3 · whole GPU'],
  [null, 'gone', 'Python 3 · whole GPU'],
  ['ir', 'python3', 'R · whole GPU']
])('with kernel %p and preference %p there is %p', (kernel, preferred, text) => {
  const asked = withForms(context(kernel, preferred).context, () => Promise.resolve(true), trans);
  expect(offered(asked).filter(one => one.endsWith('whole GPU'))).toEqual([text]);
});

test('a form is taken note of before the kernel starts, which has its own name', async () => {
  const { context: notebook, changed } = context('python3');
  const order: unknown[] = [];
  const choose = (form: string) => {
    order.push(form, changed.length);
    return Promise.resolve(true);
  };
  const own = dialogs('Python 3 · whole GPU');
  offerForms(own, () => choose, trans);
  await own.selectKernel(notebook);
  expect(order).toEqual(['whole', 0]);
  expect(changed).toEqual([{ name: 'python3' }]);
});

test('who thinks better of a form keeps the kernel', async () => {
  const { context: notebook, changed } = context('python3');
  const own = dialogs('Python 3 · several GPUs…');
  offerForms(own, () => () => Promise.resolve(false), trans);
  await own.selectKernel(notebook);
  expect(changed).toEqual([]);
});

test('a kernel without a form, and what is no notebook, go as ever', async () => {
  const notebook = context('python3');
  const plain = dialogs('R');
  const choose = jest.fn();
  offerForms(plain, () => choose, trans);
  await plain.selectKernel(notebook.context);
  expect(notebook.changed).toEqual([{ name: 'ir' }]);
  const terminal = context('python3');
  const seen: ISessionContext[] = [];
  const watched = {
    ...dialogs('R'),
    selectKernel: (asked: ISessionContext) => Promise.resolve(void seen.push(asked))
  };
  offerForms(watched, () => null, trans);
  await watched.selectKernel(terminal.context);
  expect(seen[0]).toBe(terminal.context);
  expect(choose).not.toHaveBeenCalled();
});

test('what a dialog writes reaches the notebook', () => {
  const { context: notebook } = context('python3');
  const asked = withForms(notebook, () => Promise.resolve(true), trans);
  asked.kernelPreference = { autoStartDefault: true };
  expect(notebook.kernelPreference).toEqual({ autoStartDefault: true });
});
