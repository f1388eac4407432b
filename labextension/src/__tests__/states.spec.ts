import { timeOfDay } from '../format';
import { appearance, lookOf, progress } from '../states';
import { ISession } from '../tokens';
import { device, GIB, moment, NOW, part, session, status, trans } from './builders';

function shown(
  of: ISession,
  devices = [device(0), device(1)],
  queue: (string | null)[] = []
): ReturnType<typeof appearance> {
  return appearance(of, moment(status([of], devices, { queue })), trans);
}

test('waiting: place and time in the row, what was asked for on the card', () => {
  const texts = shown(
    session('waiting', {
      queue_position: 3,
      eta_s: 240,
      demand: { gpus: 2, constraints: { model: 'A100' } }
    })
  );
  expect(texts).toEqual({
    look: 'waiting',
    label: 'Waiting',
    word: 'In line · about 4 min',
    sentence: 'Waiting for **2 GPUs**, any A100',
    next: 'Starts by itself; your cell waits.',
    figure: '3rd',
    short: '3rd in line · 4 min'
  });
});

test('waiting without an estimate says so', () => {
  expect(shown(session('waiting', { queue_position: 1 })).word).toBe('In line · no estimate yet');
});

test('bound: chosen, nothing on it', () => {
  const texts = shown(session('bound', { devices: [part(0, 0.1)] }));
  expect(texts.word).toBe('Ready on GPU 0 · nothing on it yet');
  expect(texts.sentence).toBe('Ready on **GPU 0**, A100 80GB');
  expect(texts.next).toBe('Used as soon as a cell needs it.');
  expect(texts.short).toBe('A100 · 10%');
});

test('a binding alone holds nothing, so it has no figure', () => {
  const texts = shown(session('bound', { devices: [part(0, 0)] }));
  expect(texts.figure).toBe('');
  expect(texts.short).toBe('A100 · ready');
});

test('active: who shares it, and when it grows', () => {
  const texts = shown(session('active'), [device(0, { other_shares: [0.2, 0.3] })]);
  expect(texts.look).toBe('active');
  expect(texts.word).toBe('Computing on GPU 0 · shared with 2 others');
  expect(texts.sentence).toBe('Computing on **GPU 0**, A100 80GB');
  expect(texts.next).toBe('Grows when another notebook on GPU 0 pauses.');
  expect(texts.figure).toBe('50%');
});

test('active with one neighbour, alone, and with all it may have', () => {
  expect(shown(session('active'), [device(0, { other_shares: [0.2] })]).next).toBe(
    'Grows when the other notebook on GPU 0 pauses.'
  );
  expect(shown(session('active'), [device(0, { other_shares: [0.2] })]).word).toBe(
    'Computing on GPU 0 · shared with 1 other'
  );
  expect(shown(session('active')).next).toBe('Grows as the cell needs more.');
  expect(shown(session('active', { devices: [part(0, 1)] })).next).toBe(
    'All of it is yours for now.'
  );
  expect(shown(session('active', { borrowed: true })).next).toBe(
    'Borrowed: its holders may want it back.'
  );
});

test('active on two devices names both', () => {
  const texts = shown(session('active', { devices: [part(1, 1), part(0, 1)], guarantee: 1 }));
  expect(texts.sentence).toBe('Computing on **GPUs 0, 1**, A100 80GB');
  expect(texts.short).toBe('2 × A100');
});

test('idle while nobody waits stays', () => {
  const texts = shown(session('idle', { idle_s: 190 }));
  expect(texts.word).toBe('Idle 3 min · stays while nobody waits');
  expect(texts.sentence).toBe('Idle on **GPU 0**, A100 80GB');
  expect(texts.next).toBe('Stays while nobody waits.');
});

test('idle with a reclaim ahead says when, and whether somebody waits', () => {
  const idle = session('idle', { idle_s: 190, reclaim_in_s: 50 });
  expect(shown(idle).next).toBe('May be parked in 50 s if someone waits.');
  expect(shown(idle, undefined, [null]).next).toBe('May be parked in 50 s: someone is waiting.');
});

test('idle within the notice is warned, with a running countdown first', () => {
  const texts = shown(session('idle', { idle_s: 310, reclaim_in_s: 24 }));
  expect(texts.look).toBe('warned');
  expect(texts.word).toBe('Parked in **0:24** · idle 5 min');
  expect(texts.sentence).toBe(texts.word);
  expect(texts.next).toBe('Run a cell or keep it, and it stays.');
  expect(texts.short).toBe('Parked in 0:24');
});

test('the notice before a stop is the longer one and says stopped', () => {
  const texts = shown(
    session('idle', { idle_s: 310, reclaim_in_s: 200, next: { code: 'stop', text: '', in_s: 200 } })
  );
  expect(texts.look).toBe('warned');
  expect(texts.short).toBe('Stopped in 3:20');
});

test('idle and kept says until when', () => {
  const texts = shown(session('idle', { idle_s: 2400, pinned_until_s: 3600 }));
  const until = timeOfDay(NOW + 3600000);
  expect(texts.look).toBe('pinned');
  expect(texts.word).toBe(`Idle 40 min · kept until ${until}`);
  expect(texts.sentence).toBe(`Kept until **${until}**`);
  expect(texts.next).toBe('Nothing is parked before then.');
});

test('parked: how much waits, and how soon it is back', () => {
  const texts = shown(
    session('parked', { parked_bytes: 6.1 * GIB, next: { code: 'cell', text: '', in_s: 2 } })
  );
  expect(texts.word).toBe('Parked · 6.1 GiB in host memory');
  expect(texts.sentence).toBe('Parked; **6.1 GiB** wait in host memory');
  expect(texts.next).toBe('Run a cell and they come back, in about 2 s.');
  expect(texts.figure).toBe('');
});

test('parked and in line to come back', () => {
  const texts = shown(session('parked', { parked_bytes: 6.1 * GIB, queue_position: 2, eta_s: 61 }));
  expect(texts.word).toBe('Coming back is in line · about 1 min');
  expect(texts.figure).toBe('2nd');
});

test('resuming: how far it is', () => {
  const texts = shown(session('resuming', { parked_bytes: 12.4 * GIB, moved_bytes: 7.6 * GIB }));
  expect(texts.word).toBe('Coming back · 61%');
  expect(texts.sentence).toBe('Coming back to **GPU 0**, A100 80GB');
  expect(texts.short).toBe('Coming back 61%');
});

test('a move whose progress was not read shows no figure', () => {
  expect(progress(session('resuming', { parked_bytes: 12.4 * GIB }))).toBeNull();
  expect(shown(session('resuming')).word).toBe('Coming back');
});

test('parking', () => {
  expect(shown(session('parking', { parked_bytes: 10 * GIB, moved_bytes: 5 * GIB })).word).toBe(
    'Being parked · 50%'
  );
});

test('dead, none, lost', () => {
  expect(shown(session('dead', { idle_s: 130 })).word).toBe('Ended · GPU given back 2 min ago');
  expect(shown(session('none'))).toMatchObject({
    word: 'Runs without a GPU',
    next: 'Ask for one at any time.',
    short: 'No GPU'
  });
  expect(shown(session('lost'))).toMatchObject({
    word: 'GPU 0 stopped answering',
    sentence: '**GPU 0** stopped answering; its memory is lost',
    next: 'Restart on another GPU, or wait: it may come back.'
  });
});

test('not granted: the message of the server', () => {
  const refused = session('none', {
    message: 'Not granted. You asked for 4 GPUs; your limit is 2.',
    next: { code: 'refused', text: '', in_s: null }
  });
  expect(shown(refused)).toMatchObject({
    look: 'refused',
    word: 'Not granted',
    sentence: refused.message,
    next: 'You keep what you have. Ask for less, or for another kind.'
  });
});

test('with several servers a device carries the name of its server', () => {
  const one = session('active');
  const view = status([one]);
  view.servers.bravo = { name: 'bravo', state: 'up', age_s: 0, devices: {} };
  expect(appearance(one, moment(view), trans).sentence).toBe(
    'Computing on **GPU 0, alpha**, A100 80GB'
  );
});

test('a countdown runs on between two messages, and stands still while the service is gone', () => {
  const idle = session('idle', { idle_s: 0, reclaim_in_s: 40 });
  const heard = { k1: { reclaim_in_s: NOW - 16000, idle_s: NOW - 16000 } };
  expect(appearance(idle, moment(status([idle]), { heard }), trans).short).toBe('Parked in 0:24');
  expect(lookOf(idle, moment(status([idle]), { heard, kind: 'gone' }))).toBe('idle');
});
