import { DEMANDS, emptyNotebook, formName, FORMS, outlook, remembered } from '../forms';
import { trans } from './builders';

test('a notebook remembers only what its demand says', () => {
  const demand = {
    gpus: 2,
    exclusive: false,
    memory: null,
    constraints: { model: 'A100', server: null },
    near: [],
    cpus: 4
  };
  expect(remembered(demand)).toEqual({ gpus: 2, constraints: { model: 'A100', server: null } });
  expect(remembered({ gpus: 0, constraints: { model: null } })).toEqual({ gpus: 0 });
});

test('a new notebook holds its kernel and, where one was chosen, its demand', () => {
  const kernel = { name: 'python3', display_name: 'Python 3' };
  expect(emptyNotebook(kernel, null)).toMatchObject({ metadata: { kernelspec: kernel } });
  expect(JSON.stringify(emptyNotebook(kernel, null))).not.toContain('gpushare');
  expect(emptyNotebook(kernel, DEMANDS.whole)).toMatchObject({
    metadata: { gpushare: { gpus: 1 } },
    nbformat: 4
  });
});

test('each form has a name of its own, and an outlook in words', () => {
  expect(FORMS.map(form => formName(form, trans))).toEqual([
    'GPU share',
    'whole GPU',
    'several GPUs…',
    'no GPU'
  ]);
  expect([0, 240, null].map(eta => outlook(eta, trans))).toEqual([
    'starts now',
    'about 4 min',
    'no estimate yet'
  ]);
});
