import { cardActions, isSensible } from '../actions';
import { nextOf } from '../states';
import { isOneFree } from '../view';
import { device, session, status, trans } from './builders';

test('one GPU now is offered to who waits for several, where one of the kind is free', () => {
  const waits = session('waiting', { demand: { gpus: 2, constraints: { model: 'a100' } } });
  const free = device(1, { allocated: 0 });
  expect(isOneFree(status([waits], [device(0), free]), waits)).toBe(true);
  expect(isOneFree(status([waits], [device(0), { ...free, model: 'Tesla T4' }]), waits)).toBe(
    false
  );
  expect(cardActions('waiting', waits, true)).toEqual(['take-one', 'let-go']);
  expect(cardActions('waiting', waits, false)).toEqual(['let-go']);
  expect(cardActions('waiting', session('waiting'), true)).toEqual(['let-go']);
});

test('who keeps a GPU is offered to stop keeping it', () => {
  const kept = session('active', { pinned_until_s: 60 });
  expect(isSensible('keep', 'active', kept)).toBe(false);
  expect(cardActions('active', kept, false)).toEqual(['unkeep', 'ask-for-more']);
});

test('a sentence of the service whose code is not known here is shown as it came', () => {
  const said = session('active', { next: { code: 'new', text: 'As it was said.', in_s: null } });
  expect(nextOf(said, trans)).toBe('As it was said.');
});
